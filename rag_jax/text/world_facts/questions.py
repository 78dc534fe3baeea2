"""HOST. World Facts as questions: one for every fact, and those whose answer changed between the editions."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from rag_jax.text.world_facts import relations as rel
from rag_jax.text.world_facts.facts import SPLITS, Fact, changed_leaders, load_facts, split_of, stable_hash
from rag_jax.text.world_facts.passages import world_passages
from rag_jax.types import Question

_COUNTRY_ALIASES = {
    "United States": ("US", "USA", "United States of America"),
    "United Kingdom": ("UK", "Great Britain"),
    "United Arab Emirates": ("UAE",),
    "Czechia": ("Czech Republic",),
    "Democratic Republic of the Congo": ("DRC", "DR Congo"),
    "Burma": ("Myanmar",),
}
_PERSON_ALIASES = {"Wachiralongkon": ("Vajiralongkorn",), "Micheál Martin": ("Micheal Martin",)}
_UNITS = ((" sq km", (" square kilometers", " square kilometres")), (" km", (" kilometers", " kilometres")),
          (" m", (" meters", " metres")), (" years", ("",)))  # fmt: skip
_INITIAL = re.compile(r"\b[A-Z]\.\s+")


class FactQuestion(NamedTuple):
    """A question with the country and the relation that it asks for."""

    question: Question
    country: str
    relation: str


def accepted_answers(fact: Fact) -> tuple[str, ...]:
    """The value, then the other ways to write it that count as right."""
    relation, value = fact.relation, fact.value
    answers = [value]
    if relation in ("head of government", "chief of state"):
        answers += [_INITIAL.sub("", value), *_PERSON_ALIASES.get(value, ())]
    elif relation in ("longest border", "main export partner"):
        answers += _COUNTRY_ALIASES.get(value, ())
    elif relation in ("area", "coastline", "highest elevation", "life expectancy", "median age"):
        unit, others = next((unit, others) for unit, others in _UNITS if value.endswith(unit))
        answers += [value.removesuffix(unit) + other for other in others]
    elif relation == "currency" and value.endswith("s"):
        answers.append(value[:-1])
    elif relation == "official name":
        answers.append(f"the {value}")
    if relation in ("main language", "local name"):
        answers += value.split(" or ")
    if relation in ("highest point", "lowest point") and re.fullmatch(r"[^/]+/[^/]+", value):
        answers += value.split("/")
    return tuple(dict.fromkeys(answers))


@functools.cache
def _positives(edition: str) -> dict[tuple[str, str], str]:
    return {(p.country, relation): p.passage.id for p in world_passages(edition) for relation in p.relations}


def _question(edition: str, fact: Fact, id: str) -> FactQuestion:
    relation = rel.RELATIONS[fact.relation]
    # Drawn from the name, not the edition: the same question has the same wording in both.
    phrasing = stable_hash("question", fact.country, fact.relation) % len(relation.questions)
    positive = _positives(edition)[fact.country, fact.relation]
    text = rel.ask(relation, phrasing, fact.country)
    return FactQuestion(Question(id, text, accepted_answers(fact), (positive,)), fact.country, fact.relation)


@functools.cache
def world_questions(edition: str, split: str | None = None) -> tuple[FactQuestion, ...]:
    """One question for every fact of an edition, of the countries of one split or of all.

    The ids ("2020-q0001") do not depend on the split that is asked for.
    """
    if split is not None and split not in SPLITS:
        raise ValueError(f"no split {split!r} of World Facts; choose from {', '.join(SPLITS)}")
    numbered = enumerate(load_facts(edition), 1)
    wanted = ((n, fact) for n, fact in numbered if split is None or split_of(fact.country) == split)
    return tuple(_question(edition, fact, f"{edition}-q{n:04d}") for n, fact in wanted)


@functools.cache
def leader_questions(edition: str) -> tuple[FactQuestion, ...]:
    """The questions of the hot swap: for each changed leader, with the edition's truth.

    Ids and wordings are the same for both editions; answers and positive passages are not.
    """
    facts = {fact[:2]: fact for fact in load_facts(edition)}
    questions = []
    for country, relation, *_ in changed_leaders():
        id = f"leader-{country}-{relation}".lower().replace(" ", "-")
        questions.append(_question(edition, facts[country, relation], id))
    return tuple(questions)
