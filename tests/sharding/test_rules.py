"""Where arrays lie, by shapes alone: no devices are needed for it."""

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, PartitionSpec

from rag_jax.rag.model import architecture, init_params
from rag_jax.sharding import Cut, CutRule, Layout, make_mesh, my_rows, state_rules


def layout(data=16, model=1, min_elements=1 << 14, **choices):
    sizes, names = ((data, model), ("data", "model")) if model > 1 else ((data,), ("data",))
    return Layout(AbstractMesh(sizes, names), state_rules(**choices), min_elements)


def test_the_first_rule_that_matches_decides():
    mesh = AbstractMesh((4,), ("data",))
    rules = (CutRule("a/.*", Cut()), CutRule(".*", Cut(data=True)))
    assert Layout(mesh, rules, 1).spec("a/kernel", (8, 4)) == PartitionSpec()
    assert Layout(mesh, rules, 1).spec("b/a/kernel", (8, 4)) == PartitionSpec("data")
    assert Layout(mesh, (), 1).spec("b/kernel", (8, 4)) == PartitionSpec()


@pytest.mark.parametrize(
    ("path", "shape", "spec"),
    [
        ("generator/x/kernel", (1024, 4096), (None, "data")),
        ("generator/x/kernel", (4096, 1024), ("data",)),
        ("generator/x/kernel", (4099, 1024), (None, "data")),  # the largest that divides
        ("generator/x/kernel", (4099, 1023), ()),
        ("generator/x/kernel", (64, 128), ()),  # small
        ("generator/encoder_layers/x/kernel", (4096, 32, 16), (None, "data")),  # not by layers
        ("generator/encoder_layers/x/kernel", (16, 1023, 17), ("data",)),  # unless nothing else divides
        ("question_encoder/layers/x/kernel", (12, 768, 768), (None, None, "data")),
    ],
)
def test_fsdp_cuts_the_largest_dimension_that_divides(path, shape, spec):
    assert layout(params="fsdp").spec(path, shape) == PartitionSpec(*spec)
    assert layout().spec(path, shape) == PartitionSpec()
    assert layout().spec(f"optimizer/1/mu/{path}", shape) == PartitionSpec(*spec)
    assert layout(optimizer="replicated").spec(f"optimizer/1/mu/{path}", shape) == PartitionSpec()


def test_a_dimension_that_the_model_axis_does_not_divide_stays_whole():
    place = layout(data=4, model=3, params="fsdp")
    assert place.spec("decoder_layers/attention/key/kernel", (12, 1024, 1023)) == PartitionSpec(None, "data", "model")
    assert place.spec("decoder_layers/attention/key/kernel", (12, 1024, 1024)) == PartitionSpec(None, None, "data")
    assert place.spec("decoder_layers/attention/output/bias", (12, 1023)) == PartitionSpec()


def test_the_papers_model_is_cut_into_equal_parts():
    shapes = jax.eval_shape(lambda key: init_params(architecture(), key), jax.random.key(0))
    del shapes["passage_encoder"]
    specs = layout(params="fsdp").shardings(shapes)
    whole = [x.size for x, s in zip(jax.tree.leaves(shapes), jax.tree.leaves(specs), strict=True) if not any(s.spec)]
    everything = sum(x.size for x in jax.tree.leaves(shapes))
    assert sum(whole) < everything / 5  # the vocabularies are odd numbers, their widths are not
    assert max(whole) < 1 << 14


def test_rules_are_made_for_known_words_only():
    with pytest.raises(ValueError, match="params='fspd'"):
        state_rules("fspd")


def test_one_device_is_a_mesh_too_and_needs_no_word():
    place = Layout(make_mesh(devices=jax.devices()[:1]), state_rules("fsdp"), 1)
    tree = {"kernel": np.arange(6, dtype=np.float32).reshape(2, 3)}
    assert place.alone
    assert place.constrain(tree) is tree
    assert place.ready(tree) is tree
    np.testing.assert_array_equal(place.to_host(place.place(tree))["kernel"], tree["kernel"])
    np.testing.assert_array_equal(my_rows(3, place.mesh), [0, 1, 2])


def test_a_model_axis_that_does_not_divide_a_host_is_refused():
    with pytest.raises(ValueError, match=r"config.sharding.model: 3 does not divide the 1 devices"):
        make_mesh(3, jax.devices()[:1])
