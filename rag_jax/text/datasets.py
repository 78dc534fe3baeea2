"""HOST. The passages and questions of a data set, by its name or from files."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence

from rag_jax.text import world_facts
from rag_jax.text.readers import read_passages, read_questions
from rag_jax.text.table import PassageTable
from rag_jax.text.tasks import TASKS, task_passages, task_questions
from rag_jax.types import Passage, Question

DATASETS = ("world_facts", "files", *TASKS)


@dataclasses.dataclass(frozen=True)
class Collection:
    """What a run reads.

    Attributes:
      passages: what the index is built over: in memory, or a table on disk; empty when they were not asked for.
      train: questions to train on; empty when there are none.
      evaluation: questions to evaluate on; empty when there are none.
      validation: questions to choose checkpoints by; empty when there are none.
    """

    passages: Sequence[Passage]
    train: tuple[Question, ...]
    evaluation: tuple[Question, ...]
    validation: tuple[Question, ...] = ()


def load_collection(
    dataset: str,
    *,
    edition: str = "2020",
    split: str = "test",
    passages_path: str = "",
    questions_path: str = "",
    eval_questions_path: str = "",
    validation_questions_path: str = "",
    labels: Sequence[str] = (),
    with_passages: bool = True,
) -> Collection:
    """Reads a data set.

    Args:
      dataset: 'world_facts'; 'files' for the paths; or a set of the paper's, a name in `TASKS`, whose questions
        are in its authors' format or prepared by TFDS. A path that is given replaces the data set's own part.
      edition: of World Facts.
      split: the questions to evaluate on, for data sets that have splits.
      passages_path: whatever `read_passages` reads (DPR's tab-separated file, JSON lines, a Wikipedia dump, a folder
        of documents), held in memory; or the directory of a `PassageTable`, of which nothing is. '' = the passages that
        the data set brings.
      questions_path: questions to train on: JSON lines; for a set of the paper's see `task_questions`.
      eval_questions_path: questions to evaluate on.
      validation_questions_path: questions to choose checkpoints by; of what TFDS prepared the split "validation".
      labels: what stands for the set's labels, see `task_questions`.
      with_passages: whether passages are read at all; closed book has no use for them.

    Raises:
      FileNotFoundError: a path with nothing there.
      ValueError: an unknown data set, edition or split; passages that are missing; a broken passage table.
      ReadError: a broken file, named with its line.
    """
    if dataset not in DATASETS:
        raise ValueError(f"no data set {dataset!r}; choose from {', '.join(DATASETS)}")
    passages: Sequence[Passage] = ()
    train: tuple[Question, ...] = ()
    evaluation: tuple[Question, ...] = ()
    validation: tuple[Question, ...] = ()
    if dataset == "world_facts":
        train = tuple(item.question for item in world_facts.world_questions(edition, "train"))
        evaluation = tuple(item.question for item in world_facts.world_questions(edition, split))
        validation = tuple(item.question for item in world_facts.world_questions(edition, "validation"))
    if with_passages:
        paths = questions_path, eval_questions_path, validation_questions_path
        passages = _passages(dataset, edition, passages_path, [path for path in paths if path])
    if questions_path and dataset in TASKS:
        train = task_questions(dataset, questions_path, words=labels, training=True)
    elif questions_path:
        train = read_questions(questions_path)
    if eval_questions_path and dataset in TASKS:
        evaluation = task_questions(dataset, eval_questions_path, split, words=labels)
    elif eval_questions_path:
        evaluation = read_questions(eval_questions_path)
    if validation_questions_path and dataset in TASKS:
        validation = task_questions(dataset, validation_questions_path, "validation", words=labels)
    elif validation_questions_path:
        validation = read_questions(validation_questions_path)
    return Collection(passages, train, evaluation, validation)


def _passages(dataset: str, edition: str, passages_path: str, question_paths: Sequence[str]) -> Sequence[Passage]:
    """Those of the path that is given, else those that the data set brings; at least one."""
    passages: Sequence[Passage] = ()
    if passages_path:
        is_table = (pathlib.Path(passages_path) / "table.json").is_file()
        passages = PassageTable.open(passages_path) if is_table else list(read_passages(passages_path))
    elif dataset in TASKS:
        passages = task_passages(dataset, question_paths)
    elif dataset == "world_facts":
        passages = [item.passage for item in world_facts.world_passages(edition)]
    if not passages:
        raise ValueError(f"config.data.passages_path: data set {dataset!r} needs passages")
    return passages


def spread(questions: Sequence[Question], most: int | None) -> tuple[Question, ...]:
    """At most `most` questions, evenly spaced: files are often sorted by subject, so the first ones are no sample."""
    if most is None or len(questions) <= most:
        return tuple(questions)
    return tuple(questions[index * len(questions) // most] for index in range(most))
