"""Texts as nobody wishes for them, for properties that hold for every text."""

import unicodedata

from hypothesis import strategies as st

# Written by name where an editor could change them on the way.
FRAGMENTS = [
    *("", " ", "\t", "\n", "\r", "\r\n", "\u2028", "\u2029", "\x85", "\x1c", "\u00a0", "\u3000"),
    *("\0", "\x01", "\x1b[2J", "\x1b]0;title\x07", "\x7f", "\x9b31m", "\ufeff", "\ufffd", "\uffff", "\U0010ffff"),
    *(
        "e\u0301",
        "\u0301",
        "a\u0323\u0307",
        "\u1e9b\u0323",
        "\uac01",
        "\u1100\u1161\u11a8",
        "\u0130",
        "\u00df",
        "\u03a3",
    ),
    *("\u05e9\u05dc\u05d5\u05dd", "\u0645\u0631\u062d\u0628\u0627", "\u202eabc", "\u2066x\u2069", "\u200f", "\u200b"),
    *(
        "\U0001f469\u200d\U0001f469\u200d\U0001f467",
        "\U0001f1e9\U0001f1ea",
        "\u2764\ufe0f",
        "\u5317\u4eac",
        "\u0e01\u0e33",
    ),
    *(
        '"',
        '""',
        "'",
        "\\",
        "\\n",
        "%s",
        "{}",
        "[red]",
        "[/]",
        ":smile:",
        "#",
        "| a | b |",
        "---",
        "```",
        "<b>",
        "&lt;",
    ),
    *("<s>", "</s>", "<pad>", "<unk>", "<mask>", "[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]", " // ", " / "),
    *("{{", "}}", "[[", "]]", "{|", "|}", "''", "<!--", "-->", "<ref>", "&#xD800;", "&#0;", "&#1114112;", "==", "\n* "),
    *("the", "a", "Homer", "Iliad", "1999", "U.S.", "word " * 30, "unbroken" * 40),
]

texts = st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=6)), max_size=8).map("".join)
ids = texts.map(lambda text: text[:40]).filter(str.strip)


def assigned(text):
    """Whether this Python knows all the characters: normalisation of others depends on the version of Unicode."""
    return all(unicodedata.category(letter) != "Cn" for letter in text)
