"""HOST. The articles that English wants before names: "the Netherlands", "a federal republic", "the Dead Sea"."""

from __future__ import annotations

import re
from typing import Literal

Article = Literal["", "a", "the", "country", "place", "symbol"]

_WITH_ARTICLE = frozenset((
    "Bahamas", "British Indian Ocean Territory", "Central African Republic", "Comoros", "Czech Republic",
    "Democratic Republic of the Congo", "Dominican Republic", "Federated States of Micronesia",
    "French Southern and Antarctic Lands", "Gambia", "Gaza Strip", "Holy See", "Isle of Man", "Maldives",
    "Netherlands", "Philippines", "Republic of the Congo", "United Arab Emirates", "United Kingdom",
    "United States", "West Bank",
))  # fmt: skip
_ISLANDS_WITHOUT_ARTICLE = ("Heard Island", "South Georgia")
_GEOGRAPHIC = re.compile(
    r"(Ocean|Sea|River|Depression|Strait|Channel|Trench|Glacier|Massif|Region|East|Bengal|delta|Fens|Nile|Darya|Dniester"
    r"|Gardens|Gulf|Hills|Hills volcano)$|^(Gulf|Rock|Sea) of "
)
_SYMBOLS_WITHOUT_ARTICLE = ("the ", "Mount ", "Saint George", "Uhuru", "Hooiberg", "Neptune's", "Palanca")
_TITLES_WITHOUT_ARTICLE = ("Brunei", "Pitcairn", "South Georgia")


def in_sentence(country: str) -> str:
    """The country's name as it stands inside a sentence: "Kenya", "the Netherlands", "the Cook Islands"."""
    takes = country in _WITH_ARTICLE or (
        country.endswith("Islands") and not country.startswith(_ISLANDS_WITHOUT_ARTICLE)
    )
    return f"the {country}" if takes else country


def with_article(kind: Article, value: str) -> str:
    """The value as it stands inside a sentence.

    Args:
      kind: what goes before it: "" nothing, "a" or "an", "the", or by the rule for a "country", "place" or "symbol".
      value: stands verbatim at the end of the result.
    """
    match kind:
        case "a":
            return f"{'an' if value[:1] in 'aeioAEIO' else 'a'} {value}"  # "a union" and "a unitary state"
        case "the":
            return value if value.startswith(_TITLES_WITHOUT_ARTICLE) else f"the {value}"
        case "country":
            return in_sentence(value)
        case "place":
            return f"the {value}" if _GEOGRAPHIC.search(value) and not value.startswith("The ") else value
        case "symbol":
            return value if value.startswith(_SYMBOLS_WITHOUT_ARTICLE) else f"the {value}"
    return value
