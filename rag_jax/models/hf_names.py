"""HOST. The names of BERT's and BART's tensors at Hugging Face <-> the parameter trees here, all checked.

The differences: there a layer is a name, here an index into a stacked array; there a projection is [out, in], here [in,
out].
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from rag_jax.models.bart import POSITION_OFFSET, BartConfig
from rag_jax.models.bert import BertConfig
from rag_jax.models.hf_stored import CheckpointError, Stored


class Slot(NamedTuple):
    """One leaf of a parameter tree.

    Attributes:
      ours: its path, joined by '/'.
      theirs: the name of the tensor, or of one layer's with {} for the layer's number.
      shape: of the stored tensor, of one layer.
      layers: how many layers are stacked in the leaf; 0 when it is a single tensor.
      transpose: whether the two sides have the axes the other way round.
      padded: rows that the leaf has behind the stored ones.
    """

    ours: str
    theirs: str
    shape: tuple[int, ...]
    layers: int = 0
    transpose: bool = False
    padded: int = 0

    def names(self) -> list[str]:
        """The stored tensors that make up the leaf."""
        return [self.theirs.format(i) for i in range(self.layers)] if self.layers else [self.theirs]

    def leaf_shape(self) -> tuple[int, ...]:
        """The shape of the leaf."""
        shape = self.shape[::-1] if self.transpose else self.shape
        shape = (shape[0] + self.padded, *shape[1:])
        return (self.layers, *shape) if self.layers else shape


def _dense(ours: str, theirs: str, outputs: int, inputs: int, layers: int) -> Iterator[Slot]:
    yield Slot(f"{ours}/kernel", f"{theirs}.weight", (outputs, inputs), layers, transpose=True)
    yield Slot(f"{ours}/bias", f"{theirs}.bias", (outputs,), layers)


def _norm(ours: str, theirs: str, width: int, layers: int = 0) -> Iterator[Slot]:
    yield Slot(f"{ours}/scale", f"{theirs}.weight", (width,), layers)
    yield Slot(f"{ours}/bias", f"{theirs}.bias", (width,), layers)


def bert_slots(config: BertConfig) -> list[Slot]:
    """The leaves of `Bert`, by the names that BertModel gives them."""
    c, layer = config, "encoder.layer.{}"
    return [
        Slot("tokens/embedding", "embeddings.word_embeddings.weight", (c.vocab_size, c.width)),
        Slot("positions/embedding", "embeddings.position_embeddings.weight", (c.max_positions, c.width)),
        Slot("types/embedding", "embeddings.token_type_embeddings.weight", (c.token_types, c.width)),
        *_norm("embedding_norm", "embeddings.LayerNorm", c.width),
        *_dense("layers/attention/query", f"{layer}.attention.self.query", c.width, c.width, c.layers),
        *_dense("layers/attention/key", f"{layer}.attention.self.key", c.width, c.width, c.layers),
        *_dense("layers/attention/value", f"{layer}.attention.self.value", c.width, c.width, c.layers),
        *_dense("layers/attention/output", f"{layer}.attention.output.dense", c.width, c.width, c.layers),
        *_norm("layers/attention_norm", f"{layer}.attention.output.LayerNorm", c.width, c.layers),
        *_dense("layers/feed_forward/wide", f"{layer}.intermediate.dense", c.hidden, c.width, c.layers),
        *_dense("layers/feed_forward/narrow", f"{layer}.output.dense", c.width, c.hidden, c.layers),
        *_norm("layers/output_norm", f"{layer}.output.LayerNorm", c.width, c.layers),
    ]


def bart_slots(config: BartConfig) -> list[Slot]:
    """The leaves of `Bart`, by the names that BartModel gives them; the logits' bias lies outside BartModel."""
    c = config
    rows = c.max_positions + POSITION_OFFSET
    slots = [Slot("tokens/embedding", "shared.weight", (c.vocab_size, c.width), padded=c.table_rows - c.vocab_size)]
    for side, layers, hidden in (
        ("encoder", c.encoder_layers, c.encoder_hidden),
        ("decoder", c.decoder_layers, c.decoder_hidden),
    ):
        layer = f"{side}.layers.{{}}"
        slots.append(Slot(f"{side}_positions/embedding", f"{side}.embed_positions.weight", (rows, c.width)))
        slots += _norm(f"{side}_embedding_norm", f"{side}.layernorm_embedding", c.width)
        attentions = [("attention", "self_attn")]
        if side == "decoder":
            attentions.append(("cross_attention", "encoder_attn"))
        for ours, theirs in attentions:
            for part, name in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj"), ("output", "out_proj")):
                slots += _dense(f"{side}_layers/{ours}/{part}", f"{layer}.{theirs}.{name}", c.width, c.width, layers)
            slots += _norm(f"{side}_layers/{ours}_norm", f"{layer}.{theirs}_layer_norm", c.width, layers)
        slots += _dense(f"{side}_layers/feed_forward/wide", f"{layer}.fc1", hidden, c.width, layers)
        slots += _dense(f"{side}_layers/feed_forward/narrow", f"{layer}.fc2", c.width, hidden, layers)
        slots += _norm(f"{side}_layers/output_norm", f"{layer}.final_layer_norm", c.width, layers)
    return slots


def modern_name(name: str) -> str:
    """The name that a tensor has today: checkpoints from TensorFlow days call LayerNorm's parts gamma and beta."""
    return re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name))


def faults_of(
    slots: list[Slot], found: Mapping[str, tuple[int, ...]], allowed: frozenset[str] = frozenset()
) -> list[str]:
    """What is missing, not wanted or ill-shaped among stored tensors; `allowed` may be there or not."""
    wanted = {name: slot.shape for slot in slots for name in slot.names()}
    return [
        *(f"missing {name} {wanted[name]}" for name in wanted if name not in found),
        *(f"not wanted {name} {found[name]}" for name in found if name not in wanted and name not in allowed),
        *(f"{n} is {found[n]}, should be {shape}" for n, shape in wanted.items() if n in found and found[n] != shape),
    ]


def read_tree(slots: list[Slot], tensors: Mapping[str, Stored]) -> dict[str, Any]:
    """The float32 parameter tree, from tensors whose names and shapes have been checked."""
    flat = {}
    for slot in slots:
        leaf = np.zeros(slot.leaf_shape(), np.float32)
        for number, name in enumerate(slot.names()):
            value = tensors[name].load()
            into = leaf[number] if slot.layers else leaf
            into[: into.shape[0] - slot.padded] = value.T if slot.transpose else value
        flat[tuple(slot.ours.split("/"))] = leaf
    return unflatten_dict(flat)


def leaf_slots(slots: list[Slot], also: Mapping[str, tuple[int, ...]]) -> list[Slot]:
    """The leaves under their own names and shapes, and some more, for checking a parameter tree with `faults_of`."""
    leaves = [Slot(slot.ours, slot.ours, slot.leaf_shape()) for slot in slots]
    return leaves + [Slot(name, name, shape) for name, shape in also.items()]


def write_tree(slots: list[Slot], params: Mapping[str, Any], what: str) -> dict[str, np.ndarray]:
    """The tensors of a parameter tree under their names at Hugging Face; views where possible.

    Raises:
      CheckpointError: the tree is not that of the configuration; every difference is listed.
    """
    flat = {"/".join(path): np.asarray(leaf, np.float32) for path, leaf in flatten_dict(dict(params)).items()}
    faults = faults_of(leaf_slots(slots, {}), {name: leaf.shape for name, leaf in flat.items()})
    if faults:
        raise CheckpointError(f"these parameters are not those of the {what}:\n  " + "\n  ".join(faults))
    tensors = {}
    for slot in slots:
        layers = flat[slot.ours] if slot.layers else [flat[slot.ours]]
        for name, value in zip(slot.names(), layers, strict=True):
            value = value[: value.shape[0] - slot.padded]
            tensors[name] = value.T if slot.transpose else value
    return tensors
