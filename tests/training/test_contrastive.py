"""The contrastive loss and its batches."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rag_jax.models.presets import BERT_PRESETS
from rag_jax.rag.model import architecture, init_towers
from rag_jax.text.readers import ReadError
from rag_jax.text.tokens import Tokenizers, train_tokenizer
from rag_jax.text.world_facts import countries, world_passages
from rag_jax.training.contrastive import TowerBatch, in_batch_loss, tower_loss
from rag_jax.training.tower_batches import DprExamples, WorldGroups

LIMITS = {"max_question": 16, "max_passage": 24, "max_target": 8}


@pytest.fixture(scope="module")
def tokenizers():
    texts = [f"{item.passage.title} {item.passage.text}" for item in world_passages("2020")[:200]]
    return Tokenizers.shared(train_tokenizer(texts, 600), **LIMITS)


def equal(one, other):
    return jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), one, other))


def test_the_loss_is_that_of_choosing_among_all_passages_of_the_batch():
    questions, passages = jnp.eye(2), jnp.asarray([[1.0, 0.0], [0.5, 2.0], [0.0, 3.0]])
    loss, right = in_batch_loss(questions, passages, jnp.asarray([0, 1]))
    scores = np.array([[1.0, 0.5, 0.0], [0.0, 2.0, 3.0]])
    share = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    assert float(loss) == pytest.approx(-np.log([share[0, 0], share[1, 1]]).mean(), abs=1e-6)
    assert right.tolist() == [True, False]


def test_a_place_without_a_hard_negative_counts_nowhere_and_has_no_gradient(rng):
    questions, passages = (jnp.asarray(rng.normal(size=(n, 4)), jnp.float32) for n in (2, 4))
    valid, positive = jnp.asarray([True, False, True, False]), jnp.asarray([0, 2])
    loss = lambda passages: in_batch_loss(questions, passages, positive, valid)[0]  # noqa: E731
    alone = in_batch_loss(questions, passages[::2], jnp.asarray([0, 1]))[0]
    assert float(loss(passages)) == pytest.approx(float(alone), abs=1e-6)
    gradient = jax.grad(loss)(passages)
    assert np.isfinite(gradient).all()
    assert (gradient[1::2] == 0).all()
    assert (gradient[::2] != 0).any()


def test_hard_negatives_of_one_question_are_negatives_of_all(rng):
    arch = architecture("tiny", "tiny", "tiny", dropout=0.0)
    params = jax.jit(lambda key: init_towers(arch, key))(jax.random.key(0))
    tokens = [jnp.asarray(rng.integers(5, 500, shape), jnp.int32) for shape in ((2, 6), (2, 2, 8))]
    batch = TowerBatch(*tokens, jnp.ones((2, 2), bool))
    loss, _ = jax.jit(lambda params, batch: tower_loss(params, arch, batch))(params, batch)
    # The passages in another order, each question's own still known: nothing depends on whose negative it is.
    turned = batch.replace(passages=batch.passages.at[:, 1].set(batch.passages[::-1, 1]))
    other, _ = jax.jit(lambda params, batch: tower_loss(params, arch, batch))(params, turned)
    assert float(loss) == pytest.approx(float(other), abs=1e-5)
    fewer, _ = jax.jit(lambda params, batch: tower_loss(params, arch, batch))(
        params, batch.replace(valid=batch.valid.at[1, 1].set(False))
    )
    assert float(fewer) < float(loss)


def test_towers_of_one_size_start_alike_and_others_do_not():
    arch = architecture("tiny", "tiny", "tiny")
    towers = init_towers(arch, jax.random.key(0))
    assert equal(towers["question_encoder"], towers["passage_encoder"])
    wider = dataclasses.replace(arch, passage_encoder=dataclasses.replace(BERT_PRESETS["tiny"], hidden=64))
    shapes = jax.eval_shape(lambda: init_towers(wider, jax.random.key(0)))
    kernels = {name: tower["layers"]["feed_forward"]["wide"]["kernel"].shape for name, tower in shapes.items()}
    assert kernels == {"question_encoder": (2, 128, 512), "passage_encoder": (2, 128, 64)}


def test_groups_are_a_function_of_seed_and_step_and_tell_of_no_hidden_country(tokenizers):
    source = WorldGroups(tokenizers, 48, seed=3)
    again = WorldGroups(tokenizers, 48, seed=3)
    assert equal(source.batch(5), again.batch(5))
    assert not equal(source.batch(5), source.batch(6))
    assert not equal(source.batch(5), WorldGroups(tokenizers, 48, seed=4).batch(5))
    batch = source.batch(0)
    assert (batch.question.shape, batch.passages.shape) == ((48, 16), (48, 1, 24))
    rows = {row.tobytes() for row in batch.passages[:, 0]}
    assert len(rows) == 48, "a passage that stands twice would be its own negative"
    hidden = set(countries("2020", "test")) - set(countries("2020", "train"))
    titles = [tokenizers.text(row[:8]) for step in range(4) for row in source.batch(step).passages[:, 0]]
    assert not [title for title in titles if title.partition(":")[0].strip() in hidden]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Nine questions: with five hard negatives, with one, with none; and one without its own passage."""
    items = [item.passage for item in world_passages("2020")]
    context = lambda p: {"title": p.title, "text": p.text, "passage_id": p.id}  # noqa: E731
    records = [
        {
            "question": f"question {n}",
            "answers": [],
            "positive_ctxs": [context(items[n])],
            "hard_negative_ctxs": [context(p) for p in items[20 + 5 * n :][: (5, 1, 0)[n % 3]]],
        }
        for n in range(9)
    ]
    path = tmp_path_factory.mktemp("dpr") / "train.json"
    path.write_text(json.dumps([*records, {"question": "without", "answers": [], "positive_ctxs": []}], indent=2))
    return path


def test_every_question_meets_its_own_passage_and_draws_hard_negatives_without_repeats(tokenizers, file):
    items = [item.passage for item in world_passages("2020")]
    examples = DprExamples.read(file, tokenizers, kept_negatives=4)
    own = tokenizers.passages(items[:9])
    asked = [row.tobytes() for row in examples.question]
    seen = set()
    for step in range(6):
        batch = examples.batch(step, 6, seed=1, hard_negatives=2)
        assert equal(batch, examples.batch(step, 6, 1, 2))
        assert batch.passages.shape == (6, 3, 24)
        for question, passages, valid in zip(batch.question, batch.passages, batch.valid, strict=True):
            number = asked.index(question.tobytes())
            seen.add(number)
            np.testing.assert_array_equal(passages[0, : own.shape[1]], own[number])
            assert valid.tolist() == [[True] * 3, [True, True, False], [True, False, False]][number % 3]
            if number % 3 == 0:
                kept = tokenizers.passages(items[20 + 5 * number :][:4])
                drawn = [
                    next(n for n, row in enumerate(kept) if (row == p[: kept.shape[1]]).all()) for p in passages[1:]
                ]
                assert len(set(drawn)) == 2
    assert seen == set(range(9)), "four epochs are in six batches"
    assert examples.batch(0, 4, 1, 0).passages.shape == (4, 1, 24)


def test_a_file_without_any_positive_passage_is_refused(tokenizers, tmp_path):
    (tmp_path / "train.json").write_text('[{"question": "q", "answers": [], "positive_ctxs": []}]')
    with pytest.raises(ReadError, match="no question has a positive passage"):
        DprExamples.read(tmp_path / "train.json", tokenizers, 3)
