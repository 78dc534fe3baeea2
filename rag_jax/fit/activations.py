"""HOST. What a train step keeps for its backward pass, by arithmetic: for advice and for steps too large to try."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from rag_jax.fit.batches import passages_of_a_question, source_width
from rag_jax.fit.plan import Plan, trained_and_frozen
from rag_jax.rag.score import LOGITS_BYTES
from rag_jax.training.pretrain import TARGET_WIDTH


class Stack(NamedTuple):
    """The layers of one network, and what passes them on one chip at a time.

    Attributes:
      tokens: of all rows.
      seen: tokens of another stack that cross-attention looks at; 0 without.
      layers, width, hidden: sizes.
    """

    tokens: float
    seen: float
    layers: int
    width: int
    hidden: int

    @property
    def inputs(self) -> float:
        """Values of the inputs of all layers. Whatever is recomputed, these are kept."""
        return self.tokens * self.layers * self.width

    @property
    def products(self) -> float:
        """Values of all matrix products: query, key, value, output, both of the feed-forward; the cross-attention's."""
        crossed = self.tokens * 2 * self.width + self.seen * 2 * self.width if self.seen else 0.0
        return self.layers * (self.tokens * (5 * self.width + self.hidden) + crossed)

    @property
    def at_work(self) -> float:
        """Values of one layer that is gone back through."""
        return self.tokens * (2 * self.hidden + 6 * self.width)


def stacks(plan: Plan) -> tuple[Stack, ...]:
    """Those that a step goes back through: the generator's encoder and decoder, or both towers, if they are trained."""
    trained = trained_and_frozen(plan)[0]
    questions = plan.questions / plan.layout.parts / plan.accumulate
    if plan.trains == "towers":
        d, each = plan.config.data, passages_of_a_question(plan)
        tokens = {"question_encoder": d.max_question_tokens, "passage_encoder": each * d.max_passage_tokens}
        towers = {name: getattr(plan.arch, name) for name in tokens if trained.get(name)}
        return tuple(
            Stack(questions * tokens[name], 0.0, tower.layers, tower.width, tower.hidden)
            for name, tower in towers.items()
        )
    if not trained.get("generator"):
        return ()
    g, rows = plan.arch.generator, pairs(plan)
    # Fusion-in-Decoder writes an answer once, not once for each passage.
    answers = questions if plan.trains == "rag" and plan.config.variant == "fid" else rows
    length = TARGET_WIDTH if plan.trains == "reader" else plan.config.data.max_target_tokens
    source = rows * source_width(plan)
    return (
        Stack(source, 0.0, g.encoder_layers, g.width, g.encoder_hidden),
        Stack(answers * length, source, g.decoder_layers, g.width, g.decoder_hidden),
    )


def pairs(plan: Plan) -> float:
    """(question, passage) pairs that a chip has at a time."""
    return plan.questions / plan.layout.parts / plan.accumulate * passages_of_a_question(plan)


def layer_inputs(plan: Plan) -> float:
    """Bytes of the layers' inputs on one chip."""
    return sum(stack.inputs for stack in stacks(plan)) * _size(plan)


def estimated(plan: Plan, remat: str) -> float:
    """About the bytes of all activations on one chip, at their peak.

    Inputs of layers, the layer at work and, of a generator, the logits with their gradient; with 'dots' and 'none'
    every layer's products too. 'none' keeps more than that, which is not counted.
    """
    gone_through = stacks(plan)
    values = max((stack.at_work for stack in gone_through), default=0.0)
    if remat != "full":
        values += sum(stack.products for stack in gone_through)
    logits = 0.0
    if plan.trains != "towers" and gone_through:
        logits = 2 * min(gone_through[-1].tokens * plan.arch.generator.table_rows * 4, LOGITS_BYTES)
    return layer_inputs(plan) + values * _size(plan) + logits


def _size(plan: Plan) -> int:
    network = plan.arch.passage_encoder if plan.trains == "towers" else plan.arch.generator
    return jnp.dtype(network.dtype).itemsize
