"""Read tables of rules; preselect those that can match a name, by the trigrams that their patterns require.

Over a hundred patterns would be searched per name; nearly all of them require letters that the name lacks.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

_TRIGRAM: Final = 3
_BRACKET_OR_BAR: Final = re.compile(r"\\.|\[.[^\]]*\]|[()|]")
_FIRST_LETTERS: Final = re.compile(r"\^?([A-Za-z0-9_:]{3})(?![?*{])")
_QUANTIFIER: Final = re.compile(r"[?*+]\??|\{[\d,]*\}\??")
_SPECIAL: Final = frozenset(".^$")


@cache
def compile_once(pattern: str) -> re.Pattern[str]:
    """Compile a pattern at its first use: most names need few of them, and most runs none of some tables."""
    return re.compile(pattern)


def parse_table(table: str, columns: tuple[str, ...]) -> list[list[str]]:
    """Parse tab-separated lines below a header; raise ValueError for other columns."""
    header, *rows = (line.split("\t") for line in table.splitlines())
    if tuple(header) != columns or any(len(row) != len(columns) for row in rows):
        raise ValueError(f"the table of rules has other columns than {', '.join(columns)}")
    return rows


class RuleIndex:
    """Rules by the trigrams that their patterns require, as sets of bits: bit i stands for rule i."""

    def __init__(self, rules: Iterable[tuple[int, Iterable[str]]]) -> None:
        """Index rules, each supplied as its number and its patterns, any of which decides."""
        self._always = 0  # rules without a required trigram
        rules_by_trigram: dict[str, int] = defaultdict(int)
        for number, patterns in rules:
            required = find_required_trigrams("|".join(patterns))
            if required is None:
                self._always |= 1 << number
            for trigram in required or ():
                rules_by_trigram[trigram] |= 1 << number
        self._rules_by_trigram: Final = dict(rules_by_trigram)
        self._trigrams: Final = frozenset(rules_by_trigram)

    def find_candidates(self, lower_text: str) -> int:
        """Find the rules that can match a text in lower case, as bits."""
        candidates = self._always
        trigrams = {lower_text[i : i + _TRIGRAM] for i in range(len(lower_text) - _TRIGRAM + 1)}
        for trigram in self._trigrams & trigrams:
            candidates |= self._rules_by_trigram[trigram]
        return candidates


def iter_set_bits(bits: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set, lowest first."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def split_alternatives(pattern: str) -> list[str]:
    """Split a pattern at the bars outside all brackets."""
    parts, depth, start = [], 0, 0
    for mark in _BRACKET_OR_BAR.finditer(pattern):
        depth += (mark[0] == "(") - (mark[0] == ")")
        if mark[0] == "|" and not depth:
            parts.append(pattern[start : mark.start()])
            start = mark.end()
    return [*parts, pattern[start:]]


def find_required_trigrams(pattern: str) -> frozenset[str] | None:
    """Find trigrams in lower case of which every match contains at least one; None if there are none."""
    branches = [_find_branch_trigrams(branch) for branch in split_alternatives(pattern)]
    return None if None in branches else frozenset(trigram for branch in branches for trigram in branch or ())


def _find_branch_trigrams(branch: str) -> frozenset[str] | None:
    """Find the trigrams of one alternative: of its first letters, else its longest literal, else a group."""
    if front := _FIRST_LETTERS.match(branch):
        return frozenset({front[1].lower()})
    literals, groups, at = [""], list[frozenset[str]](), 0
    while at < len(branch):
        end = _find_piece_end(branch, at)
        piece, quantifier = branch[at:end], _QUANTIFIER.match(branch, end)
        at = quantifier.end() if quantifier else end
        is_required = quantifier is None or quantifier[0][0] == "+"
        literal = _parse_literal(piece) if is_required else ""
        literals[-1] += literal
        if quantifier or not literal:
            literals.append("")
        if is_required and (body := _parse_group_body(piece)) and (trigrams := find_required_trigrams(body)):
            groups.append(trigrams)
    longest = max(literals, key=len).lower()
    if len(longest) >= _TRIGRAM:
        return frozenset({longest[:_TRIGRAM]})
    return min(groups, key=len, default=None)


def _parse_literal(piece: str) -> str:
    """Parse the one letter that a piece matches; empty if it matches several or none."""
    if len(piece) == 2 and piece[0] == "\\":
        return "" if piece[1].isalnum() else piece[1]
    return "" if len(piece) != 1 or piece in _SPECIAL else piece


def _parse_group_body(piece: str) -> str:
    """Parse the body of a group that consumes letters; empty for anything else."""
    body = piece[1:-1].removeprefix("?:") if piece.startswith("(") else ""
    return "" if body.startswith("?") else body


def _find_piece_end(pattern: str, at: int) -> int:
    """Find the end of the piece that begins at an index: a letter, an escape, a class or a group."""
    if pattern[at] == "\\":
        return at + 2
    if pattern[at] == "[":
        return pattern.index("]", at + 2) + 1
    if pattern[at] != "(":
        return at + 1
    at += 1
    while pattern[at] != ")":
        at = _find_piece_end(pattern, at)
    return at + 1
