"""HOST. Questions of the data sets that TFDS does not have, as TFDS data sets: without TensorFlow and the network.

    files = {"train": "train.jsonl", "validation": "shared_task_dev.jsonl"}
    folder = question_builder.prepare("fever", files, "tensorflow_datasets")

makes one in the array_record format, and `--config.data.questions_path` takes the folder. This module imports
tensorflow_datasets, so the package does not import this module.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import tensorflow_datasets as tfds

from rag_jax.text.passage_builder import name_of
from rag_jax.text.tasks import task_questions

_BUILDER_KWARGS = {"file_format": "array_record"}


@dataclasses.dataclass(eq=False, kw_only=True)
class QuestionsConfig(tfds.core.BuilderConfig):
    """Where the questions come from.

    Attributes:
      dataset: a name in `rag_jax.text.tasks.TASKS`.
      files: split -> a file as the set's authors publish it.
    """

    dataset: str = ""
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Questions(tfds.core.GeneratorBasedBuilder):
    """The builder: id, question, answers and the ids of positive passages, in the files' order."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar = {"1.0.0": "Questions of the paper's tasks."}

    def _info(self) -> tfds.core.DatasetInfo:
        text = tfds.features.Text()
        texts = tfds.features.Sequence(text)
        return tfds.core.DatasetInfo(
            builder=self,
            description="Questions with their answers.",
            features=tfds.features.FeaturesDict(
                {"id": text, "question": text, "answers": texts, "positive_ids": texts}
            ),
            disable_shuffling=True,
        )

    def _split_generators(
        self, dl_manager: tfds.download.DownloadManager
    ) -> dict[str, Iterator[tuple[int, dict[str, Any]]]]:
        del dl_manager  # the files are already here
        return {split: self._generate_examples(file) for split, file in self.builder_config.files.items()}

    def _generate_examples(self, file: str) -> Iterator[tuple[int, dict[str, Any]]]:
        for key, question in enumerate(task_questions(self.builder_config.dataset, file)):
            yield (
                key,
                {
                    "id": question.id,
                    "question": question.text,
                    "answers": list(question.answers),
                    "positive_ids": list(question.positive_ids),
                },
            )


def prepare(
    dataset: str, files: Mapping[str, str | os.PathLike[str]], data_dir: str | os.PathLike[str]
) -> pathlib.Path:
    """The folder of a set's questions, prepared in `data_dir` first if it is not there yet.

    Files that have changed since (in their names, sizes or times) are prepared again, beside the old data set.

    Args:
      dataset: a name in `rag_jax.text.tasks.TASKS`.
      files: split -> a file as the set's authors publish it.
      data_dir: the directory that TFDS keeps its data sets in.

    Raises:
      FileNotFoundError: no such file.
      ReadError: a broken file.
    """
    sources = {split: pathlib.Path(file).resolve() for split, file in files.items()}
    config = QuestionsConfig(
        name=name_of(dataset, *sources.values()),
        description=f"Questions of {dataset}.",
        dataset=dataset,
        files={split: str(source) for split, source in sources.items()},
    )
    builder = Questions(config=config, data_dir=os.fspath(data_dir), **_BUILDER_KWARGS)
    builder.download_and_prepare()
    return pathlib.Path(builder.data_path)
