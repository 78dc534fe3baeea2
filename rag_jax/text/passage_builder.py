"""HOST. Passages of any source as a TFDS data set, without TensorFlow and without the network.

Only the array_record format is written: it is read through `data_source`, at random and without TensorFlow. Text comes
back as bytes. This module imports tensorflow_datasets, so the package does not import this module.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import tensorflow_datasets as tfds

from rag_jax.text.readers import read_passages

_BUILDER_KWARGS = {"file_format": "array_record"}


@dataclasses.dataclass(eq=False, kw_only=True)
class PassagesConfig(tfds.core.BuilderConfig):
    """Where the passages come from.

    Attributes:
      source: a file or a folder that `read_passages` reads.
    """

    source: str = ""


class Passages(tfds.core.GeneratorBasedBuilder):
    """The builder: one split, "train", of id, title and text, in the source's order."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar = {"1.0.0": "Passages of a hundred words."}

    def _info(self) -> tfds.core.DatasetInfo:
        text = tfds.features.Text()
        return tfds.core.DatasetInfo(
            builder=self,
            description="Passages cut from documents.",
            features=tfds.features.FeaturesDict({"id": text, "title": text, "text": text}),
            disable_shuffling=True,
        )

    def _split_generators(
        self, dl_manager: tfds.download.DownloadManager
    ) -> dict[str, Iterator[tuple[int, dict[str, Any]]]]:
        del dl_manager  # the source is already here
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for key, passage in enumerate(read_passages(self.builder_config.source)):
            yield key, dataclasses.asdict(passage)


def load(source: str | os.PathLike[str], data_dir: str | os.PathLike[str]) -> Sequence[dict[str, Any]]:
    """The data source of a source's passages, prepared in `data_dir` first if it is not there yet.

    A source that has changed since (in its files' names, sizes or times) is prepared again, beside the old data set.

    Args:
      source: what `read_passages` reads: a .tsv or .jsonl file, a dump, a folder of documents.
      data_dir: the directory that TFDS keeps its data sets in.

    Raises:
      FileNotFoundError: no such source.
      ReadError: a broken source.
    """
    source = pathlib.Path(source).resolve()
    config = PassagesConfig(
        name=name_of(source.name, source), description=f"Passages of {source.name}.", source=str(source)
    )
    builder = Passages(config=config, data_dir=os.fspath(data_dir), **_BUILDER_KWARGS)
    builder.download_and_prepare()
    return builder.as_data_source(split="train")


def name_of(title: str, *sources: pathlib.Path) -> str:
    """A name that changes with the sources, because TFDS takes what it finds under a name for the data set.

    Args:
      title: what the name begins with.
      sources: files or folders.

    Raises:
      FileNotFoundError: one of them is not there.
    """
    files: list[pathlib.Path] = []
    for source in sources:
        if not source.exists():
            raise FileNotFoundError(f"{source}: no such file or folder; check the path")
        files += sorted(path for path in source.rglob("*") if path.is_file()) if source.is_dir() else [source]
    about = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    readable = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in title)[:40]
    return f"{readable}_{hashlib.sha256(repr(about).encode()).hexdigest()[:12]}"
