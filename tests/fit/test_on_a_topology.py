"""`rag-jax fit` for chips that are not here. It needs libtpu."""

import json

import pytest
from typer.testing import CliRunner

from rag_jax.cli import app
from rag_jax.tpu.topology import can_compile

pytestmark = [
    pytest.mark.skipif(not can_compile(), reason="libtpu is not installed"),
    pytest.mark.usefixtures("as_users_compile"),
]
TINY = "configs/world.py:train.batch_size=8,index.backend=device,index.in_step=true,index.dtype=int8"


def run(*arguments, code=0):
    result = CliRunner().invoke(app, ["fit", *arguments])
    assert result.exit_code == code, result.output
    return result


def test_a_tiny_model_fits_four_chips():
    found = json.loads(run(f"--config={TINY}", "--topology=v5e:2x2", "--passages=4096", "--step-only", "--json").stdout)
    assert found["fits"]
    assert found["memory"]["over"] == 0
    assert found["step"]["times"]["host_transfers"] == 0
    exchanges = {one["operation"] for one in found["step"]["times"]["exchanges"]}
    assert exchanges <= {"all-reduce", "all-gather", "reduce-scatter"}
    assert found["memory"]["index"] == 1024 * (128 + 4) + 4


def test_towers_alone_fit_four_chips():
    config = "configs/dpr.py:data.dataset=world_facts,train.batch_size=8"
    found = json.loads(run(f"--config={config}", "--topology=v5e:2x2", "--json").stdout)
    assert found["fits"]
    assert (found["trains"], found["retrieval"], found["decode"]) == ("towers", None, None)
    # Every question is compared with the passages of all chips.
    assert "all-gather" in {one["operation"] for one in found["step"]["times"]["exchanges"]}


def test_a_pretraining_is_two_steps_on_one_host():
    config = "--config=configs/world_pretrain.py:pretrain.tower_groups=2,pretrain.reader_batch_size=4"
    found = json.loads(run(config, "--topology=v5e:2x2", "--json").stdout)
    assert [(one["trains"], one["chips"], one["fits"]) for one in found] == [("towers", 4, True), ("reader", 1, True)]
    assert "world_pretrain runs on one host, and v5e:4x4 has 4" in run(config, "--topology=v5e:4x4", code=1).stderr


def test_a_batch_that_the_chips_do_not_divide_is_an_error():
    assert (
        "multiple of 4" in run(f"--config={TINY}", "--config.train.batch_size=6", "--topology=v5e:2x2", code=1).stderr
    )


def test_an_unknown_topology_is_an_error():
    assert "v5e:7x7x7: libtpu has no such topology" in run(f"--config={TINY}", "--topology=v5e:7x7x7", code=1).stderr


def test_nothing_is_compiled_for_a_hopeless_case():
    fields = "k=100,train.batch_size=1024"
    result = run(f"--config=configs/nq.py:{fields}", "--topology=v5e:2x2", "--step-only", code=1)
    assert "does not fit v5e:2x2" in result.stdout
    assert "train.accumulate=" in result.stdout
