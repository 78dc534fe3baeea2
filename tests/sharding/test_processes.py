"""How several hosts are told from one, from made-up environments."""

import pytest

from rag_jax.sharding.processes import found


def nobody():
    raise AssertionError("the metadata server was asked")


@pytest.mark.parametrize(
    "environment",
    [
        {"TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0"},
        {"TPU_WORKER_HOSTNAMES": ""},
    ],
)
def test_one_host_by_name_starts_nothing(environment):
    assert found(environment, nobody) is None


def test_without_a_word_the_machine_is_asked_how_many_workers_its_slice_has():
    assert found({}, lambda: 1) is None
    assert found({}, lambda: 4) == {}
    assert found({"SLURM_NTASKS": "1", "OMPI_COMM_WORLD_SIZE": "1"}, lambda: 1) is None


@pytest.mark.parametrize(
    "environment",
    [
        {"TPU_WORKER_HOSTNAMES": "a,b", "TPU_WORKER_ID": "1"},
        {"MEGASCALE_COORDINATOR_ADDRESS": "a:1"},
        {"SLURM_NTASKS": "2"},
        {"OMPI_COMM_WORLD_SIZE": "16"},
    ],
)
def test_several_hosts_are_left_to_jax_to_find(environment):
    assert found(environment, nobody) == {}


def test_an_address_given_by_hand_wins_and_needs_its_numbers():
    by_hand = {"JAX_COORDINATOR_ADDRESS": "a:1", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1"}
    expected = {"coordinator_address": "a:1", "num_processes": 2, "process_id": 1}
    assert found(by_hand | {"SLURM_NTASKS": "8"}, nobody) == expected
    for wrong in ({"JAX_PROCESS_ID": ""}, {"JAX_NUM_PROCESSES": "two"}):
        with pytest.raises(ValueError, match="needs whole numbers in JAX_NUM_PROCESSES and JAX_PROCESS_ID"):
            found(by_hand | wrong, nobody)
