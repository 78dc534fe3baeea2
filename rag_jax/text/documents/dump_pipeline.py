"""HOST. A whole dump cut into passages by Apache Beam, on one machine or many: the same passages as `read_passages`.

    python -m rag_jax.text.documents.dump_pipeline --output=passages --shards=64 --dumps 'enwiki-*-articles*.bz2'

Wikipedia publishes its dump whole and in parts; each file given is read by one worker from its start to its end, and
the pages, which cost the most, are worked on by all. Other options are Beam's own (`--runner`, `--direct_num_workers`,
and so on). The JSON lines that it writes are in no order; joined end to end they are one file for `read_passages`.
This module imports apache_beam (the extra `beam`), so the package does not import this module.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence

import apache_beam as beam
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from rag_jax.text.documents.document import PASSAGE_WORDS, cut
from rag_jax.text.documents.dump import Page, article, read_pages
from rag_jax.types import Passage


class ReadDumps(beam.PTransform):
    """Passages of the articles in dumps.

    Args:
      patterns: the dumps' paths, in any place that Beam reads (files, gs://, s3://, hdfs://); `*` stands for any part.
      words: the length of a passage.
    """

    def __init__(self, patterns: Sequence[str], words: int = PASSAGE_WORDS):
        super().__init__()
        self._patterns, self._words = list(patterns), words

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
        """Lays out the steps."""
        return (
            begin
            | "Patterns" >> beam.Create(self._patterns)
            | "Files" >> beam.FlatMap(_matching)
            | "SpreadFiles" >> beam.Reshuffle()
            | "Pages" >> beam.FlatMap(_pages)
            | "SpreadPages" >> beam.Reshuffle()  # or each file's articles would be parsed where the file is read
            | "Passages" >> beam.FlatMap(_passages, self._words)
        )


def _matching(pattern: str) -> list[str]:
    found = [each.path for each in FileSystems.match([pattern])[0].metadata_list]
    if not found:
        raise FileNotFoundError(f"{pattern}: no such dump; check the path")
    return found


def _pages(path: str) -> Iterator[Page]:
    # `read_pages` unpacks for itself: Beam would take a break in the archive for its end.
    with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as stream:
        yield from (page for page in read_pages(stream, path) if page.namespace == 0 and not page.redirect)


def _passages(page: Page, words: int) -> Iterator[Passage]:
    document = article(page)
    return iter(()) if document is None else cut(document, words)


def _json_line(passage: Passage) -> str:
    return json.dumps({"id": passage.id, "title": passage.title, "text": passage.text}, ensure_ascii=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the pipeline to its end.

    Raises:
      RuntimeError: of Beam's, with the message of what failed: a dump that is not there or broken.
    """
    parser = argparse.ArgumentParser(description="Cuts Wikipedia dumps into passages, as JSON lines.")
    parser.add_argument("--dumps", nargs="+", required=True, help="dumps; * stands for any part of a name")
    parser.add_argument("--output", required=True, help="where the files' names start: OUTPUT-00000-of-00008.jsonl")
    parser.add_argument("--shards", type=int, default=0, help="how many files; 0 lets the runner choose")
    parser.add_argument("--words", type=int, default=PASSAGE_WORDS, help="words in a passage")
    ours, beams = parser.parse_known_args(arguments)
    with beam.Pipeline(options=PipelineOptions(beams)) as pipeline:
        lines = pipeline | ReadDumps(ours.dumps, ours.words) | beam.Map(_json_line)
        lines | beam.io.WriteToText(ours.output, file_name_suffix=".jsonl", num_shards=ours.shards)


if __name__ == "__main__":
    main()
