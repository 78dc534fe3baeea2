"""`rag-jax fit` where no whole RAG is trained: the towers alone, and a tiny model from nothing."""

import importlib
import json

import jax
import pytest

from rag_jax import config as rag_config
from rag_jax.fit import make_plan, make_plans, make_report, to_dict, to_text
from rag_jax.fit.activations import estimated, layer_inputs
from rag_jax.fit.advice import Memory, advise
from rag_jax.fit.model_flops import model_flops
from rag_jax.fit.plan import params_shapes
from rag_jax.fit.programs import Program
from rag_jax.fit.report import hopeless, memory_of
from rag_jax.tpu.chips import CHIPS, GIB

V5E = CHIPS["v5e"]
SHORT = "data.max_question_tokens=8,data.max_passage_tokens=20,train.batch_size=4"
DPR = f"data.dataset=world_facts,{SHORT}"
NEGATIVES = f"data.dataset=files,model.question_encoder=tiny,model.passage_encoder=tiny,model.dtype=float32,{SHORT}"
PRETRAIN = "pretrain.tower_groups=1,pretrain.reader_batch_size=4"


def plans_of(name, arg):
    config = importlib.import_module(f"configs.{name}").get_config(arg)
    return make_plans(rag_config.finalise(config), "a CPU", jax.devices()[:1], V5E)


def towers(arg=DPR):
    (plan,) = plans_of("dpr", arg)
    return plan


def too_large(activations):
    zero = dict.fromkeys(("parameters", "optimizer", "index", "tokens", "batch"), 0.0)
    return Memory(**zero, activations=activations * GIB, capacity=V5E.usable_bytes)


@pytest.fixture(scope="module", params=["towers", "pretraining's towers", "reader"])
def report(request):
    plans = {"towers": lambda: towers(), "reader": lambda: plans_of("world_pretrain", PRETRAIN)[1]}
    first_of_two = lambda: plans_of("world_pretrain", PRETRAIN)[0]  # noqa: E731
    return make_report(plans.get(request.param, first_of_two)())


def test_the_parts_of_a_report_add_up(report):
    plan, memory, times = report.plan, report.memory, report.step.times
    assert report.fits
    assert report.retrieval is report.decode is report.retrieval_share is None
    names = {"generator"} if plan.trains == "reader" else {"question_encoder", "passage_encoder"}
    params = params_shapes(plan)
    assert set(params) == names
    trained = sum(leaf.size * 4 for leaf in jax.tree.leaves(params))
    assert memory.parameters == trained
    assert memory.optimizer == pytest.approx(2 * trained, rel=1e-4)
    assert memory.index == memory.tokens == 0
    assert times.flops == pytest.approx(report.model_flops, rel=0.1)  # nothing is recomputed
    assert times.host_transfers == 0


def test_what_takes_memory_adds_up_to_the_peak_of_the_program():
    plan = towers()
    lying = sum(leaf.size * 4 for leaf in jax.tree.leaves(params_shapes(plan))) * 3
    memory = memory_of(plan, Program(8e8, lying + 1000, None, None, "", 0.0))
    assert memory.peak == 8e8
    assert 0 < memory.batch <= 1000  # and the counts of steps, which the optimiser's bytes hold
    assert memory.activations == pytest.approx(8e8 - lying - 1000)


def test_a_report_is_json_and_text(report):
    found = json.loads(json.dumps(to_dict(report)))
    assert found["trains"] == report.plan.trains
    assert found["decode"] is found["retrieval"] is None
    text = to_text(report)
    words = {
        "dpr": "4 questions a step of 8 tokens, with 1 passage of 20 each; float32",
        "world_pretrain": "4 questions a step, sources of 128 tokens, answers of 16; float32",
    }
    if report.plan.pretraining and report.plan.trains == "towers":
        assert "8 questions a step of 32 tokens, with 1 passage of 112 each" in text
    else:
        assert words[report.plan.config.recipe] in text
    assert "Retrieval" not in text
    assert "Decoding" not in text
    assert max(map(len, text.splitlines())) <= 120


def test_model_flops_of_towers_are_three_forward_passes_of_both():
    plan = towers(f"{NEGATIVES},dpr.hard_negatives=2")
    tower = plan.arch.passage_encoder

    def forward(rows, length):
        layer = 2 * (4 * tower.width**2 + 2 * tower.width * tower.hidden) + 4 * length * tower.width
        return rows * length * tower.layers * layer

    asked, read, scores = forward(4, 8), forward(12, 20), 2 * 4 * 12 * tower.width
    assert model_flops(plan) == pytest.approx(3 * (asked + read + scores), rel=1e-6)
    frozen = towers(f"{NEGATIVES},dpr.hard_negatives=2,freeze=passage_encoder")
    assert model_flops(plan) - model_flops(frozen) == pytest.approx(2 * read, rel=1e-6)


def test_activations_of_towers_grow_with_the_passages():
    one, three = (towers(f"{NEGATIVES},dpr.hard_negatives={n}") for n in (0, 2))
    tower = one.arch.passage_encoder
    each = 4 * 20 * tower.layers * tower.width * 4
    assert layer_inputs(three) - layer_inputs(one) == 2 * each
    assert estimated(one, "full") < estimated(one, "none") < estimated(three, "none")


def test_towers_that_are_not_trained_keep_nothing():
    both, one, none = (towers(f"{NEGATIVES},freeze={names}") for names in ("", "passage_encoder", "[a-z_]*encoder"))
    tower = both.arch.question_encoder
    assert layer_inputs(both) > layer_inputs(one) == 4 * 8 * tower.layers * tower.width * 4
    assert layer_inputs(none) == 0


def test_what_towers_are_advised_is_what_their_recipe_takes():
    plan = towers(f"{NEGATIVES},dpr.hard_negatives=1")
    found = {one.change: one for one in advise(plan, too_large(24))}
    assert set(found) >= {"train.batch_size=2", "dpr.hard_negatives=0", "model.remat=full", "2 chips"}
    assert not any(change.startswith(("train.accumulate", "k=", "index.")) for change in found)
    assert all(found[change].enough for change in ("train.batch_size=2", "dpr.hard_negatives=0", "2 chips"))


def test_what_a_pretraining_is_advised_is_what_its_recipe_takes():
    both = plans_of("world_pretrain", "pretrain.tower_groups=6,pretrain.reader_batch_size=6")
    changes = [[one.change for one in advise(plan, too_large(30))] for plan in both]
    assert changes == [["pretrain.tower_groups=3"], ["pretrain.reader_batch_size=3"]]


def test_fewer_negatives_leave_the_questions_as_they_are():
    plan = towers(f"{NEGATIVES},dpr.hard_negatives=3")  # 8 tokens of a question and 4 times 20
    found = {one.change: one.peak for one in advise(plan, too_large(V5E.usable_bytes / GIB * 88 / 50))}
    assert found["dpr.hard_negatives=1"] == pytest.approx(V5E.usable_bytes * 48 / 50)


def test_a_pretraining_is_planned_wherever_it_trains():
    for fields in ("data.max_question_tokens=200,data.max_source_tokens=300", "sharding.model=2"):
        assert [plan.trains for plan in plans_of("world_pretrain", fields)] == ["towers", "reader"]


def test_towers_far_too_large_are_not_compiled():
    memory = hopeless(towers("train.batch_size=65536"))
    assert memory.over
    assert not memory.compiled
    assert hopeless(towers()) is None


def test_a_recipe_of_two_steps_has_two_plans():
    config = rag_config.finalise(importlib.import_module("configs.world_pretrain").get_config(""))
    with pytest.raises(ValueError, match="see make_plans"):
        make_plan(config, "a CPU", jax.devices()[:1], V5E)
