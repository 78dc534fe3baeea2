"""`rag-jax ask` and `--version`, over the passages of one country."""

import json

import pytest
from typer.testing import CliRunner

from rag_jax.api import loading
from rag_jax.cli import app
from rag_jax.text.world_facts import load_facts, world_passages

KENYA = "who is the head of government of Kenya"
TRUTH = next(f.value for f in load_facts("2020") if (f.country, f.relation) == ("Kenya", "head of government"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def ask(monkeypatch, cache):
    """Runs the command and gives its result; the index of the cache holds one country."""
    few = [item for item in world_passages("2020") if item.country == "Kenya"]
    monkeypatch.setattr(loading, "world_passages", lambda edition: few)

    def run(*args, given=None, code=0):
        result = CliRunner().invoke(app, ["ask", *args, "--cache", str(cache)], input=given, env={"COLUMNS": "120"})
        assert result.exit_code == code, result.output
        return result

    return run


def test_one_question_is_answered_with_its_sources(ask):
    shown = ask(KENYA, "-k", "3").stdout
    assert TRUTH in shown
    assert "posterior" in shown
    found = json.loads(ask(KENYA, "-k", "3", "--json").stdout)
    assert (found["question"], found["text"]) == (KENYA, TRUTH)
    assert len(found["sources"]) == 3
    best = max(found["sources"], key=lambda source: source["posterior"])
    assert TRUTH in best["passage"]["text"]


def test_questions_are_answered_until_an_empty_line(ask):
    given = f"{KENYA}\n{'why ' * 70}\nwhat is the capital of Kenya\n\nnever read\n"
    result = ask("-k", "3", "--json", given=given)
    assert [json.loads(line)["text"] for line in result.stdout.splitlines()] == [TRUTH, "Nairobi"]
    assert "the limit is 64" in result.stderr
    shown = ask("-k", "3", given=f"{KENYA}\n").stdout
    assert TRUTH in shown
    assert "An empty line ends it." in shown


def test_a_model_that_is_not_there_is_one_message(ask):
    result = ask(KENYA, "--model", "nowhere", code=1)
    assert result.stderr == "rag-jax: nowhere: no such directory; with the package comes: world\n"


def test_the_version_names_what_computes():
    lines = CliRunner().invoke(app, ["--version"]).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["rag-jax", "jax", "jaxlib", "flax", "scann", "python", "devices"]
    assert "(cpu)" in lines[-1]
