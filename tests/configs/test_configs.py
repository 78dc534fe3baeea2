"""Every file of configs/ is an experiment whose programs lower at full size, for 64 chips that are nowhere."""

import functools
import importlib
import pathlib
import re
import subprocess

import jax
import jax.numpy as jnp
import pytest

from rag_jax import config as rag_config
from rag_jax.fit import make_plan, make_plans
from rag_jax.fit.batches import reader_batch, source_width, tower_batch
from rag_jax.fit.plan import params_shapes
from rag_jax.fit.programs import Call, decoded_questions, decoding_call, train_call
from rag_jax.models.presets import BART_PRESETS
from rag_jax.rag.retrieve import encode
from rag_jax.tpu.chips import CHIPS
from rag_jax.training.reader import reader_exact

CHIP_COUNT = 64
FILES = sorted(path.stem for path in (pathlib.Path(__file__).parents[2] / "configs").glob("*.py"))
# Fields that no shape and no constant of a program depends on, but for the learning rate's.
NOT_IN_PROGRAMS = {
    "data.dataset": "files",
    "data.train_answers": "first",
    "data.regex_answers": False,
    "eval.metrics": ("em",),
    "optimizer.warmup_steps": 1,
    "train.steps": 1000,
    "train.checkpoint_every": 1000,
}


def config_of(name, arg=""):
    return importlib.import_module(f"configs.{name}").get_config(arg)


def lower_rag(config):
    """Train step and decoding, with batches that the chips can share. Equal programs are lowered once."""
    size = -(-config.train.batch_size // CHIP_COUNT) * CHIP_COUNT
    values = NOT_IN_PROGRAMS | {"train.batch_size": size}
    same = rag_config.update(rag_config.from_json(rag_config.to_json(config)), values)
    lower_programs(rag_config.to_json(rag_config.finalise(same)))


@functools.cache
def lower_programs(config_json):
    config = rag_config.finalise(rag_config.from_json(config_json))
    plan = make_plan(config, "anywhere", CHIP_COUNT, CHIPS["v5e"])
    step = train_call(plan).lower("tpu")
    state, report = step.out_info
    before = step.args_info[0][0]
    assert [leaf.shape for leaf in jax.tree.leaves(state)] == [leaf.shape for leaf in jax.tree.leaves(before)]
    assert (report["loss"].shape, report["loss"].dtype) == ((), jnp.float32)
    decode = decoding_call(plan).lower("tpu")
    rows, prior, decoded = decode.out_info
    questions, k, d = decoded_questions(plan), config.eval.k, config.data
    assert (rows is None) != config.index.in_step
    assert prior.shape == (questions, k)
    assert decoded.tokens.shape == (questions, max(1, len(d.labels)), d.max_target_tokens)
    for program in (step, decode):
        assert program.compiler_ir().operation.attributes["mhlo.num_partitions"].value == CHIP_COUNT


def lower_towers(config):
    """One step of both towers, and the encoding of as many passages."""
    lower_encoding(lower_step(make_plan(config, "anywhere", CHIP_COUNT, CHIPS["v5e"])))


def lower_pretraining(config):
    """The towers' step; the reader's step and its greedy decoding. They run on one host."""
    towers, reader = make_plans(config, "anywhere", 1, CHIPS["v5e"])
    lower_encoding(lower_step(towers))
    lower_step(reader)
    exact = jax.jit(functools.partial(reader_exact, config=BART_PRESETS["tiny"], width=source_width(reader)))
    params = params_shapes(reader)["generator"]
    decoded = Call(exact, (params,), reader_batch(reader)).lower("tpu").out_info
    assert decoded.shape == (config.pretrain.reader_batch_size,)


def lower_step(plan):
    """A step that is not a RAG's."""
    report = train_call(plan).lower("tpu").out_info[-1]
    assert (report["loss"].shape, report["loss"].dtype) == ((), jnp.float32)
    return plan


def lower_encoding(plan):
    """Of as many passages as a step has questions."""
    tower, passages = plan.arch.passage_encoder, tower_batch(plan).passages
    rows = jax.ShapeDtypeStruct((plan.questions, passages.shape[-1]), passages.dtype, sharding=passages.sharding)
    params = plan.layout.abstract(params_shapes(plan)["passage_encoder"])
    vectors = Call(encode, (tower, params, rows), {"layout": plan.layout}).lower("tpu").out_info
    assert vectors.shape == (plan.questions, tower.width)


LOWER = {"rag": lower_rag, "dpr": lower_towers, "world_pretrain": lower_pretraining}


@pytest.mark.parametrize("name", FILES)
def test_every_config_lowers_its_programs_at_full_size(name):
    config = rag_config.finalise(config_of(name))
    LOWER[config.recipe](config)


@pytest.mark.parametrize("name", FILES)
def test_every_config_takes_fields_and_says_how_it_is_launched(name):
    assert config_of(name, "seed=7").seed == 7
    with pytest.raises(rag_config.ConfigError, match=r"did you mean config\.seed"):
        config_of(name, "seeed=7")
    text = importlib.import_module(f"configs.{name}").__doc__
    assert re.search(rf"python3? train\.py --config=configs/{name}\.py", text)


def commands(text):
    """The words of each command that a shell runs of a text."""
    say = "say() { printf '%s\\036' \"$@\"; printf '\\035'; }\n"
    stand_ins = "".join(f'{name}() {{ say {name} "$@"; }}\n' for name in ("gcloud", "python3"))
    done = subprocess.run(["sh", "-ec", say + stand_ins + text], capture_output=True, text=True, check=True)
    return [call.split("\036")[:-1] for call in done.stdout.split("\035")[:-1]]


@pytest.mark.parametrize("name", sorted(set(FILES) - {"world_pretrain"}))
def test_every_config_says_how_a_pod_runs_it(name):
    text = importlib.import_module(f"configs.{name}").__doc__
    assert "--worker=all" in text
    # What a reader copies, run by a shell: its one word after --command is one command there too.
    copied = text[text.index("gcloud compute tpus tpu-vm ssh") :].split("\n\n")[0]
    (here,) = commands(copied)
    remote = here[-1].removeprefix("--command=")
    ((python, script, *flags),) = commands(remote.removeprefix("cd rag-jax && "))
    assert (python, script) == ("python3", "train.py")
    assert flags[0].startswith(f"--config=configs/{name}.py")
    assert all(flag.startswith("--") for flag in flags)
    assert {flag.split("=")[0] for flag in flags} == set(re.findall(r"(?<=\s)--(?:config|workdir)[\w.]*", copied))


@pytest.mark.parametrize(
    ("name", "arg", "fields"),
    [
        ("nq", "", {"eval.k": 50, "eval.decoding": "thorough", "eval.beams": 1, "data.train_answers": "each"}),
        ("nq", "variant=sequence", {"eval.k": 50, "eval.batch_size": 16}),
        ("nq", "variant=token", {"eval.k": 15, "eval.beams": 1}),
        ("nq", "variant=token,eval.k=20", {"eval.k": 20}),
        ("nq", "eval.k=5", {"eval.k": 5, "eval.batch_size": 32}),
        ("nq", "variant=token,eval.k=50", {"eval.k": 50, "eval.batch_size": 16}),
        ("nq", "eval.batch_size=64", {"eval.k": 50, "eval.batch_size": 64}),
        ("triviaqa", "variant=token", {"eval.k": 15, "data.train_answers": "first"}),
        ("webquestions", "", {"eval.k": 50, "data.train_answers": "each"}),
        ("curatedtrec", "", {"eval.k": 50, "data.regex_answers": True, "eval.metrics": ("regex",)}),
        ("msmarco", "", {"k": 10, "eval.k": 10, "eval.beams": 4, "eval.decoding": "fast"}),
        ("jeopardy", "variant=token", {"k": 10, "eval.k": 10, "eval.beams": 4}),
        ("fever", "", {"data.labels": ("true", "false", "unknown"), "data.max_target_tokens": 1}),
        ("fever", "ways=2,k=5", {"data.labels": ("true", "false"), "k": 5}),
        ("fever", "ways=2,data.labels=yes,no", {"data.labels": ("yes", "no")}),
    ],
)
def test_tasks_have_the_settings_of_the_paper(name, arg, fields):
    config = rag_config.finalise(config_of(name, arg))
    assert {field: rag_config.get(config, field) for field in fields} == fields
    assert config.k in (5, 10)


def test_fever_has_two_ways_or_three():
    with pytest.raises(rag_config.ConfigError, match=r"config\.ways: '4' is not one of 3, 2"):
        config_of("fever", "ways=4")
