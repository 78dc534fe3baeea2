"""Files and a configuration for whole runs that take seconds."""

import json

import jax
import numpy as np

from rag_jax import config as rag_config
from rag_jax.text.world_facts import world_passages, world_questions


def write_files(directory, count):
    """The first passages of World Facts and the questions that they answer: passages.jsonl, questions.jsonl."""
    passages = [item.passage for item in world_passages("2020")[:count]]
    ids = {passage.id for passage in passages}
    questions = [q.question for q in world_questions("2020") if q.question.positive_ids[0] in ids]
    rows = [{"id": p.id, "title": p.title, "text": p.text} for p in passages]
    (directory / "passages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [
        {"id": q.id, "question": q.text, "answers": list(q.answers), "positive_ids": list(q.positive_ids)}
        for q in questions
    ]
    (directory / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return directory


def small(files, **values):
    """A final configuration of a few steps on those files; `values` are dotted fields with __ for dots."""
    config = rag_config.Config()
    defaults = {
        "k": 2,
        "data.dataset": "files",
        "data.passages_path": str(files / "passages.jsonl"),
        "data.questions_path": str(files / "questions.jsonl"),
        "data.eval_questions_path": str(files / "questions.jsonl"),
        "data.max_passage_tokens": 61,
        "data.max_source_tokens": 96,
        "data.max_target_tokens": 12,
        "model.dropout": 0.0,
        "index.backend": "exact",
        "optimizer.learning_rate": 1e-3,
        "optimizer.schedule": "constant",
        "optimizer.warmup_steps": 0,
        "optimizer.label_smoothing": 0.0,
        "train.batch_size": 4,
        "train.steps": 4,
        "train.log_every": 1,
        "train.checkpoint_every": 2,
        "eval.batch_size": 4,
        "eval.max_questions": 4,
    }
    rag_config.update(config, defaults | {name.replace("__", "."): value for name, value in values.items()})
    return rag_config.finalise(config)


def equal(a, b):
    return jax.tree.all(jax.tree.map(lambda x, y: bool((np.asarray(x) == np.asarray(y)).all()), a, b))
