"""The null document: what its score adds to prior, loss and gradients, and what it is alone."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rag_jax.models.bert import Bert, BertConfig
from rag_jax.models.null_document import init_null_document, null_score
from rag_jax.rag import marginal
from rag_jax.rag.loss import batch_prior, batch_source, rag_loss
from rag_jax.rag.model import Architecture, init_params
from rag_jax.rag.score import answer_token_logprobs, passage_scores
from rag_jax.types import Batch
from tests.small_models import SMALL_BART

TOWER = BertConfig(
    vocab_size=21, width=16, layers=1, heads=2, hidden=16, max_positions=8, token_types=1, pad_id=1, init_std=0.25
)
ARCH = Architecture(TOWER, TOWER, SMALL_BART)
B, K, WIDTH, PAD = 3, 2, 12, 1
KINDS = ("embedding", "bias", "mlp")


@pytest.fixture(scope="module")
def params():
    made = jax.jit(functools.partial(init_params, ARCH))(jax.random.key(0))
    return {part: made[part] for part in ("question_encoder", "generator")}


@pytest.fixture(scope="module")
def without():
    """Three questions with two passages each; for one of them one was found."""
    rng = np.random.default_rng(0)
    rows = lambda *shape: rng.integers(3, 21, shape).astype(np.int32)  # noqa: E731
    valid = np.ones((B, K), bool)
    valid[1, 1] = False
    vectors = np.where(valid[..., None], rng.normal(size=(B, K, 16)), 0).astype(np.float32)
    weight = np.float32([1, 2, 1])
    return Batch(rows(B, 6), rows(B, 4), rows(B, K, 5), vectors, valid, rows(B, 3), weight)


@pytest.fixture(scope="module")
def batch(without):
    """The same with a place for the null document."""
    beside = functools.partial(np.pad, pad_width=((0, 0), (0, 1), (0, 0)))
    return dataclasses.replace(
        without,
        passages=beside(without.passages, constant_values=PAD),
        vectors=beside(without.vectors),
        valid=np.pad(without.valid, ((0, 0), (0, 1)), constant_values=True),
        null_document=True,
    )


@jax.jit
def loss_and_gradients(params, batch):
    loss = functools.partial(rag_loss, arch=ARCH, batch=batch, variant="sequence", width=WIDTH)
    return jax.value_and_grad(loss, has_aux=True)(params)


@jax.jit
def prior_of(params, batch):
    return batch_prior(params, ARCH, batch)


@jax.jit
def query_of(params, batch):
    return Bert(TOWER).apply({"params": params["question_encoder"]}, batch.question)


def with_null(params, kind, **values):
    return params | {"null_document": init_null_document(kind, 16, jax.random.key(1)) | values}


def close(ours, expected, atol=1e-5):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol), ours, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_it_starts_as_a_passage_of_mean_score(params, batch, kind):
    scores = passage_scores(query_of(params, batch), jnp.asarray(batch.vectors))
    mean = np.where(batch.valid[:, :K], scores[:, :K], 0).sum(1) / batch.valid[:, :K].sum(1)
    expected = marginal.log_prior(scores.at[:, K].set(mean), jnp.asarray(batch.valid))
    close(prior_of(with_null(params, kind), batch), expected)


def test_each_kind_adds_to_that_what_it_says(params, batch, rng):
    scores, valid = jnp.asarray(rng.normal(size=(B, K)), jnp.float32), jnp.asarray(batch.valid[:, :K])
    query = query_of(params, batch)
    learned = {kind: init_null_document(kind, 16, jax.random.key(1)) for kind in KINDS}
    own = {kind: lambda p, kind=kind: null_score(p, query, scores, valid) for kind in KINDS}
    start = own["bias"](learned["bias"])
    e = jnp.asarray(rng.normal(size=16), jnp.float32)
    close(own["embedding"]({"embedding": e}) - start, query @ e)
    close(own["bias"]({"bias": jnp.asarray([2.5])}) - start, np.full(B, 2.5))
    mlp = learned["mlp"]
    mlp["narrow"] = {"kernel": e[:, None], "bias": jnp.asarray([0.5])}
    close(own["mlp"](mlp) - start, jnp.tanh(query @ mlp["wide"]["kernel"]) @ e + 0.5)


def test_scores_of_another_level_give_the_same_prior(params, batch):
    given = dataclasses.replace(batch, scores=np.float32([[1, 2, 0], [3, 0, 0], [0, 1, 0]]))
    lifted = dataclasses.replace(given, scores=given.scores + np.float32([[70], [-20], [5]]))
    alone = {"null_document": {"bias": jnp.asarray([0.3])}}
    close(prior_of(alone, lifted), prior_of(alone, given))


def test_with_a_bias_of_minus_infinity_there_is_none(params, batch, without):
    for least in (-1e6, -np.inf):
        (loss, _), gradients = loss_and_gradients(with_null(params, "bias", bias=jnp.asarray([least])), batch)
        (expected, _), wanted = loss_and_gradients(params, without)
        assert loss == pytest.approx(float(expected), abs=1e-5)
        assert gradients.pop("null_document")["bias"] == 0
        close(gradients, wanted)


def test_gradient_of_the_bias_is_prior_minus_posterior(params, batch):
    params = with_null(params, "bias", bias=jnp.asarray([0.7]))
    _, gradients = loss_and_gradients(params, batch)
    prior = prior_of(params, batch)
    source = batch_source(ARCH, jax.tree.map(jnp.asarray, batch), WIDTH)
    logp = jax.jit(answer_token_logprobs, static_argnums=1)(params["generator"], SMALL_BART, *source, batch.target)
    posterior = marginal.sequence_posterior(prior, logp, jnp.asarray(batch.target != PAD))
    pull = (np.exp(prior) - posterior)[:, K]
    expected = (pull * batch.weight).sum() / batch.weight.sum()
    assert abs(expected) > 1e-3
    assert gradients["null_document"]["bias"][0] == pytest.approx(float(expected), abs=1e-5)


def test_alone_it_is_closed_book(params, batch, without):
    nothing = np.zeros((B, K), bool)
    alone = dataclasses.replace(batch, valid=np.pad(nothing, ((0, 0), (0, 1)), constant_values=True))
    closed = dataclasses.replace(
        without,
        passages=np.full((B, 1, 1), PAD, np.int32),
        vectors=np.zeros((B, 1, 0), np.float32),
        valid=np.ones((B, 1), bool),
        scores=np.zeros((B, 1), np.float32),
    )
    (loss, _), gradients = loss_and_gradients(with_null(params, "bias"), alone)
    (expected, _), wanted = loss_and_gradients({"generator": params["generator"]}, closed)
    assert loss == pytest.approx(float(expected), abs=1e-5)
    close(gradients["generator"], wanted["generator"])


@pytest.mark.parametrize("kind", ["embedding", "mlp"])
def test_what_reads_the_question_is_learned_and_refuses_to_do_without(params, batch, kind):
    of_null = lambda params, batch: batch_prior(params, ARCH, batch)[:, K].sum()  # noqa: E731
    gradients = jax.jit(jax.grad(of_null))(with_null(params, kind), batch)
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(gradients["null_document"])) > 1e-4
    given = dataclasses.replace(batch, scores=np.zeros((B, K + 1), np.float32))
    with pytest.raises(ValueError, match="reads the question's vector, and there is no question encoder"):
        prior_of(with_null({}, kind), given)


def test_an_unknown_kind_is_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match="kind 'gate'; choose embedding, bias or mlp"):
        init_null_document("gate", 16, jax.random.key(0))
