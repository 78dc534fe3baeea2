"""HOST. An answer with its sources as a table on the terminal."""

from __future__ import annotations

import io
import shutil
from collections.abc import Sequence

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from rag_jax.text.printable import printable, terminal_text
from rag_jax.types import Source

SHADES = " ░▒▓█"  # of a token's posterior, from 0 to 1
SHOWN_LETTERS = 160  # of a passage
Shown = Group


def shown(title: Sequence[str], sources: Sequence[Source]) -> Shown:
    """The question, the answer, and a row for each passage; for RAG-Token with a shade for each token of the answer.

    Args:
      title: question, answer, and how probable it is.
      sources: best prior first; none in closed book.
    """
    question, answer, probability = map(printable, title)
    head = Text.assemble(question, "\n", (answer, "bold"), "  ", (probability, "dim"))
    if not sources:
        return Group(head)
    by_token = any(source.token_posterior for source in sources)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("prior", "posterior"):
        table.add_column(name, justify="right", no_wrap=True)
    if by_token:
        table.add_column("by token", no_wrap=True)
    table.add_column("passage", overflow="fold")
    for source in sources:
        cells = [f"{source.prior:.3f}", "-" if source.posterior is None else f"{source.posterior:.3f}"]
        if by_token:
            cells.append("".join(map(_shade, source.token_posterior)))
        passage = source.passage
        text = f"{passage.title}: {passage.text}" if passage.title else passage.text
        cells.append(text if len(text) <= SHOWN_LETTERS else text[: SHOWN_LETTERS - 3] + "...")
        table.add_row(*map(terminal_text, cells))
    return Group(head, table)


def as_text(view: Shown) -> str:
    """What `print` shows of it, as wide as the terminal, without colours."""
    out = io.StringIO()
    Console(file=out, width=shutil.get_terminal_size((120, 24)).columns, color_system=None).print(view)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _shade(probability: float) -> str:
    return SHADES[min(int(probability * len(SHADES)), len(SHADES) - 1)]
