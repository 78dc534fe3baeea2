"""An answer as a table and as HTML, without any model."""

import dataclasses
import html.parser
import re

import pytest

from rag_jax.api.records import Answered, Scored
from rag_jax.types import Passage, Source

EVIL = '<script>alert(1)</script> & [red]"x"[/red]'
SEQUENCE = Answered(
    text="Raila & Sons",
    logprob=-0.25,
    sources=(
        Source(Passage("p1", "Kenya: <leaders>", EVIL), 0.7, 0.9),
        Source(Passage("p2", "", "word " * 90), 0.3, 0.1),
    ),
    tokens=(" Raila", " &", " Sons", "</s>"),
    question="who <b>leads</b> Kenya",
)
TOKEN = dataclasses.replace(
    SEQUENCE,
    sources=tuple(
        dataclasses.replace(source, token_posterior=row)
        for source, row in zip(SEQUENCE.sources, [(0.9, 0.2, 1.0, 0.5), (0.1, 0.8, 0.0, 0.5)], strict=True)
    ),
)


class Page(html.parser.HTMLParser):
    """Tags with their attributes, and text."""

    def __init__(self, answer):
        super().__init__()
        self.tags, self.open, self.text = [], [], []
        self.feed(answer._repr_html_())
        assert not self.open, "every tag is closed"

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.mark.parametrize("answer", [SEQUENCE, TOKEN], ids=["sequence", "token"])
def test_the_html_is_escaped_and_reaches_for_nothing(answer):
    page = Page(answer)
    assert {tag for tag, _ in page.tags} <= {"div", "table", "tr", "td", "th", "b", "span"}
    assert {name for _, attributes in page.tags for name in attributes} == {"style"}
    text = "".join(page.text)
    for part in (EVIL, "who <b>leads</b> Kenya", "Raila & Sons", "Kenya: <leaders>", "-0.250"):
        assert part in text
    assert "url(" not in answer._repr_html_()


def test_bars_are_as_long_as_prior_and_posterior():
    widths = re.findall(r"width:([\d.]+)%", SEQUENCE._repr_html_())
    assert [float(width) for width in widths] == [70, 90, 30, 10]


def test_the_heat_map_has_a_row_for_each_passage_and_a_cell_for_each_token():
    cells = [float(share) for share in re.findall(r"rgba\(66,133,244,([\d.]+)\);text-align", TOKEN._repr_html_())]
    assert cells == [0.63, 0.14, 0.7, 0.35, 0.07, 0.56, 0.0, 0.35], "0.7 of the probability"
    assert "which passage each token came from" not in SEQUENCE._repr_html_()


def test_the_terminal_shows_the_same_as_a_table():
    shown = str(TOKEN)
    for part in ("who <b>leads</b> Kenya", "Raila & Sons", "-0.250", "0.700", "0.900", "Kenya: <leaders>", "[red]"):
        assert part in shown
    assert "█░█▒" in shown
    assert "..." in shown, "a long passage is cut"
    assert "by token" not in str(SEQUENCE)


def test_closed_book_shows_the_answer_alone():
    alone = dataclasses.replace(SEQUENCE, sources=())
    assert str(alone).splitlines()[-1].startswith("Raila & Sons")
    assert "table" not in {tag for tag, _ in Page(alone).tags}


def test_a_score_shows_both_variants():
    scored = Scored(**{f.name: getattr(TOKEN, f.name) for f in dataclasses.fields(TOKEN)}, sequence=-1.5, token=-2.5)
    for shown in (str(scored), scored._repr_html_()):
        assert "-1.500 as RAG-Sequence, -2.500 as RAG-Token" in shown
