"""What `load` takes: runs, weights, checkpoints of Hugging Face, the model that ships; and what it refuses."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from rag_jax import config as rag_config
from rag_jax.api import cache_directory, load, loading
from rag_jax.api.model import load_model
from rag_jax.cli import app
from rag_jax.experiment import load_parts
from rag_jax.index import IndexMismatch, build_index, fingerprint, load_vectors, open_index
from rag_jax.models import hf
from rag_jax.models.bart import Bart
from rag_jax.models.bert import Bert, BertConfig
from rag_jax.models.weights import SHIPPED
from rag_jax.rag.model import PARTS
from rag_jax.rag.retrieve import embed_passages
from rag_jax.text.table import PassageTable
from rag_jax.text.world_facts import world_passages
from rag_jax.training.checkpoint import Checkpointer
from rag_jax.training.loop import rules_and_optimizer
from rag_jax.training.optimizer import partition
from rag_jax.training.step import init_state
from tests.small_models import SMALL_BART
from tests.small_tokenizers import TEXTS, write_bpe, write_wordpiece

FEW = [item for item in world_passages("2020") if item.country == "Kenya"]
TOWER = BertConfig(vocab_size=120, width=8, layers=1, heads=2, hidden=8, max_positions=40)


@pytest.fixture
def few(monkeypatch):
    """World Facts with the passages of one country."""
    monkeypatch.setattr(loading, "world_passages", lambda edition: FEW)


def run_of(directory, **values):
    """A run directory as train.py leaves it after a step that moved one parameter; gives what it started from."""
    config = rag_config.finalise(rag_config.update(rag_config.Config(), values))
    parts = load_parts(config)
    rules, optimizer = rules_and_optimizer(config)
    trainable, _ = partition(parts.params, rules)
    (first, *others), structure = jax.tree.flatten(trainable["generator"])
    trainable["generator"] = jax.tree.unflatten(structure, [first + 1, *others])
    with Checkpointer(directory, rag_config.to_json(config)) as checkpointer:
        checkpointer.save(1, init_state(trainable, optimizer))
    return parts


def random_params(network, seed, *inputs):
    """Parameters drawn by numpy: the networks' own initialisers would be compiled one by one."""
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(network.init, jax.random.key(0), *inputs)["params"]
    return jax.tree.map(lambda leaf: np.float32(0.3) * rng.standard_normal(leaf.shape, np.float32), shapes)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A RAG-Token of Hugging Face with its two tokenizers, and a DPR context encoder that goes with it."""
    directory = tmp_path_factory.mktemp("hf")
    generator = dataclasses.replace(SMALL_BART, vocab_size=320, vocab_multiple=1, max_positions=96)
    ids = jnp.ones((1, 8), jnp.int32)
    asked, read = (random_params(Bert(TOWER), seed, ids) for seed in (1, 2))
    written = random_params(Bart(generator), 3, ids, ids > 0, ids)
    words, pieces = write_wordpiece(directory / "words"), write_bpe(directory / "pieces")
    rag = hf.RagCheckpoint("token", TOWER, generator, {"question_encoder": asked, "generator": written})
    rag = dataclasses.replace(rag, config={"n_docs": 3, "title_sep": " : "})
    hf.save_rag(directory / "rag", rag, tokenizers={"question_encoder": words, "generator": pieces})
    hf.save_bert(directory / "context", TOWER, read, layout="dpr_context", tokenizer=words)
    return directory


def test_the_model_that_ships_has_its_index_made_once_in_the_cache(few, tmp_path):
    made = [load(cache=tmp_path / "cache").index.directory for _ in range(2)]
    assert made[0] == made[1] == tmp_path / "cache" / "world_facts_2020"
    assert [p.id for p in open_index(made[0]).passages] == [item.passage.id for item in FEW]
    assert open_index(made[0]).manifest.made_with == {"weights": "world", "max_passage_tokens": 160}
    before = (made[0] / "manifest.json").stat().st_mtime_ns
    assert len(load(cache=tmp_path / "cache").index) == len(FEW)
    assert (made[0] / "manifest.json").stat().st_mtime_ns == before


def test_the_vectors_that_ship_are_those_of_the_model_and_the_facts_that_ship():
    model = load_model(SHIPPED / "world")
    tower = model.parts.passage_encoder
    table = PassageTable.from_passages(item.passage for item in world_passages("2020"))
    made = {"passages": table.fingerprint, "encoder": fingerprint(tower)}
    kept = load_vectors(SHIPPED / "world" / "world_facts_2020.safetensors", **made)
    limit = loading.KEPT_LIMIT
    tokenizers = dataclasses.replace(model.parts.tokenizers, max_passage=limit)
    longest = max(table, key=lambda passage: len(passage.text))
    few = [*(item.passage for item in FEW), longest]
    again = embed_passages(model.parts.arch.passage_encoder, tower, tokenizers, few, len(few))
    rows = [table.row_of(passage.id) for passage in few]
    np.testing.assert_allclose(kept[rows], again, rtol=1e-3, atol=1e-3 * np.abs(again).max())


def test_the_cache_is_where_the_user_says(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("RAG_JAX_CACHE", raising=False)
    assert cache_directory() == tmp_path / "xdg" / "rag-jax"
    monkeypatch.setenv("RAG_JAX_CACHE", str(tmp_path / "mine"))
    assert cache_directory() == tmp_path / "mine"
    assert cache_directory(tmp_path / "given") == tmp_path / "given"


def test_a_run_is_loaded_with_what_it_trained_and_its_own_index(tmp_path):
    run = tmp_path / "run"
    parts = run_of(run, variant="token", k=3, **{"sharding.params": "fsdp"})
    vectors, encoder = np.eye(len(FEW), 128, dtype=np.float32), fingerprint(parts.passage_encoder)
    passages = [item.passage for item in FEW]
    build_index(run / "index", passages, vectors, encoder_fingerprint=encoder, backend="exact", recall_k=2)
    rag = load(run)
    assert (rag.config.variant, rag.config.eval.k, rag.index.directory) == ("token", 3, run / "index")
    moved = jax.tree.map(lambda a, b: float(np.abs(np.asarray(a) - np.asarray(b)).max()), rag.params, parts.params)
    assert jax.tree.leaves(moved["generator"])[0] == pytest.approx(1)
    assert sum(change > 0 for change in jax.tree.leaves(moved)) == 1
    with pytest.raises(ValueError, match="trained as RAG-Token, asked for as RAG-Sequence"):
        load(run, variant="sequence")
    with pytest.raises(ValueError, match=r"eval\.beems: no such field; did you mean config\.eval\.beams"):
        load(run, settings={"eval.beems": 4})
    other = load(run, variant="sequence", force=True, settings={"eval.beams": 4})
    assert (other.config.variant, other.config.eval.beams) == ("sequence", 4)
    limits = {"data.max_question_tokens": 40, "data.max_passage_tokens": 90, "data.max_target_tokens": 20}
    changed = load(run, settings=limits | {"k": 2, "model.dtype": "bfloat16"})
    read = changed.parts.tokenizers
    assert (read.max_question, read.max_passage, read.max_target) == (40, 90, 20)
    assert {getattr(changed.parts.arch, part).dtype for part in PARTS} == {jnp.bfloat16}
    assert changed.config.eval.k == 2
    assert load(run, settings={"k": 2, "eval.k": 6}).config.eval.k == 6


def test_a_run_is_exported_where_there_are_fewer_devices_than_it_was_trained_on(tmp_path):
    run_of(tmp_path / "run", retriever="none", **{"sharding.model": 4})
    result = CliRunner().invoke(app, ["export", str(tmp_path / "run"), str(tmp_path / "weights")])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "weights" / "model.json").is_file()


def test_a_checkpoint_of_hugging_face_keeps_its_own_form(checkpoint):
    rag = load(checkpoint / "rag")
    data = rag.config.data
    assert (rag.config.variant, rag.config.eval.k, data.hf_compat_input) == ("token", 3, True)
    assert (data.max_question_tokens, data.max_source_tokens) == (40, 96)
    found = rag.generate("Who wrote the Iliad?", TEXTS)
    assert [source.prior for source in found.sources] == pytest.approx([1 / 3] * 3), "nothing tells passages apart"
    posteriors = np.array([source.token_posterior for source in found.sources])
    np.testing.assert_allclose(posteriors.sum(0), 1, atol=1e-5)


def test_without_its_passage_encoder_a_checkpoint_answers_but_adds_nothing(checkpoint, tmp_path):
    vectors = np.eye(8, dtype=np.float32)[: len(FEW)]
    passages = [item.passage for item in FEW[: len(vectors)]]
    index = build_index(tmp_path / "i", passages, vectors, encoder_fingerprint="other", backend="exact", recall_k=2)
    rag = load(checkpoint / "rag", index.directory)
    assert len(rag.retrieve("Homer?")) == 3
    with pytest.raises(ValueError, match="passage_encoder=DIRECTORY"):
        rag.index.add(["Homer wrote it."])
    with pytest.raises(IndexMismatch, match="fingerprint"):
        load(checkpoint / "rag", index.directory, passage_encoder=checkpoint / "context")
    nine = np.eye(9, dtype=np.float32)[: len(passages)]
    wide = build_index(tmp_path / "wide", passages, nine, encoder_fingerprint="x", backend="exact", recall_k=2)
    with pytest.raises(ValueError, match="vectors have 9 dimensions and the question encoder gives 8"):
        load(checkpoint / "rag", wide.directory)


def test_a_generator_alone_searches_words(checkpoint, tmp_path):
    rag = hf.load_rag(checkpoint / "rag")
    pieces = checkpoint / "pieces"
    hf.save_bart(tmp_path / "bart", rag.generator, rag.params["generator"], tokenizer=pieces)
    passages = [item.passage for item in FEW]
    words = build_index(tmp_path / "words", passages, None, encoder_fingerprint="", backend="bm25")
    found = load(tmp_path / "bart", words.directory).retrieve("the capital of Kenya", 2)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ((), "neither a run, nor weights, nor a checkpoint.*no config.json"),
        (("a/config.json", "b/config.json"), "choose one of a, b"),
        (None, "no such directory; with the package comes: world"),
    ],
)
def test_what_is_no_model_is_told_with_what_is_there(tmp_path, files, message):
    place = tmp_path / "place"
    for name in files or ():
        (place / name).parent.mkdir(parents=True)
        (place / name).write_text("{}")
    if files == ():
        place.mkdir()
    with pytest.raises(FileNotFoundError, match=message):
        load(place)


def test_an_encoder_alone_writes_nothing(checkpoint):
    with pytest.raises(ValueError, match="holds passage_encoder, which finds passages but writes nothing"):
        load(checkpoint / "context")


def test_a_run_of_another_recipe_points_to_its_weights(tmp_path):
    config = rag_config.finalise(rag_config.update(rag_config.Config(), {"recipe": "world_pretrain"}))
    (tmp_path / "config.json").write_text(rag_config.to_json(config))
    with pytest.raises(ValueError, match=r"recipe 'world_pretrain'.*load the weights directory"):
        load(tmp_path)


@pytest.mark.slow
def test_the_three_lines_of_the_readme_give_the_right_answer_with_its_source(tmp_path):
    rag = load(cache=tmp_path)
    found = rag.answer("who is the head of government of Kenya", k=10)
    assert found.text == "Uhuru Kenyatta"
    assert len(found.sources) == 10
    best = max(found.sources, key=lambda source: source.posterior)
    assert (best.passage.title, best.posterior) == ("Kenya: leaders", pytest.approx(1, abs=0.01))
