import json

import pytest
from typer.testing import CliRunner

from rag_jax.cli import app
from rag_jax.config import Config, finalise, parse_arg, to_json, update
from rag_jax.evaluation.compare import differing, read_runs, series

RUNS = {
    "sequence": "variant=sequence",
    "token": "variant=token",
    "k=1": "k=1",
    "k=10": "k=10",
    "frozen": "freeze=question_encoder",
    "closed_book": "retriever=none",
}


@pytest.fixture
def runs(tmp_path):
    """A directory of evaluated runs; the figure of each is its place."""
    for number, (name, change) in enumerate(RUNS.items()):
        (tmp_path / name).mkdir()
        config = finalise(update(Config(), parse_arg(change)))
        (tmp_path / name / "config.json").write_text(to_json(config))
        figures = {"em": number / 10, "questions": 7}
        if name in ("sequence", "token"):
            figures["recall_over_k"] = [{"k": k, "answer": k / 5} for k in range(1, 6)]
            figures["em_over_k"] = [{"k": k, "decoding": "thorough", "em": k / 20} for k in (1, 5, 20)]
        (tmp_path / name / "metrics.json").write_text(json.dumps({name: figures, "hot_swap": {}}))
    return tmp_path


def compared(runs, *names):
    return read_runs([runs / name for name in names] or [runs])


def test_a_series_is_of_runs_that_differ_in_one_field_alone(runs):
    everything = compared(runs)
    assert series(everything, "k") == {"": [(1, 0.2), (5, 0.0), (10, 0.3)]}
    assert series(everything, "variant") == {"": [("sequence", 0.0), ("token", 0.1)]}
    assert series(everything, "freeze") == {"": [("neither", 0.0), ("question encoder", 0.4)]}
    assert series(compared(runs, "frozen", "token"), "freeze") == {}


def test_closed_book_stands_beside_every_k(runs):
    found = series(compared(runs), "retriever")
    assert found == {
        "k=5": [("dpr", 0.0), ("none", 0.5)],
        "k=1": [("dpr", 0.2), ("none", 0.5)],
        "k=10": [("dpr", 0.3), ("none", 0.5)],
    }


def test_what_runs_differ_in_leaves_out_how_they_were_evaluated(runs):
    path = runs / "token" / "config.json"
    path.write_text(path.read_text().replace('"beams": 1', '"beams": 4'))
    assert differing(compared(runs, "sequence", "token")) == ["variant"]


def test_the_command_prints_tables_and_draws_what_there_is_to_draw(runs, tmp_path):
    out = tmp_path / "plots"
    result = CliRunner(env={"COLUMNS": "160"}).invoke(app, ["compare", str(runs), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "EM for k at test" in result.stdout
    assert "question_encoder" in result.stdout
    names = {
        "em_over_test_k",
        "recall_over_k",
        "em_over_training_k",
        "em_by_freeze",
        "em_by_retriever",
        "em_by_variant",
    }
    assert {path.name for path in out.iterdir()} == {f"{name}.png" for name in names}
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in out.iterdir())


@pytest.mark.parametrize("columns", ["20", "80", "200"])
def test_no_figure_and_no_setting_is_cut_however_narrow_the_terminal(runs, tmp_path, columns):
    out = tmp_path / "plots"
    result = CliRunner(env={"COLUMNS": columns}).invoke(app, ["compare", str(runs), "--out", str(out)])
    lines = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines() if line.split()}
    assert lines["closed_book"] == ["sequence", "none", "1", "none", "0.500", "7"]
    over_k = result.stdout.split("for k at test")[1]
    assert "0.050  0.250  1.000" in over_k


def test_one_run_alone_has_the_plots_of_its_own_tables(runs, tmp_path):
    out = tmp_path / "plots"
    given = ["compare", str(runs / "token"), "--out", str(out), "--format", "svg"]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 0, result.output
    assert {path.name for path in out.iterdir()} == {"em_over_test_k.svg", "recall_over_k.svg"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{}/nothing"], "no run there"),
        (["{}/sequence"], "not evaluated (no metrics.json); run eval.py"),
        (["{}/token"], "not the figures of one run"),
        (["{}", "--format", "gif"], "choose png or svg"),
    ],
)
def test_what_cannot_be_compared_is_one_clear_error(runs, arguments, message):
    (runs / "sequence" / "metrics.json").unlink()
    (runs / "token" / "metrics.json").write_text("{}")
    result = CliRunner().invoke(app, ["compare", *(text.format(runs) for text in arguments)])
    assert result.exit_code == 1
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.output


def test_runs_with_different_first_figures_are_not_mixed(runs):
    (runs / "token" / "metrics.json").write_text(json.dumps({"token": {"accuracy": 0.5, "em": 0.1}}))
    with pytest.raises(ValueError, match=r"different metrics \(accuracy of token, em of sequence\).*eval\.metrics="):
        compared(runs, "sequence", "token")
    assert [run.name for run in compared(runs, "token")] == ["token"]


def test_runs_of_one_name_are_told_apart_by_their_directories(runs, tmp_path):
    other = tmp_path / "other" / "token"
    other.mkdir(parents=True)
    for name in ("config.json", "metrics.json"):
        (other / name).write_text((runs / "token" / name).read_text())
    assert [run.name for run in read_runs([runs / "token", other, runs / "token"])] == [
        f"{runs.name}/token",
        "other/token",
    ]


def test_runs_of_one_name_in_directories_of_one_name_are_told_apart_too(runs, tmp_path):
    places = [tmp_path / place for place in ("a/sweep/token", "b/sweep/token", "c/token", "c/sequence")]
    for place in places:
        place.mkdir(parents=True)
        for name in ("config.json", "metrics.json"):
            (place / name).write_text((runs / "token" / name).read_text())
    assert [run.name for run in read_runs(places)] == ["a/sweep/token", "b/sweep/token", "c/token", "sequence"]
