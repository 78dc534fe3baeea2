"""When retrieval has collapsed, how often that is said, and what a step counts for it."""

import jax
import numpy as np
import pytest

from rag_jax.training.collapse import STEPS, CollapseMonitor
from rag_jax.training.step import distinct_passages

# 16 questions, 5 passages each; in the demo the share lies between 0.84 and 1.
SAME, DIFFERENT = 5 / 80, 0.85


def told(monitor, *shares, start=1):
    """The steps at which the monitor says something."""
    reports = ({"distinct_passages": np.float32(share), "prior_entropy": np.float32(1.5)} for share in shares)
    return [step for step, report in enumerate(reports, start) if monitor.warning(step, report)]


def test_a_collapse_is_told_once_and_the_next_one_again():
    monitor = CollapseMonitor(16, 5, 3800)
    shares = [DIFFERENT] * 20 + [SAME] * 30 + [DIFFERENT] * 20 + [SAME] * 30
    first, second = told(monitor, *shares)
    assert 20 < first <= 20 + STEPS
    assert 70 < second <= 70 + STEPS


def test_what_is_healthy_is_not_told():
    assert not told(CollapseMonitor(16, 5, 3800), *[DIFFERENT] * 50)
    # A batch by chance, or fewer steps than are looked at, is no collapse.
    assert not told(CollapseMonitor(16, 5, 3800), *([DIFFERENT] * 4 + [SAME]) * 10)
    assert not told(CollapseMonitor(16, 5, 3800), *[SAME] * (STEPS - 1))


def test_the_message_names_the_thing_the_numbers_and_what_to_do():
    monitor = CollapseMonitor(16, 5, 3800)
    texts = [monitor.warning(step, {"distinct_passages": 0.08, "prior_entropy": 1.2}) for step in range(1, STEPS + 1)]
    assert texts[:-1] == [""] * (STEPS - 1)
    assert texts[-1].startswith(f"retrieval collapse: in the {STEPS} steps to step {STEPS} only 8.0% of the passages")
    assert "6.2% = the same for every question" in texts[-1]
    assert "prior entropy 1.20 of 1.61 nats" in texts[-1]
    assert "config.optimizer.retriever_learning_rate" in texts[-1]


def test_a_small_collection_is_no_collapse():
    # 12 passages for 80 places: 15% is all there can be.
    assert not told(CollapseMonitor(16, 5, 12), *[12 / 80] * 30)
    assert told(CollapseMonitor(16, 5, 12), *[5 / 80] * 30)


@pytest.mark.parametrize("sizes", [(1, 5, 3800), (16, 5, 5), (16, 5, 3)])
def test_where_no_batch_could_be_different_nothing_is_told(sizes):
    assert not told(CollapseMonitor(*sizes), *[1 / sizes[0]] * 30)


def test_closed_book_finds_nothing_and_hears_nothing():
    monitor = CollapseMonitor(16, 1, 3800)
    assert not any(monitor.warning(step, {"prior_entropy": 0.0}) for step in range(30))


@pytest.mark.parametrize("seed", range(3))
def test_a_step_counts_different_passages_among_those_found(seed):
    rows = np.random.default_rng(seed).integers(-1, 20, (6, 4)).astype(np.int32)
    found = rows[rows >= 0]
    assert distinct_passages(jax.numpy.asarray(rows)) == pytest.approx(len(np.unique(found)) / len(found))


def test_the_share_runs_from_one_list_for_all_to_no_passage_twice():
    of = lambda rows: float(distinct_passages(jax.numpy.asarray(rows, np.int32)))  # noqa: E731
    assert of([[1, 2]] * 4) == 1 / 4
    assert of([[1, 2], [3, 0]]) == 1
    assert of([[0, 0], [0, -1]]) == pytest.approx(1 / 3)
    assert of([[-1, -1]]) == 0
