"""HOST. Made-up facts, told and asked like the real ones: from them a reader learns to answer from its passage.

Nothing of a held-out country may be learned here: names and values come from the countries of the given splits only,
permuted among them, recombined, or invented.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rag_jax.text.world_facts import relations as rel
from rag_jax.text.world_facts.facts import EDITIONS, Fact, countries, load_facts
from rag_jax.text.world_facts.invention import Inventor

_REAL_COUNTRY = 0.5
_PERMUTED = 0.4
_ALL_RELATIONS = tuple(rel.RELATIONS.values())
_ASKED_MORE = {
    "head of government": 3, "chief of state": 3, "official name": 2, "national anthem": 2, "demonym": 2,
    "highest point": 2, "population": 2,
}  # fmt: skip
"""Relations that a reader is asked for so many times as often: names and long numbers are copied last."""
_WEIGHTS = [_ASKED_MORE.get(relation.name, 1) for relation in _ALL_RELATIONS]
_BY_SECTION = {s: tuple(r for r in _ALL_RELATIONS if r.section == s) for s in rel.SECTIONS}


class CounterfactualExample(NamedTuple):
    """A question, its answer, and the passage that makes the answer true."""

    question: str
    answer: str
    title: str
    text: str
    country: str
    relation: str


class Counterfactuals:
    """An endless source of made-up examples.

    Args:
      edition: the edition whose values are permuted and imitated.
      splits: the splits whose countries may be seen.
    """

    def __init__(self, edition: str = "2020", splits: Sequence[str] = ("train",)) -> None:
        hidden = frozenset(
            name for e in EDITIONS for name in countries(e) if all(name not in countries(e, s) for s in splits)
        )
        names = "|".join(re.escape(name) for name in sorted(hidden, key=len, reverse=True))
        first = "".join(sorted({re.escape(name[0]) for name in hidden}))  # looked at first: most places match none
        self._hidden = re.compile(rf"\b(?=[{first}])(?:{names})\b") if hidden else re.compile(r"(?!)")
        seen = {name for split in splits for name in countries(edition, split) if not self._hidden.search(name)}
        facts = [f for f in load_facts(edition) if f.country in seen and not self._hidden.search(f.value)]
        facts += _missing_relations(edition, splits, self._hidden)
        self.countries = tuple(sorted(seen))
        self._true = {(f.country, f.relation): f.value for f in facts}
        values: dict[str, list[str]] = {relation: [] for relation in rel.RELATIONS}
        for fact in facts:
            values[fact.relation].append(fact.value)
        self.values = {relation: tuple(found) for relation, found in values.items()}
        self._inventor = Inventor(self.countries, self.values, frozenset(name.lower() for name in hidden))

    def sample(self, rng: np.random.Generator, facts: tuple[int, int] = (1, 4)) -> CounterfactualExample:
        """One example; its passage states between `facts[0]` and `facts[1]` facts, and one of them is asked for.

        With one fact the passage is a single sentence.
        """
        draw = random.Random(int(rng.integers(2**63)))  # faster than numpy for single draws
        country = self._country(draw)
        asked = draw.choices(_ALL_RELATIONS, _WEIGHTS)[0]
        return self._example(draw, country, asked, draw.randint(*facts))

    def sample_group(
        self,
        rng: np.random.Generator,
        n_sections: int = len(rel.SECTIONS),
        facts: tuple[int, int] = (1, 4),
        namesake_of: str | None = None,
    ) -> list[CounterfactualExample]:
        """Examples on one country, each from another section: their passages are hard negatives of one another.

        With `namesake_of` the country's name shares a word with that one: hard negatives of its group as well.
        """
        draw = random.Random(int(rng.integers(2**63)))
        country = self._country(draw, namesake_of)
        sections = draw.sample(rel.SECTIONS, n_sections)
        return [self._example(draw, country, draw.choice(_BY_SECTION[s]), draw.randint(*facts)) for s in sections]

    def _country(self, draw: random.Random, namesake_of: str | None = None) -> str:
        if namesake_of is None and draw.random() < _REAL_COUNTRY:
            return draw.choice(self.countries)
        while True:
            invent = self._inventor
            country = invent.country(draw) if namesake_of is None else invent.namesake(namesake_of, draw)
            if not self._hidden.search(country):
                return country

    def _example(self, draw: random.Random, country: str, asked: rel.Relation, n: int) -> CounterfactualExample:
        others = [relation for relation in _BY_SECTION[asked.section] if relation is not asked]
        stated = [asked, *draw.sample(others, min(n - 1, len(others)))]
        values = [self._value(draw, country, relation.name) for relation in stated]
        told = [
            rel.state(relation, int(draw.random() * len(relation.statements)), country, value)
            for relation, value in zip(stated, values, strict=True)
        ]
        draw.shuffle(told)
        question = rel.ask(asked, int(draw.random() * len(asked.questions)), country)
        return CounterfactualExample(
            question, values[0], f"{country}: {asked.section}", " ".join(told), country, asked.name
        )

    def _value(self, draw: random.Random, country: str, relation: str) -> str:
        """Another country's value or an invention; never a hidden country's name, and seldom the truth."""
        true = self._true.get((country, relation))
        permuted = draw.random() < _PERMUTED
        for _ in range(8):  # some relations have few values: the truth may have to do
            while True:
                value = draw.choice(self.values[relation]) if permuted else self._inventor.value(relation, draw)
                if not self._hidden.search(value):
                    break
            if value not in (true, country):
                break
        return value


def _missing_relations(edition: str, splits: Sequence[str], hidden: re.Pattern[str]) -> list[Fact]:
    """Facts of the relations that this edition lacks, from the other edition's countries of the same splits."""
    present = {fact.relation for fact in load_facts(edition)}
    return [
        fact
        for other in EDITIONS
        for split in splits
        for fact in load_facts(other)
        if fact.relation not in present
        and fact.country in countries(other, split)
        and not hidden.search(fact.country)
        and not hidden.search(fact.value)
    ]
