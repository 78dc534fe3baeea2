"""The code blocks of the README and of docs/, and what a page says about those that are not simply run.

A fence's language says what becomes of it:

    python    runs, in one namespace for the page; the value of its last expression is printed, as in a notebook
    sh        its commands run, one a line
    text      is what the block before it prints; `...` stands for any letters, alone on a line for any lines

With `title="name"` it is a file instead, written beside the page's other files: text, JSON lines, an experiment.

An HTML comment right before the fence sets it apart, and has to say why:

    <!-- parsed: ... -->        sh: every command is read by the parser that would read it, and none runs
    <!-- slow: ... -->          python, sh: only checked, unless the slow tests run
    <!-- not compared: ... -->  text: what the block before prints is not always this
"""

import dataclasses
import re
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]
RUN, FILES = ("python", "sh", "text"), ("json", "jsonl", "markdown", "python", "text", "tsv")
MARKS = {"parsed": ("sh",), "slow": ("python", "sh"), "not compared": ("text",)}
_MARK = re.compile(r"<!--\s*(?P<mark>[^:]*):\s*(?P<reason>.*?)\s*-->\s*", re.DOTALL)
_TITLE = re.compile(r'title="(?P<name>[^"]+)"')


class BlockError(ValueError):
    """A block that cannot be tried as it stands: the page, the line, and what to change."""


@dataclasses.dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
      place: 'README.md:12', the line of its fence.
      kind: its language.
      text: what stands in it, with a newline at the end.
      file: the file that it is; '' for one that is run or compared.
      mark: a name in `MARKS`, or ''.
    """

    place: str
    kind: str
    text: str
    file: str = ""
    mark: str = ""

    @property
    def line(self):
        """Of the fence, from 1."""
        return int(self.place.rpartition(":")[2])


def blocks_of(page, text):
    """All code blocks of a page, in order.

    Raises:
      BlockError: a block of an unknown kind, an indented one, a mark that there is not or without a reason, or a fence
        that Markdown does not see.
    """
    found, before = [], None
    for token in MarkdownIt("commonmark").parse(text):
        if token.type in ("fence", "code_block"):
            found.append(_block(f"{page}:{token.map[0] + 1}", token, before))
        before = token
    fences = len(re.findall(r"^\s*(?:```|~~~)", text, re.MULTILINE))
    if fences != 2 * len(found):
        raise BlockError(f"{page}: {fences} lines of fences for {len(found)} blocks; one is not closed, or hidden")
    return found


def _block(place, token, before):
    kind, _, more = token.info.strip().partition(" ")
    title = _TITLE.fullmatch(more.strip())
    if more and not title:
        raise BlockError(f'{place}: {more!r} after the language; only title="name" may stand there')
    if token.type == "code_block" or kind not in (FILES if title else RUN):
        known = f"{', '.join(RUN)}, or with a title {', '.join(FILES)}"
        raise BlockError(f"{place}: a block of kind {kind!r}; fence it as one of {known}")
    mark, reason = "", ""
    if before is not None and before.type == "html_block":
        found = _MARK.fullmatch(before.content)
        if not found or found["mark"] not in MARKS:
            raise BlockError(f"{place}: the comment before it is none of {', '.join(MARKS)}: {before.content.strip()}")
        mark, reason = found["mark"], found["reason"]
    if mark and (title or kind not in MARKS[mark]):
        raise BlockError(f"{place}: {mark!r} is for {' and '.join(MARKS[mark])}, not for this block")
    if mark and len(reason.split()) < 3:
        raise BlockError(f"{place}: {mark!r} without a reason; say why")
    return Block(place, kind, token.content, title["name"] if title else "", mark)


def outputs_differ(expected, printed):
    """Whether a text is something else than what was printed, apart from white space at line ends and `...`."""
    lines = [".*".join(map(re.escape, line.rstrip().split("..."))) + "\n" for line in expected.strip("\n").split("\n")]
    pattern = "".join("(?:.*\n)*?" if line == ".*\n" else line for line in lines)
    actual = "".join(line.rstrip() + "\n" for line in printed.strip("\n").split("\n"))
    return re.fullmatch(pattern, actual) is None
