"""DEVICE. Retrieval as a part of the jitted step: encode the questions, search, fetch what was found.

Vectors and tokens of all passages stay on the devices, so that nothing passes through the host, and every step searches
with the question encoder as that step finds it. The step's own scores are q.d of the fetched vectors in float32
(`rag_jax.rag.loss.batch_prior`): through them, and not through the search, the question encoder gets its gradient.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32

from rag_jax.index import NO_PASSAGE, device
from rag_jax.index.device import DeviceIndex
from rag_jax.index.fetch import fetch
from rag_jax.models.bert import Bert
from rag_jax.models.layers import LANES
from rag_jax.rag.model import Architecture
from rag_jax.types import Batch


@flax.struct.dataclass
class Resident:
    """A collection on the devices.

    Attributes:
      index: the vectors, see `DeviceIndex`.
      tokens: uint16 or uint32 [R,C], the passages for the generator, padded at the end; cut as the vectors are. A TPU
        copies the whole table before it fetches a row, unless C is a multiple of LANES; see `columns`.
      k: passages a question.
      longest: P, tokens of the longest passage; for both networks.
      encoder_tokens: as `tokens`, the passages for the passage encoder, where it is trained; else None.
    """

    index: DeviceIndex
    tokens: Any
    k: int = flax.struct.field(pytree_node=False)
    longest: int = flax.struct.field(pytree_node=False)
    encoder_tokens: Any = None


def columns(longest: int) -> int:
    """Columns C of a resident table of tokens for passages of up to so many."""
    return -(-longest // LANES) * LANES


def retrieve(
    resident: Resident, arch: Architecture, question_encoder: Any, batch: Batch
) -> tuple[Batch, Int32[Array, "B K"]]:
    """Finds the k passages for each question of a batch and fills in what the step needs of them.

    The questions are encoded without dropout. No gradient flows through the search or what it fetches.

    Args:
      resident: the collection.
      arch: sizes.
      question_encoder: its parameters as they are now.
      batch: with questions and, in training, targets and weights; the passages' fields are not read.

    Returns:
      The whole batch, and the row numbers of the passages, best first; -1 where there is none, as in the null
      document's place.
    """
    query = Bert(arch.question_encoder).apply({"params": jax.lax.stop_gradient(question_encoder)}, batch.question)
    rows, _ = device.search(resident.index, query, resident.k)
    if batch.null_document:
        rows = jnp.pad(rows, ((0, 0), (0, 1)), constant_values=NO_PASSAGE)
    return fill(resident, arch, batch, rows), rows


def fill(resident: Resident, arch: Architecture, batch: Batch, rows: Int32[Array, "B K"]) -> Batch:
    """The batch with these passages: tokens, vectors, and which places hold one."""

    def read(table: Any, rows: Int32[Array, "B K"]) -> Int32[Array, "B K P"]:
        tokens = fetch(table, rows, resident.index.mesh, resident.index.axis).astype(jnp.int32)
        return tokens[..., : resident.longest]

    found = rows >= 0
    encoded_here = resident.encoder_tokens is not None
    return dataclasses.replace(
        batch,
        passages=jnp.where(found[..., None], read(resident.tokens, rows), arch.generator.pad_id),
        vectors=device.fetch_vectors(resident.index, rows),
        valid=found.at[:, -1].set(True) if batch.null_document else found,
        # A place without a passage reads some row's: it does not count, but an encoder must be able to read it.
        encoder_passages=read(resident.encoder_tokens, jnp.maximum(rows, 0)) if encoded_here else None,
    )
