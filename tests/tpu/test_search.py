"""A search of 21 million passages as a TPU slice would run it. It needs libtpu; nothing runs."""

import pytest

from benchmarks.tpu_search import (
    BF16,
    INT8,
    MIB,
    MOST_MIB,
    SETTINGS,
    TIME_LIMIT,
    WIKIPEDIA,
    arrays_in_hbm,
    compile_retrieval,
    compile_search,
    fused_into_the_product,
)
from rag_jax.tpu.topology import can_compile

pytestmark = [
    pytest.mark.skipif(not can_compile(), reason="libtpu is not installed"),
    pytest.mark.usefixtures("as_users_compile"),
]
SLICE = "v5e:2x4"


@pytest.mark.parametrize("k", [5, 50, 100])
@pytest.mark.parametrize("name", ["bf16", "int8"])
def test_scores_never_reach_memory(name, k):
    search = compile_search(SLICE, SETTINGS[name], k=k)
    assert fused_into_the_product(search.program)
    assert not arrays_in_hbm(search.program, search.scores // 8)
    assert search.temporaries < MOST_MIB * MIB
    assert search.bound <= search.cost.seconds < TIME_LIMIT * search.bound
    assert len(search.cost.collectives) <= 2
    assert not search.cost.host_transfers


def test_int8_takes_half_the_memory():
    whole, half = (compile_search(SLICE, settings).index_bytes for settings in (BF16, INT8))
    assert half < 0.51 * whole


def test_candidates_are_scored_again_within_the_limits():
    search = compile_search(SLICE, SETTINGS["int8 rescored"])
    assert search.temporaries < MOST_MIB * MIB
    assert search.cost.seconds < TIME_LIMIT * search.bound
    assert len(search.cost.collectives) <= 2


@pytest.mark.parametrize("name", SETTINGS)
def test_fetching_what_was_found_costs_next_to_nothing(name):
    whole = compile_retrieval(SLICE, SETTINGS[name])
    assert len(whole.cost.collectives) <= 4
    assert sum(whole.cost.collective_bytes.values()) < 4e6
    assert not whole.cost.host_transfers
    assert whole.cost.seconds < TIME_LIMIT * whole.bound


def test_time_is_linear_in_the_passages():
    seconds = [compile_search(SLICE, BF16, count=WIKIPEDIA // parts).cost.seconds for parts in (8, 2, 1)]
    assert seconds[2] == pytest.approx(8 * seconds[0], rel=0.1)
    assert seconds[2] == pytest.approx(2 * seconds[1], rel=0.1)


def test_time_is_flat_in_the_questions_until_the_matrix_unit_is_the_bound():
    one = compile_search(SLICE, BF16, questions=1)
    crossover = int(one.chip.flops / one.chip.hbm_bandwidth)
    for questions in (64, crossover):
        search = compile_search(SLICE, BF16, questions=questions)
        assert search.cost.seconds == pytest.approx(one.cost.seconds, rel=0.1)
    beyond = compile_search(SLICE, BF16, questions=4 * crossover)
    assert beyond.cost.seconds > 3 * one.cost.seconds
