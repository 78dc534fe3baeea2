import io
import json
import math
import re

import jax.numpy as jnp
import numpy as np
import pytest

from rag_jax.training import metrics
from rag_jax.training.metrics import MetricsWriter, Progress, read_metrics


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only when a test says so."""
    now = [100.0]
    monkeypatch.setattr(metrics.time, "monotonic", lambda: now[0])
    return now


def strict(line):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(line, parse_constant=refuse)


def test_each_write_is_one_flushed_line(tmp_path):
    writer = MetricsWriter(tmp_path / "run")
    writer.write(10, {"loss": jnp.float32(0.5), "count": np.int64(3), "rate": 2.5})
    first = (tmp_path / "run" / "metrics.jsonl").read_text()  # before it is closed
    writer.write(20, {"loss": jnp.ones((1,), jnp.bfloat16)})
    writer.close()
    assert strict(first) == {"step": 10, "loss": 0.5, "count": 3, "rate": 2.5}
    assert first.endswith("\n")
    assert [row["step"] for row in read_metrics(tmp_path / "run" / "metrics.jsonl")] == [10, 20]


def test_nan_is_never_written_bare(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write(1, {"a": math.nan, "b": jnp.inf, "c": np.float32(-np.inf)})
    line = (tmp_path / "metrics.jsonl").read_text()
    assert strict(line) == {"step": 1, "a": "NaN", "b": "Infinity", "c": "-Infinity"}
    (row,) = read_metrics(tmp_path / "metrics.jsonl")
    assert math.isnan(row["a"])
    assert (row["b"], row["c"]) == (math.inf, -math.inf)


def test_words_are_written_as_they_are_and_kept_from_tensorboard(tmp_path):
    with MetricsWriter(tmp_path, tensorboard=True) as writer:
        writer.write(3, {"loss": 1.0, "warning": "mind\nthe step"})
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 3, "loss": 1.0, "warning": "mind\nthe step"}]


def test_a_vector_is_no_metric(tmp_path):
    with MetricsWriter(tmp_path) as writer, pytest.raises(ValueError, match="one number"):
        writer.write(1, {"loss": np.ones(2)})
    assert (tmp_path / "metrics.jsonl").read_text() == ""


def test_half_a_line_of_a_killed_run_is_removed(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2, "lo')
    with MetricsWriter(tmp_path) as writer:
        writer.write(2, {"loss": 1.0})
    assert read_metrics(path) == [{"step": 1}, {"step": 2, "loss": 1.0}]


def test_tensorboard_files_are_optional(tmp_path):
    for wanted in (False, True):
        with MetricsWriter(tmp_path / str(wanted), tensorboard=wanted) as writer:
            writer.write(1, {"loss": math.nan})
        assert any((tmp_path / str(wanted)).glob("events.out.tfevents*")) == wanted


def test_progress_elsewhere_than_on_a_terminal_is_plain_lines(clock):
    out = io.StringIO()
    with Progress(steps=100, batch_size=8, file=out) as progress:
        clock[0] += 2
        progress.update(10, jnp.float32(1.25))
        clock[0] += 4
        progress.update(20, 1.0)
    assert out.getvalue() == (
        "step 10/100  loss 1.2500  40.0 questions/s  0:18 left\nstep 20/100  loss 1.0000  20.0 questions/s  0:32 left\n"
    )


def test_what_is_said_is_a_line_of_its_own(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    for out in (io.StringIO(), Terminal()):
        with Progress(steps=20, batch_size=8, file=out) as progress:
            progress.say("a [warning]")
            progress.update(20, 1.25)
        assert "a [warning]" in out.getvalue()
        assert out.getvalue().index("a [warning]") < out.getvalue().rindex("20/20")


def test_progress_of_a_run_that_goes_on_counts_only_its_own_steps(clock):
    out = io.StringIO()
    with Progress(steps=100, batch_size=1, start=90, file=out) as progress:
        clock[0] += 5
        progress.update(95, 1.0)
    assert progress.questions_per_second == 1.0
    assert "0:05 left" in out.getvalue()


def test_progress_on_a_terminal_is_a_bar(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    with Progress(steps=20, batch_size=8, file=out) as progress:
        progress.update(20, 1.25)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())
    assert out.getvalue() != shown
    assert re.search(r"step\s+20/20 .*loss 1\.2500 +\d+\.\d questions/s +0:00 left", shown)


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (61, "1:01"), (4000, "1:06:40"), (-3, "0:00")])
def test_time_left_reads_as_a_clock(seconds, text):
    assert metrics._clock(seconds) == text
