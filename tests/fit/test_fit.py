"""`rag-jax fit`: what it counts, advises and says. Programs are compiled for one CPU device, and priced for a v5e."""

import json

import jax
import jax.numpy as jnp
import pytest
from typer.testing import CliRunner

from rag_jax import config as rag_config
from rag_jax.cli import app
from rag_jax.fit import WIKIPEDIA, make_plan, make_report, to_dict, to_text
from rag_jax.fit.activations import layer_inputs
from rag_jax.fit.advice import Memory, advise, advise_decoding, chip_multiples
from rag_jax.fit.batches import batch_shapes
from rag_jax.fit.model_flops import forward_flops, model_flops
from rag_jax.fit.plan import params_shapes
from rag_jax.fit.programs import needed
from rag_jax.fit.report import hopeless
from rag_jax.tpu.chips import CHIPS, GIB
from rag_jax.tpu.topology import can_compile

SMALL = {
    "variant": "token",
    "k": 2,
    "train.batch_size": 4,
    "data.max_question_tokens": 8,
    "data.max_passage_tokens": 21,
    "data.max_source_tokens": 32,
    "data.max_target_tokens": 8,
    "index.backend": "device",
    "index.in_step": True,
    "index.dtype": "int8",
    "eval.batch_size": 2,
}
V5E = CHIPS["v5e"]


def plan_of(passages=1000, **more):
    values = SMALL | {name.replace("__", "."): value for name, value in more.items()}
    config = rag_config.finalise(rag_config.update(rag_config.Config(), values))
    return make_plan(config, "a CPU", jax.devices()[:1], V5E, passages)


@pytest.fixture(scope="module")
def report():
    return make_report(plan_of())


def too_large(**sizes):
    zero = dict.fromkeys(("parameters", "optimizer", "index", "tokens", "batch", "activations"), 0.0)
    return Memory(**zero | {name: size * GIB for name, size in sizes.items()}, capacity=V5E.usable_bytes)


def said(command, code):
    result = CliRunner().invoke(app, ["fit", *command])
    assert result.exit_code == code, result.output
    return result


def test_the_parts_of_a_report_add_up(report):
    memory, times = report.memory, report.step.times
    assert report.fits
    assert not report.advice
    trained = sum(leaf.size * 4 for leaf in jax.tree.leaves(params_shapes(report.plan)))
    assert memory.parameters == trained
    assert memory.optimizer == pytest.approx(2 * trained, rel=1e-4)
    assert memory.index == 1000 * (128 + 4) + 4
    assert memory.tokens == 1000 * 128 * 2
    assert times.total == pytest.approx(times.products + times.other + sum(one.seconds for one in times.exchanges))
    assert 0 < report.retrieval_share < 1
    assert report.utilisation(times.total) * times.total * V5E.flops == pytest.approx(report.model_flops)
    assert times.flops > report.model_flops


def test_a_report_is_json_and_text(report):
    found = json.loads(json.dumps(to_dict(report)))
    assert found["fits"]
    assert found["memory"]["peak"] == report.memory.peak
    text = to_text(report)
    assert "1,000 passages found in the step, k=2" in text
    assert "utilisation" in text
    assert report.bound in text
    assert max(map(len, text.splitlines())) <= 120


def test_model_flops_are_three_forward_passes_of_what_is_trained():
    plan = plan_of()
    g, q, rows, source, target = plan.arch.generator, plan.arch.question_encoder, 4 * 2, 32, 8

    def layers(tokens, seen, config, hidden):
        return 2 * tokens * (4 * config.width**2 + 2 * config.width * hidden) + 4 * tokens * seen * config.width

    tower = q.layers * layers(4 * 8, 8, q, q.hidden)
    encoder = g.encoder_layers * layers(rows * source, source, g, g.encoder_hidden)
    cross = 4 * rows * (target + source) * g.width**2 + 4 * rows * target * source * g.width
    decoder = g.decoder_layers * (layers(rows * target, target, g, g.decoder_hidden) + cross)
    head = 2 * rows * target * g.width * g.table_rows
    scores = 2 * rows * q.width
    assert model_flops(plan) == pytest.approx(3 * (tower + encoder + decoder + head + scores), rel=0.02)
    frozen = model_flops(plan_of(freeze=("question_encoder",)))
    assert model_flops(plan) - frozen == pytest.approx(2 * tower, rel=0.02)
    passages = q.layers * layers(rows * 21, 21, q, q.hidden)
    both = model_flops(plan_of(index__refresh_every=10))
    assert both - model_flops(plan) == pytest.approx(3 * passages, rel=0.02)


def test_loops_are_counted_as_often_as_they_run():
    def scanned(weights, x):
        return jax.lax.scan(lambda y, w: (jax.checkpoint(jnp.dot)(y, w), None), x, weights)[0]

    weights, x = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((12, 16, 16), (8, 16)))
    assert forward_flops(scanned, weights, x) == 12 * 2 * 8 * 16 * 16


@pytest.mark.parametrize(
    ("fields", "sizes", "change"),
    [
        ({}, {"activations": 40}, "train.accumulate=4"),
        ({}, {"activations": 30}, "k=1"),
        ({}, {"activations": 30}, "train.batch_size=2"),
        ({}, {"activations": 30}, "2 chips"),
        ({}, {"activations": 30}, "model.remat=full"),
        ({"index__dtype": "bfloat16"}, {"index": 20}, "index.dtype=int8"),
        ({"index__remainders": True}, {"index": 20}, "index.remainders=false"),
        ({}, {"index": 20}, "index.backend=scann, index.in_step=false: the index in the hosts' memory"),
    ],
)
def test_what_does_not_fit_is_told_what_helps(fields, sizes, change):
    found = {one.change: one for one in advise(plan_of(**fields), too_large(**sizes))}
    assert found[change].enough
    assert found[change].peak <= V5E.usable_bytes


def test_several_changes_are_named_together_where_none_is_enough():
    plan = plan_of(index__dtype="float32", model__remat="none", train__batch_size=64)
    memory = too_large(index=40, activations=600)
    best, more_chips, *others = advise(plan, memory)
    assert best.enough
    assert "index.dtype=int8 with model.remat=full" in best.change
    assert (more_chips.change, more_chips.enough) == ("64 chips", True)
    assert others
    assert not any(one.enough for one in others)


def test_decoding_that_does_not_fit_is_told_how_many_questions_and_passages_would():
    plan = plan_of(eval__k=8, eval__batch_size=8)
    assert {one.change for one in advise_decoding(plan, 60 * GIB)} == {"eval.batch_size=2", "eval.k=2"}
    (both,) = advise_decoding(plan, 300 * GIB)
    assert both.change == "eval.batch_size=1 with eval.k=3"
    assert both.peak <= V5E.usable_bytes
    assert not advise_decoding(plan, 10 * GIB)


@pytest.mark.parametrize(("each", "expected"), [(1, []), (2, [2]), (6, [2]), (12, [2, 4]), (64, [2, 4, 8, 16, 32, 64])])
def test_no_more_chips_are_advised_than_share_the_batch_evenly(each, expected):
    assert chip_multiples(each) == expected


def test_a_smaller_batch_that_is_advised_divides_into_its_parts():
    plan = plan_of(train__batch_size=24, train__accumulate=4)
    memory = too_large(parameters=1, activations=20)
    fewer = [one.change for one in advise(plan, memory) if one.change.startswith("train.batch_size=")]
    assert fewer
    assert all(int(change.split("=")[1]) % 4 == 0 for change in fewer)


def test_a_step_that_fits_gets_no_advice():
    assert not advise(plan_of(), too_large(activations=15))


def test_a_step_far_too_large_is_not_compiled():
    plan = plan_of(k=100, train__batch_size=1 << 17, data__max_source_tokens=256, data__max_passage_tokens=240)
    memory = hopeless(plan)
    assert layer_inputs(plan) > V5E.usable_bytes
    assert memory.over
    assert not memory.compiled
    assert hopeless(plan_of()) is None


@pytest.mark.parametrize(
    ("reason", "size"),
    [
        ("E1000: the total memory required for HLO temporaries (480.00G) exceeds available HBM (15.75G).", 480.0),
        ("Ran out of memory in memory space hbm. Used 18.21G of 15.75G hbm.", 18.21),
        ("out of memory", 0.0),
    ],
)
def test_what_a_refused_program_needs_is_read_from_the_message(reason, size):
    assert needed(reason) == pytest.approx(size * GIB)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"index__in_step": False, "index__backend": "scann"},
        {"null_document": "embedding"},
        {"index__in_step": False, "retriever": "bm25"},
        {"index__in_step": False, "retriever": "gold", "null_document": "bias", "variant": "sequence"},
        {"index__in_step": False, "index__backend": "scann", "data__hf_compat_input": True, "variant": "fid"},
        {"index__in_step": False, "index__backend": "exact", "index__dtype": "", "retriever": "none"},
    ],
)
def test_batches_have_the_shapes_of_their_retriever(fields):
    plan = plan_of(**fields)
    batch = batch_shapes(plan, plan.layout, 4, plan.config.k, training=True)
    assert batch.target.shape == (4, 8)
    assert (batch.passages is None) == plan.config.index.in_step
    assert (batch.scores is not None) == (plan.config.retriever != "dpr")
    assert ("null_document" in params_shapes(plan)) == batch.null_document == ("null_document" in fields)
    assert model_flops(plan) > 0


def test_fusion_in_decoder_costs_a_decoder_for_each_question():
    token, together = plan_of(), plan_of(variant="fid")
    assert layer_inputs(token) - layer_inputs(together) == 4 * 8 * 128 * token.arch.generator.decoder_layers * 4
    assert model_flops(together) < model_flops(token)


def test_the_count_of_an_index_is_its_manifests(tmp_path):
    assert plan_of(None).passages == WIKIPEDIA
    (tmp_path / "manifest.json").write_text(
        json.dumps(
            {"format": 1, "count": 7, "dim": 0, "passages": "", "encoder": "", "backend": "device", "parameters": {}}
            | {"recall": None, "files": {}, "metric": "dot_product", "dtype": "float32"}
        )
    )
    assert plan_of(None, index__directory=str(tmp_path)).passages == 7


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (["--config=configs/nowhere.py"], 2, "configs/nowhere.py"),
        (["--config=configs/nq.py:kk=3"], 2, "kk: no such field"),
        (["--config=configs/nq.py", "--config.trian.batch_size=3"], 2, "did you mean config.train.batch_size"),
        (["--config=configs/nq.py", "--topology=h100:2x2"], 1, "no figures of chips 'h100'; there are v4, v5e"),
    ],
)
def test_mistakes_end_in_one_message(command, code, words):
    result = said(command, code)
    assert words in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.skipif(can_compile(), reason="libtpu is installed")
def test_without_libtpu_it_says_what_to_install():
    assert 'pip install "rag-jax[tpu]"' in said(["--config=configs/nq.py"], 1).stderr
