"""HOST. Questions that TensorFlow Datasets prepared, read without TensorFlow and without the network.

A folder is what TFDS makes of a set in the array_record format, as in
`tfds.builder("natural_questions_open", file_format="array_record").download_and_prepare()`, down to its version:
`tensorflow_datasets/natural_questions_open/1.0.0`. TFDS shuffles rows as it prepares them, in the same way always.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from rag_jax.types import Question

OURS = "questions"  # the name of the sets that rag_jax.text.question_builder makes


def is_prepared(path: pathlib.Path) -> bool:
    """Whether TFDS prepared this folder."""
    return (path / "dataset_info.json").is_file() and (path / "features.json").is_file()


def questions(path: pathlib.Path, split: str, name: str, dataset: str) -> tuple[Question, ...]:
    """All questions of one split.

    Args:
      path: the folder.
      split: 'train', 'validation', 'test'.
      name: the set's name in TFDS; '' = it has none.
      dataset: the set's name here.

    Raises:
      ValueError: another set, another file format, or no such split.
    """
    import tensorflow_datasets as tfds  # takes seconds

    builder = tfds.builder_from_directory(str(path))
    expected = {OURS, name} - {""}
    if builder.name not in expected:
        raise ValueError(
            f"{path}: TFDS prepared {builder.name!r} here; data set {dataset!r} is {' or '.join(expected)}"
        )
    if split not in builder.info.splits:
        has = ", ".join(builder.info.splits)
        raise ValueError(f"{path}: no split {split!r}; there are {has} (for evaluation: config.eval.split)")
    try:
        rows = builder.as_data_source(split=split)
    except NotImplementedError as error:
        raise ValueError(
            f"{path}: not in the array_record format; prepare it again with file_format='array_record'"
        ) from error
    return tuple(_question(builder.name, split, number, row) for number, row in enumerate(rows))


def _question(name: str, split: str, number: int, row: Mapping[str, Any]) -> Question:
    """A row by the features of its set. Where it has no id, the split and the row's number make one."""
    id_, text = f"{split}-{number}", row["question"].decode()
    if name == OURS:
        return Question(row["id"].decode(), text, _texts(row["answers"]), _texts(row["positive_ids"]))
    if name == "trivia_qa":
        answer = row["answer"]
        value = () if answer["value"] == b"<unk>" else _texts([answer["value"]])  # the test set hides its answers
        return Question(row["question_id"].decode(), text, tuple(dict.fromkeys((*value, *_texts(answer["aliases"])))))
    return Question(id_, text, _texts(row["answers" if name == "web_questions" else "answer"]))


def _texts(values: Iterable[bytes]) -> tuple[str, ...]:
    return tuple(value.decode() for value in values)
