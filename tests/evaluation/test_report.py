"""The report: what stands in it, that it is whole by itself, and that no text in it becomes anything else."""

import base64
import dataclasses
import hashlib
import html.parser
import itertools
import json
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_jax.config import finalise, from_dict, update
from rag_jax.evaluation.report.charts import Chart, Line
from rag_jax.evaluation.report.examples import BYTES, cut_around, readable, whole_parts
from rag_jax.evaluation.report.page import Page, Section, Table, render
from rag_jax.evaluation.report.retrieval_page import retrieval_page
from rag_jax.evaluation.report.runs_page import runs_page
from tests.evaluation.made_up_runs import HOSTILE, closed_book, questions, reported

HOT_SWAP = {
    "2016_index": {"2016_leaders": 0.7302, "2020_leaders": 0.0},
    "2020_index": {"2016_leaders": 0.0, "2020_leaders": 0.8299},
    "questions": 241,
}


class Reader(html.parser.HTMLParser):
    """Start tags, comments and the texts of elements, as a browser sees them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.comments, self.texts, self.open = [], [], {}, []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_comment(self, data):
        self.comments.append(data)

    def handle_data(self, data):
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


@pytest.fixture(scope="module")
def report():
    name = f"token {HOSTILE}"
    return render(runs_page("world", [reported(name), closed_book("closed_book")], HOT_SWAP))


def data_of(text):
    return json.loads(next(t for t in Reader(text).texts["script"] if '"kind"' in t))


def test_texts_stay_texts_wherever_they_stand(report):
    read = Reader(report)
    assert sum(tag == "script" for tag, _ in read.tags) == 2
    assert not [tag for tag, _ in read.tags if tag == "img"]
    assert not read.comments
    assert "<!--" not in report.removeprefix("<!doctype html>")
    assert read.texts["title"][0] == "world"  # the others are those of points
    data = data_of(report)
    assert data["runs"] == [f"token {HOSTILE}", "closed_book"]
    assert data["passages"][0] == ["Port 0", f"Ostia 0 lies by the sea, said number 0. {HOSTILE}"]
    assert data["answers"][0][1][0] == HOSTILE
    assert f"token {HOSTILE}" in read.texts["th"]


def test_the_report_needs_nothing_from_elsewhere_and_may_fetch_nothing(report):
    read = Reader(report)
    outside = [a for _, a in read.tags if {"src", "srcset", "data"} & set(a)]
    links = [a["href"] for _, a in read.tags if "href" in a]
    assert not outside
    assert all(link.startswith("#") for link in links)
    assert not re.search(r"@import|url\(", "".join(read.texts["style"]))
    policy = next(a["content"] for tag, a in read.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    script = next(t for t in read.texts["script"] if '"kind"' not in t)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy


def test_shares_of_an_example_sum_to_the_whole(report):
    token, closed = data_of(report)["answers"]
    for _, _, _, listed, hidden, tokens, heat in token:
        assert (len(listed), hidden[0]) == (8, 4)
        assert sum(prior for _, prior, _, _ in listed) + hidden[1] == 1000
        assert sum(posterior for _, _, posterior, _ in listed) + hidden[2] == 1000
        assert len(heat) == len(tokens) == 4
        assert all(sum(row) == 100 and len(row) == 9 for row in heat)
    assert closed[0] == ["", 0, round(1000 * math.exp(-1)), [], [0, 0, 0], [], []]


def test_examples_say_what_is_right_and_which_passage_holds_it(report):
    data = data_of(report)
    assert [given[1] for given in data["answers"][0]] == [1, 0, 1, 0, 1, 0]
    flags = {(data["passages"][number][0], flag) for number, _, _, flag in data["answers"][0][0][3]}
    assert ("Port 0", 3) in flags  # gold, and holds the answer; the others only hold it
    assert {flag for _, flag in flags} == {1, 3}
    assert data["answers"][0][0][5] == ["␣Ost", "ia", "␣é", "</s>"]


def test_runs_with_different_first_figures_have_charts_of_their_own():
    run = reported("text")
    of_labels = {"accuracy": 0.5, "em_over_k": [{"k": 1, "accuracy": 0.4}, {"k": 2, "accuracy": 0.6}]}
    shown = render(runs_page("both", [run, dataclasses.replace(run, name="labels", figures=of_labels)]))
    captions = Reader(shown).texts["figcaption"]
    assert "EM over k at test" in captions
    assert len([caption for caption in captions if caption.endswith("over k at test")]) == 2


def test_labels_are_looked_for_in_no_passage_of_a_report():
    run = reported("fever")
    config = finalise(update(from_dict(dataclasses.asdict(run.config)), {"data.labels": ("true", "false")}))
    shown = render(runs_page("fever", [dataclasses.replace(run, config=config)]))
    flags = {flag for given in data_of(shown)["answers"][0] for *_, flag in given[3]}
    assert flags == {0, 2}  # gold, or nothing
    assert "right where retrieved" not in shown


def test_results_hot_swap_curves_and_outcomes_are_tables(report):
    cells = Reader(report).texts
    assert {"Answers", "Retrieval", "Settings", "Exact match"} <= set(cells["caption"])
    assert {"0.500", "–", "0.730", "0.830", "0.000"} <= set(cells["td"])
    assert {"index", "leaders of 2016", "retrieved, wrong", "right where not"} <= set(cells["th"])
    assert {"An answer among the first k", "EM over k at test"} <= set(cells["figcaption"])
    assert "0.600" in cells["td"]  # EM for k=10


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=9).filter(lambda shares: sum(shares) > 1e-3), st.sampled_from([1000])
)
def test_whole_parts_sum_to_the_total_and_stay_within_one(shares, total):
    parts = whole_parts(shares, total)
    assert sum(parts) == total
    assert all(abs(part - share / sum(shares) * total) < 1 + 1e-6 for part, share in zip(parts, shares, strict=True))


@given(st.lists(st.tuples(st.integers(1, 200), st.floats(0, 1)), min_size=1, max_size=12))
def test_points_lie_between_the_ends_of_a_charts_axes(points):
    chart = Chart("t", "k", "recall", (Line("a", tuple(sorted(dict(points).items()))),))
    ticks = chart.y_ticks
    assert 3 <= len(ticks) <= 7
    assert float(ticks[-1].label) <= 1
    assert len({tick.label for tick in ticks}) == len(ticks)
    for mark in chart.marks[0][1]:
        assert chart.left <= mark.x <= chart.right
        assert chart.top - 0.1 <= mark.y <= chart.bottom + 0.1
    places = [tick.at for tick in chart.x_ticks]
    assert places
    assert all(b - a >= 20 for a, b in itertools.pairwise(places))


def test_a_text_is_cut_around_its_answer_between_words():
    text = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
    cut = cut_around(text, 30, ["Eight"])
    assert cut.startswith("…")
    assert cut.endswith("…")
    assert "eight" in cut
    assert set(cut.strip("…").split()) <= set(text.split())
    assert cut_around(text, 30, ["absent"]).startswith("one two")
    assert cut_around(text, 30, ["fourteen"]).endswith("fourteen")
    assert cut_around(text, 300, []) == text


def test_tokens_can_be_read():
    assert [readable(token) for token in ("ĠParis", "Ã©", "Ã", "</s>", "##er")] == ["␣Paris", "é", "�", "</s>", "##er"]


def test_a_report_of_two_thousand_questions_stays_below_five_megabytes():
    words = np.random.default_rng(1).integers(0, 30_000, 60_000)
    spelt = [f"{'abcdefghij'[w % 10]}{w:05d}" for w in words]  # six letters each: 100 of them are as long as DPR's

    def text(n, i):
        start = (n * 31 + i * 977) % (len(spelt) - 100)
        return f"{n} {i} " + " ".join(spelt[start : start + 100])

    run = reported("token", count=2000, k=5, text=text)
    shown = render(runs_page("nq", [run]))
    data = data_of(shown)
    assert len(shown.encode()) < 5_000_000
    assert len(data["questions"]) == len(data["answers"][0]) == 2000
    assert len(data["passages"]) == 10_000
    assert min(len(text) for _, text in data["passages"]) > 200
    assert BYTES < 5_000_000


def test_retrieval_alone_has_a_report_with_ranks_and_no_posteriors():
    asked = questions(3)
    run = reported("x", count=3)
    found = [[(s.passage, 9.0 - i) for i, s in enumerate(a.sources)] for a in run.answers]
    found[1] = []
    rows = [{"k": 1, "answer": 0.5, "gold": 0.25}, {"k": 20, "answer": 0.75, "gold": 0.5}]
    figures = {"backend": "exact", "passages": 36, "questions": 3, "recall_over_k": rows}
    shown = render(retrieval_page("Retrieval", figures, asked, found))
    data = data_of(shown)
    assert data["kind"] == "retrieval"
    assert [given[1] for given in data["answers"][0]] == [1, 0, 1]
    assert data["answers"][0][0][3][0][1:] == [9.0, 0, 3]
    assert {"an answer", "a gold passage"} <= set(Reader(shown).texts["th"])


def test_a_page_without_examples_has_no_script():
    table = Table("t", ("a", "b"), (("x", "1"),))
    shown = Reader(render(Page("p", "s", (Section("h", tables=(table,)),))))
    assert "script" not in [tag for tag, _ in shown.tags]
