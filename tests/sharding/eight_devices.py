"""Runs one small RAG on one device and on eight, and prints as JSON what `test_eight_devices` asserts.

Each program is compiled once; what is compared are the largest differences from one device.
"""

import json
import re
import sys

import jax
import numpy as np

from rag_jax.index import device
from rag_jax.index.device_searcher import device_index
from rag_jax.models.bart import BartConfig
from rag_jax.models.bert import BertConfig
from rag_jax.rag.answer import decode_batch
from rag_jax.rag.model import Architecture, init_params, init_towers
from rag_jax.rag.retrieve import encode
from rag_jax.rag.rules import DecodeOptions
from rag_jax.rag.shapes import to_devices
from rag_jax.sharding import Layout, make_mesh, state_rules
from rag_jax.training.contrastive import TowerBatch, make_tower_step
from rag_jax.training.optimizer import make_optimizer, make_rules
from rag_jax.training.step import create_state, make_train_step
from rag_jax.types import Batch

V, D, B, K, PASSAGES, WIDTH = 64, 16, 16, 2, 40, 24
TABLE = (V, D)
TOWER = BertConfig(
    vocab_size=V,
    width=D,
    layers=2,
    heads=2,
    hidden=32,
    max_positions=24,
    token_types=1,
    pad_id=1,
    dropout=0.0,
    attention_dropout=0.0,
    init_std=0.3,
)
READER = BartConfig(
    vocab_size=V,
    width=D,
    encoder_layers=2,
    decoder_layers=2,
    encoder_heads=2,
    decoder_heads=2,
    encoder_hidden=32,
    decoder_hidden=32,
    max_positions=32,
    dropout=0.0,
    init_std=0.3,
    has_logits_bias=True,
)
ARCH = Architecture(TOWER, TOWER, READER)
OPTIMIZER = make_optimizer(make_rules(learning_rate=1e-2, steps=10), weight_decay=1e-3)


def layouts():
    one, eight, two = make_mesh(devices=jax.devices()[:1]), make_mesh(), make_mesh(2)
    return {
        "one": Layout(one, state_rules(), 1),
        "data": Layout(eight, state_rules(), 1),
        "plain": Layout(eight, state_rules("replicated", "replicated"), 1),
        "fsdp": Layout(eight, state_rules("fsdp"), 1),
        "model": Layout(two, state_rules("fsdp"), 1),
    }


def example(rng):
    """Parameters on the host, a batch whose sources fit two to a row, its passages' rows and all passages' vectors."""
    params = jax.device_get(jax.jit(lambda key: init_params(ARCH, key))(jax.random.key(0)))
    params.pop("passage_encoder")
    params["generator"]["final_logits_bias"] = np.where(np.arange(V) == READER.eos_id, 4, 0).astype(np.float32)
    vectors = rng.standard_normal((PASSAGES, D)).astype(np.float32)

    def tokens(*shape):
        rows = rng.integers(3, V, shape)
        return np.where(np.arange(shape[-1]) < rng.integers(2, shape[-1] + 1, (*shape[:-1], 1)), rows, 1).astype(
            np.int32
        )

    chosen = rng.integers(0, PASSAGES, (B, K))
    valid = np.ones((B, K), bool)
    valid[0, 1] = False
    weight = rng.uniform(0.5, 2, B).astype(np.float32)
    weight[3] = 0
    question, target = tokens(B, 8), tokens(B, 5)
    batch = Batch(question, tokens(B, 5), tokens(B, K, 4), vectors[chosen], valid, target, weight)
    return params, batch, np.where(valid, chosen, -1).astype(np.int32), vectors


def difference(tree, other):
    pairs = zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True)
    return float(max(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max() for a, b in pairs))


def moved(numbers):
    """Parameters after the step, where they have a gradient worth the name: Adam would make a step of its rounding."""
    return jax.tree.map(lambda p, g: np.where(np.abs(g) > 1e-6, p, 0), numbers["params"], numbers["gradient"])


def collectives(text):
    """(kind, result, jax operation) of every collective in a compiled program."""
    line = re.compile(
        r"= (\(.*?\)|\S+) (all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute)(-start)?\("
    )
    found = [(m, text[m.end() : text.find("\n", m.end())]) for m in line.finditer(text)]
    return [(m[2], m[1], (re.search(r'op_name="([^"]*)"', rest) or ["", ""])[1]) for m, rest in found]


def trained(layout, params, batch, rows, accumulate=1, variant="sequence"):
    """One step: report, gradient (Adam's first moment is a tenth of it), parameters; the program and the state."""
    state = create_state(params, OPTIMIZER, layout)
    settings = {"variant": variant, "label_smoothing": 0.1, "dropout": False, "seed": 0}
    step = make_train_step(ARCH, OPTIMIZER, **settings, accumulate=accumulate, layout=layout)
    placed, width = to_devices(batch, READER.pad_id, WIDTH, layout, accumulate)
    assert placed.slots is not None
    assert width == WIDTH
    rows = layout.rows(rows)
    program = step.lower(state, {}, placed, width, None, rows).compile()
    new, report = program(state, {}, placed, None, rows)
    gone = all(leaf.is_deleted() for leaf in jax.tree.leaves(state.trainable))
    numbers = jax.device_get({"report": report, "gradient": new.optimizer[1].mu, "params": new.trainable})
    return numbers, program.as_text(), new, gone


def contrasted(layout, rng):
    """One step of both towers, each question against the passages of all devices: report and gradient."""
    towers = jax.device_get(jax.jit(lambda key: init_towers(ARCH, key))(jax.random.key(1)))
    tokens = rng.integers(3, V, (B, 8)), rng.integers(3, V, (B, 2, 12))
    valid = np.ones((B, 2), bool)
    valid[::3, 1] = False
    batch = TowerBatch(*(rows.astype(np.int32) for rows in tokens), valid)
    step = make_tower_step(ARCH, OPTIMIZER, dropout=False, seed=0, layout=layout)
    state, report = step(create_state(towers, OPTIMIZER, layout), {}, layout.rows(batch))
    return jax.device_get({"report": report, "gradient": state.optimizer[1].mu})


def decoded(layout, params, batch, *hows):
    placed, options = layout.place(params), DecodeOptions(max_new_tokens=5, num_beams=2)
    batch, width = to_devices(batch.replace(target=None, weight=None), READER.pad_id, WIDTH, layout)
    settings = {"width": width, "options": options, "layout": layout}
    variants = {"token": ("token", False), "thorough": ("sequence", False), "fast": ("sequence", True)}
    variants["together"] = "fid", False
    return {
        how: jax.device_get(decode_batch(placed, ARCH, batch, variant=variant, fast=fast, **settings))
        for how, (variant, fast) in variants.items()
        if how in hows
    }


def found(layout, params, batch, vectors):
    index = device_index(vectors, mesh=layout.mesh)
    queries = encode(TOWER, layout.place(params["question_encoder"]), layout.rows(batch.question), layout=layout)
    return jax.device_get(jax.jit(device.search, static_argnames="k")(index, queries, k=5))


def main():
    params, batch, rows, vectors = example(np.random.default_rng(0))
    before = jax.tree.map(np.copy, params)
    places = layouts()
    steps = {name: trained(layout, params, batch, rows, 1 + (name == "plain")) for name, layout in places.items()}
    out = {"steps": {}, "programs": {}, "specs": {}, "decoded": {}, "found": {}, "towers": {}}
    alone = contrasted(places["one"], np.random.default_rng(1))
    for name in ("data", "fsdp"):
        towers = contrasted(places[name], np.random.default_rng(1))
        out["towers"][name] = {key: difference(towers[key], alone[key]) for key in towers}
        out["towers"][name]["largest"] = max(float(np.abs(g).max()) for g in jax.tree.leaves(towers["gradient"]))
    for name, (numbers, text, state, gone) in steps.items():
        out["steps"][name] = {key: difference(value, steps["one"][0][key]) for key, value in numbers.items()}
        out["steps"][name]["params"] = difference(*(moved(found[0]) for found in (steps[name], steps["one"])))
        out["programs"][name] = collectives(text)
        groups = {"trainable": state.trainable, "optimizer": state.optimizer[1].mu}
        leaves = {
            f"{g}/{jax.tree_util.keystr(p, simple=True, separator='/')}": leaf
            for g, tree in groups.items()
            for p, leaf in jax.tree.leaves_with_path(tree)
        }
        out["specs"][name] = {
            path: [list(leaf.sharding.spec), leaf.shape, leaf.addressable_shards[0].data.size]
            for path, leaf in leaves.items()
        }
        out["steps"][name]["donated"] = gone
        out["steps"][name]["loss"] = float(numbers["report"]["loss"])
    together = [trained(places[name], params, batch, rows, variant="fid")[0] for name in ("one", "data")]
    out["together"] = {key: difference(together[1][key], value) for key, value in together[0].items()}
    out["together"]["params"] = difference(*map(moved, together))
    found_rows = rows[rows >= 0]
    distinct = len(np.unique(found_rows)) / len(found_rows)
    out["distinct"] = [distinct, float(steps["one"][0]["report"]["distinct_passages"])]
    out["untouched"] = difference(params, before) == 0
    expected = decoded(places["one"], params, batch, "token", "thorough", "fast", "together")
    here = found(places["one"], params, batch, vectors)
    # With cut parameters no run decodes: evaluation makes them whole, and this is the cheaper pair to compile.
    for name, hows in {"data": ("token", "thorough", "together"), "fsdp": ("token", "fast")}.items():
        for how, (_, prior, answers) in decoded(places[name], params, batch, *hows).items():
            _, wanted_prior, wanted = expected[how]
            out["decoded"][f"{name} {how}"] = {
                "same tokens": bool((answers.tokens == wanted.tokens).all()),
                "numbers": difference(
                    (np.exp(prior), answers.logprob, answers.posterior),
                    (np.exp(wanted_prior), wanted.logprob, wanted.posterior),
                ),
                "lengths": sorted({int(n) for n in (answers.tokens[:, 0] != 1).sum(-1)}),
            }
        ids, scores = found(places[name], params, batch, vectors)
        out["found"][name] = {"same ids": bool((ids == here[0]).all()), "scores": difference(scores, here[1])}
    json.dump(out, sys.stdout)


if __name__ == "__main__":
    main()
