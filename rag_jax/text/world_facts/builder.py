"""HOST. World Facts as a TFDS data set, without TensorFlow and without the network.

Only the array_record format is written: it is read through `data_source`, which needs no TensorFlow. Text comes back
as bytes. This module imports tensorflow_datasets, so the package does not import this module.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import tensorflow_datasets as tfds

from rag_jax.text.world_facts.facts import EDITIONS, SPLITS
from rag_jax.text.world_facts.passages import world_passages
from rag_jax.text.world_facts.questions import world_questions

_BUILDER_KWARGS = {"file_format": "array_record"}


@dataclasses.dataclass(eq=False, kw_only=True)
class WorldFactsConfig(tfds.core.BuilderConfig):
    """An edition's passages or its questions."""

    edition: str = "2020"
    what: str = "passages"


def _config(what: str, edition: str) -> WorldFactsConfig:
    return WorldFactsConfig(
        name=f"{what}_{edition}", description=f"The {what} of {edition}.", edition=edition, what=what
    )


class WorldFacts(tfds.core.GeneratorBasedBuilder):
    """The builder; rows keep the order of `world_passages` and `world_questions`."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar = {"1.0.0": "The editions of 2016 and 2020."}
    BUILDER_CONFIGS: ClassVar = [_config(what, edition) for what in ("passages", "questions") for edition in EDITIONS]

    def _info(self) -> tfds.core.DatasetInfo:
        text = tfds.features.Text()
        if self.builder_config.what == "passages":
            fields = {
                "id": text,
                "title": text,
                "text": text,
                "country": text,
                "relations": tfds.features.Sequence(text),
            }
        else:
            fields = {
                "id": text,
                "text": text,
                "answers": tfds.features.Sequence(text),
                "positive_ids": tfds.features.Sequence(text),
                "country": text,
                "relation": text,
            }
        return tfds.core.DatasetInfo(
            builder=self,
            description="Facts on the countries of the world, told in passages and asked for in questions.",
            features=tfds.features.FeaturesDict(fields),
            license="CC0-1.0",
            disable_shuffling=True,
        )

    def _split_generators(
        self, dl_manager: tfds.download.DownloadManager
    ) -> dict[str, Iterator[tuple[int, dict[str, Any]]]]:
        del dl_manager  # the tables are in the package
        splits = ("train",) if self.builder_config.what == "passages" else SPLITS
        return {split: self._generate_examples(split) for split in splits}

    def _generate_examples(self, split: str) -> Iterator[tuple[int, dict[str, Any]]]:
        edition = self.builder_config.edition
        if self.builder_config.what == "passages":
            for key, entry in enumerate(world_passages(edition)):
                yield key, {**dataclasses.asdict(entry.passage), "country": entry.country, "relations": entry.relations}
        else:
            for key, asked in enumerate(world_questions(edition, split)):
                yield key, {**dataclasses.asdict(asked.question), "country": asked.country, "relation": asked.relation}


def load(config: str, data_dir: str | os.PathLike[str]) -> Mapping[str, Sequence[dict[str, Any]]]:
    """The data sources of a config by split, prepared in `data_dir` first if they are not there yet.

    Args:
      config: "passages_2016", "passages_2020" (one split, "train"), "questions_2016" or "questions_2020" (three).
      data_dir: the directory that TFDS keeps its data sets in.
    """
    names = [known.name for known in WorldFacts.BUILDER_CONFIGS]
    if config not in names:
        raise ValueError(f"no config {config!r} of World Facts; choose from {', '.join(names)}")
    builder = WorldFacts(config=config, data_dir=os.fspath(data_dir), **_BUILDER_KWARGS)
    builder.download_and_prepare()
    return {split: builder.as_data_source(split=split) for split in builder.info.splits}
