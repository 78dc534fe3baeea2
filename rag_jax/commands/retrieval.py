"""HOST. `rag-jax retrieval`: how often an index finds the answer, without a generator."""

# No `from __future__ import annotations`: typer reads the annotations' values.
import pathlib
from typing import Annotated

import typer

from rag_jax.commands.plainly import told_plainly


def retrieval(
    index: Annotated[pathlib.Path, typer.Argument(help="The index, a directory.", show_default=False)],
    questions: Annotated[
        pathlib.Path,
        typer.Argument(help="JSON lines: id, question, answers; positive_ids where known.", show_default=False),
    ],
    ks: Annotated[str, typer.Option(help="Where to cut the ranking.")] = "1,2,5,10,20,50,100",
    out: Annotated[pathlib.Path, typer.Option(help="Gets metrics.json and report.html.")] = pathlib.Path("retrieval"),
    weights: Annotated[
        str | None,
        typer.Option(
            help="Of the question encoder, a name that ships or a directory; else what the index was made with.",
            show_default=False,
        ),
    ] = None,
    regex: Annotated[bool, typer.Option("--regex", help="The answers are regexes, as in CuratedTREC.")] = False,
) -> None:
    """Searches an index for every question of a file: recall at k of an answer, and of the gold passage.

    Example:
      rag-jax retrieval index nq-dev.jsonl --ks 1,5,20,100 --out runs/retrieval
    """
    from rag_jax.evaluation.command import whole_numbers
    from rag_jax.evaluation.report.page import render
    from rag_jax.evaluation.report.retrieval_page import retrieval_page
    from rag_jax.evaluation.search import ranked_passages, search_figures
    from rag_jax.evaluation.tables import print_recall
    from rag_jax.index import open_index
    from rag_jax.text.readers import read_questions
    from rag_jax.text.whole_files import write_json, write_text

    with told_plainly():
        cuts = whole_numbers("--ks", ks.split(","))
        asked = read_questions(questions)
        opened = open_index(index, verify_large=False)
        vectors = None
        if not opened.searches_texts:
            from rag_jax.commands.towers import embed_questions, tower_of

            tower = tower_of(opened, weights)
            opened = open_index(index, encoder_fingerprint=tower.fingerprint, verify_large=False)
            vectors = embed_questions(tower.made_with["weights"], [question.text for question in asked])
        found = ranked_passages(opened, asked, vectors, cuts[-1])
        figures = search_figures(opened, asked, found, cuts, regex)
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "metrics.json", figures)
        page = retrieval_page(f"Retrieval: {questions.name}", figures, asked, found, regex)
        write_text(out / "report.html", render(page))
        print_recall(figures)
    typer.echo(f"{out / 'report.html'}: the same with a plot and every question")
