"""HOST. `rag-jax ask`: one question, or one after the other."""

# No `from __future__ import annotations`: typer reads the annotations' values.
import contextlib
import dataclasses
import json
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from rag_jax.commands.plainly import told_plainly
from rag_jax.text.printable import printable


def ask(
    question: Annotated[
        str | None, typer.Argument(help="One question; without it they are read one after the other.")
    ] = None,
    model: Annotated[
        str, typer.Option("--model", "-m", help="A run, weights, or a checkpoint of Hugging Face; 'world' ships.")
    ] = "world",
    index: Annotated[
        pathlib.Path | None,
        typer.Option("--index", "-i", help="Of passages; else the model's own.", show_default=False),
    ] = None,
    k: Annotated[int | None, typer.Option("-k", help="Passages for each question.", min=1, show_default=False)] = None,
    variant: Annotated[
        str | None, typer.Option(help="sequence or token; as trained when not given.", show_default=False)
    ] = None,
    beams: Annotated[int | None, typer.Option(help="1 is greedy.", min=1, show_default=False)] = None,
    decoding: Annotated[str | None, typer.Option(help="thorough or fast.", show_default=False)] = None,
    passage_encoder: Annotated[
        pathlib.Path | None, typer.Option(help="For one of Hugging Face's RAGs.", show_default=False)
    ] = None,
    cache: Annotated[
        pathlib.Path | None, typer.Option(help="Where the index of World Facts is kept.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a line, with all passages.")] = False,
) -> None:
    """Answers questions, with the passages that each answer came from.

    Without a model of your own the tiny one that ships answers from World Facts 2020. Without a question it asks for
    them, until an empty line or the end of the input. Of questions that nobody types, empty lines are none; one that
    cannot be answered is told on standard error, the others are answered, and the exit code is 1.

    Examples:
      rag-jax ask "who is the head of government of Kenya"

      rag-jax ask --model runs/mine --index my_index -k 10

      rag-jax ask --json < questions.txt
    """
    with told_plainly(), _waiting("loading"):
        from rag_jax.api import load

        rag = load(model, index, variant=variant, passage_encoder=passage_encoder, cache=cache)

    def answer(text: str) -> None:
        found = rag.answer(text, k, beams=beams, decoding=decoding)
        _show(found, as_json)

    if question is not None:
        with told_plainly():
            answer(question)
        return
    typed = _somebody_types()
    talks = typed and not as_json
    if talks:
        passages = "no passages" if rag.index is None else f"{len(rag.index):,} passages"
        typer.echo(f"{passages}, {k or rag.config.eval.k} a question. An empty line ends it.")
    failed = [text for text in _lines("> " if talks else "", typed) if not _answered(answer, text)]
    if failed and not typed:
        raise typer.Exit(1)


@contextlib.contextmanager
def _waiting(what: str) -> Iterator[None]:
    """A sign of life on standard error, where that is a terminal."""
    from rich.console import Console

    with Console(stderr=True).status(f"{what} ..."):
        yield


def _somebody_types() -> bool:
    return sys.stdin.isatty()


def _lines(prompt: str, typed: bool) -> Iterator[str]:
    """Lines of standard input with something in them; an empty one that somebody types ends them."""
    while True:
        try:
            text = input(prompt).strip()
        except EOFError:
            return
        if text:
            yield text
        elif typed:
            return


def _answered(answer: Callable[[str], None], text: str) -> bool:
    """Whether the question could be answered; of one that could not it is told why, and the next one may come."""
    try:
        answer(text)
    except ValueError as error:
        typer.secho(printable(f"rag-jax: {error}"), fg="red", err=True)
        return False
    return True


def _show(found: Any, as_json: bool) -> None:
    from rich.console import Console

    if as_json:
        typer.echo(printable(json.dumps(dataclasses.asdict(found), ensure_ascii=False)))
        sys.stdout.flush()
    else:
        Console().print(found)
