"""The site, as `make docs` builds it: without a warning, with every public name in it."""

import os
import re
import subprocess
import sys

import pytest

import rag_jax
from tests.docs.blocks import ROOT

pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")


def build(directory, config="mkdocs.yml"):
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", config, "--site-dir", str(directory)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "true"}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_holds_every_public_name(tmp_path):
    result = build(tmp_path)
    assert result.returncode == 0, result.stderr
    assert "WARNING" not in result.stdout + result.stderr
    pages = "".join(path.read_text("utf-8") for path in (tmp_path / "reference").glob("*.html"))
    for module, names in rag_jax.PLACES.items():
        for name in names:
            assert re.search(rf'id="rag_jax\.[\w.]*\b{name}"', pages), f"{module}.{name}"


@pytest.mark.slow
def test_a_dead_link_stops_the_build(tmp_path):
    pages = tmp_path / "docs"
    pages.mkdir()
    (pages / "index.md").write_text("# Here\n\n[there](nowhere.md) and [here](index.md#nowhere)\n", "utf-8")
    settings = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[0]
    settings = re.sub(r"(?s)hooks:.*?(?=markdown_extensions)", "", settings)
    (tmp_path / "mkdocs.yml").write_text(settings, "utf-8")
    result = build(tmp_path / "site", str(tmp_path / "mkdocs.yml"))
    assert result.returncode == 1
    assert "'nowhere.md'" in result.stderr
    assert "#nowhere" in result.stderr
