"""One run on eight devices, then on two, then on one, against one that stayed on eight."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from rag_jax.config import to_json
from rag_jax.training.metrics import read_metrics
from tests.small_runs import small, write_files

pytestmark = pytest.mark.slow
ROOT = str(pathlib.Path(__file__).parents[2])
TRAIN = """
import sys
from rag_jax.config import finalise, from_json
from rag_jax.training.recipes import run_recipe
sys.exit(run_recipe(finalise(from_json(sys.argv[1])), sys.argv[2]))
"""
EACH = 10  # steps on each number of devices
PASSAGES = 24


def go_on(files, workdir, devices, steps):
    """Trains up to so many steps, in a process that has so many devices."""
    config = small(
        files,
        train__steps=steps,
        train__batch_size=16,
        train__checkpoint_every=EACH,
        train__keep_checkpoints=3,
        optimizer__learning_rate=1e-4,
        sharding__params="fsdp",
        sharding__min_elements=1,
    )
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": ROOT}
    command = [sys.executable, "-c", TRAIN, to_json(config), str(workdir)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_run_moved_from_eight_devices_to_two_to_one_has_the_losses_of_one_that_stayed(tmp_path):
    files, whole, moved = write_files(tmp_path, PASSAGES), tmp_path / "whole", tmp_path / "moved"
    go_on(files, whole, 8, 3 * EACH)
    shutil.copytree(whole, moved)
    for later in (2 * EACH, 3 * EACH):
        shutil.rmtree(moved / "checkpoints" / str(later))
    go_on(files, moved, 2, 2 * EACH)
    go_on(files, moved, 1, 3 * EACH)
    starts = json.loads((moved / "record.json").read_text())
    assert [(start["step"], start["devices"]["count"]) for start in starts] == [(0, 8), (EACH, 2), (2 * EACH, 1)]
    lines = [read_metrics(place / "metrics.jsonl") for place in (whole, moved)]
    assert [line["step"] for line in lines[1]] == list(range(1, 3 * EACH + 1))
    losses = [[line["loss"] for line in run] for run in lines]
    apart = [abs(ours / theirs - 1) for theirs, ours in zip(*losses, strict=True)]
    print(f"largest relative difference of a loss: {max(apart):.2e}")
    assert max(apart) < 1e-5
    assert losses[0] != losses[1]  # other devices add in another order: equal ones would mean that nothing was moved
    assert sum(losses[1][-EACH:]) < sum(losses[1][:EACH])
