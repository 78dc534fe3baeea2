"""Two processes with four devices each, over loopback, against one process with eight."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

from rag_jax.text.world_facts import world_passages, world_questions
from rag_jax.training.metrics import read_metrics
from rag_jax.training.stopping import STOPPED

pytestmark = pytest.mark.slow
SCRIPT = pathlib.Path(__file__).parent / "whole_run.py"
ROOT = str(SCRIPT.parents[2])
PASSAGES = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Passages of World Facts, and the questions that they answer."""
    folder = tmp_path_factory.mktemp("folder")
    passages = [item.passage for item in world_passages("2020")[:PASSAGES]]
    ids = {passage.id for passage in passages}
    questions = [q.question for q in world_questions("2020") if q.question.positive_ids[0] in ids]
    rows = [{"id": p.id, "title": p.title, "text": p.text} for p in passages]
    (folder / "passages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [{"id": q.id, "question": q.text, "answers": list(q.answers)} for q in questions]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def start(folder, workdir, stages, devices, **environment):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    command = [sys.executable, str(SCRIPT), str(folder), str(workdir), *map(str, stages)]
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": ROOT, **environment}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(processes):
    said = [process.communicate(timeout=900) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), [text[1][-2000:] for text in said]
    return [[line for line in text[0].splitlines() if not line.startswith("[Gloo]")] for text in said]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def pair(folder, workdir, stages):
    """Two processes of one run."""
    address = {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}", "JAX_NUM_PROCESSES": "2"}
    return [start(folder, workdir, stages, 4, **address, JAX_PROCESS_ID=str(number)) for number in range(2)]


def wait_for_lines(workdir, count, processes):
    """Returns once the run has written so many lines of metrics."""
    path = workdir / "metrics.jsonl"
    while not path.exists() or path.read_text().count("\n") < count:
        assert all(process.poll() is None for process in processes)
        time.sleep(0.2)


@pytest.fixture(scope="module")
def runs(folder, tmp_path_factory):
    """Run directories and what was printed: three steps in one go, and two with a third after a restart."""
    one, two = (tmp_path_factory.mktemp(name) / "run" for name in ("one", "two"))
    alone = end([start(folder, one, (3,), 8)])
    return (one, alone), (two, end(pair(folder, two, (2, 3))))


def test_two_processes_train_and_resume_with_the_losses_of_one(runs):
    lines = [[line for line in read_metrics(place / "metrics.jsonl") if "loss" in line] for place, _ in runs]
    assert len(lines[0]) == 3
    for name in ("loss", "distinct_passages"):
        one, two = ([line[name] for line in run] for run in lines)
        assert two == pytest.approx(one, abs=1e-5), name


def test_two_processes_validate_to_the_figures_of_one(runs):
    one, two = (
        [line for line in read_metrics(place / "metrics.jsonl") if "validation/em" in line] for place, _ in runs
    )
    assert [line["step"] for line in one] == [2, 3]
    assert one == two


def test_two_processes_evaluate_to_the_figures_of_one(runs):
    one, two = (json.loads((place / "metrics.json").read_text()) for place, _ in runs)
    assert one.keys() == two.keys()
    for run, figures in one.items():
        curves = {name: values for name, values in figures.items() if isinstance(values, list)}
        numbers = {name: value for name, value in figures.items() if name not in curves}
        assert {name: two[run][name] for name in curves} == curves
        assert {name: value for name, value in two[run].items() if name not in curves} == pytest.approx(
            numbers, abs=1e-4
        )
    lines = [[json.loads(line) for line in (place / "predictions.jsonl").read_text().splitlines()] for place, _ in runs]
    assert len(lines[0]) == 20
    for ours, theirs in zip(*lines, strict=True):
        assert ours["prediction"] == theirs["prediction"]
        assert ours["logprob"] == pytest.approx(theirs["logprob"], abs=1e-4)
        assert [p["id"] for p in ours["passages"]] == [p["id"] for p in theirs["passages"]]


def test_all_processes_write_checkpoints_and_the_first_alone_the_rest(runs):
    place, said = runs[1]
    assert {path.name for path in (place / "checkpoints" / "3").glob("default/ocdbt.process_*")} == {
        "ocdbt.process_0",
        "ocdbt.process_1",
    }
    assert any(line.startswith("step 3/3") for line in said[0])
    assert not said[1]


@pytest.mark.parametrize("killed", [0, 1])
def test_when_one_process_dies_the_other_ends_with_a_message_within_a_minute(folder, tmp_path, killed):
    processes = pair(folder, tmp_path / "run", (100_000,))
    wait_for_lines(tmp_path / "run", 2, processes)
    begin = time.monotonic()
    processes[killed].kill()
    said = processes[1 - killed].communicate(timeout=60)[1]
    assert time.monotonic() - begin < 60
    assert processes[1 - killed].returncode != 0
    assert "goes on from the last checkpoint" in said or "distributed service" in said, said[-3000:]


def test_both_processes_stop_after_one_step_when_one_of_them_is_asked(folder, tmp_path):
    processes = pair(folder, tmp_path / "run", (100_000,))
    wait_for_lines(tmp_path / "run", 2, processes)
    processes[1].send_signal(signal.SIGTERM)
    said = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [STOPPED, STOPPED], [text[-2000:] for text in said]
    steps = {line.split()[3] for text in said for line in text.splitlines() if line.startswith("stopped after step")}
    (step,) = steps
    assert (tmp_path / "run" / "checkpoints" / step).is_dir()
