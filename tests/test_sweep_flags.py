"""Sweeps on the command line of train.py: the lists of the experiment files, and the commands that are printed."""

import importlib
import pathlib
import shlex

import pytest
from absl import flags

from rag_jax import flags as rag_flags
from rag_jax.config import sweep_runs

CONFIGS = sorted((pathlib.Path(__file__).parent.parent / "configs").glob("*.py"))
EXPERIMENT = """
from rag_jax import config

SWEEPS = {"k": ("k=1", "k=2"), "freeze": ("freeze=", 'freeze=question_encoder,generator'), "wrong": ("k=0",)}

def get_config(arg=""):
    return config.update(config.Config(), config.parse_arg(arg))
"""


@pytest.fixture
def experiment(tmp_path):
    path = tmp_path / "experiment.py"
    path.write_text(EXPERIMENT)
    return f"--config={path}"


def parsed(*arguments):
    argv = ["train.py", "--workdir=runs/it", *arguments]
    values = flags.FlagValues()
    rag_flags.define_flag(values, argv)
    rag_flags.define_sweep(values)
    rag_flags.parse_flags(argv, values)
    return values


def test_a_sweep_starts_from_the_whole_command_line(experiment):
    values = parsed(experiment + ":variant=token", "--config.optimizer.learning_rate=0.5", "--sweep=k")
    runs = rag_flags.sweep_from_flags(values)
    assert [(run.config.k, run.config.eval.k, run.config.variant) for run in runs] == [(1, 1, "token"), (2, 2, "token")]
    assert {run.config.optimizer.learning_rate for run in runs} == {0.5}
    assert [str(run.directory) for run in runs] == ["runs/it/k=1", "runs/it/k=2"]
    assert rag_flags.sweep_from_flags(parsed(experiment)) == ()


def test_a_printed_command_is_the_run(experiment):
    given = [
        experiment + ":variant=token",
        "--config.k=9",
        "--config.model.force_variant",
        "--config.eval.max_questions=none",
        '--config.freeze=["layers/.{1,2}/bias"]',
    ]
    for name in ("k", "freeze"):
        values = parsed(*given, f"--sweep={name}")
        runs = rag_flags.sweep_from_flags(values)
        for run, command in zip(runs, rag_flags.sweep_commands(runs, values), strict=True):
            python, train, *words = shlex.split(command)
            assert (python, train) == ("python", "train.py")
            again = parsed(*words)
            assert rag_flags.from_flag(again["config"]) == run.config
            assert again.workdir == str(run.directory)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sweep=kk"], "has no sweep 'kk'; its SWEEPS hold k, freeze, wrong"),
        (["--sweep=wrong"], "change 'k=0': config.k: 0 must be at least 1"),
        (["--sweep_print"], "--sweep_print prints the runs of --sweep"),
    ],
)
def test_a_mistake_is_one_message_before_anything_starts(experiment, capsys, arguments, message):
    with pytest.raises(SystemExit) as stop:
        parsed(experiment, *arguments)
    assert stop.value.code == 2
    text = capsys.readouterr().err
    assert message in text
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_sweep_of_an_experiment_file_can_be_made(path, tmp_path):
    module = importlib.import_module(f"configs.{path.stem}")
    for changes in getattr(module, "SWEEPS", {}).values():
        assert len(sweep_runs(module.get_config(), changes, tmp_path)) == len(changes)
