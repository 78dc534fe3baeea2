"""Training the passage encoder too, with an index that is embedded again as it learns."""

import functools
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rag_jax import config as rag_config
from rag_jax.experiment import load_parts, make_retriever, trained_parts
from rag_jax.index import build_resumable, fingerprint, open_index
from rag_jax.models.bert import Bert
from rag_jax.rag.retrieve import embed_passages
from rag_jax.rag.score import answer_token_logprobs
from rag_jax.rag.source import join_source
from rag_jax.training import loop
from rag_jax.training.examples import Examples
from rag_jax.training.loop import train, trained_params
from rag_jax.training.metrics import read_metrics
from rag_jax.training.steps import rules_and_optimizer
from tests.small_runs import small, write_files

PASSAGES = 24


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files"), PASSAGES)


def equal(one, other):
    return jax.tree.all(jax.tree.map(lambda a, b: bool((np.asarray(a) == np.asarray(b)).all()), one, other))


def refreshed(files, every, **more):
    """Five steps: with every=2 there is a new index before the third and before the fifth.

    One width of sources and a frozen generator save most of the compilation.
    """
    fixed = {"train__steps": 5, "data__max_source_tokens": 64, "optimizer__learning_rate": 3e-4}
    return small(files, index__refresh_every=every, **fixed | {"freeze": ("generator",)} | more)


def end_to_end(config, parts, steps):
    """All passages embedded in every step, the best ones taken, one gradient through all that is trained.

    Returns the parameters; which of them never had a gradient that may be mostly rounding; the losses.
    """
    t, arch, g = parts.tokenizers, parts.arch, parts.arch.generator
    passages = list(parts.collection.passages)
    for_encoder, for_generator = jnp.asarray(t.passages(passages)), jnp.asarray(t.source_passages(passages))
    examples = Examples.tokenize(parts.collection.train, t)
    _, optimizer = rules_and_optimizer(config)
    params = {name: tree for name, tree in parts.params.items() if name not in config.freeze}
    frozen = {name: tree for name, tree in parts.params.items() if name in config.freeze}

    def loss(params, question, source_question, target):
        params = params | frozen
        queries = Bert(arch.question_encoder).apply({"params": params["question_encoder"]}, question)
        vectors = Bert(arch.passage_encoder).apply({"params": params["passage_encoder"]}, for_encoder)
        best, rows = jax.lax.top_k(queries @ vectors.T, config.k)
        ids = {"bos_id": g.bos_id, "eos_id": g.eos_id, "pad_id": g.pad_id}
        source, mask = join_source(source_question, for_generator[rows], config.data.max_source_tokens, **ids)
        logp = answer_token_logprobs(params["generator"], g, source, mask, target)
        answer = jnp.where(target[:, None] != g.pad_id, logp, 0).sum(-1)
        return -jax.nn.logsumexp(jax.nn.log_softmax(best) + answer, axis=-1).mean()

    @jax.jit
    def step(params, state, *asked):
        value, gradient = jax.value_and_grad(loss)(params, *asked)
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, gradient, value

    losses = []
    clear, state = jax.tree.map(lambda p: np.ones(p.shape, bool), params), optimizer.init(params)
    for number in range(steps):
        rows, _ = examples.batch(number, config.train.batch_size, config.seed)
        asked = examples.question[rows], examples.source_question[rows], examples.target[rows]
        params, state, gradient, value = step(params, state, *asked)
        for part, own in gradient.items():
            least = 1e-3 * max(float(jnp.abs(g).max()) for g in jax.tree.leaves(own))
            seen = jax.tree.map(lambda g, least=least: np.asarray((g == 0) | (jnp.abs(g) > least)), own)
            clear[part] = jax.tree.map(np.logical_and, clear[part], seen)
        losses.append(float(value))
    return params, clear, losses


@pytest.mark.slow
@pytest.mark.parametrize("freeze", [("generator",), ()])
def test_refreshing_at_every_step_is_exact_end_to_end_training(files, tmp_path, freeze):
    config = refreshed(files, 1, freeze=freeze)
    parts = load_parts(config)
    expected, clear, losses = end_to_end(config, parts, 5)
    params = train(config, tmp_path)
    assert [line["loss"] for line in read_metrics(tmp_path / "metrics.jsonl")] == pytest.approx(losses, abs=1e-5)
    assert set(params) == {"question_encoder", "passage_encoder", "generator"}
    params = {name: params[name] for name in expected}
    # Adam makes a full step of a gradient that is nothing but rounding, such as that of a key's bias.
    for ours, theirs, places in zip(*map(jax.tree.leaves, (params, expected, clear)), strict=True):
        np.testing.assert_allclose(np.asarray(ours)[places], np.asarray(theirs)[places], rtol=0, atol=1e-5)
    assert np.mean([places.mean() for places in jax.tree.leaves(clear["passage_encoder"])]) > 0.5
    assert losses[-1] < losses[0]
    moved = jax.tree.map(lambda new, old: np.abs(new - old).max(), params["passage_encoder"], parts.passage_encoder)
    assert max(jax.tree.leaves(moved)) > 5e-4


@pytest.fixture(scope="module")
def whole(files, tmp_path_factory):
    """A finished run with all its checkpoints."""
    workdir = tmp_path_factory.mktemp("whole")
    config = refreshed(files, 2, train__checkpoint_every=1, train__keep_checkpoints=5)
    return config, workdir, train(config, workdir)


def test_refreshed_vectors_are_those_of_embedding_from_scratch_bit_for_bit(files, whole, tmp_path):
    config, workdir, _ = whole
    parts = load_parts(config)
    shutil.copytree(workdir, tmp_path / "four")
    shutil.rmtree(tmp_path / "four" / "checkpoints" / "5")  # its passage encoder has made one more step
    encoder = trained_params(config, tmp_path / "four", parts)["passage_encoder"]
    tower = parts.arch.passage_encoder
    embed = functools.partial(embed_passages, tower, encoder, parts.tokenizers)
    made = fingerprint(encoder)
    scratch = build_resumable(
        tmp_path / "scratch", parts.collection.passages, embed, encoder_fingerprint=made, backend="exact"
    )
    index = open_index(workdir / "index", encoder_fingerprint=made)
    assert index.vectors.tobytes() == scratch.vectors.tobytes()
    assert index.vectors.tobytes() == embed(parts.collection.passages).tobytes()
    start = embed_passages(tower, parts.passage_encoder, parts.tokenizers, parts.collection.passages)
    assert np.abs(index.vectors - start).max() > 1e-3


def test_the_generation_of_the_index_is_in_the_metrics(whole):
    _, workdir, _ = whole
    assert [line["index_generation"] for line in read_metrics(workdir / "metrics.jsonl")] == [0, 0, 1, 1, 2]


@pytest.mark.slow
def test_a_run_killed_between_a_refresh_and_its_checkpoint_ends_as_if_it_had_not_been(
    files, whole, tmp_path, monkeypatch
):
    _, workdir, params = whole
    config = refreshed(files, 2, train__checkpoint_every=3)
    places, make = [], loop.run_index

    def killed_after_the_second(*arguments):
        index = make(*arguments)
        places.append(index.manifest.encoder)
        if len(places) == 2:
            raise KeyboardInterrupt
        return index

    monkeypatch.setattr(loop, "run_index", killed_after_the_second)
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path)
    monkeypatch.undo()
    on_disk = json.loads((tmp_path / "index" / "manifest.json").read_text())["encoder"]
    assert on_disk == places[1] != places[0]
    assert [path.name for path in (tmp_path / "checkpoints").glob("[0-9]*")] == ["3"]
    assert equal(train(config, tmp_path), params)
    lines = {line["step"]: line for line in read_metrics(tmp_path / "metrics.jsonl")}
    for line in read_metrics(workdir / "metrics.jsonl"):
        assert [lines[line["step"]][name] for name in ("loss", "index_generation")] == [
            line["loss"],
            line["index_generation"],
        ]


def test_what_is_evaluated_is_the_trained_encoders_index(whole, tmp_path):
    config, workdir, params = whole
    parts, rest = trained_parts(load_parts(config), trained_params(config, workdir, load_parts(config)))
    assert set(rest) == {"question_encoder", "generator"}
    assert equal(parts.passage_encoder, params["passage_encoder"])
    index = make_retriever(config, parts, tmp_path, config.eval.k).index
    assert index.manifest.encoder == fingerprint(params["passage_encoder"])
    assert index.manifest.encoder != open_index(workdir / "index").manifest.encoder, "one step has passed"


@pytest.mark.slow
def test_a_step_that_retrieves_by_itself_is_refreshed_to_the_same_losses(files, tmp_path):
    losses = []
    for name, more in (("exact", {}), ("device", {"index__in_step": True})):
        train(refreshed(files, 2, index__backend=name, **more), tmp_path / name)
        losses.append([line["loss"] for line in read_metrics(tmp_path / name / "metrics.jsonl")])
    np.testing.assert_allclose(*losses, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"retriever": "none"}, "for a retriever of two towers"),
        ({"retriever": "bm25"}, "for a retriever of two towers"),
        ({"variant": "fid"}, "no gradient reaches the passage encoder"),
        ({"freeze": ("passage_encoder",)}, "whose vectors never change"),
        ({"freeze": ("(question|passage)_encoder",)}, "whose vectors never change"),
        ({"index__directory": "elsewhere"}, "copy it to WORKDIR/index"),
    ],
)
def test_settings_that_leave_nothing_to_refresh_are_refused(files, values, message):
    with pytest.raises(rag_config.ConfigError, match=message):
        refreshed(files, 2, **values)
