"""A person's own rules for kernel names: a small file, read with care, and never fatal.

A line holds a regular expression, an op (`-` leaves it open) and a category, separated by spaces or tabs;
`#` begins a comment line. What is wrong with a line is reported with its number; the others hold.
Expressions are kept cheap: no groups that repeat, no references back, at most two parts of unlimited length,
names searched as far as `LOOKED_AT`; a rule that still spends too long in all is set aside and reported.
"""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from capture.classify.kernel_names import Classified
from capture.native.schema import CATEGORIES
from capture.text import clean

OWN: Final = "own."  # how the ids of a person's own rules begin
LOOKED_AT: Final = 512  # characters of a name that are searched
_LARGEST: Final = 1 << 16  # bytes of a file that are read
_MOST: Final = 500  # rules that are kept
_SECONDS: Final = 1.0  # that one rule may spend in all

_OP: Final = re.compile(r"[a-z][a-z0-9_]{0,31}(?:\.[a-z0-9_]{1,32}){0,2}")
_ESCAPED: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]")
_UNLIMITED: Final = re.compile(r"[*+]|\{\d*,\}")
_REPEATED_GROUP: Final = re.compile(r"\)(?:[*+?]|\{)")
_REFERENCE: Final = re.compile(r"\\[1-9]|\(\?P=|\(\?\(")


class OwnRule(NamedTuple):
    """One line of a person's file."""

    line: int
    pattern: re.Pattern[str]
    op: str | None  # None leaves the op open
    category: str


class OwnRules:
    """The rules of a file, its text, and what was wrong with it; rules that spend too long are set aside."""

    def __init__(
        self, rules: tuple[OwnRule, ...] = (), problems: tuple[str, ...] = (), text: str = ""
    ) -> None:
        self.text = text
        self._rules = list(rules)
        self._spent: dict[int, float] = {}
        self.problems = list(problems)

    def __len__(self) -> int:
        return len(self._rules)

    def __iter__(self) -> Iterator[OwnRule]:
        return iter(list(self._rules))

    def classify(self, name: str) -> Classified | None:
        """Return what the first rule that fits says of a name; None where none fits."""
        for rule in self:
            if match := self._search(rule, name[:LOOKED_AT]):
                basis = f"own rule, line {rule.line}: {match[0] or name}"
                return Classified(rule.op, rule.category, f"{OWN}{rule.line}", basis)
        return None

    def _search(self, rule: OwnRule, text: str) -> re.Match[str] | None:
        begun = time.perf_counter()
        match = rule.pattern.search(text)
        spent = self._spent.get(rule.line, 0.0) + time.perf_counter() - begun
        self._spent[rule.line] = spent
        if spent > _SECONDS and not match:
            self._rules.remove(rule)
            self.problems.append(f"line {rule.line}: set aside, because searching for it takes too long")
        return match


def own_rules_file() -> Path | None:
    """Return where a person's rules lie; None where there is no home."""
    stated = os.environ.get("XDG_CONFIG_HOME", "")
    if stated.startswith("/"):
        return Path(stated) / "tracetui" / "rules"
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises where nobody has a home
    return Path(home) / ".config" / "tracetui" / "rules" if home.startswith("/") else None


def read_own_rules(file: Path | None = None) -> OwnRules:
    """Return the rules of a file, by default the person's own; empty where there is none."""
    file = file or own_rules_file()
    if file is None or not file.is_file():
        return OwnRules()
    try:
        with file.open("rb") as opened:
            content = opened.read(_LARGEST + 1)
    except OSError as error:
        return OwnRules(problems=(f"cannot be read: {clean(error.strerror or 'unknown')}",))
    rules = parse_own_rules(content[:_LARGEST].decode("utf-8", "replace"))
    if len(content) > _LARGEST:
        rules.problems.append(f"only its first {_LARGEST} bytes are read")
    return rules


def parse_own_rules(text: str) -> OwnRules:
    """Return the rules that lines of text state; a line that is none is reported by its number."""
    rules: list[OwnRule] = []
    problems: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if len(rules) == _MOST:
            problems.append(f"line {number}: only {_MOST} rules are kept")
            break
        parsed = _rule(number, stripped)
        if isinstance(parsed, str):
            problems.append(f"line {number}: {parsed}")
        else:
            rules.append(parsed)
    return OwnRules(tuple(rules), tuple(problems), text)


def _rule(number: int, line: str) -> OwnRule | str:
    """Return the rule of a line, or what is wrong with it."""
    words = line.rsplit(None, 2)
    if len(words) != 3:
        return "wants a regular expression, an op and a category"
    expression, op, category = words
    if category not in CATEGORIES:
        return f"there is no category {clean(category, 40)!r}; there are {', '.join(CATEGORIES)}"
    if op != "-" and not _OP.fullmatch(op):
        return f"{clean(op, 40)!r} is no op: small letters, digits and underscores, parts joined by dots"
    if reason := _costly(expression):
        return reason
    try:
        pattern = re.compile(expression)
    except (re.error, OverflowError, RecursionError) as error:
        return f"{clean(expression, 60)!r} is no regular expression: {clean(str(error), 80)}"
    return OwnRule(number, pattern, None if op == "-" else op, category)


def _costly(expression: str) -> str | None:
    """Return why an expression could take too long to search for; None where it cannot."""
    if len(expression) > LOOKED_AT:
        return f"longer than {LOOKED_AT} characters"
    if _REFERENCE.search(expression):
        return "refers back to a group, which can take too long"
    bare = _ESCAPED.sub("x", expression)
    if _REPEATED_GROUP.search(bare):
        return "repeats a group, which can take too long"
    if len(_UNLIMITED.findall(bare)) > 2:
        return "has more than two parts of unlimited length, which can take too long"
    return None
