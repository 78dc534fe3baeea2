"""HOST. DPR's json for training retrievers: questions, each with passages that hold its answer and passages that don't.

A file is one list of objects with `question`, `answers`, `positive_ctxs`, `negative_ctxs` and `hard_negative_ctxs`; a
passage is an object with `title`, `text` and perhaps `passage_id` (or `psg_id`). Natural Questions' has 8 GB, so the
list is read object by object.
"""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
from collections.abc import Iterator

from rag_jax.text.datasets import Collection
from rag_jax.text.faults import ReadError
from rag_jax.text.readers import read_passages, read_questions
from rag_jax.text.records import Record, ending, existing, json_array
from rag_jax.types import Passage, Question


@dataclasses.dataclass(frozen=True, slots=True)
class RetrieverExample:
    """A question to train a retriever on.

    Attributes:
      question: its text.
      answers: may be empty.
      positives: passages that hold the answer, the file's order; may be empty.
      hard_negatives: passages that look as if they did, the likeliest first; where the file has none its other
        negatives.
    """

    question: str
    answers: tuple[str, ...]
    positives: tuple[Passage, ...]
    hard_negatives: tuple[Passage, ...]


def read_examples(path: str | pathlib.Path) -> Iterator[RetrieverExample]:
    """The file's questions one by one; plain or gzipped. A passage without an id gets one made from its text.

    Raises:
      FileNotFoundError: no such file; at once.
      ReadError: no list of objects, a missing or ill-typed field, broken JSON, text that is not UTF-8, a broken
        archive, an empty list; with the line where the object begins.
    """
    return _examples(existing(path))


def read_evaluation(questions_path: str | pathlib.Path, passages_path: str | pathlib.Path = "") -> Collection:
    """Evaluation questions, and the passages among which theirs have to be found; nothing to train on.

    Args:
      questions_path: DPR's json, whose questions are numbered from 0 and have all their positives as gold passages; or
        JSON lines, see `read_questions`. "": no questions.
      passages_path: see `read_passages`. "": the positives and hard negatives of DPR's json.

    Raises:
      FileNotFoundError, ReadError: see the readers.
      ValueError: JSON lines, which only name passages, without a file of passages.
    """
    if not str(questions_path):
        return Collection((), (), ())
    passages = list(read_passages(passages_path)) if str(passages_path) else None
    if ending(pathlib.Path(questions_path)) != ".json":
        if passages is None:
            raise ValueError(
                f"config.data.passages_path: {questions_path} names its gold passages by id, so it needs them; give "
                "the passages, or questions in DPR's json"
            )
        return Collection(passages, (), read_questions(questions_path))
    questions: list[Question] = []
    found: dict[str, Passage] = {}
    for number, example in enumerate(read_examples(questions_path)):
        gold = tuple(dict.fromkeys(passage.id for passage in example.positives))
        questions.append(Question(str(number), example.question, example.answers, gold))
        if passages is None:
            for passage in (*example.positives, *example.hard_negatives):
                found.setdefault(passage.id, passage)
    return Collection(list(found.values()) if passages is None else passages, (), tuple(questions))


def _examples(path: pathlib.Path) -> Iterator[RetrieverExample]:
    empty = True
    for record in json_array(path):
        empty = False
        yield RetrieverExample(
            record.words("question"),
            record.texts("answers"),
            _passages(record, "positive_ctxs"),
            _passages(record, "hard_negative_ctxs") or _passages(record, "negative_ctxs"),
        )
    if empty:
        raise ReadError(path, None, "an empty list: not one question in it; check that it was written to the end")


def _passages(record: Record, name: str) -> tuple[Passage, ...]:
    found = []
    for passage in record.inner(name, record.fields.get(name, [])):
        title = passage.text("title", '; write "title": "" for a passage without one')
        text = passage.text("text")
        ids = [passage.id(field) for field in ("passage_id", "psg_id") if field in passage.fields]
        made = "text-" + hashlib.sha256(f"{title}\n{text}".encode()).hexdigest()[:16]
        found.append(Passage([*ids, made][0], title, text))
    return tuple(found)
