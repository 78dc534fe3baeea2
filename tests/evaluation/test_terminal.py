"""What a terminal is shown of texts from outside: their letters, and never a command."""

import io
import json
import unicodedata

from hypothesis import given
from rich.console import Console

from rag_jax.api.terminal import as_text, shown
from rag_jax.evaluation.tables import print_answers, print_results
from rag_jax.text.printable import printable
from rag_jax.types import Answer, Passage, Question, Source
from tests.wild_text import texts

TURNING = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
HOSTILE = "\x1b[2J\x1b]0;title\x07 [bold red]x[/] [/nothing] :smile: \x9b31m \u202eabc \r\b\\"


def commands(text):
    return [c for c in text if (unicodedata.category(c) in ("Cc", "Zl", "Zp") and c not in "\n\t") or c in TURNING]


def shown_by(show, *arguments):
    sink = io.StringIO()
    show(*arguments, console=Console(file=sink, width=200, force_terminal=False))
    return sink.getvalue()


@given(text=texts)
def test_what_is_printable_holds_no_command_and_all_else_as_it_was(text):
    found = printable(text)
    assert not commands(found)
    assert (found == text) == (not commands(text))
    assert json.loads(printable(json.dumps(text, ensure_ascii=False))) == text


def test_answers_and_passages_are_shown_without_their_commands_and_markup():
    question = Question("q", HOSTILE, ("x",))
    answer = Answer(HOSTILE, -1.0, (Source(Passage("p", HOSTILE, "text"), 0.5, 0.5),))
    text = shown_by(print_answers, [question], [answer], 1)
    assert not commands(text)
    assert " ".join(text.split()).count("[bold red]x[/] [/nothing] :smile:") == 3
    assert text.count("\\u001b[2J") == 3


def test_an_answer_of_the_api_is_shown_without_commands_and_markup():
    source = Source(Passage("p", HOSTILE, "text"), 0.5, 0.5)
    text = as_text(shown((HOSTILE, HOSTILE, "probability 0.5"), [source]))
    assert not commands(text)
    assert " ".join(text.split()).count("[bold red]x[/] [/nothing] :smile:") == 3


def test_a_run_is_shown_by_its_name_whatever_it_is():
    text = shown_by(print_results, {HOSTILE: {"em": 0.5}})
    assert not commands(text)
    assert "[bold red]x[/]" in text
