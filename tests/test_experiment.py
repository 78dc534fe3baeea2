"""The index of a run, by what its configuration asks for."""

import json

import jax
import numpy as np
import pytest

from configs import nq
from rag_jax import config as rag_config
from rag_jax.evaluation.run import evaluate
from rag_jax.experiment import load_parts, make_retriever, passage_index, run_index
from rag_jax.index import IndexMismatch
from rag_jax.text.world_facts import world_passages, world_questions
from rag_jax.training.loop import train


@pytest.fixture(scope="module")
def values(tmp_path_factory):
    """The fields of a run over eight passages."""
    directory = tmp_path_factory.mktemp("files")
    passages = [item.passage for item in world_passages("2020")[:8]]
    ids = {passage.id for passage in passages}
    questions = [q.question for q in world_questions("2020") if q.question.positive_ids[0] in ids]
    rows = [{"id": p.id, "title": p.title, "text": p.text} for p in passages]
    (directory / "passages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [{"id": q.id, "question": q.text, "answers": list(q.answers)} for q in questions]
    (directory / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "k": 2,
        "data.dataset": "files",
        "data.passages_path": str(directory / "passages.jsonl"),
        "data.questions_path": str(directory / "questions.jsonl"),
        "train.batch_size": 2,
        "train.steps": 1,
        "optimizer.warmup_steps": 0,
    }


def final(values, **more):
    return rag_config.finalise(rag_config.update(rag_config.Config(), values | more))


def test_an_index_is_made_again_only_when_another_dtype_is_asked_for(values, tmp_path):
    parts = load_parts(final(values))
    made = []
    for dtype in ("int8", "", "bfloat16"):
        index = passage_index(parts, tmp_path / "i", "device", dtype)
        made.append(((tmp_path / "i").stat().st_ino, index.manifest.parameters["dtype"]))
    assert [dtype for _, dtype in made] == ["int8", "int8", "bfloat16"]
    assert made[0] == made[1]
    assert made[1][0] != made[2][0]


def test_an_index_of_the_run_is_made_again_for_another_token_limit_and_says_what_made_it(values, tmp_path, capsys):
    asked = values | {"index.backend": "exact", "model.init_from": "world"}
    made = []
    for limit in (20, 20, 24):
        config = final(asked, **{"data.max_passage_tokens": limit})
        made.append(run_index(config, load_parts(config), tmp_path))
        told = capsys.readouterr().err
    assert [index.manifest.made_with for index in made] == [
        {"weights": "world", "max_passage_tokens": limit} for limit in (20, 20, 24)
    ]
    assert "max_passage_tokens: 20 there, asked for 24" in told
    assert "made again" in told


def test_an_index_that_the_configuration_names_is_refused_and_never_replaced(values, tmp_path):
    asked = values | {"index.backend": "exact", "index.directory": str(tmp_path / "mine")}
    parts = load_parts(final(asked))
    run_index(final(asked), parts, tmp_path / "run")
    before = (tmp_path / "mine" / "manifest.json").read_bytes()
    with pytest.raises(IndexMismatch, match=r"backend: exact there, asked for device.*--overwrite.*of its own"):
        run_index(final(asked, **{"index.backend": "device"}), parts, tmp_path / "run")
    assert (tmp_path / "mine" / "manifest.json").read_bytes() == before
    assert not (tmp_path / "run").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="never overwritten: move it away"):
        run_index(final(asked, **{"index.directory": str(tmp_path / "empty")}), parts, tmp_path / "run")


def test_a_run_searches_on_the_device_as_it_searches_exactly(values, tmp_path):
    parts = load_parts(final(values))
    texts = [question.text for question in parts.collection.train[:5]]
    asked = parts.arch.question_encoder, parts.params["question_encoder"], parts.tokenizers.questions(texts), texts
    rows = [
        make_retriever(final(values, **{"index.backend": name}), parts, tmp_path / name, 3).find(*asked).rows
        for name in ("exact", "device")
    ]
    np.testing.assert_array_equal(*rows)


def test_with_bm25_the_generator_alone_is_trained_and_no_tower_is_loaded(values, tmp_path):
    config = final(values, retriever="bm25", **{"optimizer.retriever_learning_rate": 1e-4})
    assert config.optimizer.retriever_learning_rate is None
    parts = load_parts(config)
    assert parts.passage_encoder is None
    trained = train(config, tmp_path / "run", parts)
    assert set(trained) == {"generator"}
    moved = jax.tree.map(lambda a, b: not np.array_equal(a, b), trained, parts.params)
    assert any(jax.tree.leaves(moved))
    assert json.loads((tmp_path / "run" / "index-bm25" / "manifest.json").read_text())["backend"] == "bm25"


def test_closed_book_trains_and_answers_without_passages(values, tmp_path):
    questions = {"data.passages_path": "", "data.eval_questions_path": values["data.questions_path"]}
    few = questions | {"eval.max_questions": 2, "eval.batch_size": 2, "data.max_target_tokens": 4}
    closed = final(values, retriever="none", **few)
    parts = load_parts(closed)
    assert (len(parts.collection.passages), len(parts.collection.train) > 1) == (0, True)
    train(closed, tmp_path / "run", parts)
    asked_closed = final(values, **few, **{"eval.retriever": "none"})
    with pytest.raises(ValueError, match="passages_path: data set 'files' needs passages"):
        load_parts(asked_closed)
    for config in (closed, asked_closed):
        assert len(evaluate(config, tmp_path / "run", lambda config, place, parts: parts.params).answers) == 2


def test_a_dtype_where_there_is_no_choice_is_refused(values):
    with pytest.raises(rag_config.ConfigError, match=r"config\.index\.dtype: exact has no choice of dtype"):
        final(values, **{"index.backend": "exact", "index.dtype": "int8"})


def test_natural_questions_without_data_or_weights_names_what_to_give():
    config = rag_config.finalise(nq.get_config("variant=token"))
    with pytest.raises(ValueError, match=r"model\.init_from.*data\.passages_path.*data\.questions_path"):
        load_parts(config)
