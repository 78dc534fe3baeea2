"""HOST. Text of unknown origin, made fit for a terminal: some of its characters would be taken for commands."""

from __future__ import annotations

import re

from rich.text import Text

# The control characters (ESC, or U+009B alone, begins a command: to move, to clear, to write a file name), separators
# of lines, marks that turn the direction of all that follows, past the passage too, and halves of surrogate pairs:
# these cannot be written at all. Line ends and tabs are text.
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""The text with its control characters written out, ESC as \u001b; inside JSON that is the same string."""
    return _COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def terminal_text(text: str, style: str = "") -> Text:
    """The same for rich: no brackets in it are markup, and no colons emoji, as they would be in a string."""
    return Text(printable(text), style)
