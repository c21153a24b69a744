"""The rules that read a kernel's name, kept in a table beside this module.

Each row has an id that stays, the part of the name it looks at, a pattern, the op and category it
concludes, and a name that it decides. The first row that fits decides: what a kernel is called comes
before what it carries, and template arguments speak only where a row says so. Letters fit whether small or
capital, but within `(?-i:…)`.
"""

import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from capture.classify.rule_index import RuleIndex, alternatives
from capture.native.schema import CATEGORIES

_TABLE: Final = Path(__file__).with_name("kernel_rules.tsv")
_COLUMNS: Final = ("id", "part", "pattern", "op", "category", "example")

# base: namespaces and identifier; inner: what a wrapper carries; args: template arguments
PARTS: Final = ("base", "inner", "args")
CARRIED: Final = "=inner"  # as an op: named after what the wrapper carries


class KernelRule(NamedTuple):
    """A pattern in one part of a kernel's name, and what a name that it fits means."""

    id: str
    part: str
    folded: str  # for the part in small letters, empty for none
    exact: str  # for the part as it is written, empty for none
    op: str | None  # None leaves the op open; CARRIED takes the name of what a wrapper carries
    category: str
    example: str

    def search(self, text: str, small: str) -> str | None:
        """Return what of a part fits, None where nothing does; `small` is the part in lower case."""
        match = (self.folded and _compiled(self.folded).search(small)) or (
            self.exact and _compiled(self.exact).search(text)
        )
        return (text[match.start() : match.end()] or text) if match else None

    @property
    def patterns(self) -> list[str]:
        """Return the patterns of which one has to fit."""
        return [each for each in (self.folded, self.exact) if each]


def read_rules(table: str) -> tuple[KernelRule, ...]:
    """Return the rules of a table of tab-separated lines; raise ValueError where a line is no rule."""
    header, *lines = table.splitlines()
    if tuple(header.split("\t")) != _COLUMNS:
        raise ValueError("the table of kernel rules has other columns")
    return tuple(_rule(line) for line in lines)


def _rule(line: str) -> KernelRule:
    id, part, pattern, op, category, example = line.split("\t")
    if part not in PARTS or category not in CATEGORIES:
        raise ValueError(f"rule {id}: no such part or category")
    each = alternatives(pattern)
    exact = "|".join(a for a in each if "(?-i:" in a).replace("(?-i:", "(?:")
    folded = "|".join(a for a in each if "(?-i:" not in a)
    return KernelRule(id, part, _small(folded), exact, op or None, category, example)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern, compiled when a name first asks for it: most names ask for few of them."""
    return re.compile(pattern)


def _small(pattern: str) -> str:
    """Return a pattern in small letters, but for its escapes: searching small letters beats ignoring case."""
    return re.sub(r"(?<!\\)[A-Z]", lambda letter: letter[0].lower(), pattern)


KERNEL_RULES: Final = read_rules(_TABLE.read_text(encoding="utf-8"))
INDEX: Final = {
    part: RuleIndex((i, rule.patterns) for i, rule in enumerate(KERNEL_RULES) if rule.part == part)
    for part in PARTS
}
