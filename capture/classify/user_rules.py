"""Load the user's own kernel-name rules; invalid lines are reported by number, never fatal.

A line contains a regular expression, an op (`-` leaves it open) and a category, separated by spaces or tabs;
`#` begins a comment line. Expressions are kept cheap: no repeated groups, no backreferences, at most two
parts of unlimited length, and only the first `MAX_SEARCHED_CHARS` of a name are searched. A rule that still
takes too long in total is disabled and reported.
"""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from capture.classify.kernel_rules import Classification
from capture.clean_text import clean
from capture.native.schema import CATEGORIES

USER_RULE_PREFIX: Final = "own."  # of the ids of the user's rules
MAX_SEARCHED_CHARS: Final = 512  # of a name
_MAX_FILE_BYTES: Final = 1 << 16  # longer files are cut
_MAX_RULES: Final = 500
_MAX_SECONDS_PER_RULE: Final = 1.0  # in total, over all names

_OP: Final = re.compile(r"[a-z][a-z0-9_]{0,31}(?:\.[a-z0-9_]{1,32}){0,2}")
_ESCAPED: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]")
_UNLIMITED: Final = re.compile(r"[*+]|\{\d*,\}")
_REPEATED_GROUP: Final = re.compile(r"\)(?:[*+?]|\{)")
_REFERENCE: Final = re.compile(r"\\[1-9]|\(\?P=|\(\?\(")


class UserRule(NamedTuple):
    """One valid line of the user's file."""

    line: int
    pattern: re.Pattern[str]
    op: str | None  # None leaves the op open
    category: str


class UserRules:
    """The rules of a file, its text and its problems; rules that take too long are disabled."""

    def __init__(
        self, rules: tuple[UserRule, ...] = (), problems: tuple[str, ...] = (), text: str = ""
    ) -> None:
        self.text = text
        self._rules = list(rules)
        self._seconds_by_line: dict[int, float] = {}
        self.problems = list(problems)

    def __len__(self) -> int:
        return len(self._rules)

    def __iter__(self) -> Iterator[UserRule]:
        return iter(list(self._rules))

    def classify(self, name: str) -> Classification | None:
        """Classify a name by the first rule that matches; None if none does."""
        for rule in self:
            if match := self._search(rule, name[:MAX_SEARCHED_CHARS]):
                basis = f"user rule, line {rule.line}: {match[0] or name}"
                return Classification(rule.op, rule.category, f"{USER_RULE_PREFIX}{rule.line}", basis)
        return None

    def _search(self, rule: UserRule, text: str) -> re.Match[str] | None:
        start = time.perf_counter()
        match = rule.pattern.search(text)
        seconds = self._seconds_by_line.get(rule.line, 0.0) + time.perf_counter() - start
        self._seconds_by_line[rule.line] = seconds
        if seconds > _MAX_SECONDS_PER_RULE and not match:
            self._rules.remove(rule)
            self.problems.append(f"line {rule.line}: disabled, because searching for it takes too long")
        return match


def find_user_rules_file() -> Path | None:
    """Find the path of the user's rules, which need not exist; None if there is no home folder."""
    config_home = os.environ.get("XDG_CONFIG_HOME", "")
    if config_home.startswith("/"):
        return Path(config_home) / "tracetui" / "rules"
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises where nobody has a home
    return Path(home) / ".config" / "tracetui" / "rules" if home.startswith("/") else None


def read_user_rules(file: Path | None = None) -> UserRules:
    """Read the rules of a file, by default the user's own; empty if it is missing."""
    file = file or find_user_rules_file()
    if file is None or not file.is_file():
        return UserRules()
    try:
        with file.open("rb") as stream:
            content = stream.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        return UserRules(problems=(f"cannot be read: {clean(error.strerror or 'unknown')}",))
    rules = parse_user_rules(content[:_MAX_FILE_BYTES].decode("utf-8", "replace"))
    if len(content) > _MAX_FILE_BYTES:
        rules.problems.append(f"only its first {_MAX_FILE_BYTES} bytes are read")
    return rules


def parse_user_rules(text: str) -> UserRules:
    """Parse the lines of a rules file; invalid lines become problems."""
    rules: list[UserRule] = []
    problems: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if len(rules) == _MAX_RULES:
            problems.append(f"line {number}: ignored, because only {_MAX_RULES} rules are allowed")
            break
        parsed = _parse_rule_line(number, stripped)
        if isinstance(parsed, str):
            problems.append(f"line {number}: {parsed}")
        else:
            rules.append(parsed)
    return UserRules(tuple(rules), tuple(problems), text)


def _parse_rule_line(number: int, line: str) -> UserRule | str:
    """Parse a line as a rule, or describe what is wrong with it."""
    words = line.rsplit(None, 2)
    if len(words) != 3:
        return "needs a regular expression, an op and a category"
    expression, op, category = words
    if category not in CATEGORIES:
        return f"unknown category {clean(category, 40)!r}: use one of {', '.join(CATEGORIES)}"
    if op != "-" and not _OP.fullmatch(op):
        return f"invalid op {clean(op, 40)!r}: use lower-case letters, digits and underscores, joined by dots"
    if reason := _find_slow_construct(expression):
        return reason
    try:
        pattern = re.compile(expression)
    except (re.error, OverflowError, RecursionError) as error:
        return f"invalid regular expression {clean(expression, 60)!r}: {clean(str(error), 80)}"
    return UserRule(number, pattern, None if op == "-" else op, category)


def _find_slow_construct(expression: str) -> str | None:
    """Find the construct that could make an expression take too long; None if it is cheap."""
    if len(expression) > MAX_SEARCHED_CHARS:
        return f"longer than {MAX_SEARCHED_CHARS} characters"
    if _REFERENCE.search(expression):
        return "contains a backreference, which can take too long"
    bare = _ESCAPED.sub("x", expression)
    if _REPEATED_GROUP.search(bare):
        return "repeats a group, which can take too long"
    if len(_UNLIMITED.findall(bare)) > 2:
        return "has more than two parts of unlimited length, which can take too long"
    return None
