"""HOST. Retrieval by pages, as KILT measures it (Petroni et al. 2021, section 5): R-precision and recall at k.

A page is what a passage was cut from, known by its title; a page counts where its first passage stands. The pages of a
question's `positive_ids` are its provenance set. R-precision is r / R: R pages in the set, r of them among the first R
pages found; for one gold page it is precision at 1. A set is recalled once all its pages are found, and takes one place
then. KILT's questions may have several sets, of which the best counts; ours have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rag_jax.text.table import PassageTable
from rag_jax.types import Passage, Question

Pages = Mapping[str, frozenset[str]]
"""Question id -> the names of its gold pages, at least one."""


def page_of(passage: Passage) -> str:
    """The name of a passage's page: its title, or its id where it has none."""
    return passage.title or passage.id


def gold_pages(passages: PassageTable, questions: Iterable[Question]) -> dict[str, frozenset[str]]:
    """The gold pages of the questions that have positives.

    A positive that is not among the passages stands for a page by itself, which nobody can find: it was asked for.
    """

    def page(id_: str) -> str:
        try:
            return page_of(passages[passages.row_of(id_)])
        except KeyError:
            return id_

    return {q.id: frozenset(map(page, q.positive_ids)) for q in questions if q.positive_ids}


def r_precisions(ranked: Mapping[str, Sequence[Passage]], gold: Pages) -> dict[str, float]:
    """Question id -> R-precision, from 0 to 1.

    Args:
      ranked: passages found for each question in `gold`, best first.
      gold: the questions' gold pages.
    """
    return {id_: len(pages & {*_pages(ranked[id_])[: len(pages)]}) / len(pages) for id_, pages in gold.items()}


def page_ranks(ranked: Mapping[str, Sequence[Passage]], gold: Pages) -> dict[str, int | None]:
    """Question id -> the rank, from 1, at which all its gold pages are found; None where they are not.

    Arguments as for `r_precisions`.
    """
    ranks = {}
    for id_, wanted in gold.items():
        places = [place for place, page in enumerate(_pages(ranked[id_]), start=1) if page in wanted]
        # The set takes one place, that of its last page: what came before it moves up.
        ranks[id_] = places[-1] - len(wanted) + 1 if len(places) == len(wanted) else None
    return ranks


def _pages(found: Sequence[Passage]) -> list[str]:
    """The pages of a ranking, each once, where it is met first."""
    return list(dict.fromkeys(map(page_of, found)))
