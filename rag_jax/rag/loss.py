"""DEVICE. The training loss: -log p(y|x) with the passages summed out (paper, section 2.4)."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from rag_jax.models.bert import Bert
from rag_jax.models.null_document import null_score
from rag_jax.rag import marginal
from rag_jax.rag.model import Architecture
from rag_jax.rag.score import answer_token_logprobs, passage_scores
from rag_jax.rag.source import join_source
from rag_jax.types import Batch

LOGLIK = {"sequence": marginal.sequence_loglik, "token": marginal.token_loglik}


def check_variant(variant: str) -> None:
    """Refuses what is no model of this project.

    Raises:
      ValueError: neither 'sequence' nor 'token' nor 'fid'.
    """
    if variant not in (*LOGLIK, "fid"):
        raise ValueError(f"variant={variant!r}: choose one of {', '.join(LOGLIK)}, fid")


def encode_rows(
    params: Any, arch: Architecture, tower: str, tokens: Int[Array, "R T"], dropout_key: Array | None
) -> Float[Array, "R D"]:
    """Vectors of token rows by 'question_encoder' or 'passage_encoder', with dropout where there is a key."""
    rngs = None if dropout_key is None else {"dropout": dropout_key}
    model = Bert(getattr(arch, tower))
    return model.apply({"params": params[tower]}, tokens, deterministic=dropout_key is None, rngs=rngs)


def batch_prior(params: Any, arch: Architecture, batch: Batch, dropout_key: Array | None = None) -> Float[Array, "B K"]:
    """log p(z|x) of a batch's passages, with gradient to the question encoder unless the scores are given.

    With `batch.encoder_passages` the passage encoder in `params` scores them, and has a gradient too. The null
    document's score is put into the last place, where the batch has one.
    """
    encode = functools.partial(encode_rows, params, arch)
    query, scores = None, batch.scores
    if scores is None:
        query, vectors = encode("question_encoder", batch.question, dropout_key), batch.vectors
        trained = batch.encoder_passages is not None
        if trained:
            own = None if dropout_key is None else jax.random.fold_in(dropout_key, 1)
            *rows, width = batch.encoder_passages.shape
            vectors = encode("passage_encoder", batch.encoder_passages.reshape(-1, width), own).reshape(*rows, -1)
        scores = passage_scores(query, vectors, trained)
    if batch.null_document:
        found = scores[:, :-1]
        null = null_score(params["null_document"], query, found, batch.valid[:, :-1])
        scores = jnp.concatenate([found, null[:, None]], axis=1)
    return marginal.log_prior(scores, batch.valid)


def batch_source(arch: Architecture, batch: Batch, width: int) -> tuple[Array, Array]:
    """The generator's sources [B,K,S] and their mask; sources that the host joined pass as they are."""
    g = arch.generator
    if not batch.source_question.shape[1]:
        return batch.passages, batch.passages != g.pad_id
    ids = {"bos_id": g.bos_id, "eos_id": g.eos_id, "pad_id": g.pad_id}
    return join_source(batch.source_question, batch.passages, width, **ids)


def rag_loss(
    params: Any,
    arch: Architecture,
    batch: Batch,
    *,
    variant: str,
    width: int,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    dropout_key: Array | None = None,
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """-log p(y|x), weighted and put together over the questions, and what else is worth a line in the log.

    Args:
      params: {'question_encoder', 'generator'}, with 'passage_encoder' where it is trained, and 'null_document' where
        the batch has one; 'generator' alone where the batch has scores.
      arch: sizes.
      batch: with targets and weights.
      variant: 'sequence' or 'token'; or 'fid', whose likelihood is one decoder's, without the prior.
      width: source tokens S, static.
      label_smoothing: inside each passage's token distribution; the prior is untouched.
      reduction: 'mean' divides by the sum of the weights, 'sum' does not.
      dropout_key: turns dropout on.

    Returns:
      The loss, and {'loss', 'loss_per_token', 'prior_entropy' in nats, 'prior_top': the mean prior of the best
      passage}.

    Raises:
      ValueError: another reduction, another variant.
    """
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction={reduction!r}: choose mean or sum")
    sums = rag_sums(
        params,
        arch,
        batch,
        variant=variant,
        width=width,
        label_smoothing=label_smoothing,
        dropout_key=dropout_key,
    )
    report = means(sums)
    loss = report["loss"] if reduction == "mean" else -sums["loglik"]
    return loss, jax.tree.map(jax.lax.stop_gradient, report) | {"loss": loss}


def rag_sums(
    params: Any,
    arch: Architecture,
    batch: Batch,
    *,
    variant: str,
    width: int,
    label_smoothing: float = 0.0,
    dropout_key: Array | None = None,
    devices: int = 1,
) -> dict[str, Float[Array, ""]]:
    """What the loss and its report are made of, as weighted sums over the questions, so that parts of a batch add up.

    Arguments as for `rag_loss`; `devices` as for `answer_token_logprobs`.

    Returns:
      {'loglik': log p(y|x), 'weight', 'tokens': of the targets, 'prior_entropy', 'prior_top'}.
    """
    check_variant(variant)
    keys = (None, None) if dropout_key is None else jax.random.split(dropout_key)
    prior = batch_prior(params, arch, batch, keys[0])
    source, source_mask = batch_source(arch, batch, width)
    together = variant == "fid"
    if together:
        source_mask &= batch.valid[..., None]
    logp = answer_token_logprobs(
        params["generator"],
        arch.generator,
        source,
        source_mask,
        batch.target,
        slots=batch.slots,
        together=together,
        label_smoothing=label_smoothing,
        dropout_key=keys[1],
        devices=devices,
    )
    real = batch.target != arch.generator.pad_id
    loglik = marginal.answer_logprobs(logp, real)[:, 0] if together else LOGLIK[variant](prior, logp, real)
    weight = batch.weight.astype(jnp.float32)
    p = jnp.exp(prior)
    entropy = -jnp.where(p > 0, p * jnp.where(p > 0, prior, 0.0), 0.0).sum(-1)
    return {
        # A row of weight 0 may have no passage at all and a log-likelihood of -inf: select, do not multiply.
        "loglik": jnp.where(weight > 0, weight * jnp.where(weight > 0, loglik, 0.0), 0.0).sum(),
        "weight": weight.sum(),
        "tokens": (real * weight[:, None]).sum(),
        "prior_entropy": (entropy * weight).sum(),
        "prior_top": (p.max(-1) * weight).sum(),
    }


def means(sums: dict[str, Float[Array, ""]]) -> dict[str, Float[Array, ""]]:
    """The report of `rag_loss` from the sums of a whole batch."""
    weight, tokens = (jnp.maximum(sums[name], 1e-9) for name in ("weight", "tokens"))
    return {
        "loss": -sums["loglik"] / weight,
        "loss_per_token": -sums["loglik"] / tokens,
        "prior_entropy": sums["prior_entropy"] / weight,
        "prior_top": sums["prior_top"] / weight,
    }
