"""HOST. World Facts as passages: short texts of 40 to 100 words, each about one section of one country."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from rag_jax.text.world_facts import relations as rel
from rag_jax.text.world_facts.english import in_sentence
from rag_jax.text.world_facts.facts import Fact, load_facts, stable_hash
from rag_jax.types import Passage

MIN_WORDS, MAX_WORDS = 40, 100

_NEUTRAL = (
    "Further entries on {country} can be found in this collection.",
    "This short entry is about {country} and nothing else.",
    "Readers who want to know more about {country} should consult a good library.",
    "Much else about {country} has to be left out here for want of space.",
    "Reference works usually give a page or more to {country}.",
    "What is said here about {country} may change from one edition to the next.",
    "For {country} the usual sources give no more than this.",
    "Few other figures on {country} are on record.",
    "The notes on {country} were checked before they went to print.",
    "Little more is reported from {country} under this heading.",
)


class FactPassage(NamedTuple):
    """A passage with the country it is about and the relations whose facts it states."""

    passage: Passage
    country: str
    relations: tuple[str, ...]


def by_section(facts: Iterable[Fact]) -> dict[str, list[Fact]]:
    """The facts of one country by section, in the order of SECTIONS; a lone fact joins the smallest other section."""
    groups: dict[str, list[Fact]] = {section: [] for section in rel.SECTIONS}
    for fact in facts:
        groups[rel.RELATIONS[fact.relation].section].append(fact)
    groups = {section: group for section, group in groups.items() if group}
    while len(groups) > 1 and (lone := next((s for s, group in groups.items() if len(group) == 1), None)):
        joining = groups.pop(lone)
        partner = min(groups, key=lambda section: len(groups[section]))
        groups[f"{partner} and {lone}"] = groups.pop(partner) + joining
    return groups


def sentences(country: str, facts: Iterable[Fact], rng: np.random.Generator) -> list[str]:
    """One sentence for each fact, phrasings and order drawn at random."""
    facts = list(facts)
    order = rng.permutation(len(facts))
    phrasings = rng.random(len(facts))
    stated = []
    for i in order:
        relation = rel.RELATIONS[facts[i].relation]
        phrasing = int(phrasings[i] * len(relation.statements))
        stated.append(rel.state(relation, phrasing, country, facts[i].value))
    return stated


def compose(
    country: str, facts: Iterable[Fact], rng: np.random.Generator, ids: Iterator[str] | None = None
) -> list[FactPassage]:
    """Passages that state every given fact of a country exactly once.

    Args:
      country: the name, real or invented, that the facts are told of.
      facts: any facts, at most one for each relation; their own country field is not read.
      rng: draws phrasings, order and padding.
      ids: gives the passages their ids, in order; by default they are numbered from 1 with the country's name.

    Returns:
      One passage for each section that has facts, 40 to 100 words each.

    Raises:
      ValueError: when a passage comes out longer than 100 words.
    """
    ids = ids if ids is not None else (f"{country}-{n}" for n in range(1, 100))
    passages = []
    for section, group in by_section(facts).items():
        texts = _padded(country, sentences(country, group, rng), rng)
        text = " ".join(texts)
        if len(text.split()) > MAX_WORDS:
            raise ValueError(f"the passage on {country} ({section}) has {len(text.split())} words, over {MAX_WORDS}")
        passage = Passage(next(ids), f"{country}: {section}", text)
        passages.append(FactPassage(passage, country, tuple(fact.relation for fact in group)))
    return passages


def _padded(country: str, texts: list[str], rng: np.random.Generator) -> list[str]:
    missing = MIN_WORDS - sum(len(text.split()) for text in texts)
    for i in rng.permutation(len(_NEUTRAL)) if missing > 0 else ():
        sentence = _NEUTRAL[i].format(country=in_sentence(country))
        texts.append(sentence)
        missing -= len(sentence.split())
        if missing <= 0:
            break
    return texts


@functools.cache
def world_passages(edition: str) -> tuple[FactPassage, ...]:
    """All passages of an edition, the same in every process, with ids such as "2020-0001"."""
    facts: dict[str, list[Fact]] = {}
    for fact in load_facts(edition):
        facts.setdefault(fact.country, []).append(fact)
    ids = (f"{edition}-{n:04d}" for n in range(1, 10_000))
    passages: list[FactPassage] = []
    for country in sorted(facts):
        rng = np.random.default_rng(stable_hash("passages", edition, country))
        passages += compose(country, facts[country], rng, ids)
    return tuple(passages)
