"""HOST. An answer with its sources as HTML for a notebook: bars for prior and posterior, a heat map tokens x passages.

Everything is inside the one string: no script, no style sheet, no address. Colours are translucent over those of the
page, so that it reads in light and dark; where it is narrow a passage stands below its bars. All text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from rag_jax.types import Source

BLUE = "66,133,244"
DARKEST = 0.7  # of the heat map, so that numbers are read on it in light and dark
_CELL = "text-align:left;vertical-align:top;padding:.25em .6em;border:0"
_NUMBER, _BAR = "width:1.4em", "width:5em"
_RULE = "border-top:1px solid rgba(128,128,128,.35)"


def answer_html(title: Sequence[str], sources: Sequence[Source], tokens: Sequence[str]) -> str:
    """Question, answer, passages with p(z|x) and p(z|x,y), and for RAG-Token which passage gave which token.

    Args:
      title: question, answer, and how probable it is.
      sources: best prior first; none in closed book.
      tokens: the answer's, as many as each source has posteriors by token.
    """
    question, answer, probability = map(escape, title)
    parts = [
        f'<div style="opacity:.8">{question}</div>',
        f'<div style="font-size:1.3em;font-weight:600">{answer}</div>',
        f'<div style="opacity:.65;font-size:.85em;margin-bottom:.5em">{probability}</div>',
    ]
    if sources:
        parts.append(_sources(sources))
    if any(source.token_posterior for source in sources):
        parts.append(_heat_map(sources, tokens))
    return f'<div style="max-width:60em;overflow-wrap:anywhere;line-height:1.4">{"".join(parts)}</div>'


def _sources(sources: Sequence[Source]) -> str:
    names = (
        _block(name, f"{width};opacity:.65") for name, width in (("", _NUMBER), ("prior", _BAR), ("posterior", _BAR))
    )
    lines = [_line(names)]
    for number, source in enumerate(sources, 1):
        passage = source.passage
        heading = f"<b>{escape(passage.title)}</b> " if passage.title else ""
        whose = f'<span style="opacity:.5;font-size:.85em">{escape(passage.id)}</span>'
        bars = (_block(_bar(share), _BAR) for share in (source.prior, source.posterior))
        text = _block(f"{heading}{whose}<div>{escape(passage.text)}</div>", "flex:1 1 20em")
        lines.append(_line([_block(str(number), _NUMBER), *bars, text], _RULE))
    return "".join(lines)


def _heat_map(sources: Sequence[Source], tokens: Sequence[str]) -> str:
    """Rows are passages by their numbers, columns tokens; each column sums to 1 (paper, figure 2)."""
    head = _row([_cell("", "th"), *(_cell(escape(token.strip()) or "&middot;", "th") for token in tokens)])
    rows = []
    for number, source in enumerate(sources, 1):
        heat = [
            _cell(f"{p:.2f}", "td", f"background:rgba({BLUE},{DARKEST * _share(p):.2f});text-align:center")
            for p in source.token_posterior
        ]
        rows.append(_row([_cell(str(number)), *heat], _RULE))
    caption = '<div style="opacity:.65;margin-top:.7em">which passage each token came from</div>'
    return f'{caption}<div style="overflow-x:auto;overflow-wrap:normal">{_table([head, *rows])}</div>'


def _bar(probability: float | None) -> str:
    if probability is None:
        return "-"
    width = f"width:{100 * _share(probability):.1f}%"
    bar = f'<div style="height:.45em;{width};background:rgba({BLUE},.7);border-radius:2px"></div>'
    return f'{probability:.3f}<div style="background:rgba(128,128,128,.2)">{bar}</div>'


def _share(probability: float) -> float:
    """From 0 to 1 whatever rounding did."""
    return min(max(probability, 0.0), 1.0)


def _line(blocks: Iterable[str], style: str = "") -> str:
    """Blocks beside each other; what finds no room goes below."""
    return f'<div style="display:flex;flex-wrap:wrap;gap:.2em 1em;padding:.3em .6em;{style}">{"".join(blocks)}</div>'


def _block(content: str, style: str) -> str:
    return f'<div style="{style}">{content}</div>'


def _table(rows: Sequence[str]) -> str:
    inherited = "color:inherit;font-size:inherit"  # where a page is not strict HTML, tables would not
    return f'<table style="border-collapse:collapse;border:0;{inherited}">{"".join(rows)}</table>'


def _row(cells: Sequence[str], style: str = "") -> str:
    return f'<tr style="background:none;{style}">{"".join(cells)}</tr>'


def _cell(content: str, kind: str = "td", style: str = "") -> str:
    return f'<{kind} style="{_CELL};{style}">{content}</{kind}>'
