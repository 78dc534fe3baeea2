import pathlib

import pytest

from rag_jax.config import Config, ConfigError, sweep_runs
from rag_jax.training import sweep
from rag_jax.training.stopping import STOPPED


@pytest.fixture
def started(monkeypatch):
    """The directories of runs that were started; the one with k=2 fails, the one with k=9 is asked to stop."""
    names = []

    def run_recipe(config, directory, profile, validate):
        names.append(pathlib.Path(directory).name)
        return {2: 1, 9: STOPPED}.get(config.k, 0)

    monkeypatch.setattr(sweep, "run_recipe", run_recipe)
    return names


def test_a_failed_run_stops_none_after_it_and_is_told_at_the_end(started, tmp_path, capsys):
    runs = sweep_runs(Config(), ("k=1", "k=2", "k=3"), tmp_path)
    assert sweep.run_sweep(runs) == 1
    assert started == ["k=1", "k=2", "k=3"]
    said = capsys.readouterr()
    assert "1 of 3 runs failed, see above: k=2" in said.err
    assert f"3 of 3: k=3, in {tmp_path}/k=3" in said.out


def test_a_sweep_that_is_asked_to_stop_starts_no_further_run(started, tmp_path):
    assert sweep.run_sweep(sweep_runs(Config(), ("k=1", "k=9", "k=3"), tmp_path)) == STOPPED
    assert started == ["k=1", "k=9"]


def test_a_finished_run_is_not_started_again(started, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sweep, "newest_step", lambda directory, text: {"k=1": 1000, "k=3": 999}.get(directory.name))
    assert sweep.run_sweep(sweep_runs(Config(), ("k=1", "k=3", "k=4"), tmp_path)) == 0
    assert started == ["k=3", "k=4"]
    assert "k=1 is finished" in capsys.readouterr().out


def test_each_change_is_a_final_configuration_in_a_directory_of_its_own(tmp_path):
    one, two = sweep_runs(Config(k=7), ("k=3,variant=token", "freeze=layers/0,generator"), tmp_path)
    assert (one.config.k, one.config.eval.k, one.config.variant) == (3, 3, "token")
    assert (two.config.k, two.config.freeze) == (7, ("layers/0", "generator"))
    assert (one.directory, two.directory) == (
        tmp_path / "k=3,variant=token",
        tmp_path / "freeze=layers_0,generator",
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ((), "no changes"),
        (("k=0",), "change 'k=0': config.k: 0 must be at least 1"),
        (("varant=token",), "did you mean config.variant"),
        (("freeze=a/b", "freeze=a_b"), "would both be"),
    ],
)
def test_a_sweep_that_cannot_be_run_is_refused(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        sweep_runs(Config(), changes, tmp_path)
