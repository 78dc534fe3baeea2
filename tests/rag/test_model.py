"""Weights directories as training meets them: sizes, tokenizers, variants, and what is said when they do not fit."""

import contextlib
import dataclasses
import json

import jax
import numpy as np
import pytest

from rag_jax import config as rag_config
from rag_jax.experiment import load_parts, sizes
from rag_jax.models.bart import BartConfig
from rag_jax.models.bert import BertConfig
from rag_jax.models.hf_convert import read_bundle, write_bundle
from rag_jax.models.presets import BART_PRESETS, BERT_PRESETS
from rag_jax.rag.model import (
    Architecture,
    architecture,
    check_tokenizers,
    check_variant,
    init_params,
    load_hf_format,
    load_tokenizers,
    load_weights,
    save_weights,
)
from rag_jax.text.hf_compat_input import HfFormat
from rag_jax.text.tokens import Tokenizers, load_tokenizer_folder, train_tokenizer
from rag_jax.types import Passage
from tests.small_tokenizers import TEXTS, write_bpe, write_wordpiece

TOWER = BertConfig(vocab_size=120, width=12, layers=1, heads=2, hidden=8, max_positions=40, attention_dropout=0.0)
ARCH = Architecture(
    TOWER,
    TOWER,
    BartConfig(
        vocab_size=320,
        width=8,
        encoder_layers=1,
        decoder_layers=1,
        encoder_heads=2,
        decoder_heads=2,
        encoder_hidden=8,
        decoder_hidden=8,
        max_positions=64,
        has_logits_bias=True,
    ),
)
EMPTY = {"question_encoder": "", "passage_encoder": "", "generator": ""}
LIMITS = {"max_question": 12, "max_passage": 20, "max_target": 8}


@pytest.fixture(scope="module")
def params():
    shapes = jax.eval_shape(lambda key: init_params(ARCH, key), jax.random.key(0))
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), shapes)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tokenizers")
    tower = load_tokenizer_folder(write_wordpiece(directory / "bert"), "bert")
    generator = load_tokenizer_folder(write_bpe(directory / "bart"), "bart")
    return Tokenizers(question=tower, passage=tower, source=generator, target=generator, **LIMITS)


@pytest.fixture
def weights(tmp_path, params, tokenizers):
    save_weights(tmp_path / "weights", params, ARCH, tokenizers, variant="token")
    return tmp_path / "weights"


def change(directory, **values):
    """Sets top-level values of model.json."""
    described = json.loads((directory / "model.json").read_text()) | values
    (directory / "model.json").write_text(json.dumps(described))


def final(directory, **values):
    config = rag_config.Config()
    defaults = {"model.init_from": str(directory), "variant": "token"}
    rag_config.update(config, defaults | {name.replace("__", "."): value for name, value in values.items()})
    return rag_config.finalise(config)


def test_sizes_that_no_preset_has_come_from_the_weights(weights):
    assert architecture(**EMPTY, init_from=str(weights)) == ARCH
    changed = architecture(**EMPTY, init_from=str(weights), dropout=0.5, remat="full").question_encoder
    assert changed == dataclasses.replace(TOWER, dropout=0.5, remat="full")


def test_how_layers_run_is_the_configurations_and_not_the_weights(weights, params, tokenizers, tmp_path):
    arch, _ = sizes(final(weights, model__unroll=2))
    assert (arch.question_encoder.unroll, arch.generator.unroll) == (2, 2)
    save_weights(tmp_path / "again", params, arch, tokenizers)
    assert "unroll" not in (tmp_path / "again/model.json").read_text("utf-8")
    assert architecture(**EMPTY, init_from=str(tmp_path / "again")) == ARCH


def test_a_directory_that_names_only_presets_has_their_sizes():
    assert architecture(**EMPTY, init_from="world") == architecture("tiny", "tiny", "tiny")


def test_a_preset_that_agrees_with_the_weights_may_be_named(tmp_path):
    described = {"sizes": {"generator": {"dropout": 0.0, "has_logits_bias": True}}}
    (tmp_path / "model.json").write_text(json.dumps(described))
    found = architecture("bert-base", "bert-base", "bart-large", init_from=str(tmp_path))
    assert found.question_encoder == BERT_PRESETS["bert-base"]
    assert found.generator == dataclasses.replace(BART_PRESETS["bart-large"], dropout=0.0, has_logits_bias=True)


def test_a_preset_that_contradicts_the_weights_is_refused_with_what_differs(weights):
    with pytest.raises(
        ValueError, match=r"preset 'bart-base' contradicts .*model\.json: .*width is 8, the preset's 768"
    ):
        architecture("", "", "bart-base", init_from=str(weights))
    with pytest.raises(ValueError, match="no model is named 'bart-huge'"):
        architecture("", "", "bart-huge", init_from=str(weights))


def test_without_weights_a_preset_must_be_named():
    with pytest.raises(ValueError, match="generator: name a preset"):
        architecture("tiny", "tiny", "")


def test_what_is_saved_is_what_is_loaded_and_what_convert_reads(weights, params):
    found = load_weights(ARCH, str(weights))
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), found, params))
    bundle = read_bundle(weights)
    assert bundle.variant == "token"
    assert bundle.parts["generator"].config == ARCH.generator
    assert all(part.tokenizer for part in bundle.parts.values())


def test_a_null_document_is_kept_with_the_weights_and_found_again(tmp_path, params, tokenizers):
    own = {"embedding": np.arange(12, dtype=np.float32)}
    save_weights(tmp_path / "weights", params | {"null_document": own}, ARCH, tokenizers, variant="token")
    found = load_parts(final(tmp_path / "weights", null_document="embedding")).params["null_document"]
    assert (found["embedding"] == own["embedding"]).all()
    assert set(load_parts(final(tmp_path / "weights")).params) == {"question_encoder", "generator"}
    with pytest.raises(ValueError, match=r"null_document\.safetensors: does not fit .*\n.*missing bias"):
        load_parts(final(tmp_path / "weights", null_document="bias"))


def test_every_role_gets_the_tokenizer_of_its_folder(weights, tokenizers):
    found = load_tokenizers(str(weights), **LIMITS)
    text = "WHO wrote the Odyssey?"
    for role in ("question", "passage", "source", "target"):
        assert getattr(found, role)(text)["input_ids"] == getattr(tokenizers, role)(text)["input_ids"]
    assert (found.question.pad_token_id, found.source.pad_token_id) == (0, 1)
    assert (found.max_question, found.max_passage, found.max_target) == (12, 20, 8)


def test_files_that_name_no_class_are_read_as_their_model_needs(weights, tokenizers):
    for part, write in (("question_encoder", write_wordpiece), ("generator", write_bpe)):
        folder = weights / f"{part}_tokenizer"
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
        write(folder)
    found = load_tokenizers(str(weights), **LIMITS)
    assert found.questions(TEXTS).tolist() == tokenizers.questions(TEXTS).tolist()
    assert found.targets(TEXTS).tolist() == tokenizers.targets(TEXTS).tolist()


def test_one_file_serves_all_roles(tmp_path, params):
    shared = Tokenizers.shared(train_tokenizer(TEXTS, 300), **LIMITS)
    save_weights(tmp_path / "weights", params, ARCH, shared)
    assert not list((tmp_path / "weights").glob("*_tokenizer"))
    found = load_tokenizers(str(tmp_path / "weights"), **LIMITS)
    assert found.is_shared
    assert found.targets(TEXTS).tolist() == shared.targets(TEXTS).tolist()


def test_a_bare_tokenizer_file_in_a_folder_stays_the_tokenizer_that_it_is(weights):
    folder = weights / "generator_tokenizer"
    for file in folder.iterdir():
        file.unlink()
    ours = train_tokenizer(TEXTS, 300)
    ours.backend_tokenizer.save(str(folder / "tokenizer.json"))
    found = load_tokenizers(str(weights), **LIMITS)
    assert found.source("Homer wrote it")["input_ids"] == ours("Homer wrote it")["input_ids"]


def test_a_target_tokenizer_of_its_own_is_kept(tmp_path, params, tokenizers):
    other = dataclasses.replace(tokenizers, target=train_tokenizer(TEXTS, 300))
    save_weights(tmp_path / "weights", params, ARCH, other)
    found = load_tokenizers(str(tmp_path / "weights"), **LIMITS)
    assert found.targets(TEXTS).tolist() == other.targets(TEXTS).tolist()
    assert found.source_questions(TEXTS).tolist() == tokenizers.source_questions(TEXTS).tolist()


def test_a_tower_never_borrows_the_other_towers_tokenizer(weights):
    folder = weights / "passage_encoder_tokenizer"
    for file in folder.iterdir():
        file.unlink()
    with pytest.raises(FileNotFoundError, match=r"no tokenizer for the passage_encoder\. Put its files .*vocab\.txt"):
        load_tokenizers(str(weights), **LIMITS)
    alone = load_tokenizers(str(weights), **LIMITS, parts=("generator",))
    assert alone.passage is alone.source


def test_a_tower_alone_needs_no_generator(weights, tokenizers):
    for file in (weights / "generator_tokenizer").iterdir():
        file.unlink()
    (weights / "generator.safetensors").unlink()
    found = load_tokenizers(str(weights), **LIMITS, parts=("passage_encoder",))
    passages = [Passage("1", "Iliad", "Homer wrote it")]
    assert found.passages(passages).tolist() == tokenizers.passages(passages).tolist()
    for method in (found.source_questions, found.targets):
        with pytest.raises(ValueError, match=r"no tokenizer for the (source|target)"):
            method(TEXTS)


def test_damaged_tokenizer_files_are_named(weights):
    (weights / "generator_tokenizer" / "tokenizer.json").write_text("{")
    with pytest.raises(ValueError, match="generator_tokenizer: no tokenizer can be made of these files"):
        load_tokenizers(str(weights), **LIMITS)


def test_code_beside_a_tokenizer_is_never_run(weights):
    described = {"tokenizer_class": "Odd", "auto_map": {"AutoTokenizer": ["odd.Odd", None]}}
    (weights / "generator_tokenizer" / "tokenizer_config.json").write_text(json.dumps(described))
    (weights / "generator_tokenizer" / "odd.py").write_text("raise SystemExit('ran')")
    with contextlib.suppress(ValueError):  # refused, or read from the data beside it: both are safe
        load_tokenizers(str(weights), **LIMITS)


def test_tokenizers_that_do_not_fit_the_networks_are_listed(tokenizers):
    check_tokenizers(ARCH, tokenizers)
    small = dataclasses.replace(ARCH.generator, vocab_size=310, eos_id=3)
    wrong = dataclasses.replace(ARCH, generator=small, passage_encoder=dataclasses.replace(TOWER, pad_id=1))
    with pytest.raises(ValueError, match="belong to other models") as error:
        check_tokenizers(wrong, tokenizers)
    for said in (
        "source: ids up to 319, but the generator has a vocabulary of 310",
        "target: ids up to 319",
        "source: eos is 2, but 3 in the generator",
        "passage: pad is 0, but 1 in the passage_encoder",
    ):
        assert said in str(error.value)
    assert "question: " not in str(error.value)
    check_tokenizers(dataclasses.replace(ARCH, passage_encoder=wrong.passage_encoder), tokenizers, ("generator",))


def test_weights_of_the_other_variant_need_force(weights):
    check_variant(str(weights), "token")
    check_variant(str(weights), "sequence", force=True)
    with pytest.raises(ValueError, match=r"trained as RAG-Token, asked for as RAG-Sequence.*force_variant"):
        check_variant(str(weights), "sequence")
    with pytest.raises(ValueError, match="asked for as Fusion-in-Decoder"):
        check_variant(str(weights), "fid")
    for variant in ("sequence", "token"):
        check_variant("world", variant)


def test_a_run_starts_from_converted_weights(weights, params):
    parts = load_parts(final(weights))
    assert parts.arch == ARCH
    assert parts.tokenizers.question.pad_token_id == 0
    assert (parts.params["generator"]["tokens"]["embedding"] == params["generator"]["tokens"]["embedding"]).all()
    with pytest.raises(ValueError, match="trained as RAG-Token"):
        load_parts(final(weights, variant="sequence"))
    assert load_parts(final(weights, variant="sequence", model__force_variant=True)).arch == ARCH
    assert set(load_parts(final(weights, variant="sequence", retriever="none")).params) == {"generator"}


def test_a_run_with_another_models_tokenizer_is_refused(weights):
    described = json.loads((weights / "model.json").read_text())
    described["sizes"]["question_encoder"]["pad_id"] = 7
    change(weights, sizes=described["sizes"])
    with pytest.raises(ValueError, match="question: pad is 0, but 7 in the question_encoder"):
        load_parts(final(weights))


def test_a_rag_checkpoint_alone_lacks_the_passage_encoder_and_says_what_to_convert(weights, tmp_path):
    bundle = read_bundle(weights)
    some = {name: part for name, part in bundle.parts.items() if name != "passage_encoder"}
    write_bundle(tmp_path / "rag", dataclasses.replace(bundle, parts=some))
    message = "holds no passage_encoder .*convert the DPR context encoder .*--passage-encoder"
    with pytest.raises(FileNotFoundError, match=message):
        load_parts(final(tmp_path / "rag"))
    with pytest.raises(FileNotFoundError, match=message):
        load_weights(ARCH, str(tmp_path / "rag"))
    closed = load_parts(final(tmp_path / "rag", retriever="none"))
    assert closed.arch.generator == ARCH.generator


def test_random_weights_are_tiny_unless_a_preset_is_named():
    parts = load_parts(final("", variant="sequence"))
    assert parts.arch == architecture("tiny", "tiny", "tiny", dropout=0.1)
    with pytest.raises(ValueError, match=r"config.model.init_from: random weights of these sizes have no tokenizer"):
        load_parts(final("", model__question_encoder="bert-base"))


def test_the_way_of_joining_is_the_converted_checkpoints(weights):
    assert load_hf_format(str(weights)) == load_hf_format("world") == HfFormat()
    kept = {"rag": {"config": {"title_sep": " | "}}, "generator": {"config": {"prefix": " "}}}
    change(weights, hugging_face=kept)
    assert load_hf_format(str(weights)) == HfFormat(title_sep=" | ", prefix=" ")
