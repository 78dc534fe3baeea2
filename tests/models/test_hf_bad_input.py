"""Checkpoints that cannot be used: one clear error each, and everything that is wrong is in it."""

import json
import pathlib
import shutil
import struct

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from rag_jax.models import hf
from rag_jax.models.hf_stored import CheckpointError

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "rag_small"


@pytest.fixture
def rag(tmp_path):
    """A copy of the golden RAG-Token checkpoint, to be damaged."""
    return shutil.copytree(GOLDEN, tmp_path / "rag")


@pytest.fixture
def bart(tmp_path):
    """Its generator as a checkpoint of its own."""
    whole = hf.load_rag(GOLDEN)
    hf.save_bart(tmp_path / "bart", whole.generator, whole.params["generator"], whole.extras["generator"])
    return tmp_path / "bart"


@pytest.fixture
def bert(tmp_path):
    """Its question encoder as a BertModel."""
    whole = hf.load_rag(GOLDEN)
    hf.save_bert(tmp_path / "bert", whole.question_encoder, whole.params["question_encoder"])
    return tmp_path / "bert"


def edit_config(directory, *path, **values):
    config = json.loads((directory / "config.json").read_text())
    inner = config
    for name in path:
        inner = inner[name]
    inner.update(values)
    (directory / "config.json").write_text(json.dumps(config))


def edit_tensors(directory, change):
    tensors = load_file(directory / "model.safetensors")
    change(tensors)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def refusal(load, *args, **kw):
    with pytest.raises(CheckpointError) as caught:
        load(*args, **kw)
    return str(caught.value)


@pytest.mark.parametrize("keep", [0, 5, 300, -1])
def test_truncated_safetensors(bart, keep):
    file = bart / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    message = refusal(hf.load_bart, bart)
    assert "model.safetensors" in message
    assert "not a whole safetensors file" in message


def test_a_header_longer_than_its_file(bart):
    (bart / "model.safetensors").write_bytes(struct.pack("<Q", 2**40) + b"{}")
    assert "not a whole safetensors file" in refusal(hf.load_bart, bart)


def test_missing_shards_are_all_named(tmp_path):
    hf.save_rag(tmp_path / "rag", hf.load_rag(GOLDEN), max_shard_bytes=20_000)
    shards = sorted((tmp_path / "rag").glob("model-*"))
    assert len(shards) > 3
    for shard in shards[1:3]:
        shard.unlink()
    message = refusal(hf.load_rag, tmp_path / "rag")
    assert f"2 of {len(shards)} shards are missing: {shards[1].name}, {shards[2].name}" in message


def test_a_shard_that_lacks_what_the_index_promises(tmp_path):
    hf.save_rag(tmp_path / "rag", hf.load_rag(GOLDEN), max_shard_bytes=20_000)
    shard = sorted((tmp_path / "rag").glob("model-*"))[0]
    tensors = load_file(shard)
    name = sorted(tensors)[0]
    del tensors[name]
    save_file(tensors, shard)
    assert f"the index promises tensors that it lacks: {name}" in refusal(hf.load_rag, tmp_path / "rag")


def test_an_index_that_reaches_out_of_its_directory(bart):
    (bart / "model.safetensors").rename(bart.parent / "model.safetensors")
    index = {"weight_map": {"model.shared.weight": "../model.safetensors"}}
    (bart / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "outside its own directory" in refusal(hf.load_bart, bart)


@pytest.mark.parametrize("size", [37, 4000])
def test_a_wrong_vocabulary_size_is_said_in_one_line(bart, size):
    config = json.loads((bart / "config.json").read_text())
    edit_config(bart, vocab_size=size)
    message = refusal(hf.load_bart, bart)
    assert f"vocab_size is {size}, the table has {config['vocab_size']} rows" in message
    assert "shared.weight" in message
    assert "final_logits_bias" in message


def test_a_wrong_vocabulary_size_inside_a_rag(rag):
    edit_config(rag, "question_encoder", vocab_size=999)
    message = refusal(hf.load_rag, rag)
    assert "question_encoder" in message
    assert "vocab_size is 999" in message


def test_a_t5_checkpoint(tmp_path):
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 8})
    )
    save_file({"shared.weight": np.zeros((4, 8), np.float32)}, tmp_path / "model.safetensors")
    for load in (hf.load_bart, hf.load_bert, hf.load_rag):
        message = refusal(load, tmp_path)
        assert "model_type is 't5'" in message
        assert message.count("\n") == 0


def test_t5s_weights_under_barts_config(bart):
    save_file(
        {"encoder.block.0.layer.0.SelfAttention.q.weight": np.zeros((8, 8), np.float32)}, bart / "model.safetensors"
    )
    message = refusal(hf.load_bart, bart)
    assert "these are not a BART's weights" in message
    assert "encoder.block.0" in message


def test_a_rag_with_a_t5_generator(rag):
    edit_config(rag, "generator", model_type="t5")
    message = refusal(hf.load_rag, rag)
    assert "generator: model_type is 't5'" in message


def test_rag_token_weights_asked_for_as_sequence(rag):
    message = refusal(hf.load_rag, rag, "sequence")
    assert "trained as RAG-Token, asked for as RAG-Sequence" in message
    assert "force" in message
    forced = hf.load_rag(rag, "sequence", force=True)
    assert forced.variant == "sequence"
    assert hf.load_rag(rag, "token").variant == hf.load_rag(rag).variant == "token"


def test_a_rag_of_no_known_variant(rag):
    edit_config(rag, architectures=["RagModel"])
    assert "say which variant" in refusal(hf.load_rag, rag)
    assert hf.load_rag(rag, "sequence").variant == "sequence"
    with pytest.raises(ValueError, match="choose one of sequence, token"):
        hf.load_rag(rag, "both")


def test_every_missing_extra_and_ill_shaped_tensor_is_listed(bert):
    def change(tensors):
        del tensors["embeddings.LayerNorm.bias"]
        del tensors["encoder.layer.0.output.dense.weight"]
        tensors["encoder.layer.9.output.dense.bias"] = np.zeros(3, np.float32)
        tensors["classifier.weight"] = np.zeros((2, 2), np.float32)
        tensors["embeddings.position_embeddings.weight"] = np.zeros((3, 4), np.float32)
        tensors["pooler.dense.bias"] = np.zeros(1, np.float32)

    edit_tensors(bert, change)
    message = refusal(hf.load_bert, bert)
    for line in (
        "missing embeddings.LayerNorm.bias",
        "missing encoder.layer.0.output.dense.weight",
        "not wanted encoder.layer.9.output.dense.bias (3,)",
        "not wanted classifier.weight (2, 2)",
        "embeddings.position_embeddings.weight is (3, 4), should be",
        "pooler.dense.bias is (1,), should be",
    ):
        assert line in message
    assert len(message.splitlines()) == 7


def test_tensors_of_neither_part_of_a_rag(rag):
    edit_tensors(rag, lambda tensors: tensors.update({"rag.ctx_encoder.x": np.zeros(1, np.float32)}))
    assert "of neither part: ctx_encoder.x" in refusal(hf.load_rag, rag)


def test_one_tensor_under_an_old_name_and_a_new(bert):
    edit_tensors(bert, lambda t: t.update({"embeddings.LayerNorm.gamma": t["embeddings.LayerNorm.weight"]}))
    assert "under two names each: embeddings.LayerNorm.weight" in refusal(hf.load_bert, bert)


def test_integers_are_no_weights(bert):
    edit_tensors(bert, lambda t: t.update({n: t[n].astype(np.int32) for n in ["embeddings.LayerNorm.weight"]}))
    assert "embeddings.LayerNorm.weight holds int32" in refusal(hf.load_bert, bert)


def test_a_git_lfs_pointer(bart):
    (bart / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
    assert "git lfs pull" in refusal(hf.load_bart, bart)


def test_a_directory_without_weights_says_what_it_holds(bart):
    (bart / "model.safetensors").rename(bart / "tf_model.h5")
    message = refusal(hf.load_bart, bart)
    assert "found: config.json, tf_model.h5" in message


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_no_config_or_none_that_can_be_read(bart, content):
    (bart / "config.json").unlink()
    if content is not None:
        (bart / "config.json").write_text(content)
    assert "config.json" in refusal(hf.load_bart, bart)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"activation_function": "tanh"}, "activation_function is 'tanh'"),
        ({"normalize_before": True}, "normalize_before is True"),
        ({"normalize_embedding": False}, "normalize_embedding is False"),
        ({"static_position_embeddings": True}, "static_position_embeddings is True"),
        ({"extra_pos_embeddings": 0}, "extra_pos_embeddings is 0"),
        ({"d_model": "large"}, "d_model is 'large', not int"),
        ({"encoder_layers": 0}, "encoder_layers is 0"),
        ({"encoder_attention_heads": 5}, "encoder_attention_heads=5 does not divide d_model"),
        ({"eos_token_id": [2, 3]}, "eos_token_id is [2, 3], not int"),
        ({"decoder_start_token_id": 10_000}, "outside the vocabulary"),
        ({"scale_embedding": 1}, "scale_embedding is 1, not bool"),
    ],
)
def test_settings_that_would_change_the_numbers_are_refused(bart, values, said):
    edit_config(bart, **values)
    assert said in refusal(hf.load_bart, bart)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key', only 'absolute'"),
        ({"projection_dim": 128}, "projection_dim is 128"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"hidden_act": "mish", "add_cross_attention": True}, "hidden_act is 'mish'"),
    ],
)
def test_settings_of_a_tower_that_are_not_implemented_are_refused(bert, values, said):
    edit_config(bert, **values)
    assert said in refusal(hf.load_bert, bert)


def test_a_directory_in_use_is_left_alone(bart):
    before = sorted(bart.iterdir())
    config, params, extras = hf.load_bart(bart)
    with pytest.raises(CheckpointError, match="not empty"):
        hf.save_bart(bart, config, params, extras)
    assert sorted(bart.iterdir()) == before
    assert [path.name for path in bart.parent.iterdir()] == ["bart"]


def test_parameters_of_other_sizes_are_not_written(tmp_path, bart):
    config, params, extras = hf.load_bart(bart)
    del params["encoder_embedding_norm"]["bias"]
    params["tokens"]["embedding"] = params["tokens"]["embedding"][:-1]
    message = refusal(hf.save_bart, tmp_path / "out", config, params, extras)
    assert "missing encoder_embedding_norm/bias" in message
    assert "tokens/embedding is" in message
    assert not (tmp_path / "out").exists()


def test_dpr_cannot_hold_a_tower_that_averages(tmp_path, bert):
    config, params, extras = hf.load_bert(bert, pooling="mean")
    assert "export this tower as 'bert'" in refusal(
        hf.save_bert, tmp_path / "out", config, params, extras, layout="dpr_question"
    )
    hf.save_bert(tmp_path / "out", config, params, extras)
    assert hf.load_bert(tmp_path / "out")[0].pooling == "mean"  # written as sentence-transformers keeps it


def test_a_pooling_that_is_not_implemented(bert):
    (bert / "1_Pooling").mkdir()
    (bert / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_max_tokens": True}))
    assert "max_tokens pooling without normalisation" in refusal(hf.load_bert, bert)
    assert hf.load_bert(bert, pooling="cls")[0].pooling == "cls"


def test_an_unknown_choice_names_those_there_are(tmp_path, bart):
    parts = hf.load_bart(bart)
    for options in ({"kind": "h5"}, {"dtype": "int8"}):
        with pytest.raises(ValueError, match=r"float16|safetensors"):
            hf.save_bart(tmp_path / "out", *parts, **options)
