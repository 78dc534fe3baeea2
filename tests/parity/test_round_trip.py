"""Torch to ours to torch: bit for bit, for every class and every kind of file, and nothing missing or left over."""

import json

import numpy as np
import pytest
import torch
from transformers import (
    BartForConditionalGeneration,
    BartModel,
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertModel,
    DPRContextEncoder,
    DPRQuestionEncoder,
    RagConfig,
    RagSequenceForGeneration,
    RagTokenForGeneration,
)

from rag_jax.models import hf
from rag_jax.models.hf_stored import CheckpointError
from rag_jax.models.hf_torch_file import read_torch, write_torch
from tests.parity.peer import bart_json, dpr_json, scatter

CLASSES = {
    "bert": BertModel,
    "dpr_question": DPRQuestionEncoder,
    "dpr_context": DPRContextEncoder,
    "bart": BartForConditionalGeneration,
    "sequence": RagSequenceForGeneration,
    "token": RagTokenForGeneration,
}
SOURCES = ("safetensors", "shards", "zip", "zip shards", "legacy")
TARGETS = (
    {},
    {"kind": "bin"},
    {"max_shard_bytes": 4000},
    {"kind": "bin", "max_shard_bytes": 4000},
)


def bert_json(rng, kind=BertConfig):
    small = dpr_json(rng).to_dict()
    names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    return kind(**{name: small[name] for name in names}, max_position_embeddings=24)


def make(name, seed=0):
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    config = {
        "bert": bert_json,
        "dpr_question": dpr_json,
        "dpr_context": dpr_json,
        "bart": bart_json,
        "sequence": lambda rng: RagConfig.from_question_encoder_generator_configs(dpr_json(rng), bart_json(rng)),
    }[{"token": "sequence"}.get(name, name)](rng)
    return scatter(CLASSES[name](config))


def store(model, directory, source):
    """A checkpoint in one of the forms in which they are found."""
    if source == "safetensors":
        return model.save_pretrained(directory)
    if source == "shards":
        return model.save_pretrained(directory, max_shard_size="4KB")
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(directory)
    state = model.state_dict()
    if source != "zip shards":
        return torch.save(state, directory / "pytorch_model.bin", _use_new_zipfile_serialization=source == "zip")
    places = {name: f"pytorch_model-0000{1 + i % 2}-of-00002.bin" for i, name in enumerate(state)}
    for shard in set(places.values()):
        torch.save({name: value for name, value in state.items() if places[name] == shard}, directory / shard)
    index = {"metadata": {}, "weight_map": places}
    return (directory / "pytorch_model.bin.index.json").write_text(json.dumps(index))


def convert(name, directory, target, **files):
    if name == "bart":
        hf.save_bart(target, *hf.load_bart(directory), **files)
    elif name in hf.RAG_CLASSES:
        hf.save_rag(target, hf.load_rag(directory, name), **files)
    else:
        hf.save_bert(target, *hf.load_bert(directory), layout=name, **files)


def load(cls, directory):
    model, report = cls.from_pretrained(directory, output_loading_info=True)
    assert not any(report.values()), report
    return model


def assert_bit_equal(one, other):
    one, other = one.state_dict(), other.state_dict()
    assert one.keys() == other.keys()
    assert not [name for name in one if one[name].dtype != other[name].dtype or not torch.equal(one[name], other[name])]


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("number", range(5))
def test_a_round_trip_is_bit_equal_and_loads_without_a_word(tmp_path, name, number):
    model = make(name, number)
    (tmp_path / "in").mkdir()
    store(model, tmp_path / "in", SOURCES[number])
    convert(name, tmp_path / "in", tmp_path / "out", **TARGETS[number % len(TARGETS)])
    assert_bit_equal(model, load(CLASSES[name], tmp_path / "out"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_half_precision_comes_back_as_it_was(tmp_path, dtype, kind):
    model = make("bart").to(getattr(torch, dtype))
    (tmp_path / "in").mkdir()
    store(model, tmp_path / "in", "safetensors" if kind == "safetensors" else "zip")
    config, params, extras = hf.load_bart(tmp_path / "in")
    assert extras.dtype == dtype
    assert params["tokens"]["embedding"].dtype == np.float32
    hf.save_bart(tmp_path / "out", config, params, extras, dtype=dtype, kind=kind)
    assert_bit_equal(model, load(BartForConditionalGeneration, tmp_path / "out"))


def test_config_keeps_what_only_its_owner_knows(tmp_path):
    model = make("bart")
    model.config.phoneme_chars = "abc"
    model.generation_config.no_repeat_ngram_size = 3
    model.save_pretrained(tmp_path / "in")
    convert("bart", tmp_path / "in", tmp_path / "out")
    again = load(BartForConditionalGeneration, tmp_path / "out")
    assert again.config.phoneme_chars == "abc"
    assert again.generation_config.no_repeat_ngram_size == 3


def test_weights_born_here_load_in_every_class(tmp_path):
    question, context = make("dpr_question"), make("dpr_context")
    rag = make("token")
    question.save_pretrained(tmp_path / "q")
    context.save_pretrained(tmp_path / "c")
    rag.save_pretrained(tmp_path / "r")
    config, params, _ = hf.load_bert(tmp_path / "q")
    hf.save_bert(tmp_path / "born", config, params, layout="dpr_question")
    assert_bit_equal(question, load(DPRQuestionEncoder, tmp_path / "born"))
    hf.save_bert(tmp_path / "bert", config, params)
    bert = load(BertModel, tmp_path / "bert")
    assert not bert.pooler.dense.weight.any()
    whole = hf.load_rag(tmp_path / "r")
    born = hf.RagCheckpoint("sequence", whole.question_encoder, whole.generator, whole.params)
    hf.save_rag(tmp_path / "rag", born)
    again = load(RagSequenceForGeneration, tmp_path / "rag")
    assert again.config.retrieval_vector_size == whole.question_encoder.width
    state, other = rag.state_dict(), again.state_dict()
    assert not [name for name in state if not torch.equal(state[name], other[name])]


@pytest.mark.parametrize("cls", [BertForMaskedLM, BertForPreTraining])
def test_a_bert_with_pretraining_heads_is_read_as_its_tower(tmp_path, cls):
    torch.manual_seed(0)
    model = scatter(cls(bert_json(np.random.default_rng(0))))
    model.save_pretrained(tmp_path / "in")
    config, params, extras = hf.load_bert(tmp_path / "in")
    assert extras.dropped
    assert all(name.startswith("cls.") for name in extras.dropped)
    hf.save_bert(tmp_path / "out", config, params, extras)
    again = load(BertModel, tmp_path / "out").state_dict()
    tower = {n.removeprefix("bert."): v for n, v in model.state_dict().items() if n.startswith("bert.")}
    assert not [name for name, value in tower.items() if not torch.equal(value, again[name])]


def test_a_bart_without_a_head_is_read_with_the_tied_one(tmp_path):
    model = make("bart")
    model.final_logits_bias.zero_()
    model.save_pretrained(tmp_path / "whole")
    body = BartModel.from_pretrained(tmp_path / "whole")
    body.save_pretrained(tmp_path / "in")
    convert("bart", tmp_path / "in", tmp_path / "out")
    assert_bit_equal(model, load(BartForConditionalGeneration, tmp_path / "out"))
    assert not hf.load_bart(tmp_path / "in")[0].has_logits_bias


def test_names_of_older_versions_are_read(tmp_path):
    model = make("sequence")
    model.config.architectures = ["RagSequenceForGeneration"]
    model.config.save_pretrained(tmp_path)
    old = dict(model.state_dict())
    tower = "rag.question_encoder.question_encoder.bert_model."
    width = model.config.question_encoder.hidden_size
    old[f"{tower}embeddings.position_ids"] = torch.arange(24)[None]
    old[f"{tower}pooler.dense.weight"] = torch.randn(width, width)
    old[f"{tower}pooler.dense.bias"] = torch.randn(width)
    renamed = {}
    for name, value in old.items():
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        renamed[name] = value
    torch.save(renamed, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    rag = hf.load_rag(tmp_path)
    assert rag.variant == "sequence"
    assert set(rag.extras["question_encoder"].tensors) == {"pooler.dense.weight", "pooler.dense.bias"}
    hf.save_rag(tmp_path / "out", rag)
    assert_bit_equal(model, load(RagSequenceForGeneration, tmp_path / "out"))


def test_an_untied_head_is_refused(tmp_path):
    model = make("bart")
    model.config.architectures = ["BartForConditionalGeneration"]
    model.config.save_pretrained(tmp_path)
    state = dict(model.state_dict())
    state["lm_head.weight"] = state["lm_head.weight"] + 1
    torch.save(state, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"lm_head\.weight differs"):
        hf.load_bart(tmp_path)


@pytest.mark.parametrize("zipped", [True, False])
def test_torch_files_hold_views_parameters_and_every_type(tmp_path, zipped):
    base = torch.randn(6, 5)
    state = {
        "transposed": base.T,
        "window": base[2:4, 1:],
        "parameter": torch.nn.Parameter(torch.randn(3)),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 4),
        "half": torch.randn(3).half(),
        "bfloat16": torch.randn(3).bfloat16(),
        "double": torch.randn(2).double(),
        "ids": torch.arange(5),
        "mask": torch.tensor([True, False]),
    }
    torch.save(state, tmp_path / "in.bin", _use_new_zipfile_serialization=zipped)
    stored = read_torch(tmp_path / "in.bin")
    assert list(stored) == list(state)
    for name, value in state.items():
        ours = stored[name].load()
        assert ours.shape == stored[name].shape == tuple(value.shape)
        assert np.array_equal(ours.astype(np.float64), value.detach().double().numpy())
    write_torch(tmp_path / "out.bin", {name: tensor.load() for name, tensor in stored.items()})
    for mapped in (False, True):
        again = torch.load(tmp_path / "out.bin", weights_only=True, mmap=mapped)
        assert list(again) == list(state)
        assert all(value.dtype == state[n].dtype and torch.equal(value, state[n]) for n, value in again.items())
