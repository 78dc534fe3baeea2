"""Runs that are stopped, or meet broken files: what the user sees, and what is on disk."""

import os
import signal
import subprocess
import sys
from unittest.mock import Mock

import numpy as np
import pytest

from rag_jax.training import stopping
from rag_jax.training.checkpoint import UNMEASURED, Checkpointer, InUse
from rag_jax.training.record import revision, versions
from rag_jax.training.stopping import StopRequest


def state(value):
    return {"kernel": np.full(3, value, np.float32)}


def test_a_signal_is_noted_once_and_the_handlers_come_back():
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest(lambda step: pytest.fail("one process asks nobody")) as stop:
        assert not stop.after(1)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.after(2)
        assert signal.getsignal(signal.SIGTERM) == before  # a second one ends the process
    assert signal.getsignal(signal.SIGTERM) == before


def test_several_processes_stop_where_all_of_them_agree(monkeypatch):
    monkeypatch.setattr(stopping.jax, "process_count", lambda: 2)
    with StopRequest(lambda step: step == 3) as stop:
        assert [stop.after(step) for step in (1, 2, 3)] == [False, False, True]


def test_a_second_run_in_a_directory_is_refused_and_names_the_first(tmp_path):
    with (
        Checkpointer(tmp_path, "{}"),
        pytest.raises(InUse, match=f"process {os.getpid()} trains there"),
        Checkpointer(tmp_path, "{}"),
    ):
        pass
    with Checkpointer(tmp_path, "{}"), Checkpointer(tmp_path, "{}", record=False) as reader:  # reading is no training
        assert reader.latest_step() is None


def test_the_best_checkpoints_stay_beside_the_newest(tmp_path):
    figures = {1: 0.2, 2: 0.9, 3: 0.5, 4: None, 5: 0.1}
    with Checkpointer(tmp_path, "{}", keep=1, keep_best=2) as checkpoints:
        for step, figure in figures.items():
            assert checkpoints.save(step, state(step), figure)
            checkpoints.wait()
    assert sorted(int(path.name) for path in (tmp_path / "checkpoints").iterdir()) == [2, 3, 5]
    assert min(figure for figure in figures.values() if figure is not None) > UNMEASURED


@pytest.mark.parametrize("earlier", [True, False])
def test_a_damaged_checkpoint_is_named_with_the_way_out(tmp_path, earlier):
    with Checkpointer(tmp_path, "{}") as checkpoints:
        for step in (1, 2)[not earlier :]:
            checkpoints.save(step, state(step))
    for path in (tmp_path / "checkpoints" / "2").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with (
        Checkpointer(tmp_path, "{}") as checkpoints,
        pytest.raises(
            ValueError, match=r"checkpoints/2 is damaged: .*Delete that directory, and the run (.*)"
        ) as error,
    ):
        checkpoints.restore(state(0))
    assert str(error.value).endswith("goes on from step 1" if earlier else "starts anew")


@pytest.mark.parametrize("error", [PermissionError("not yours"), TimeoutError("gone"), MemoryError("no room")])
def test_what_is_no_fault_of_the_checkpoint_is_told_as_it_is(tmp_path, monkeypatch, error):
    with Checkpointer(tmp_path, "{}") as checkpoints:
        checkpoints.save(1, state(1))
        checkpoints.wait()
        monkeypatch.setattr(checkpoints._manager, "restore", Mock(side_effect=error))
        with pytest.raises(type(error), match=str(error)):
            checkpoints.restore(state(0))


def test_a_checkpoint_half_written_is_not_seen(tmp_path):
    with Checkpointer(tmp_path, "{}") as checkpoints:
        checkpoints.save(1, state(1))
    half = tmp_path / "checkpoints" / "2.orbax-checkpoint-tmp-7"
    half.mkdir()
    (half / "manifest.ocdbt").write_bytes(b"half")
    with Checkpointer(tmp_path, "{}") as checkpoints:
        assert checkpoints.latest_step() == 1


def test_a_record_names_packages_and_the_revision_of_the_code(tmp_path):
    assert {"python", "jax", "flax", "numpy"} <= set(versions())
    found = revision()
    assert found is None or len(found.rstrip("+")) == 40


def test_an_installed_package_inside_another_checkout_has_no_revision(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    package = tmp_path / "site" / "rag_jax"
    package.mkdir(parents=True)
    elsewhere = repr(str(package / "record.py"))
    script = f"from rag_jax.training import record; record.__file__ = {elsewhere}; print(record.revision())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "None"
