"""DEVICE. Classification: the likeliest of a few labels, each of which is one token (the paper's section 3.4).

For an answer of one token RAG-Sequence and RAG-Token are the same, p(y|x) = sum_z p(z|x) p(y|x,z), so no search is
needed: one step of the decoder gives every label's probability.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rag_jax.models.bart import Bart, BartConfig
from rag_jax.rag import marginal
from rag_jax.rag.decode import Decoded


def decode_labels(
    params: Any,
    config: BartConfig,
    source: Int[Array, "B K S"],
    source_mask: Bool[Array, "B K S"],
    prior: Float[Array, "B K"],
    labels: tuple[int, ...],
    *,
    slots: Int[Array, "G P W"] | None = None,
    together: bool = False,
) -> Decoded:
    """All labels, the likeliest first.

    Args:
      params, config, source, source_mask, prior, slots: as for `rag_jax.rag.decode.decode_token`.
      labels: token ids.
      together: one decoder looks at all passages (Fusion-in-Decoder), see `decode_together`; the prior does not count.

    Returns:
      Answers of one token, n of them: as many as there are labels. `logprob` is log p(y|x) over the whole vocabulary:
      labels share it with all that is no label.
    """
    model = Bart(config)
    batch, passages, width = source.shape
    if together:
        passages, prior = 1, jnp.zeros((batch, 1))
    start = jnp.full((batch * passages, 1), config.decoder_start_id, jnp.int32)
    given = source.reshape(-1, width), source_mask.reshape(-1, width), start, True, slots
    states = model.apply({"params": params}, *given, method=model.states)
    logits = model.apply({"params": params}, states[:, 0], method=model.logits)
    logp = jax.nn.log_softmax(logits, axis=-1)[:, jnp.array(labels)]
    joint = prior[:, None] + logp.reshape(batch, passages, len(labels)).swapaxes(1, 2)
    logprob, best = jax.lax.top_k(marginal.logsumexp(joint), len(labels))
    posterior = None if together else jnp.take_along_axis(marginal.normalise(joint), best[..., None], axis=1)
    return Decoded(jnp.array(labels, jnp.int32)[best][..., None], logprob, posterior)
