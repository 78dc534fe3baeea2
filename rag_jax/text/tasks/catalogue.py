"""HOST. The data sets by name: which files each comes in, by their endings, and who reads them."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from rag_jax.text.faults import ReadError
from rag_jax.text.records import ending, existing, unique
from rag_jax.text.tasks import (
    curated_trec,
    dpr,
    fever,
    jeopardy,
    ms_marco,
    nq_open,
    prepared,
    trivia_qa,
    web_questions,
)
from rag_jax.types import Passage, Question

FOLDER = "a folder"
Questions = Callable[[pathlib.Path], Iterator[tuple[int | None, Question]]]
Passages = Callable[[pathlib.Path], Iterator[tuple[int | None, Passage]]]


@dataclasses.dataclass(frozen=True)
class Task:
    """One data set.

    Attributes:
      readers: an ending ('.jsonl') or `FOLDER` -> the reader of such a file's questions.
      prepared: the set's name in TFDS; '' = it is not there.
      passages: the reader of the passages that a file of questions brings with it; None: it brings none.
      labels: the classes, where an answer is one of these; () where it is a text.
      regexes: whether answers are regexes. To train on, each question gets a string instead.
    """

    readers: Mapping[str, Questions]
    prepared: str = ""
    passages: Passages | None = None
    labels: tuple[str, ...] = ()
    regexes: bool = False


_OPEN = {".csv": dpr.csv_questions, ".jsonl": nq_open.questions}
_SYMMETRIC = {".jsonl": fever.symmetric_questions}
TASKS = {
    "natural_questions": Task(_OPEN | {".json": dpr.json_questions}, "natural_questions_open"),
    "trivia_qa": Task(_OPEN | {".json": trivia_qa.questions}, "trivia_qa"),
    "web_questions": Task(_OPEN | {".json": web_questions.questions}, "web_questions"),
    "curated_trec": Task(_OPEN | {".tsv": curated_trec.questions}, regexes=True),
    "ms_marco": Task({".json": ms_marco.questions}, passages=ms_marco.passages),
    "jeopardy": Task({".json": jeopardy.array_questions, FOLDER: jeopardy.folder_questions}),
    "fever": Task({".jsonl": fever.questions}, labels=fever.LABELS),
    "fever_symmetric": Task(_SYMMETRIC, passages=fever.symmetric_passages, labels=fever.LABELS),
}


def task_questions(
    name: str, path: str | pathlib.Path, split: str = "train", words: Sequence[str] = (), training: bool = False
) -> tuple[Question, ...]:
    """All questions of a file, in its order.

    Args:
      name: of a data set in `TASKS`.
      path: a file as its authors publish it (which may end in `.gz`), or a folder that TFDS prepared: of the set where
        TFDS has it, else by `rag_jax.text.question_builder`.
      split: of what TFDS prepared; a file is one split.
      words: what stands for the set's labels, in their order. Claims with a label beyond them are left out: with two
        words FEVER is 2-way. () = the labels as they are.
      training: regexes are replaced by strings that they stand for.

    Raises:
      FileNotFoundError: no such file or folder.
      ReadError: an ending that no reader knows, or a fault in the file.
      ValueError: words for a set without labels, or more words than it has; a prepared set of another name, or without
        this split.
    """
    task, path = TASKS[name], pathlib.Path(path)
    if words and not 2 <= len(words) <= len(task.labels):
        have = f"its labels are {', '.join(task.labels)}" if task.labels else "its answers are texts"
        raise ValueError(f"config.data.labels: {len(words)} words for data set {name!r}, but {have}")
    if prepared.is_prepared(path):
        questions = prepared.questions(path, split, task.prepared, name)
    else:
        rows = _reader(name, path)(path)
        if task.regexes:
            rows = curated_trec.checked(path, rows)
        questions = tuple(unique(path, rows, "question"))
    if training and task.regexes:
        questions = tuple(map(curated_trec.with_target, questions))
    return _worded(questions, dict(zip(task.labels, words, strict=False))) if words else questions


def task_passages(name: str, paths: Sequence[str | pathlib.Path]) -> list[Passage]:
    """The passages that files of questions bring with them, each once; none where the set brings none.

    Raises:
      FileNotFoundError: no such file.
      ReadError: a fault in a file.
    """
    read = TASKS[name].passages
    found: dict[str, Passage] = {}
    for path in map(pathlib.Path, paths):
        if read is not None and not prepared.is_prepared(path):  # what TFDS prepared holds the questions alone
            found |= {passage.id: passage for _, passage in read(existing(path))}
    return list(found.values())


def _reader(name: str, path: pathlib.Path) -> Questions:
    readers = TASKS[name].readers
    if path.is_dir() and FOLDER in readers:
        return readers[FOLDER]
    kind = ending(existing(path))
    if kind not in readers:
        raise ReadError(path, None, f"questions of {name!r} are read from {' or '.join(readers)}; convert or rename it")
    return readers[kind]


def _worded(questions: Sequence[Question], words: Mapping[str, str]) -> tuple[Question, ...]:
    """Labels as the words that stand for them; questions whose label has none are left out."""
    kept = [question for question in questions if all(answer in words for answer in question.answers)]
    return tuple(
        dataclasses.replace(question, answers=tuple(words[answer] for answer in question.answers)) for question in kept
    )
