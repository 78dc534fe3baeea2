"""Pricing compiled programs: loops, matrix products, what lies in which memory, parts of arrays, exchanges."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rag_jax.tpu.chips import CHIPS
from rag_jax.tpu.hlo import read_program
from rag_jax.tpu.loops import loops
from rag_jax.tpu.price import price
from rag_jax.tpu.traffic import rearrangements

V5E = CHIPS["v5e"]


def text_of(function, *shapes, dtype=jnp.float32):
    inputs = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    return jax.jit(function).lower(*inputs).compile().as_text()


def entry(*lines, before=""):
    """A program of these lines, compiled for a TPU as far as its reader can tell."""
    return f"HloModule m\n{before}\nENTRY %main (x: f32[]) -> f32[] {{\n  " + "\n  ".join(lines) + "\n}\n"


def scanned(weights, x):
    return jax.lax.scan(lambda y, w: (jnp.tanh(y @ w), None), x, weights)[0]


def unrolled(weights, x):
    for w in weights:
        x = jnp.tanh(x @ w)
    return x


def test_a_scan_of_twelve_products_costs_twelve():
    cost = price(text_of(scanned, (12, 16, 16), (8, 16)), V5E)
    assert cost.flops == price(text_of(unrolled, (12, 16, 16), (8, 16)), V5E).flops == 12 * 2 * 8 * 16 * 16
    assert not cost.uncounted


def test_a_scan_reads_each_slice_of_its_weights_once_a_step():
    """Bytes grow with the steps, not with their square: a slice costs the slice, though the whole is its operand."""
    short, double, long = (price(text_of(scanned, (n, 64, 64), (8, 64)), V5E).hbm_bytes for n in (4, 8, 12))
    assert long - double == pytest.approx(double - short)
    assert 4 * 64 * 64 * 4 < double - short < 6 * 4 * 64 * 64 * 4


def test_loops_within_loops_multiply():
    def nested(weights, x):
        return jax.lax.fori_loop(0, 5, lambda _, y: scanned(weights, y), x)

    assert price(text_of(nested, (3, 8, 8), (2, 8)), V5E).flops == 5 * 3 * 2 * 2 * 8 * 8


def test_a_program_costs_its_entry_and_its_loops_passes():
    text = text_of(scanned, (12, 16, 16), (8, 16))
    program = read_program(text)
    (loop,) = loops(program)
    whole, body, test = (price(program, V5E, name) for name in (None, loop.body, loop.condition))
    outside = sum(line.hbm_bytes for line in whole.lines if line.times == 1)
    assert whole.hbm_bytes == pytest.approx(outside + 12 * body.hbm_bytes + 13 * test.hbm_bytes)
    assert whole.flops == 12 * body.flops


def test_a_loop_that_ends_on_its_data_is_reported_and_counted_once():
    text = text_of(lambda x: jax.lax.while_loop(lambda y: y.sum() < 9.0, lambda y: y @ y, x), (4, 4))
    cost = price(text, V5E)
    assert [loop.trips for loop in cost.uncounted] == [None]
    assert cost.flops == 2 * 4**3


@pytest.mark.parametrize(
    ("equation", "left", "right", "multiply_adds"),
    [
        ("ij,jk->ik", (3, 5), (5, 7), 3 * 5 * 7),
        ("bhtd,bhsd->bhts", (2, 3, 4, 5), (2, 3, 6, 5), 2 * 3 * 4 * 6 * 5),
        ("abc,abc->", (2, 3, 4), (2, 3, 4), 24),
        ("i,j->ij", (3,), (4,), 12),
    ],
)
def test_products_of_any_form_have_their_flops(equation, left, right, multiply_adds):
    text = text_of(lambda a, b: jnp.einsum(equation, a, b), left, right)
    expected = 2 * multiply_adds if " dot(" in text else 0  # XLA writes some as a multiplication, which is no product
    assert price(text, V5E).flops == expected


@pytest.mark.parametrize(
    ("labels", "window", "data", "kernel", "result", "multiply_adds"),
    [
        ("0bf_io0->0bf", "size=1", (4, 6, 10), (10, 12, 1), (4, 6, 12), 4 * 6 * 10 * 12),
        # How a TPU writes batch dimensions: along them the window meets one element of the data at each place.
        ("01bf_01oi->01bf", "size=5x3 stride=4x2 lhs_dilate=5x3",
         (5, 3, 4, 8), (5, 3, 9, 8), (5, 3, 4, 9), 15 * 4 * 9 * 8),
        ("01fb_01oi->01fb", "size=5x3 stride=5x3 pad=4_4x2_2 lhs_dilate=4x2 rhs_reversal=1x1",
         (5, 3, 8, 4), (5, 3, 9, 8), (5, 3, 9, 4), 15 * 4 * 9 * 8),
        # A true convolution: of 3 places at each of 7, one falls into the padding at either end.
        ("b0f_0io->b0f", "size=3 pad=1_1", (2, 7, 5), (3, 5, 6), (2, 7, 6), (3 * 7 - 2) * 2 * 5 * 6),
    ],
)  # fmt: skip
def test_convolutions_count_only_places_that_meet_data(labels, window, data, kernel, result, multiply_adds):
    shapes = ["f32[" + ",".join(map(str, dims)) + "]" for dims in (data, kernel, result)]
    text = entry(
        f"%a = {shapes[0]} parameter(0)",
        f"%b = {shapes[1]} parameter(1)",
        f"ROOT %c = {shapes[2]} convolution(%a, %b), window={{{window}}}, dim_labels={labels}",
    )
    assert price(text, V5E).flops == 2 * multiply_adds


KEYS = "bf16[4,2,256,128]{3,2,1,0:T(8,128)(2,1)}"
COLUMNS = "bf16[4,2,256,64]{2,3,1,0:T(8,128)(2,1)}"  # here the third axis runs fastest
WHOLE = 4 * 2 * 256 * 128 * 2


def test_what_lies_in_vector_memory_is_free():
    near = KEYS.replace("(2,1)}", "(2,1)S(1)}")
    text = entry(f"%a = {KEYS} parameter(0)", f"%b = {near} copy(%a)", f"ROOT %c = {near} negate(%b)")
    assert price(text, V5E).hbm_bytes == WHOLE


def test_an_asynchronous_copy_is_charged_once():
    near = KEYS.replace("(2,1)}", "(2,1)S(1)}")
    text = entry(
        f"%a = {KEYS} parameter(0)",
        f"%b = ({near}, {KEYS}, u32[]{{:S(2)}}) copy-start(%a)",
        f"ROOT %c = {near} copy-done(%b)",
    )
    assert price(text, V5E).hbm_bytes == WHOLE
    quarter = near.replace("[4,", "[1,")
    text = entry(
        f"%a = {KEYS} parameter(0)",
        f"%b = (({KEYS}), {quarter}, s32[]{{:S(2)}}) slice-start(%a), slice={{[0:1], [0:2], [0:256], [0:128]}}",
        f"ROOT %c = {quarter} slice-done(%b)",
    )
    assert price(text, V5E).hbm_bytes == WHOLE / 4


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    ("cache", "update", "bytes_"),
    [
        (KEYS, KEYS.replace("256", "8"), 4 * 2 * 8 * 128 * 2),  # whole tiles are written
        (KEYS, KEYS.replace("256", "4"), 2 * 4 * 2 * 8 * 128 * 2),  # half a tile: it is read before
        (COLUMNS, COLUMNS.replace("256", "4"), 2 * 4 * 2 * 128 * 64 * 2),  # four columns of 128
    ],
)
def test_an_update_in_place_costs_the_tiles_that_it_touches(cache, update, bytes_, fused):
    small = update.replace("(2,1)}", "(2,1)S(1)}")
    given = [f"%a = {cache} parameter(0)", f"%b = {small} parameter(1)", "%i = s32[]{:T(128)S(6)} parameter(2)"]
    last = f"ROOT %c = {cache} dynamic-update-slice(%a, %b, %i, %i, %i, %i)"
    if fused:
        before = "%f (a: f32[]) -> f32[] {\n  " + "\n  ".join([*given, last]) + "\n}\n"
        last = f"ROOT %d = {cache} fusion(%a, %b, %i), kind=kLoop, calls=%f"
        assert price(entry(*given, last, before=before), V5E).hbm_bytes == bytes_
    else:
        assert price(entry(*given, last), V5E).hbm_bytes == bytes_


def test_a_slice_inside_nested_fusions_costs_the_slice():
    one = KEYS.replace("[4,", "[1,")
    before = f"""%inner (p: f32[]) -> f32[] {{
  %p = {KEYS} parameter(0)
  %i = s32[] constant(0)
  ROOT %s = {one} dynamic-slice(%p, %i, %i, %i, %i), dynamic_slice_sizes={{1,2,256,128}}
}}
%outer (q: f32[]) -> f32[] {{
  %q = {KEYS} parameter(0)
  %b = {KEYS} bitcast(%q)
  %g = {one} fusion(%b), kind=kLoop, calls=%inner
  ROOT %n = {one} negate(%g)
}}
"""
    text = entry(f"%a = {KEYS} parameter(0)", f"ROOT %f = {one} fusion(%a), kind=kLoop, calls=%outer", before=before)
    assert price(text, V5E).hbm_bytes == 2 * WHOLE / 4


def test_a_fusions_product_takes_the_compilers_estimate_and_others_the_memorys_time():
    lines = ["%a = f32[128,128]{1,0:T(8,128)} parameter(0)"]
    config = 'backend_config={"window_config":{"estimated_cycles":"3000000"}}'
    product = "ROOT %d = f32[128,128]{1,0:T(8,128)} dot(%a, %a), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    cost = price(entry(*lines, f"{product}, {config}"), V5E)
    assert cost.seconds == cost.product_seconds == pytest.approx(3e6 / V5E.clock)
    cost = price(entry(*lines, f"ROOT %n = f32[128,128]{{1,0:T(8,128)}} negate(%a), {config}"), V5E)
    assert cost.seconds == pytest.approx(2 * 128 * 128 * 4 / V5E.hbm_bandwidth)
    assert (cost.product_seconds, max(cost.lines, key=lambda line: line.seconds).name) == (0, "n")


@pytest.mark.parametrize("chip", CHIPS.values(), ids=str)
def test_no_instruction_is_faster_than_memory_or_peak(chip):
    for line in price(text_of(scanned, (12, 16, 16), (8, 16)), chip).lines:
        assert line.seconds >= line.hbm_bytes / chip.hbm_bandwidth
        assert line.seconds >= line.flops / chip.flops


def test_exchanges_are_listed_with_their_bytes_and_as_often_as_they_run():
    text = entry(
        "%a = bf16[8,128]{1,0:T(8,128)(2,1)} parameter(0)",
        "%r = bf16[8,128]{1,0:T(8,128)(2,1)} all-reduce(%a), replica_groups={{0,1}}, to_apply=%add",
        "%s = (bf16[8,128]{1,0:T(8,128)(2,1)}, bf16[16,128]{1,0:T(8,128)(2,1)}) all-gather-start(%r), dimensions={0}",
        "%g = bf16[16,128]{1,0:T(8,128)(2,1)} all-gather-done(%s)",
        "ROOT %x = bf16[8,128]{1,0:T(8,128)(2,1)} reduce-scatter(%g), dimensions={0}, to_apply=%add",
        before="%add (p: bf16[]) -> bf16[] {\n  ROOT %p = bf16[] parameter(0)\n}\n",
    )
    once = 8 * 128 * 2
    cost = price(text, V5E)
    assert cost.collective_bytes == {"all-reduce": once, "all-gather": 2 * once, "reduce-scatter": 2 * once}
    assert not cost.host_transfers


def test_a_callback_is_a_transfer_to_the_host_and_arithmetic_is_none():
    def asks(x):
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    assert price(text_of(asks, (3,)), V5E).host_transfers
    assert not price(text_of(jnp.sin, (3,)), V5E).host_transfers
    near = "f32[8,128]{1,0:T(8,128)S(5)}"
    text = entry("%a = f32[8,128]{1,0:T(8,128)} parameter(0)", f"ROOT %c = {near} copy(%a)")
    assert price(text, V5E).host_transfers == ("c",)


def test_bringing_an_array_near_is_no_rearrangement_but_bringing_it_back_is_one():
    near = KEYS.replace("(2,1)}", "(2,1)S(1)}")
    text = entry(
        f"%a = {KEYS} parameter(0)",
        f"%b = ({near}, {KEYS}, u32[]{{:S(2)}}) copy-start(%a)",
        f"%c = {near} copy-done(%b)",
        f"%d = {KEYS.replace('3,2,1,0', '2,3,1,0')} copy(%a)",
        f"%back = ({KEYS}, {near}, u32[]{{:S(2)}}) copy-start(%c)",
        f"ROOT %e = {KEYS} negate(%c)",
    )
    found = rearrangements(read_program(text), "main", WHOLE)
    assert [instruction.name for instruction in found] == ["d", "back"]
    assert not rearrangements(read_program(text), "main", WHOLE + 1)


def test_an_exchange_that_goes_on_through_fusions_is_one_and_those_that_share_a_channel_are_not():
    def fused(name, channel):
        return f"%{name} (p: f32[64]) -> f32[128] {{\n  %p = f32[64]{{0}} parameter(0)\n  ROOT %g = f32[128]{{0}} all-gather(%p), channel_id={channel}, dimensions={{0}}\n}}\n"  # fmt: skip # noqa: E501

    text = entry(
        "%x = f32[64]{0} parameter(0)",
        "%a = f32[128]{0} fusion(%x), kind=kCustom, calls=%first",
        "%b = f32[128]{0} fusion(%x), kind=kCustom, calls=%second",
        "%c = f32[128]{0} fusion(%x), kind=kCustom, calls=%other",
        "%d = f32[128]{0} all-gather(%x), channel_id=1, dimensions={0}",
        "%e = f32[128]{0} all-gather(%x), channel_id=1, dimensions={0}",
        "ROOT %f = f32[64]{0} reduce-scatter(%d), channel_id=1, dimensions={0}",
        before=fused("first", 7) + fused("second", 7) + fused("other", 8),
    )
    found = [collective.operation for collective in price(text, V5E).collectives]
    assert sorted(found) == ["all-gather"] * 4 + ["reduce-scatter"]
