"""HOST. The tables of World Facts: two editions, the split of their countries, the leaders who changed between them."""

from __future__ import annotations

import csv
import functools
import hashlib
import importlib.resources
import io
import re
from typing import Literal, NamedTuple

EDITIONS = ("2016", "2020")
SPLITS = ("train", "validation", "test")
Split = Literal["train", "validation", "test"]

_LEADERS = ("head of government", "chief of state")
_RENAMED = {"Macedonia": "North Macedonia", "Swaziland": "Eswatini"}  # one country: it must not change its split
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = re.compile(r"[^\w\s]")


class Fact(NamedTuple):
    """One row of a table: the relation of the country has the value."""

    country: str
    relation: str
    value: str


class ChangedLeader(NamedTuple):
    """An office that another person holds in the later edition."""

    country: str
    relation: str
    value_2016: str
    value_2020: str


def stable_hash(*parts: str) -> int:
    """A 64-bit integer that depends on the strings alone, the same in every process and on every machine."""
    return int.from_bytes(hashlib.sha256("\x1f".join(parts).encode()).digest()[:8], "big")


def check_edition(edition: str) -> None:
    """Raises ValueError, naming the editions, unless the edition is one of them."""
    if edition not in EDITIONS:
        raise ValueError(f"no edition {edition!r} of World Facts; choose from {', '.join(EDITIONS)}")


@functools.cache
def load_facts(edition: str) -> tuple[Fact, ...]:
    """All facts of an edition ("2016" or "2020"), in the table's order: by country, then by relation."""
    check_edition(edition)
    table = importlib.resources.files(__package__) / "data" / f"{edition}.tsv"
    with table.open("rb") as raw, io.TextIOWrapper(raw, "utf-8", newline="") as lines:
        rows = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        next(rows)  # the header
        return tuple(Fact(*row) for row in rows)


@functools.cache
def split_of(country: str) -> Split:
    """The split of a country, by a hash of its name: about 68 % train, 12 % validation, 20 % test in all editions."""
    share = stable_hash("split 0", _RENAMED.get(country, country)) / 2**64
    return "train" if share < 0.68 else "validation" if share < 0.80 else "test"


def countries(edition: str, split: str | None = None) -> tuple[str, ...]:
    """The countries of an edition, sorted, of one split or of all."""
    names = sorted({fact.country for fact in load_facts(edition)})
    return tuple(name for name in names if split is None or split_of(name) == split)


def normalize(answer: str) -> str:
    """An answer as exact match compares it: lower case, no punctuation, no articles, single blanks."""
    return " ".join(_ARTICLES.sub(" ", _PUNCTUATION.sub("", answer.lower())).split())


@functools.cache
def changed_leaders() -> tuple[ChangedLeader, ...]:
    """The offices whose holder is another person in 2020 than in 2016; a shorter or longer name is no change."""
    before = {fact[:2]: fact.value for fact in load_facts("2016")}
    changed = []
    for country, relation, value in load_facts("2020"):
        old = before.get((country, relation))
        if relation not in _LEADERS or old is None:
            continue
        old_words, new_words = set(normalize(old).split()), set(normalize(value).split())
        if not (old_words <= new_words or new_words <= old_words):
            changed.append(ChangedLeader(country, relation, old, value))
    return tuple(changed)
