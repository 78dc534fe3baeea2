"""HOST. Invented names and values in the manner of real ones, for the counterfactual passages."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterable

from rag_jax.text.world_facts.english import in_sentence

_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
           "November", "December")  # fmt: skip
_FORMS = ("Republic of", "Kingdom of", "Federal Republic of", "State of", "Union of", "Commonwealth of",
          "Islamic Republic of", "People's Republic of", "Territory of", "Principality of", "Sultanate of",
          "Democratic Republic of", "United Republic of", "Grand Duchy of")  # fmt: skip
_REGIONS = ("Africa", "Asia", "Europe", "Oceania", "South America", "North America", "Southeast Asia",
            "Middle East", "Central America and the Caribbean", "Arctic Region", "Antarctic Region")  # fmt: skip
_HEIGHTS = ("Mount {}", "{} Peak", "Monte {}", "Mont {}", "Pico {}", "Jabal {}", "Cerro {}", "{} Hill", "{}", "{}")
_DEPTHS = ("{} Sea", "{} River", "Lake {}", "Lake {}", "{} Ocean", "{} Depression", "Gulf of {}", "{}")
_KIN = ("{}", "New {}", "{} Islands", "North {}", "South {}", "East {}", "Saint {}", "{}-{}", "{} and {}", "{1} {0}",
        "{1} and {0}", "Republic of {}")  # fmt: skip
_UNITS = ("dollars", "pounds", "francs", "pesos", "dinars", "rupees", "shillings", "kroner", "rials", "crowns")
_DAYS = ("{} Day", "{} Day", "Independence Day", "{} Republic Day", "Feast of {}", "Birthday of King {}",
         "Battle of {} Day", "Day of {}")  # fmt: skip
_SYMBOL_WORDS = ("white", "black", "golden", "red", "double-headed", "crowned", "silver", "green", "blue", "winged")


class Markov:
    """A chain over characters, of order 2 with some steps of order 1, fitted on the words of names."""

    def __init__(self, words: Iterable[str], order_one: float = 0.08) -> None:
        self._pairs: dict[str, list[str]] = {}
        self._singles: dict[str, list[str]] = {}
        self._order_one = order_one
        for word in sorted(set(words)):
            padded = f"^^{word}$"
            for i in range(2, len(padded)):
                self._pairs.setdefault(padded[i - 2 : i], []).append(padded[i])
                self._singles.setdefault(padded[i - 1], []).append(padded[i])

    def word(self, rng: random.Random, longest: int = 12) -> str:
        """One made-up word of 3 to `longest` letters."""
        draw, mix = rng.random, self._order_one
        while True:
            word, context = "", "^^"
            while len(word) <= longest:
                followers = self._singles[context[1]] if draw() < mix and word else self._pairs.get(context)
                followers = followers or self._singles[context[1]]
                letter = followers[int(draw() * len(followers))]
                if letter == "$":
                    break
                word += letter
                context = context[1] + letter
            if 3 <= len(word) <= longest and word.rstrip("-'") == word:
                return word


class Inventor:
    """Makes up countries and values; it has seen nothing but what the constructor is given.

    Args:
      countries: names of real countries that may be imitated.
      values: the values of each relation that may be imitated or taken apart.
      forbidden: names, in lower case, that must never come out as an invented country.
    """

    def __init__(self, countries: Iterable[str], values: dict[str, tuple[str, ...]], forbidden: frozenset[str]) -> None:
        self._values = values
        self._forbidden = forbidden
        self._countries = tuple(countries)
        self._country_words = Markov(word for name in self._countries for word in _plain_words(name))
        people = values["head of government"] + values["chief of state"]
        self._person_words = Markov(word for name in people for word in _plain_words(name))
        self._first = tuple(name.split()[0] for name in people if " " in name)
        self._last = tuple(name.split()[-1] for name in people if " " in name and not name.isupper())
        places = ("capital", "largest city", "local name", "highest point", "lowest point", "national anthem")
        place_words = [word for key in places for name in values[key] for word in _plain_words(name)]
        self._place_words = Markov([*place_words, *(word for name in self._countries for word in _plain_words(name))])
        self._adjectives = Markov(
            word for key in ("demonym", "main language") for word in values[key] if " " not in word
        )
        self._goods = Markov(
            word for key in ("main export", "natural resource") for value in values[key] for word in value.split()
        )
        self._heads = {key: tuple(value.rsplit(" ", 1)[0] for value in values[key] if " " in value) for key in _SPLIT}
        self._tails = {key: tuple(value.rsplit(" ", 1)[1] for value in values[key] if " " in value) for key in _SPLIT}

    def country(self, rng: random.Random) -> str:
        """A country that does not exist."""
        while True:
            name = self._country_words.word(rng).capitalize()
            if len(name) < 4:
                continue
            if rng.random() < 0.15:
                pattern = rng.choice(("{} Islands", "New {}", "South {}", "North {}", "Saint {}", "{} and {}"))
                name = pattern.format(name, self._country_words.word(rng).capitalize())
            if not any(word in self._forbidden for word in (name.lower(), *name.lower().split())):
                return name

    def namesake(self, country: str, rng: random.Random) -> str:
        """Another country that shares a word with this one, as Guinea and New Guinea do."""
        word = rng.choice([w for w in country.split() if len(w) > 3] or [country])
        while (name := rng.choice(_KIN).format(word, self._country_words.word(rng).capitalize())) == country:
            pass
        return name

    def value(self, relation: str, rng: random.Random) -> str:
        """A value for the relation, in its own format."""
        make = _MAKERS.get(relation)
        return make(self, rng) if make else self._recombined(relation, rng)

    def _recombined(self, relation: str, rng: random.Random) -> str:
        if self._heads[relation] and rng.random() < 0.6:
            return f"{rng.choice(self._heads[relation])} {rng.choice(self._tails[relation])}"
        return rng.choice(self._values[relation])

    def _person(self, rng: random.Random) -> str:
        first = rng.choice(self._first) if rng.random() < 0.4 else self._person_words.word(rng).capitalize()
        last = rng.choice(self._last) if rng.random() < 0.3 else self._person_words.word(rng).capitalize()
        draw = rng.random()
        if draw < 0.06:
            return f"{first} {rng.choice(('II', 'III', 'IV', 'V', 'VI', 'XI'))}"
        if draw < 0.26:
            return f"{first} {self._person_words.word(rng).capitalize()} {last}"
        if draw < 0.32:
            return f"{first} {rng.choice(string.ascii_uppercase)}. {last}"
        return f"{first} {last}"

    def _place(self, rng: random.Random) -> str:
        name = self._place_words.word(rng).capitalize()
        if rng.random() < 0.2:
            name = f"{rng.choice(('Port', 'San', 'Saint', 'New', 'Al', 'Santa', 'Fort'))} {name}"
        return name if name.lower() not in self._forbidden else self._place(rng)

    def _neighbor(self, rng: random.Random) -> str:
        return rng.choice(self._countries) if rng.random() < 0.5 else self.country(rng)

    def _adjective(self, rng: random.Random) -> str:
        return self._adjectives.word(rng).capitalize()

    def _good(self, rng: random.Random) -> str:
        relation = "main export" if rng.random() < 0.5 else "natural resource"
        if rng.random() < 0.4:
            return rng.choice(self._values[relation])
        word = self._goods.word(rng)
        return (
            f"{word} {rng.choice(('ore', 'oil', 'fruit', 'products', 'cloth', 'stone'))}"
            if rng.random() < 0.4
            else word
        )

    def _anthem(self, rng: random.Random) -> str:
        words = [self._place_words.word(rng) for _ in range(rng.randint(1, 4))]
        return " ".join((words[0].capitalize(), *(w if rng.random() < 0.5 else w.capitalize() for w in words[1:])))

    def _symbol(self, rng: random.Random) -> str:
        noun = self._goods.word(rng) if rng.random() < 0.3 else rng.choice(self._values["national symbol"]).split()[-1]
        return f"{rng.choice(_SYMBOL_WORDS)} {noun}"


_Maker = Callable[[Inventor, random.Random], str]
_SPLIT = ("government type", "main religion", "head of government title", "chief of state title")


def _plain_words(name: str) -> list[str]:
    words = [w.strip(".,!;:()[]/").lower() for w in name.replace("-", " ").split()]
    return [w for w in words if len(w) > 2 and w.replace("'", "").isalpha() and not set(w) <= set("ivx")]


def _pick(patterns: tuple[str, ...]) -> _Maker:
    return lambda self, rng: rng.choice(patterns).format(self._place(rng))


def _measure(low: int, high: int, unit: str, decimals: float = 0.0) -> _Maker:
    """A number whose order of magnitude is drawn evenly."""

    def make(_: Inventor, rng: random.Random) -> str:
        number = low * (high / low) ** rng.random()
        return f"{number:,.1f}{unit}" if rng.random() < decimals else f"{int(number):,}{unit}"

    return make


def _years(low: float, high: float) -> _Maker:
    return lambda _, rng: f"{low + (high - low) * rng.random():.1f}".removesuffix(".0") + " years"


def _day(rng: random.Random) -> str:
    return f"{rng.randint(1, 28)} {rng.choice(_MONTHS)}"


def _letters(count: int, alphabet: str) -> _Maker:
    return lambda _, rng: "".join(rng.choices(alphabet, k=count))


_MAKERS: dict[str, _Maker] = {
    "capital": Inventor._place,
    "largest city": Inventor._place,
    "local name": Inventor._place,
    "independence": lambda _, rng: (
        f"{_day(rng)} {rng.randint(1500, 2015) if rng.random() < 0.4 else rng.randint(1800, 2012)}"
    ),
    "head of government": Inventor._person,
    "chief of state": Inventor._person,
    "official name": lambda self, rng: f"{rng.choice(_FORMS)} {in_sentence(self.country(rng))}",
    "demonym": Inventor._adjective,
    "internet domain": lambda _, rng: "." + "".join(rng.choices(string.ascii_lowercase, k=2)),
    "area": _measure(5, 15_000_000, " sq km", 0.05),
    "map region": lambda _, rng: rng.choice(_REGIONS),
    "longest border": Inventor._neighbor,
    "highest point": _pick(_HEIGHTS),
    "highest elevation": _measure(5, 9_000, " m"),
    "lowest point": _pick(_DEPTHS),
    "coastline": _measure(5, 200_000, " km", 0.15),
    "population": _measure(1_000, 1_400_000_000, ""),
    "life expectancy": _years(45.0, 90.0),
    "median age": _years(14.0, 56.0),
    "main language": Inventor._adjective,
    "currency": lambda self, rng: (
        f"{self._adjective(rng)} {rng.choice(_UNITS) if rng.random() < 0.7 else self._goods.word(rng)}"
    ),
    "currency code": _letters(3, string.ascii_uppercase),
    "natural resource": Inventor._good,
    "main export": Inventor._good,
    "main export partner": Inventor._neighbor,
    "national holiday": lambda self, rng: rng.choice(_DAYS).format(self._place(rng)),
    "national holiday date": lambda _, rng: _day(rng),
    "national anthem": Inventor._anthem,
    "national symbol": Inventor._symbol,
}
