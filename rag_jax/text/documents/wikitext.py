"""HOST. MediaWiki's markup to plain text: the prose of a page, paragraph by paragraph.

What stays is what DPR kept of Wikipedia: the running text. Templates, tables, references, comments, pictures,
galleries, formulas, program listings, categories, links to other languages, headings and lists go. (DPR's collection
came out of WikiExtractor with its default settings, which drop headings and lists too.) A template's output would need
Wikipedia's own programs, so what it would have written is missing: "{{convert|5|km}} long" becomes "long".
"""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Collection

import mwparserfromhell
from mwparserfromhell import nodes
from mwparserfromhell.wikicode import Wikicode

# Namespaces whose links show nothing in the running text; these English names hold in every language's wiki.
HIDDEN_NAMESPACES = ("file", "image", "media", "category")

# Elements that go with all they hold.
_DROPPED = frozenset(
    {"ref", "references", "table", "ul", "ol", "dl", "li", "dt", "dd", "h1", "h2", "h3", "h4", "h5", "h6"}
    | {"math", "chem", "ce", "gallery", "imagemap", "timeline", "graph", "score", "hiero", "mapframe", "maplink"}
    | {"syntaxhighlight", "source", "style", "script", "templatestyles", "templatedata", "includeonly"}
    | {"categorytree", "inputbox", "section", "indicator"}
)
# Elements whose content is shown as it stands: markup in there is text.
_VERBATIM = frozenset(("nowiki", "pre"))
_BLOCKS = frozenset(("p", "div", "br", "hr", "blockquote", "poem", "pre", "center", "tr", "td", "th", "caption"))
# Tags that lost their partner, which the parser takes for text. What they enclosed stays, so that no sentence is lost.
_STRAY_TAG = re.compile(
    r"</?(?:ref|references|nowiki|noinclude|includeonly|onlyinclude|small|big|center|div|span|sup|sub|code|tt|pre|p|"
    r"br|hr|b|i|u|s|em|strong|del|ins|abbr|cite|font|blockquote|table|tr|td|th|ul|ol|li|dl|dt|dd|gallery|math|poem|var|"
    r"section|timeline|h[1-6])\b[^<>]*>|</?(?:ref|br)\b",
    re.IGNORECASE,
)
_STRAY_BRACKETS = re.compile(r"\{\{+|\}\}+|\[\[+|\]\]+")
_QUOTES = re.compile(r"''+")
_SWITCH = re.compile(r"__[A-Z]+__")  # __NOTOC__ and its like
_STRAY_HEADING = re.compile(r"\s*=(=+)[^=].*=\1\s*")
_LANGUAGE = re.compile(r"(?:[a-z]{2,3}|simple)(?:-[a-z]+)*")
_BARE_ADDRESS = re.compile(r"\b(?:https?|ftp)://\S*")
# What a template leaves behind when it stood first, last or alone between parentheses.
_EMPTY_PARENTHESES = re.compile(r"\(\s*(?:[,;:]\s*)*\)")
_OPEN_PARENTHESIS = re.compile(r"\(\s*(?:[,;:]\s*)+")
_LIST = "\x00"  # starts a list's line while a page is being read; XML cannot hold it


def plain_text(wikitext: str, hidden: Collection[str] = HIDDEN_NAMESPACES) -> str:
    """The running text of a page: one paragraph a line, no empty lines; "" when there is none.

    Never raises on broken markup: an unclosed table, link, template or tag loses its signs and, a table, its rows.

    Args:
      wikitext: the page's source.
      hidden: names of the file, media and category namespaces, in lower case. Links into them are dropped.
    """
    wikitext = wikitext.replace(_LIST, "")
    unclosed_comment = wikitext.find("<!--", wikitext.rfind("-->") + 1)
    if unclosed_comment >= 0:  # hides the rest of the page
        wikitext = wikitext[:unclosed_comment]
    # Quotes are left to `_text`: read as tags, an unbalanced one can hide a template or a link from the parser.
    code = mwparserfromhell.parse(wikitext, skip_style_tags=True)
    lines = (line.strip() for line in _render(code, hidden).split("\n"))
    return "\n".join(filter(None, map(_tidy, filter(_is_prose, lines))))


def _is_prose(line: str) -> bool:
    # A line that starts with | or {| belongs to a table that the parser found no end of.
    return bool(line) and line[0] not in f"{_LIST}|" and line[:2] != "{|" and not _STRAY_HEADING.fullmatch(line)


def _tidy(line: str) -> str:
    line = _OPEN_PARENTHESIS.sub("(", _EMPTY_PARENTHESES.sub("", line.replace(_LIST, "")))
    return " ".join(line.split())


def _render(code: Wikicode | None, hidden: Collection[str]) -> str:
    return "" if code is None else "".join(_node(node, hidden) for node in code.nodes)


@functools.singledispatch
def _node(node: nodes.Node, hidden: Collection[str]) -> str:
    """What a node shows; nothing, for the kinds without a function below: templates, their arguments, comments."""
    return ""


@_node.register
def _heading(node: nodes.Heading, hidden: Collection[str]) -> str:
    return "\n"


@_node.register
def _text(node: nodes.Text, hidden: Collection[str]) -> str:
    text = _STRAY_BRACKETS.sub("", _STRAY_TAG.sub(" ", node.value))
    return _SWITCH.sub("", _QUOTES.sub(_apostrophes, text))


def _apostrophes(run: re.Match[str]) -> str:
    """Two, three or five quotes are italic, bold or both; the first of four is shown. More are somebody's slip."""
    return "'" if len(run[0]) == 4 else ""


@_node.register
def _entity(node: nodes.HTMLEntity, hidden: Collection[str]) -> str:
    try:
        shown = node.normalize()
    except (ValueError, OverflowError):  # a number that is no character
        return ""
    return "" if "\ud800" <= shown <= "\udfff" else shown  # half of a surrogate pair is none either


@_node.register
def _address(node: nodes.ExternalLink, hidden: Collection[str]) -> str:
    return _BARE_ADDRESS.sub("", _render(node.title, hidden)) if node.brackets else ""


@_node.register
def _link(node: nodes.Wikilink, hidden: Collection[str]) -> str:
    target = _render(node.title, hidden).strip()
    prefix, colon, _ = target.partition(":")
    prefix = prefix.strip()
    if colon and (prefix.lower() in hidden or _LANGUAGE.fullmatch(prefix)):
        return ""
    shown = "" if node.text is None else _render(node.text, hidden).strip()
    if not shown and target.startswith(":"):  # a link to a category or a file, shown as a link
        shown = target[1:].partition(":")[2] or target[1:]
    return shown or target


@_node.register
def _tag(node: nodes.Tag, hidden: Collection[str]) -> str:
    name = str(node.tag).strip().lower()
    if node.wiki_markup and node.wiki_markup[0] in "*#:;":
        return _LIST
    if name in _DROPPED:
        # A closed <li> is one line; the parser leaves an unclosed one's text behind it.
        return _LIST if node.self_closing and name in ("li", "dt", "dd") else ""
    shown = html.unescape(str(node.contents or "")) if name in _VERBATIM else _render(node.contents, hidden)
    return f"\n{shown}\n" if name in _BLOCKS else shown
