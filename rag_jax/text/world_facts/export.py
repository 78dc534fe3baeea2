"""HOST. World Facts as files: DPR's table of passages, and JSON lines of passages or questions.

A file is written beside its place and renamed into it: a reader never sees half of it, and a write that fails leaves
what was there.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from rag_jax.text.world_facts.facts import SPLITS, split_of
from rag_jax.text.world_facts.passages import world_passages
from rag_jax.text.world_facts.questions import world_questions


@contextlib.contextmanager
def _replacing(path: str | os.PathLike[str]) -> Iterator[IO[str]]:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "w", encoding="utf-8", newline="") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(beside, 0o644)  # mkstemp gives 0600
        os.replace(beside, path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


def export_passages_tsv(path: str | os.PathLike[str], edition: str) -> int:
    """Writes an edition's passages in the layout of DPR's psgs_w100.tsv (id, text, title). Returns their number."""
    passages = [entry.passage for entry in world_passages(edition)]
    with _replacing(path) as file:
        rows = csv.writer(file, delimiter="\t", quoting=csv.QUOTE_MINIMAL, lineterminator="\n")
        rows.writerow(("id", "text", "title"))
        rows.writerows((passage.id, passage.text, passage.title) for passage in passages)
    return len(passages)


def export_jsonl(path: str | os.PathLike[str], edition: str, what: str = "passages") -> int:
    """Writes an edition's "passages" or "questions", one JSON object a line. Returns their number.

    Passages have id, title, text, country, relations; questions id, text, answers, positive_ids, country, relation,
    split.
    """
    if what == "passages":
        records = [
            {**dataclasses.asdict(entry.passage), "country": entry.country, "relations": entry.relations}
            for entry in world_passages(edition)
        ]
    elif what == "questions":
        records = [
            {
                **dataclasses.asdict(entry.question),
                "country": entry.country,
                "relation": entry.relation,
                "split": split_of(entry.country),
            }
            for split in SPLITS
            for entry in world_questions(edition, split)
        ]
    else:
        raise ValueError(f"what={what!r}: World Facts exports 'passages' or 'questions'")
    with _replacing(path) as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    return len(records)
