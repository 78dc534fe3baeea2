"""One device against eight: numbers, where arrays lie, and what the compiled step sends around.

All of it comes from one run of `eight_devices.py`.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parent / "eight_devices.py"
ROOT = str(SCRIPT.parents[2])
TABLE = "f32[64,16]"
LARGE = {"data", "fsdp", "model", "plain"}  # plain: nothing is cut but the batch, which is run in two parts


@pytest.fixture(scope="module")
def run():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": ROOT}
    done = subprocess.run([sys.executable, str(SCRIPT)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout) | {"stderr": done.stderr}


def test_loss_gradient_and_update_are_those_of_one_device(run):
    for name in LARGE:
        found = run["steps"][name]
        assert found["report"] < 1e-5, name
        assert found["gradient"] < 1e-5, name
        assert found["params"] < 1e-5, name
    assert run["steps"]["one"]["loss"] > 1


def test_fusion_in_decoder_has_the_step_of_one_device(run):
    assert set(run["together"]) == {"report", "gradient", "params"}
    assert all(number < 1e-5 for number in run["together"].values())


def test_a_question_meets_the_passages_of_all_devices_and_sends_their_gradients_back(run):
    for name in ("data", "fsdp"):
        found = run["towers"][name]
        assert found["report"] < 1e-5, name
        assert found["gradient"] < 1e-5 * found["largest"], name


def test_different_passages_are_counted_over_all_devices(run):
    counted, reported = run["distinct"]
    assert reported == pytest.approx(counted)  # the report of the others is that of one, see above
    assert 0.5 < counted < 1


def test_the_state_is_donated_and_the_callers_parameters_are_not(run):
    assert all(found["donated"] for found in run["steps"].values())
    assert run["untouched"]


def test_decoding_on_eight_devices_gives_the_same_answers(run):
    assert set(run["decoded"]) == {"data token", "data thorough", "data together", "fsdp token", "fsdp fast"}
    for name, found in run["decoded"].items():
        assert found["same tokens"], name
        assert found["numbers"] < 1e-5, name
    assert len(run["decoded"]["data token"]["lengths"]) > 1, "all answers of one length would prove little"


def test_retrieval_on_eight_devices_finds_the_same_passages(run):
    for name in ("data", "fsdp"):
        assert run["found"][name]["same ids"], name
        assert run["found"][name]["scores"] < 1e-5, name


def test_optimizer_state_is_cut_over_the_devices_also_where_parameters_are_whole(run):
    for path, (spec, shape, held) in run["specs"]["data"].items():
        size = held * 8 if "data" in spec else held
        assert size == len_of(shape), path
        divisible = any(length % 8 == 0 for length in shape)
        assert ("data" in spec) == (path.startswith("optimizer/") and divisible), path
    assert not any("data" in spec for spec, _, _ in run["specs"]["plain"].values())


def test_fsdp_cuts_the_largest_dimension_and_never_the_layers(run):
    specs = {path: spec for path, (spec, *_) in run["specs"]["fsdp"].items()}
    for group in ("trainable", "optimizer"):
        assert specs[f"{group}/generator/tokens/embedding"] == ["data"]
        assert specs[f"{group}/generator/encoder_layers/feed_forward/wide/kernel"] == [None, None, "data"]
        assert specs[f"{group}/generator/encoder_layers/feed_forward/narrow/kernel"] == [None, "data"]
        assert specs[f"{group}/question_encoder/layers/attention/query/bias"] == [None, "data"]


def test_tensor_parallelism_cuts_one_product_by_columns_and_the_next_by_rows(run):
    specs = {path: spec for path, (spec, *_) in run["specs"]["model"].items()}
    layer = "trainable/generator/decoder_layers"
    assert specs[f"{layer}/cross_attention/key/kernel"] == [None, "data", "model"]
    assert specs[f"{layer}/cross_attention/output/kernel"] == [None, "model", "data"]
    assert specs[f"{layer}/feed_forward/wide/kernel"] == [None, "data", "model"]
    assert specs[f"{layer}/feed_forward/narrow/kernel"] == [None, "model", "data"]
    assert specs["trainable/generator/tokens/embedding"] == ["model", "data"]


def test_no_step_exchanges_all_with_all_or_gives_up_on_a_layout(run):
    for name in LARGE:
        assert "all-to-all" not in {kind for kind, *_ in run["programs"][name]}, name
    assert "rematerialization" not in run["stderr"].lower()
    assert run["programs"]["one"] == []


def test_a_step_with_whole_parameters_and_state_gathers_nothing_but_which_passages_were_found(run):
    (rows,) = [(kind, result) for kind, result, _ in run["programs"]["plain"] if kind != "all-reduce"]
    assert rows[0] == "all-gather"
    assert rows[1].startswith("s32[32]")  # 16 questions, 2 passages each


def test_sharded_state_gathers_the_embedding_table_only_as_its_update_comes_back(run):
    gathered = [(result, source) for kind, result, source in run["programs"]["data"] if kind == "all-gather"]
    assert not [source for _, source in gathered if "jvp" in source]
    assert len([source for result, source in gathered if result.startswith(TABLE)]) == 2  # one of each network


def len_of(shape):
    size = 1
    for length in shape:
        size *= length
    return size
