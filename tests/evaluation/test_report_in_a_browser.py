"""The report in headless Chromium, opened from a file as a user opens it."""

import re
import shutil
import subprocess
import urllib.parse

import pytest

from rag_jax.evaluation.report.page import render
from rag_jax.evaluation.report.runs_page import runs_page
from tests.evaluation.made_up_runs import HOSTILE, closed_book, reported

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium or google-chrome on the PATH")


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """The page as it stands once its script has run, at the address of one question, and what the console said."""
    directory = tmp_path_factory.mktemp("report")
    runs = [reported("token", count=60), reported("sequence", 60, variant="sequence"), closed_book("closed_book", 60)]
    (directory / "report.html").write_text(render(runs_page("world", runs)), "utf-8")
    address = f"{(directory / 'report.html').as_uri()}#q={urllib.parse.quote('q/51?', safe='')}"
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        f"--user-data-dir={directory / 'profile'}",
    ]
    command = [BROWSER, *flags, "--enable-logging=stderr", "--virtual-time-budget=3000", "--dump-dom", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def test_the_console_has_nothing_to_say(opened):
    assert opened[1] == []


def test_the_addressed_question_is_open_with_passages_heat_map_and_other_runs(opened):
    page = opened[0]
    assert "52 of 60 questions shown" in page  # as many as lead to it
    assert page.count("<details open") == 1
    body = page.split("<details open", 1)[1].split("</details>", 1)[0]
    assert "which port is number 51" in body
    assert re.search(r"<mark>Ostia 51</mark> lies by the sea", body)
    assert re.search(r'<th scope="row">␣Ost</th>(<td[^>]*>\d+</td>){9}', body)
    assert "4 more, not shown" in body
    assert '<th scope="row">closed_book</th><td>(nothing)</td><td>wrong</td>' in body


def test_no_text_ran_as_a_script(opened):
    assert "<title>world</title>" in opened[0]
    assert "<img" not in opened[0]
    assert HOSTILE.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") in opened[0]
