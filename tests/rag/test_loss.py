"""The training loss end to end on tiny networks: what counts, what does not, and where its gradient goes."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rag_jax.models.bert import Bert, BertConfig
from rag_jax.rag import marginal
from rag_jax.rag.loss import LOGLIK, batch_prior, batch_source, rag_loss
from rag_jax.rag.model import Architecture, init_params
from rag_jax.rag.score import answer_token_logprobs
from rag_jax.types import Batch
from tests.small_models import ONE_LAYER_BART

TOWER = BertConfig(
    vocab_size=23, width=16, layers=1, heads=2, hidden=16, max_positions=8, token_types=1, pad_id=1, init_std=0.25
)
GENERATOR = dataclasses.replace(ONE_LAYER_BART, vocab_size=23, init_std=0.4)
ARCH = Architecture(TOWER, TOWER, GENERATOR)
WIDTH, PAD = 14, 1
every = pytest.mark.parametrize("variant", ["sequence", "token", "fid"])


def loss_and_gradients(params, batch, variant, label_smoothing=0.0):
    # All arguments in their places: to jit, a default and the same value given are two programs.
    return jitted_loss(params, batch, variant, label_smoothing)


def pieces(params, batch, label_smoothing=0.0):
    """log p(z|x) and the answer's token log-probabilities: what the loss is made of."""
    return jitted_pieces(params, batch, label_smoothing)


@functools.partial(jax.jit, static_argnums=(2, 3))
def jitted_loss(params, batch, variant, label_smoothing):
    loss = functools.partial(
        rag_loss, arch=ARCH, batch=batch, variant=variant, width=WIDTH, label_smoothing=label_smoothing
    )
    return jax.value_and_grad(loss, has_aux=True)(params)


@functools.partial(jax.jit, static_argnums=2)
def jitted_pieces(params, batch, label_smoothing):
    source, mask = batch_source(ARCH, batch, WIDTH)
    logp = answer_token_logprobs(
        params["generator"], GENERATOR, source, mask, batch.target, label_smoothing=label_smoothing
    )
    return batch_prior(params, ARCH, batch), logp


@pytest.fixture(scope="module")
def params():
    made = jax.jit(functools.partial(init_params, ARCH))(jax.random.key(0))
    return {part: made[part] for part in ("question_encoder", "generator")}


@pytest.fixture(scope="module")
def batch():
    """Four questions, three places each; one question found two passages."""
    rng = np.random.default_rng(3)

    def rows(*shape, least=1):
        lengths = rng.integers(least, shape[-1] + 1, (*shape[:-1], 1))
        return np.where(np.arange(shape[-1]) < lengths, rng.integers(3, 23, shape), PAD).astype(np.int32)

    valid = np.ones((4, 3), bool)
    valid[2, 2] = False
    return Batch(
        question=rows(4, 6, least=3),
        source_question=rows(4, 5),
        passages=np.where(valid[..., None], rows(4, 3, 7), PAD),
        vectors=np.where(valid[..., None], rng.normal(size=(4, 3, 16)), 0).astype(np.float32),
        valid=valid,
        target=rows(4, 4),
        weight=np.float32([1, 1, 1, 1]),
    )


def assert_trees_close(ours, expected, atol=1e-5):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol), ours, expected)


@pytest.mark.parametrize(("variant", "smoothing"), [("sequence", 0.0), ("token", 0.0), ("sequence", 0.1)])
def test_loss_is_the_mean_of_minus_log_likelihood_under_an_unsmoothed_prior(params, batch, variant, smoothing):
    prior, _ = pieces(params, batch)
    _, logp = pieces(params, batch, smoothing)
    loglik = LOGLIK[variant](prior, logp, jnp.asarray(batch.target != PAD))
    (loss, report), _ = loss_and_gradients(params, batch, variant, smoothing)
    assert loss == pytest.approx(-float(loglik.mean()), rel=1e-5)
    assert report["loss"] == loss
    assert report["loss_per_token"] == pytest.approx(-float(loglik.sum()) / (batch.target != PAD).sum(), rel=1e-5)
    p = np.exp(np.asarray(prior))
    assert report["prior_top"] == pytest.approx(p.max(-1).mean(), rel=1e-5)
    entropy = -np.where(p > 0, p * np.log(np.maximum(p, 1e-30)), 0).sum(-1).mean()
    assert report["prior_entropy"] == pytest.approx(entropy, rel=1e-4)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_question_encoder_is_pulled_by_prior_minus_posterior(params, batch, smoothing):
    prior, logp = pieces(params, batch, smoothing)
    posterior = marginal.sequence_posterior(prior, logp, jnp.asarray(batch.target != PAD))
    pull = jnp.einsum("bk,bkd->bd", jnp.exp(prior) - posterior, batch.vectors) / 4
    encode = lambda tower: Bert(TOWER).apply({"params": tower}, jnp.asarray(batch.question))  # noqa: E731
    (expected,) = jax.jit(lambda tower: jax.vjp(encode, tower)[1](pull))(params["question_encoder"])
    _, gradients = loss_and_gradients(params, batch, "sequence", smoothing)
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(expected)) > 1e-2
    assert_trees_close(gradients["question_encoder"], expected)


@every
def test_rows_of_weight_zero_change_nothing(params, batch, variant):
    """Not even a row that no passage was found for."""
    short = dataclasses.replace(batch, weight=np.float32([1, 0, 1, 0]))
    valid = batch.valid.copy()
    valid[1] = False
    other = dataclasses.replace(
        short,
        valid=valid,
        target=np.where(short.weight[:, None] > 0, batch.target, 9).astype(np.int32),
        passages=np.where(short.weight[:, None, None] > 0, batch.passages, 8).astype(np.int32),
    )
    (loss, report), gradients = loss_and_gradients(params, short, variant)
    (loss_other, report_other), gradients_other = loss_and_gradients(params, other, variant)
    assert np.isfinite(loss)
    assert_trees_close((loss_other, report_other, gradients_other), (loss, report, gradients))
    everything = loss_and_gradients(params, batch, variant)
    assert abs(everything[0][0] - loss) > 1e-3


def test_weights_count_in_proportion(params, batch):
    single = [
        float(
            loss_and_gradients(params, dataclasses.replace(batch, weight=np.eye(4, dtype=np.float32)[i]), "token")[0][0]
        )
        for i in range(4)
    ]
    weight = np.float32([3, 1, 0, 0])
    (loss, _), _ = loss_and_gradients(params, dataclasses.replace(batch, weight=weight), "token")
    assert loss == pytest.approx((3 * single[0] + single[1]) / 4, rel=1e-5)


@every
def test_a_place_without_a_passage_changes_nothing_and_gives_no_nan(params, batch, variant):
    filled = dataclasses.replace(
        batch,
        passages=np.where(batch.valid[..., None], batch.passages, 9).astype(np.int32),
        vectors=np.where(batch.valid[..., None], batch.vectors, 50.0).astype(np.float32),
    )
    result, other = loss_and_gradients(params, batch, variant), loss_and_gradients(params, filled, variant)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(other))
    assert_trees_close(other, result)


@every
def test_order_of_passages_does_not_matter(params, batch, variant):
    turned = dataclasses.replace(
        batch, passages=batch.passages[:, ::-1], vectors=batch.vectors[:, ::-1], valid=batch.valid[:, ::-1]
    )
    assert_trees_close(loss_and_gradients(params, turned, variant), loss_and_gradients(params, batch, variant))


def test_the_sum_is_the_mean_times_the_weights(params, batch):
    weighed = dataclasses.replace(batch, weight=np.float32([2, 1, 0, 0.5]))
    (mean, report), _ = loss_and_gradients(params, weighed, "token")
    total, report_of_sum = jax.jit(
        lambda params, batch: rag_loss(params, ARCH, batch, variant="token", width=WIDTH, reduction="sum")
    )(params, weighed)
    assert float(total) == pytest.approx(3.5 * float(mean), rel=1e-5)
    assert report_of_sum["loss"] == total
    assert float(report_of_sum["loss_per_token"]) == pytest.approx(float(report["loss_per_token"]), rel=1e-5)
    with pytest.raises(ValueError, match="reduction='max'"):
        rag_loss(params, ARCH, weighed, variant="token", width=WIDTH, reduction="max")
    with pytest.raises(ValueError, match="variant='Token': choose one of sequence, token, fid"):
        rag_loss(params, ARCH, weighed, variant="Token", width=WIDTH)


def test_variants_differ_on_longer_answers(params, batch):
    losses = [float(loss_and_gradients(params, batch, variant)[0][0]) for variant in LOGLIK]
    assert abs(losses[0] - losses[1]) > 1e-4


def test_with_fusion_in_decoder_the_loss_is_one_decoders_and_the_question_encoder_has_no_gradient(params, batch):
    (loss, report), gradients = loss_and_gradients(params, batch, "fid")

    @jax.jit
    def one_decoder(params, batch):
        source, mask = batch_source(ARCH, batch, WIDTH)
        mask &= batch.valid[..., None]
        return answer_token_logprobs(params["generator"], GENERATOR, source, mask, batch.target, together=True)

    logp = one_decoder(params, batch)
    assert logp.shape == (4, 1, 4)
    assert loss == pytest.approx(-float(jnp.where(batch.target != PAD, logp[:, 0], 0).sum(-1).mean()), rel=1e-5)
    assert report["prior_top"] == pytest.approx(np.exp(pieces(params, batch)[0]).max(-1).mean(), rel=1e-5)
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(gradients["question_encoder"]))


def test_closed_book_has_prior_one_and_trains_the_generator_alone(params, batch):
    closed = dataclasses.replace(
        batch,
        passages=np.full((4, 1, 1), PAD, np.int32),
        vectors=np.zeros((4, 1, 0), np.float32),
        valid=np.ones((4, 1), bool),
        scores=np.zeros((4, 1), np.float32),
    )
    generator = {"generator": params["generator"]}
    (loss, report), gradients = loss_and_gradients(generator, closed, "token")
    prior, logp = pieces(generator, closed)
    assert (prior == 0).all()
    assert loss == pytest.approx(-float(jnp.where(batch.target != PAD, logp[:, 0], 0).sum(-1).mean()), rel=1e-5)
    assert report["prior_top"] == 1
    assert gradients.keys() == {"generator"}


def test_dropout_follows_its_key_in_both_networks(params, batch):
    quiet = loss_and_gradients(params, batch, "token")[0][1]
    loud = jax.jit(lambda batch, key: rag_loss(params, ARCH, batch, variant="token", width=WIDTH, dropout_key=key)[1])
    # This kind of key compiles in a fraction of the default's time.
    first, again, other = (loud(batch, jax.random.key(i, impl="unsafe_rbg")) for i in (1, 1, 2))
    assert first == again
    for name in ("loss", "prior_top"):
        assert abs(first[name] - other[name]) > 1e-4
        assert abs(first[name] - quiet[name]) > 1e-4
