"""Which rules may fit a name at all, by three letters that a text must hold for a pattern to fit it.

A hundred patterns are searched for each name; nearly all of them ask for letters that the name has not.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

_LETTERS: Final = 3
_MARK: Final = re.compile(r"\\.|\[.[^\]]*\]|[()|]")
_FRONT: Final = re.compile(r"\^?([A-Za-z0-9_:]{3})(?![?*{])")
_AGAIN: Final = re.compile(r"[?*+]\??|\{[\d,]*\}\??")
_ANY: Final = frozenset(".^$")


class RuleIndex:
    """The places of rules by the letters that their patterns need."""

    def __init__(self, rules: Iterable[tuple[int, Iterable[str]]]) -> None:
        """Take the place of each rule and its patterns, of which one has to fit."""
        self._always = 0  # rules of which nothing is known, a bit each
        places: dict[str, int] = defaultdict(int)
        for place, patterns in rules:
            needed = needed_letters("|".join(patterns))
            if needed is None:
                self._always |= 1 << place
            for letters in needed or ():
                places[letters] |= 1 << place
        self._places: Final = dict(places)
        self._known: Final = frozenset(places)

    def may_fit(self, small: str) -> int:
        """Return the rules that may fit a text in small letters, a bit each at the rule's place."""
        found = self._always
        for letters in self._known & {small[i : i + _LETTERS] for i in range(len(small) - _LETTERS + 1)}:
            found |= self._places[letters]
        return found


def places_of(bits: int) -> Iterator[int]:
    """Yield the places of the bits that are set, from the lowest."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def alternatives(pattern: str) -> list[str]:
    """Return the alternatives of a pattern that stand outside all brackets."""
    parts, depth, start = [], 0, 0
    for mark in _MARK.finditer(pattern):
        depth += (mark[0] == "(") - (mark[0] == ")")
        if mark[0] == "|" and not depth:
            parts.append(pattern[start : mark.start()])
            start = mark.end()
    return [*parts, pattern[start:]]


def needed_letters(pattern: str) -> frozenset[str] | None:
    """Return small letters, by threes, of which every text that fits has some; None where it is unknown."""
    every = [_of_one(alternative) for alternative in alternatives(pattern)]
    return None if None in every else frozenset(letters for found in every if found for letters in found)


def _of_one(pattern: str) -> frozenset[str] | None:
    """Return what is needed of a pattern without alternatives: its first letters, else those of its longest
    run, else of a group.
    """
    if front := _FRONT.match(pattern):
        return frozenset({front[1].lower()})
    runs, groups, at = [""], list[frozenset[str]](), 0
    while at < len(pattern):
        end = _end(pattern, at)
        piece, again = pattern[at:end], _AGAIN.match(pattern, end)
        at = again.end() if again else end
        surely = again is None or again[0][0] == "+"
        literal = _literal(piece) if surely else ""
        runs[-1] += literal
        if again or not literal:
            runs.append("")
        if surely and (within := _within(piece)) and (needed := needed_letters(within)):
            groups.append(needed)
    longest = max(runs, key=len).lower()
    return frozenset({longest[:_LETTERS]}) if len(longest) >= _LETTERS else min(groups, key=len, default=None)


def _literal(piece: str) -> str:
    """Return the letter that a piece stands for; empty where it may be several or none."""
    if len(piece) == 2 and piece[0] == "\\":
        return "" if piece[1].isalnum() else piece[1]
    return "" if len(piece) != 1 or piece in _ANY else piece


def _within(piece: str) -> str:
    """Return what stands in a group that takes letters; empty for anything else."""
    inner = piece[1:-1].removeprefix("?:") if piece.startswith("(") else ""
    return "" if inner.startswith("?") else inner


def _end(pattern: str, at: int) -> int:
    """Return where the piece that begins at a place ends: a letter, an escape, a class or a group."""
    if pattern[at] == "\\":
        return at + 2
    if pattern[at] == "[":
        return pattern.index("]", at + 2) + 1
    if pattern[at] != "(":
        return at + 1
    at += 1
    while pattern[at] != ")":
        at = _end(pattern, at)
    return at + 1
