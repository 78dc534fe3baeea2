"""Reading compiled programs: shapes as they lie in memory, instructions, loops and how often they run."""

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_jax.tpu.hlo import read_program, read_shapes
from rag_jax.tpu.loops import loops

ROW_MAJOR = "bf16[6,300,64]{2,1,0:T(8,128)(2,1)}"


def compiled(function, *inputs):
    return read_program(jax.jit(function).lower(*inputs).compile().as_text())


@given(dims=st.lists(st.integers(1, 300), min_size=1, max_size=4), data=st.data())
def test_tiles_only_add_to_the_bytes_and_whole_tiles_add_nothing(dims, data):
    order = data.draw(st.permutations(range(len(dims))))
    text = f"f32[{','.join(map(str, dims))}]{{{','.join(map(str, order))}:T(8,128)}}"
    (shape,) = read_shapes(text)
    assert shape.bytes == 4 * shape.elements <= shape.laid_out()
    assert shape.laid_out() % (8 * 128 * 4) == 0
    rows = dims[order[1]] if len(dims) > 1 else 1
    assert (shape.laid_out() == shape.bytes) == (dims[order[0]] % 128 == 0 and rows % 8 == 0)


def test_a_slice_across_the_fastest_axis_costs_whole_tiles():
    (rows,), (columns,) = read_shapes(ROW_MAJOR), read_shapes(ROW_MAJOR.replace("2,1,0", "1,2,0"))
    assert rows.laid_out() == 6 * 304 * 128 * 2
    assert columns.laid_out() == 6 * 384 * 64 * 2
    assert rows.laid_out((6, 8, 64)) == 6 * 8 * 128 * 2
    assert columns.laid_out((6, 8, 64)) == 6 * 128 * 64 * 2


@pytest.mark.parametrize(
    ("text", "bits", "space"),
    [("pred[7]", 8, 0), ("s4[7]{0:T(1024)S(1)}", 4, 1), ("f8e4m3fn[7]{0}", 8, 0), ("bf16[7]{0:T(256)S(5)}", 16, 5)],
)
def test_a_shape_has_the_bits_and_the_memory_space_of_its_text(text, bits, space):
    (shape,) = read_shapes(text)
    assert (shape.bits, shape.space, shape.bytes) == (bits, space, 7 * bits / 8)


def test_an_instruction_is_read_whatever_is_printed_with_its_operands():
    text = """HloModule m
%f (p: f32[2]) -> f32[2] {
  ROOT %p = f32[2]{0} parameter(0)
}

ENTRY %main.3 (a: f32[2], b: f32[2]) -> (f32[2], s32[]) {
  %a = f32[2]{0:T(128)} parameter(0)
  b = f32[2]{0:T(128)S(1)} parameter(1)
  %c = s32[] constant(-3)
  %f.1 = f32[2]{0:T(128)} fusion(f32[2]{0:T(128)} %a, /*index=1*/b), kind=kLoop, calls=%f, metadata={op_name="jit(g)/x"}
  ROOT %t.2 = (f32[2]{0:T(128)}, /*index=1*/s32[]) tuple(%f.1, %c), backend_config={"a":["(","{"]}
}
"""
    program = read_program(text)
    main = program.computations["main.3"]
    fusion, root = main.instructions["f.1"], main.root
    assert (program.entry, fusion.operands, fusion.called("calls"), fusion.source) == (
        "main.3", ("a", "b"), ("f",), "jit(g)/x",
    )  # fmt: skip
    assert (root.name, root.operands, len(root.shapes)) == ("t.2", ("f.1", "c"), 2)
    assert main.instructions["c"].inside == "-3"
    assert [user.name for user in main.users("a")] == ["f.1"]
    assert {i.name for i in program.within("main.3")} == {"a", "b", "c", "f.1", "t.2", "p"}


def test_text_that_is_no_program_is_refused():
    with pytest.raises(ValueError, match="ENTRY"):
        read_program("module @jit_f { func.func public @main() }")


def test_every_instruction_of_a_real_program_finds_its_operands():
    program = compiled(lambda x: jax.lax.fori_loop(0, 3, lambda i, y: jnp.sort(y @ y) + i, x), jnp.ones((4, 4)))
    for computation in program.computations.values():
        assert computation.root.root
        for instruction in computation.instructions.values():
            assert set(instruction.operands) <= set(computation.instructions)
            assert set(instruction.called()) <= set(program.computations)


LOOP = """HloModule m
%body (s: (s32[], s32[])) -> (s32[], s32[]) {{
  ROOT %s = (s32[], s32[]) parameter(0)
}}

%compared (a: s32[], b: s32[]) -> pred[] {{
  %a = s32[] parameter(0)
  %b = s32[] parameter(1)
  ROOT %lt.9 = pred[] compare(%a, %b), direction=LT
}}

%condition (s.1: (s32[], s32[])) -> pred[] {{
  %s.1 = (s32[], s32[]) parameter(0)
  %i = s32[] get-tuple-element(%s.1), index=0
  %other = s32[] get-tuple-element(%s.1), index=1
  %limit = s32[]{{:T(128)}} constant(12)
{condition}
}}

ENTRY %main (x: s32[]) -> (s32[], s32[]) {{
  %x = s32[] parameter(0)
  %start = s32[] constant({start})
  %nine = s32[] constant(9)
  %copied = s32[] copy(%start)
  %tuple = (s32[], s32[]) tuple(%copied, %nine)
  ROOT %w = (s32[], s32[]) while(%tuple), condition=%condition, body=%body
}}
"""


@pytest.mark.parametrize(
    ("condition", "start", "trips", "at_most"),
    [
        ("  ROOT %lt = pred[] compare(%i, %limit), direction=LT", 0, 12, False),
        ("  ROOT %lt = pred[] compare(%i, %limit), direction=LT", 5, 7, False),
        ("  ROOT %lt = pred[] compare(%i, %limit), direction=LT", 50, 0, False),
        ("  ROOT %lt = pred[] compare(%i, %limit), direction=LE", 0, 13, False),
        ("  ROOT %lt = pred[] compare(%limit, %i), direction=GT", 0, 12, False),
        ("  ROOT %lt = pred[] compare(%i, %other), direction=LT", 0, 9, False),
        ("  ROOT %f = pred[] fusion(%i, %limit), kind=kLoop, calls=%compared", 0, 12, False),
        (
            "  %f = pred[] fusion(%i, %limit), kind=kLoop, calls=%compared\n  ROOT %and = pred[] and(%f, %f)",
            0,
            12,
            True,
        ),
        ("  ROOT %ne = pred[] compare(%i, %limit), direction=NE", 0, None, False),
        ("  ROOT %c = pred[] constant(true)", 0, None, False),
    ],
)
def test_a_loop_runs_as_often_as_its_condition_says(condition, start, trips, at_most):
    (loop,) = loops(read_program(LOOP.format(condition=condition, start=start)))
    assert (loop.trips, loop.at_most, loop.body) == (trips, at_most, "body")


def test_the_compilers_own_count_of_a_loop_goes_before_the_condition():
    text = LOOP.format(condition="  ROOT %c = pred[] constant(true)", start=0)
    noted = text.replace("body=%body", 'body=%body, backend_config={"known_trip_count":{"n":"4"}}')
    assert loops(read_program(noted))[0].trips == 4
