"""One run that is killed and asked to stop again and again, at random moments, beside one that nobody touched."""

import contextlib
import os
import pathlib
import random
import signal
import subprocess
import sys

import pytest

from rag_jax.config import finalise, from_json, to_json
from rag_jax.experiment import load_parts
from rag_jax.training.checkpoint import Checkpointer
from rag_jax.training.loop import trained_params
from rag_jax.training.metrics import read_metrics
from rag_jax.training.stopping import STOPPED
from tests.small_runs import equal

pytestmark = pytest.mark.slow
ROOT = pathlib.Path(__file__).resolve().parents[2]
KILLS = [signal.SIGKILL] * 30 + [signal.SIGTERM] * 10
STEPS = 240
SETTINGS = (
    f"variant=token,train.steps={STEPS},train.batch_size=4,train.checkpoint_every=7,train.log_every=1,k=2,"
    "model.dropout=0.1,optimizer.learning_rate=1e-4,index.backend=exact,train.validation_questions=2,train.keep_best=1"
)


def start(workdir, cache):
    command = [sys.executable, str(ROOT / "train.py"), f"--config={ROOT}/configs/world.py:{SETTINGS}"]
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [*command, f"--workdir={workdir}"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait(process, seconds=600):
    said = process.communicate(timeout=seconds)[1]
    return process.returncode, said


def lines(workdir):
    path = workdir / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def test_thirty_kills_and_ten_requests_to_stop_change_no_bit(tmp_path):
    whole, broken, cache = (tmp_path / name for name in ("whole", "broken", "cache"))
    code, said = wait(start(whole, cache))
    assert code == 0, said
    rng = random.Random(0)
    rng.shuffle(KILLS)
    ended = []
    for number, kill in enumerate(KILLS):
        # Some moments lie in the start, the others are spread over the steps that are left.
        target = lines(broken) + rng.randint(0, max(1, 2 * (STEPS - lines(broken)) // (len(KILLS) - number)))
        process = start(broken, cache)
        while process.poll() is None and lines(broken) < target:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=rng.uniform(0.05, 0.3))
        if rng.random() < 0.2 and process.poll() is None:  # while it saves, or before it has begun
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=rng.uniform(0, 3))
        process.send_signal(kill)
        code, said = wait(process)
        ended.append(code)
        allowed = {0, -signal.SIGKILL} if kill == signal.SIGKILL else {0, STOPPED, -signal.SIGTERM}
        assert code in allowed, said
        if code == STOPPED:
            assert "the same command goes on" in said
    code, said = wait(start(broken, cache))
    assert code == 0, said
    assert ended.count(-signal.SIGKILL) >= len(KILLS) // 2
    assert STOPPED in ended
    config = finalise(from_json((whole / "config.json").read_text()))
    assert equal(*(trained_params(config, place, load_parts(config)) for place in (whole, broken)))
    assert (broken / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    found = read_metrics(broken / "metrics.jsonl")
    assert [line["step"] for line in found if "loss" in line] == list(range(1, STEPS + 1))
    assert [line["step"] for line in found if "loss" not in line] == [*range(7, STEPS, 7), STEPS]  # of validation
    readers = (Checkpointer(place, to_json(config), record=False) for place in (whole, broken))
    assert len({reader.best_step() for reader in readers}) == 1
