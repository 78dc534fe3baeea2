"""HOST. How a command ends when something is wrong with what it was given."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from rag_jax.text.printable import printable


@contextmanager
def told_plainly() -> Iterator[None]:
    """Errors that the user can do something about end the command with their message, without a traceback."""
    try:
        yield
    except (ValueError, OSError, ImportError) as error:
        typer.secho(printable(f"rag-jax: {error}"), fg="red", err=True)
        raise typer.Exit(1) from None
