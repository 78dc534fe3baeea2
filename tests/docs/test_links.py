"""Links of the pages that no site builder looks at: they lead to files and headings that are there."""

import itertools
import re

import pytest
from markdown_it import MarkdownIt

from tests.docs.blocks import PAGES, ROOT


def links_of(text):
    """The targets of all links of a page."""
    tokens = MarkdownIt("commonmark").parse(text)
    inline = [token for part in tokens for token in part.children or ()]
    return [token.attrs["href"] for token in inline if token.type == "link_open"]


def anchors_of(text):
    """What a heading is called in an address: its words in lower case, joined by hyphens."""
    tokens = MarkdownIt("commonmark").parse(text)
    titles = [after.content for token, after in itertools.pairwise(tokens) if token.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def dead_links(page, text):
    """Relative links without a file, or without the heading that they name."""
    dead = []
    for link in links_of(text):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        content = text if not name else target.read_text("utf-8") if target.is_file() else None
        if content is None or (anchor and anchor not in anchors_of(content)):
            dead.append(link)
    return dead


@pytest.mark.parametrize("page", [*PAGES, "CONTRIBUTING.md"])
def test_no_link_is_dead(page):
    assert not dead_links(page, (ROOT / page).read_text("utf-8"))


def test_the_readme_leads_to_the_docs():
    links = {link.partition("#")[0] for link in links_of((ROOT / "README.md").read_text("utf-8"))}
    assert {"docs/tutorial.md", "docs/how-to/tpu-pod.md", "CONTRIBUTING.md"} <= links


@pytest.mark.parametrize(
    ("link", "is_dead"),
    [
        ("CONTRIBUTING.md", False),
        ("CONTRIBUTING.md#golden-files", False),
        ("#a-heading", False),
        ("https://example.org/nowhere", False),
        ("nowhere.md", True),
        ("CONTRIBUTING.md#golden-file", True),
        ("#another-heading", True),
    ],
)
def test_a_dead_link_is_reported(link, is_dead):
    assert dead_links("README.md", f"# A heading\n\n[here]({link})\n") == [link] * is_dead
