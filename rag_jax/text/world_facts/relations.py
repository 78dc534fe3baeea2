"""HOST. The relations of World Facts: how each fact is told in a passage and asked for in a question.

A template holds `{country}` and `{value}`. `state` and `ask` fill it; they also give a country or a value the article
that English wants ("the Netherlands", "a federal republic", "the Dead Sea"), so that a value still stands in the
sentence verbatim. No statement begins with its value: capital letters would change it.
"""

from __future__ import annotations

import dataclasses

from rag_jax.text.world_facts.english import Article, in_sentence, with_article

SECTIONS = ("government", "leaders", "names", "land", "heights and coasts", "people", "economy", "symbols")


@dataclasses.dataclass(frozen=True, slots=True)
class Relation:
    """One relation and the ways to put it into English.

    Attributes:
      name: the relation's name in the tables.
      section: the one of SECTIONS whose passage states it.
      statements: passage phrasings.
      questions: question phrasings, lower case and without a question mark.
      article: what goes before the value in a statement (`english.with_article`).
    """

    name: str
    section: str
    statements: tuple[str, ...]
    questions: tuple[str, ...]
    article: Article = ""


def state(relation: Relation, phrasing: int, country: str, value: str) -> str:
    """One sentence that states the fact, with the value verbatim in it."""
    text = relation.statements[phrasing].format(
        country=in_sentence(country), value=with_article(relation.article, value)
    )
    if text[-2] in ".!?":  # a value that brings its own full stop
        text = text[:-1]
    return text[0].upper() + text[1:]


def ask(relation: Relation, phrasing: int, country: str) -> str:
    """One question for the fact."""
    return relation.questions[phrasing].format(country=in_sentence(country))


def _relation(section: str, name: str, article: Article, statements: str, questions: str) -> Relation:
    def lines(block: str) -> tuple[str, ...]:
        return tuple(line.strip() for line in block.strip().splitlines())

    return Relation(name, section, lines(statements), lines(questions), article)


# fmt: off
_ALL = (
    _relation("government", "government type", "a",
        """In its form of government, {country} is {value}, at least on paper.
        Political handbooks describe {country} as {value} in their comparative tables.
        To call {country} {value} is to name its form of government.""",
        """what type of government does {country} have
        what is the form of government of {country}
        how is the government of {country} classified"""),
    _relation("government", "capital", "",
        """The capital of {country} is {value}, where the seat of government lies.
        The seat of government is {value}, which is the capital of {country}.
        In {country} the city of {value} serves as the national capital.""",
        """what is the capital of {country}
        which city is the capital of {country}
        where is the seat of government of {country}"""),
    _relation("government", "largest city", "",
        """With more people than any other, {value} is the largest city in {country}.
        The largest city of {country} by number of inhabitants is {value}.
        No urban area in {country} has grown larger than {value}, its biggest city.""",
        """what is the largest city in {country}
        which city of {country} has the most inhabitants
        what is the biggest city of {country}"""),
    _relation("government", "independence", "",
        """The independence of {country} is dated {value} in the official records.
        On {value} came the independence of {country}, according to its own reckoning.
        Historians give {value} as the date on which {country} became independent.""",
        """when did {country} become independent
        what is the date of independence of {country}
        on which date did {country} gain independence"""),
    _relation("leaders", "head of government", "",
        """The head of government of {country} is {value}, who leads the cabinet.
        In {country} the government is headed by {value} and the ministers.
        As head of government, {value} directs the daily affairs of {country}.""",
        """who is the head of government of {country}
        who leads the government of {country}
        who heads the government in {country}"""),
    _relation("leaders", "head of government title", "",
        """The title {value} belongs to the head of government in {country}.
        Whoever leads the government of {country} bears the title {value} in public.
        In {country} the head of government is styled {value} by law.""",
        """what is the title of the head of government of {country}
        which title does the head of government of {country} hold
        how is the head of government of {country} styled"""),
    _relation("leaders", "chief of state", "",
        """The chief of state of {country} is {value}, who represents it abroad.
        In {country} the highest office of state is held by {value} at present.
        As chief of state, {value} stands first in {country} on formal occasions.""",
        """who is the chief of state of {country}
        who is the head of state of {country}
        who holds the highest office of state in {country}"""),
    _relation("leaders", "chief of state title", "",
        """The chief of state of {country} carries the title {value} in documents.
        By tradition the title {value} is given to the chief of state in {country}.
        In {country} it is as {value} that the chief of state is addressed.""",
        """what is the title of the chief of state of {country}
        which title does the head of state of {country} hold
        how is the chief of state of {country} addressed"""),
    _relation("names", "official name", "the",
        """In treaties {country} appears under its official name, {value}, written out in full.
        The full official name, {value}, is used for {country} on formal occasions.
        On formal papers one reads of {value}, the official name of {country}.""",
        """what is the official name of {country}
        what is the full formal name of {country}
        under which official name does {country} sign treaties"""),
    _relation("names", "local name", "",
        """The local name of {country}, in the speech of its people, is {value}.
        At home the name {value} is used for {country} by its own people.
        People who live in {country} call it {value} in their own language.""",
        """what is the local name of {country}
        what do the people of {country} call it
        what is {country} called in its own language"""),
    _relation("names", "demonym", "",
        """The adjective {value} describes people and things that come from {country}.
        Whatever comes from {country} is called {value} in English.
        In English the word {value} is the adjective that belongs to {country}.""",
        """what is the adjective for {country}
        what is the demonym of {country}
        what do you call someone or something from {country}"""),
    _relation("names", "internet domain", "",
        """Internet addresses registered in {country} end in the country code {value} as a rule.
        On the internet the top-level domain {value} is assigned to {country}.
        The internet domain of {country} is {value}, found at the end of addresses.""",
        """what is the internet domain of {country}
        which top-level domain belongs to {country}
        what is the internet country code of {country}"""),
    _relation("land", "area", "",
        """The total area of {country} is {value}, land and inland waters together.
        With an area of {value}, {country} finds its place among other lands.
        Surveyors put the area of {country} at {value} in all.""",
        """what is the area of {country}
        how large is {country}
        how big is the total area of {country}"""),
    _relation("land", "map region", "place",
        """On the map of the world {country} is found in {value}, as atlases show.
        Atlases print {country} on the sheet for {value}, among its neighbors.
        Geographers count {value} as the region to which {country} belongs.""",
        """in which region of the world is {country}
        where is {country} on the map
        to which map region does {country} belong"""),
    _relation("land", "longest border", "country",
        """The longest land border of {country} is the one that it shares with {value}.
        Of all the neighbors it is {value} with which {country} shares its longest border.
        No land border of {country} runs longer than that with {value} on the map.""",
        """with which neighbor does {country} share its longest border
        which country has the longest border with {country}
        what is the longest land border of {country}"""),
    _relation("heights and coasts", "highest point", "place",
        """The highest point of {country} is {value}, which rises above all other ground.
        Nothing in {country} stands higher than {value}, the highest point of the land.
        Climbers in {country} look up to {value}, since it is the highest point.""",
        """what is the highest point of {country}
        which place in {country} is the highest
        where is the highest point in {country}"""),
    _relation("heights and coasts", "highest elevation", "",
        """At {value} above the sea the land of {country} reaches its highest elevation.
        The highest elevation measured anywhere in {country} is {value} above sea level.
        The ground of {country} rises to {value} at its very highest elevation.""",
        """what is the highest elevation in {country}
        how high is the highest point of {country}
        to what height does the land of {country} rise"""),
    _relation("heights and coasts", "lowest point", "place",
        """The lowest point of {country} is {value}, and all other ground lies higher.
        Down at {value} the ground of {country} comes to its lowest point.
        In {country} the land falls as low as {value}, which is its lowest point.""",
        """what is the lowest point of {country}
        where is the lowest point in {country}
        which place in {country} is the lowest"""),
    _relation("heights and coasts", "coastline", "",
        """The coastline of {country} is {value} long when every bay is followed.
        Along the sea {country} has a coastline of {value}, by the usual measure.
        Measured along the shore, {value} of coastline belong to {country}.""",
        """how long is the coastline of {country}
        what is the length of the coastline of {country}
        how much coastline does {country} have"""),
    _relation("people", "population", "",
        """The population of {country} is {value} people, as estimated at mid-year.
        An estimated {value} people make up the population of {country} today.
        Statisticians put the population of {country} at {value} persons.""",
        """what is the population of {country}
        how many people live in {country}
        how many inhabitants does {country} have"""),
    _relation("people", "life expectancy", "",
        """Life expectancy at birth in {country} is {value} for both sexes together.
        A child born in {country} can expect {value} of life on average.
        At birth the average life expectancy is {value} for the people of {country}.""",
        """what is the life expectancy in {country}
        how long do people in {country} live on average
        what is the average life expectancy at birth in {country}"""),
    _relation("people", "median age", "",
        """The median age in {country} is {value}, so half of the people are older.
        Half of the people in {country} are younger than {value}, the median age.
        At {value}, the median age divides the people of {country} into equal halves.""",
        """what is the median age in {country}
        what is the median age of the people of {country}
        how old is the median inhabitant of {country}"""),
    _relation("people", "main language", "",
        """The main language of {country} is {value}, heard in most public places.
        More than any other language, {value} is used in public life in {country}.
        Visitors to {country} do best with {value}, which is the main language there.""",
        """what is the main language of {country}
        which language is mainly spoken in {country}
        what language do people speak in {country}"""),
    _relation("people", "main religion", "",
        """By religion, the largest group of people in {country} is {value} today.
        In matters of faith {value} is the most common answer in {country}.
        The main religious affiliation in {country} is {value}, ahead of all others.""",
        """what is the main religion of {country}
        which religion is most common in {country}
        what is the largest religious group in {country}"""),
    _relation("economy", "currency", "",
        """Prices in {country} are given in {value}, and wages are too.
        People who shop in {country} pay in {value}, the currency in use there.
        The currency of {country} is counted in {value} by banks and shops.""",
        """what is the currency of {country}
        which currency is used in {country}
        what money do people pay with in {country}"""),
    _relation("economy", "currency code", "",
        """Banks use the three letters {value} as the currency code of {country}.
        The currency code for money from {country} is {value} on exchange boards.
        On price lists the code {value} marks the currency of {country}.""",
        """what is the currency code of {country}
        which code stands for the currency of {country}
        what is the three-letter code for the money of {country}"""),
    _relation("economy", "natural resource", "",
        """The natural resources of {country} include {value}, the first to be listed.
        With {value} as a leading natural resource, {country} draws on its own wealth.
        Among the natural resources of {country} one finds {value} named first.""",
        """what is the chief natural resource of {country}
        what is the leading natural resource of {country}
        which natural resource is named first for {country}"""),
    _relation("economy", "main export", "",
        """The main export of {country} is listed as {value} in the trade tables.
        Merchants ship {value} from {country} more than any other export.
        Buyers abroad look to {country} for {value}, the leading export.""",
        """what is the main export of {country}
        what does {country} mainly export
        which product is the leading export of {country}"""),
    _relation("economy", "main export partner", "country",
        """The main export partner of {country} is {value}, which buys the most.
        More goods from {country} go to {value} than to any other buyer.
        Exporters in {country} sell above all to {value}, their main partner.""",
        """what is the main export partner of {country}
        which country buys the most exports from {country}
        to whom does {country} export the most"""),
    _relation("symbols", "national holiday", "",
        """The national holiday of {country} is called {value} and is kept every year.
        Under the name of {value} the people of {country} keep their national holiday.
        Every year {value} is celebrated in {country} as the national holiday.""",
        """what is the national holiday of {country}
        what is the national holiday of {country} called
        which national holiday is celebrated in {country}"""),
    _relation("symbols", "national holiday date", "",
        """The national holiday of {country} is celebrated on {value}, with offices closed.
        Each year on {value} the people of {country} keep their national holiday.
        In the calendar of {country} the date {value} is the national holiday.""",
        """when is the national holiday of {country}
        on which date does {country} celebrate its national holiday
        what is the date of the national holiday of {country}"""),
    _relation("symbols", "national anthem", "",
        """The national anthem of {country} is "{value}", sung on solemn occasions.
        Crowds in {country} rise for "{value}" whenever the national anthem is played.
        When {country} is honored, one hears "{value}" played as the national anthem.""",
        """what is the national anthem of {country}
        which song is the national anthem of {country}
        what is the title of the national anthem of {country}"""),
    _relation("symbols", "national symbol", "symbol",
        """The national symbol of {country} is {value}, seen on emblems and coins.
        Artists who depict {country} often choose {value} as its national symbol.
        As its national symbol {country} honors {value} above all other signs.""",
        """what is the national symbol of {country}
        which national symbol stands for {country}
        what serves as the national symbol of {country}"""),
)
# fmt: on

RELATIONS: dict[str, Relation] = {relation.name: relation for relation in _ALL}
