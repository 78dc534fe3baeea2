"""HOST. Markdown to plain text, by CommonMark's rules with tables."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

# A block of settings that site generators read; Markdown itself knows none. It starts with a name or a remark: what
# starts with an empty line or a sentence stands between two rules.
_FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\n(?=#|\1|[\w\"'.-]+[ \t]*[:=])(?:.*\n)*?\1[ \t]*(?:\n|\Z)")
_HIDDEN_HTML = re.compile(r"<!--.*?(?:-->|\Z)|<(script|style)\b.*?(?:</\1\s*>|\Z)", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_DEEPEST = 100  # blocks inside blocks; what is nested deeper is left out


def plain_text(markdown: str) -> tuple[str, str]:
    """The title and the text of a Markdown file.

    Links and pictures keep their words and lose their addresses; code is kept as it stands; HTML loses its tags,
    comments, scripts and styles; front matter is dropped.

    Returns:
      The first heading ("" if there is none), and the text, a block a line. A heading that the text starts with is the
      title alone and not in the text again, because the title is read with every passage.
    """
    markdown = _FRONT_MATTER.sub("", markdown.replace("\r\n", "\n"))
    parser = MarkdownIt("commonmark", {"maxNesting": _DEEPEST}).enable(["table", "strikethrough"])
    title = ""
    lines: list[str] = []
    in_heading = False
    for token in parser.parse(markdown):
        in_heading = token.type == "heading_open" or (in_heading and token.type != "heading_close")
        shown = _block(token)
        if in_heading and shown and not title:
            title = " ".join(shown.split())
            if not lines:
                continue
        if shown.strip():
            lines.append(shown.strip())
    return title, "\n".join(lines)


def _block(token: Token) -> str:
    if token.type == "inline":
        return _inline(token.children or ())
    if token.type in ("fence", "code_block"):
        return token.content
    if token.type == "html_block":
        return _without_tags(token.content)
    return ""


def _inline(tokens: Sequence[Token]) -> str:
    parts = []
    for token in tokens:
        if token.type in ("text", "code_inline"):
            parts.append(token.content)
        elif token.type in ("softbreak", "hardbreak"):
            parts.append("\n")
        elif token.type == "image":
            parts.append(_inline(token.children or ()))
        elif token.type == "html_inline" and token.content.lower().startswith("<br"):
            parts.append("\n")
    return "".join(parts)


def _without_tags(block: str) -> str:
    return html.unescape(_TAG.sub(" ", _HIDDEN_HTML.sub(" ", block)))
