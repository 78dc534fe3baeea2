"""HOST. A page of tables, charts and examples, and its HTML.

Every text is escaped by the template. The examples travel as JSON, in which no `<` is left, and the script puts them on
the page as text. The page's policy allows that one script and no connection at all.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import jinja2
from markupsafe import Markup

from rag_jax.evaluation.report.charts import Bars, Chart


@dataclasses.dataclass(frozen=True)
class Table:
    """Figures in rows.

    Attributes:
      title: above it.
      columns: headings; the first names what the rows are.
      rows: cells as text, as many as headings; the first is the row's own heading.
      notes: (heading, what it means) for headings that need words.
      words: the cells are words and not figures.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[tuple[str, str], ...] = ()
    words: bool = False


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of the page: words, then tables and charts."""

    heading: str
    text: str = ""
    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    bars: tuple[Bars, ...] = ()


@dataclasses.dataclass(frozen=True)
class Page:
    """A whole report.

    Attributes:
      title: of the page.
      summary: a line or two under it.
      sections: in order.
      examples: see `rag_jax.evaluation.report.examples`; None = no examples.
      settings: (name, text) of what made the results, shown on demand.
    """

    title: str
    summary: str
    sections: tuple[Section, ...]
    examples: Mapping[str, Any] | None = None
    settings: tuple[tuple[str, str], ...] = ()


def render(page: Page) -> str:
    """The page as HTML, complete in itself."""
    templates = _templates()
    style, script = (_LOADER.get_source(templates, name)[0].strip() for name in ("page.css", "examples.js"))
    digest = base64.b64encode(hashlib.sha256(f"\n{script}\n".encode()).digest()).decode()
    return templates.get_template("page.html").render(
        page=page,
        style=Markup(style),
        script=Markup(script),
        script_digest=digest,
        data=None if page.examples is None else embedded_json(page.examples),
    )


def embedded_json(value: Any) -> Markup:
    """JSON to stand inside a script element: whatever its strings hold, it does not end it or open a comment."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


def share(value: float | int | None) -> str:
    """A figure as a cell: a share with three digits, a count with none, '–' for what was not measured."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


_LOADER = jinja2.PackageLoader("rag_jax.evaluation.report")


@functools.cache
def _templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=_LOADER,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
