"""HOST. DPR's json for training retrievers: questions, each with passages that hold its answer and passages that don't.

A file is one list of objects with `question`, `answers`, `positive_ctxs`, `negative_ctxs` and `hard_negative_ctxs`; a
passage is an object with `title`, `text` and perhaps `passage_id` (or `psg_id`). Natural Questions' has 8 GB, so the
list is read object by object.
"""

from __future__ import annotations

import codecs
import dataclasses
import gzip
import hashlib
import json
import pathlib
import zlib
from collections.abc import Iterator
from typing import Any

from rag_jax.text.datasets import Collection
from rag_jax.text.faults import ReadError
from rag_jax.text.readers import read_passages, read_questions
from rag_jax.types import Passage, Question

CHUNK = 1 << 20  # characters read at a time
LONGEST = 1 << 26  # characters of one object; more is a fault in the file
_ENDINGS = (".json", ".json.gz")


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
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; check the path")
    return _examples(path)


def read_evaluation(questions_path: str | pathlib.Path, passages_path: str | pathlib.Path = "") -> Collection:
    """Evaluation questions, and the passages among which theirs have to be found; nothing to train on.

    Args:
      questions_path: DPR's json, whose questions are numbered from 1 and have all their positives as gold passages; or
        JSON lines, see `read_questions`. "": no questions.
      passages_path: see `read_passages`. "": the positives and hard negatives of DPR's json.

    Raises:
      FileNotFoundError, ReadError: see the readers.
      ValueError: JSON lines, which only name passages, without a file of passages.
    """
    if not str(questions_path):
        return Collection((), (), ())
    passages = list(read_passages(passages_path)) if str(passages_path) else None
    if not str(questions_path).endswith(_ENDINGS):
        if passages is None:
            raise ValueError(
                f"config.data.passages_path: {questions_path} names its gold passages by id, so it needs them; give "
                "the passages, or questions in DPR's json"
            )
        return Collection(passages, (), read_questions(questions_path))
    questions, found = [], {}
    for number, example in enumerate(read_examples(questions_path), start=1):
        gold = tuple(dict.fromkeys(passage.id for passage in example.positives))
        questions.append(Question(str(number), example.question, example.answers, gold))
        if passages is None:
            for passage in (*example.positives, *example.hard_negatives):
                found.setdefault(passage.id, passage)
    return Collection(list(found.values()) if passages is None else passages, (), tuple(questions))


def _examples(path: pathlib.Path) -> Iterator[RetrieverExample]:
    empty = True
    for line, record in _objects(path):
        empty = False
        question = _typed(path, line, record, "question", str)
        if not question.strip():
            raise ReadError(path, line, "the question is empty; write it or remove the object")
        answers = _typed(path, line, record, "answers", list, [])
        if not all(isinstance(answer, str) for answer in answers):
            raise ReadError(path, line, "'answers' must hold strings; quote them")
        hard = _passages(path, line, record, "hard_negative_ctxs")
        yield RetrieverExample(
            question,
            tuple(answers),
            _passages(path, line, record, "positive_ctxs"),
            hard or _passages(path, line, record, "negative_ctxs"),
        )
    if empty:
        raise ReadError(path, None, "an empty list: not one question in it; check that it was written to the end")


def _passages(path: pathlib.Path, line: int, record: dict[str, Any], name: str) -> tuple[Passage, ...]:
    found = []
    for context in _typed(path, line, record, name, list, []):
        if not isinstance(context, dict):
            raise ReadError(path, line, f"{name!r} must hold objects with title and text, not {str(context)[:80]!r}")
        title = _typed(path, line, context, "title", str, "")
        text = _typed(path, line, context, "text", str)
        given = context.get("psg_id") if context.get("passage_id") is None else context["passage_id"]
        made = "text-" + hashlib.sha256(f"{title}\n{text}".encode()).hexdigest()[:16]
        found.append(Passage(made if given is None else str(given), title, text))
    return tuple(found)


def _typed(path: pathlib.Path, line: int, record: dict[str, Any], name: str, kind: type, default: Any = None) -> Any:
    """A field of an object; null counts as absent, and an absent one has the default, if there is one."""
    value = record.get(name)
    if value is None:
        if default is None:
            raise ReadError(path, line, f"missing field {name!r} (found {', '.join(map(repr, record))}); add it")
        return default
    if not isinstance(value, kind):
        expected = "a string" if kind is str else "a list"
        raise ReadError(path, line, f"{name!r} must be {expected}, not {str(value)[:80]!r}")
    if kind is str and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            fault = f"{name!r} holds half of a surrogate pair (\\ud...); write the character"
            raise ReadError(path, line, fault) from error
    return value


def _objects(path: pathlib.Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line where it begins, object) for every element of the file's list, with one of them in memory at a time."""
    text = _Text(path)
    if text.next() != "[":
        raise ReadError(path, text.line, "no JSON list; DPR's json is one list of objects")
    text.skip()
    more = text.next() != "]"
    while more:
        if text.next() != "{":
            fault = f"here an object should begin, a question with its passages, and not {text.next()!r}"
            raise ReadError(path, text.line, fault)
        line = text.line
        yield line, text.object()
        more = text.next() == ","
        if more:
            text.skip()
    if text.next() != "]":
        raise ReadError(path, text.line, "the list breaks off here; check that the file was written to the end")


class _Text:
    """A file's characters from a place that moves on, and the line of that place."""

    def __init__(self, path: pathlib.Path):
        self.path, self.line = path, 1
        self._chunks, self._buffer, self._at = self._read(), "", 0

    def _read(self) -> Iterator[str]:
        """The file in pieces."""
        decoder = codecs.getincrementaldecoder("utf-8-sig")()
        try:
            with gzip.open(self.path) if self.path.suffix == ".gz" else self.path.open("rb") as stream:
                while raw := stream.read(CHUNK):
                    yield decoder.decode(raw)
                yield decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            raise ReadError(self.path, self.line, "not UTF-8 from here on; convert the file to UTF-8") from error
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            fault = f"the gzip archive is broken ({error}); download or copy it again"
            raise ReadError(self.path, self.line, fault) from error

    def _more(self) -> bool:
        """Takes in as much again as is there, at least a chunk; whether there was any."""
        parts, wanted = [self._buffer[self._at :]], max(CHUNK, len(self._buffer) - self._at)
        self._at = 0
        for chunk in self._chunks:
            parts.append(chunk)
            wanted -= len(chunk)
            if wanted <= 0:
                break
        self._buffer = "".join(parts)
        return len(self._buffer) > len(parts[0])

    def skip(self, end: int | None = None) -> None:
        """Moves on to `end`; None: over one character."""
        end = self._at + 1 if end is None else end
        self.line += self._buffer.count("\n", self._at, end)
        self._at = end

    def next(self) -> str:
        """The next character that is no blank, which is not taken; "" at the end."""
        while True:
            while self._at < len(self._buffer):
                if not self._buffer[self._at].isspace():
                    return self._buffer[self._at]
                self.skip()
            if not self._more():
                return ""

    def object(self) -> dict[str, Any]:
        """The JSON object that begins here, taken."""
        decoder = json.JSONDecoder()
        while True:
            try:
                value, end = decoder.raw_decode(self._buffer, self._at)
            except (ValueError, RecursionError) as error:  # perhaps its end is still in the file
                if len(self._buffer) - self._at < LONGEST and self._more():
                    continue
                fault = f"the object that begins here is broken JSON ({error}); write it again"
                raise ReadError(self.path, self.line, fault) from error
            self.skip(end)
            return value
