r"""HOST. The strings that a regex stands for, as a person reads it: 'New\s?York|NYC' is 'New York' and 'NYC'.

Of what is optional the longer reading comes first; a repeated part stands once, or as often as it must; of a range the
first character stands, and for any character at all a space. (The paper's appendix, "CuratedTrec preprocessing", has
spaces for sets too: 'Qu bec'.)
"""

from __future__ import annotations

import itertools
import re

MOST = 64  # strings of one regex; a few of CuratedTREC's stand for millions
_QUANTIFIER = re.compile(r"([*+?]|\{(\d*)(,\d*)?\})[?+]?")
_NAMED = re.compile(r"\?(?::|P<\w+>)")
_CODES = {"x": 2, "u": 4, "U": 8}  # hexadecimal digits


def strings(regex: str) -> tuple[str, ...]:
    """At most `MOST` strings, without outer and double spaces, likeliest first; none that is empty.

    Args:
      regex: one that `re` compiles. Lookarounds and backreferences stand for nothing.
    """
    found, _ = _alternatives(regex, 0)
    cleaned = (" ".join(text.split()) for text in found)
    return tuple(text for text in dict.fromkeys(cleaned) if text)


def _alternatives(regex: str, at: int) -> tuple[list[str], int]:
    """What stands from `at` up to a closing bracket or the end, and where that is."""
    found: list[str] = []
    while True:
        texts, at = _sequence(regex, at)
        found += texts
        if at >= len(regex) or regex[at] == ")":
            return found[:MOST], at
        at += 1  # the bar


def _sequence(regex: str, at: int) -> tuple[list[str], int]:
    texts = [""]
    while at < len(regex) and regex[at] not in "|)":
        part, at = _part(regex, at)
        match = _QUANTIFIER.match(regex, at)
        if match is not None:
            at = match.end()
            least = int(match[2] or 0) if match[2] is not None else int(match[1] == "+")
            part = [text * max(least, 1) for text in part]
            if least == 0:
                part.append("")
        texts = ["".join(pair) for pair in itertools.islice(itertools.product(texts, part), MOST)]
    return texts, at


def _part(regex: str, at: int) -> tuple[list[str], int]:
    """One group, set, escape or character: what it stands for, and where the next one begins."""
    sign = regex[at]
    if sign == "(":
        return _group(regex, at + 1)
    if sign == "[":
        return _set(regex, at + 1)
    if sign == "\\":
        return _escaped(regex, at + 1)
    if sign == ".":  # alone it is mostly a full stop that nobody escaped
        return [" " if _QUANTIFIER.match(regex, at + 1) else sign], at + 1
    return ["" if sign in "^$" else sign], at + 1


def _group(regex: str, at: int) -> tuple[list[str], int]:
    """From behind the opening bracket. What stands for nothing is read all the same, to find its end."""
    match = _NAMED.match(regex, at)
    at = match.end() if match else at
    silent = regex.startswith("?", at)
    texts, at = _alternatives(regex, at + silent)
    return [""] if silent else texts, at + 1


def _set(regex: str, at: int) -> tuple[list[str], int]:
    """The characters of a set one by one, of a range the first; of a set that excludes some a space."""
    excludes = regex[at] == "^"
    at += excludes
    found: list[str] = []
    while at < len(regex) and (regex[at] != "]" or not found):  # a bracket that comes first is a character
        texts, at = _escaped(regex, at + 1) if regex[at] == "\\" else ([regex[at]], at + 1)
        found += texts
        if regex[at : at + 1] == "-" and regex[at + 1 : at + 2] != "]":
            at += 3 if regex[at + 1 : at + 2] == "\\" else 2
    return [" "] if excludes else found, at + 1


def _escaped(regex: str, at: int) -> tuple[list[str], int]:
    sign = regex[at]
    if sign in _CODES:
        end = at + 1 + _CODES[sign]
        return [chr(int(regex[at + 1 : end], 16))], end
    if sign in "bBAZ" or sign.isdigit():  # a place, or what an earlier group held
        return [""], at + 1
    return [" " if sign in "sSdDwWnrtfv" else sign], at + 1
