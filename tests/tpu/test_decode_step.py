"""What the compiled decoding loop does with its caches: written in place, never copied, gathered or transposed."""

import jax
import jax.numpy as jnp

from rag_jax.models.bart import Bart
from rag_jax.models.bart_step import cross_caches, empty_caches, step_states, unstack_layers
from rag_jax.tpu.hlo import read_program
from rag_jax.tpu.loops import loops
from rag_jax.tpu.traffic import rearrangements
from tests.small_models import SMALL_BART

ROWS, BEAMS, STEPS, WIDTH = 6, 4, 13, 8


def decode(params, encoded, source_mask, tokens):
    """A loop of steps, all beams going on from themselves."""
    split = unstack_layers(params, SMALL_BART)
    cross = cross_caches(split, SMALL_BART, encoded)

    def step(place, caches):
        slots = jnp.arange(STEPS * BEAMS)
        seen = (slots // BEAMS <= place) & (slots % BEAMS == jnp.arange(BEAMS)[:, None])
        seen = jnp.broadcast_to(seen, (ROWS, BEAMS, STEPS * BEAMS))
        position = place[None, None]
        return step_states(
            split, SMALL_BART, tokens, position, place * BEAMS, caches, cross, seen, source_mask
        )[1]  # fmt: skip

    return jax.lax.fori_loop(0, STEPS, step, empty_caches(SMALL_BART, ROWS, STEPS * BEAMS))


def test_a_step_writes_its_caches_in_place():
    ids = jax.ShapeDtypeStruct((1, 4), jnp.int32)
    real = jax.ShapeDtypeStruct((1, 4), bool)
    params = jax.eval_shape(Bart(SMALL_BART).init, jax.random.key(0), ids, real, ids)["params"]
    given = (
        jax.ShapeDtypeStruct((ROWS, WIDTH, SMALL_BART.width), jnp.float32),
        jax.ShapeDtypeStruct((ROWS, WIDTH), bool),
        jax.ShapeDtypeStruct((ROWS, BEAMS), jnp.int32),
    )
    program = read_program(jax.jit(decode).lower(params, *given).compile().as_text())
    (loop,) = (loop for loop in loops(program) if loop.trips == STEPS)
    one_cache = ROWS * STEPS * BEAMS * SMALL_BART.width * 4
    assert "dynamic-update-slice" in {i.operation for i in program.within(loop.body)}
    assert not rearrangements(program, loop.body, one_cache)
