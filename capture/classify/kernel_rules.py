"""Classify a kernel name by the rules of kernel_rules.tsv, and load the user's own rules, which come first.

Each row of the table has a stable id, the part of the name it searches, a pattern, the op and category it
concludes, and a name that it decides. The first match decides: the name of the kernel comes before the name
that it carries, and template arguments count only in rows that say so. Case is ignored except in `(?-i:…)`.
"""

import os
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from capture.classify.kernel_name_parts import KernelName, parse_kernel_name
from capture.clean_text import clean
from capture.native.schema import CATEGORIES

_TABLE: Final = Path(__file__).with_name("kernel_rules.tsv")
_COLUMNS: Final = ("id", "part", "pattern", "op", "category", "example")
_MAX_PART_CHARS: Final = 1 << 10  # longer parts of a name are cut before the search
# base: namespaces and identifier; inner: the name that a generic launcher carries; args: template arguments
PARTS: Final = ("base", "inner", "args")
CARRIED: Final = "=inner"  # as an op: the op is parsed from the carried name
# affixes of PyTorch's functors, before and after the op that they compute
_AFFIXES: Final = re.compile(
    r"^(?:CUDAFunctor(?:OnSelf|OnOther)?_|launch_|op_|wrapped_)"
    r"|(?:_tensor_scalar|_scalar)?(?:_kernel)?(?:_cuda)?(?:_kernel)?(?:_impl|_out)?$"
    r"|(?:Functor|CUDAKernelImpl|Ops|_functor|Operator)$"
)
_OP_WORDS: Final = {
    "compare": "compare", "compareeq": "compare", "bitwiseand": "bitwise", "bitwiseor": "bitwise",
    "bitwise_not": "bitwise", "maxnan": "max", "minnan": "min", "normtwo": "norm2", "and": "all", "or": "any",
    "plus": "add", "multiplies": "mul", "operator_call": "reduce",
}  # fmt: skip
_TRIGRAM: Final = 3
_BRACKET_OR_BAR: Final = re.compile(r"\\.|\[.[^\]]*\]|[()|]")
_FIRST_LETTERS: Final = re.compile(r"\^?([A-Za-z0-9_:]{3})(?![?*{])")
_QUANTIFIER: Final = re.compile(r"[?*+]\??|\{[\d,]*\}\??")
_SPECIAL: Final = frozenset(".^$")
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
    """Rules by the fragments that their patterns require, as sets of bits: bit i stands for rule i."""

    def __init__(self, rules: Iterable[tuple[int, Iterable[str]]]) -> None:
        """Index rules, each supplied as its number and its patterns, any of which decides."""
        self._always = 0  # rules without a required fragment
        rules_by_fragment: dict[str, int] = defaultdict(int)
        for number, patterns in rules:
            required = find_required_fragments("|".join(patterns))
            if required is None:
                self._always |= 1 << number
            for fragment in required or ():
                rules_by_fragment[fragment] |= 1 << number
        self._rules_by_trigram: Final = {
            tuple(f): n for f, n in rules_by_fragment.items() if len(f) == _TRIGRAM
        }
        self._rules_by_short: Final = [(f, n) for f, n in rules_by_fragment.items() if len(f) < _TRIGRAM]
        self._trigrams: Final = frozenset(self._rules_by_trigram)

    def find_candidates(self, lower_text: str) -> int:
        """Find the rules that can match a text in lower case, as bits."""
        candidates = self._always
        letters = (lower_text, lower_text[1:], lower_text[2:])
        for trigram in self._trigrams.intersection(zip(*letters, strict=False)):
            candidates |= self._rules_by_trigram[trigram]
        for fragment, numbers in self._rules_by_short:
            if fragment in lower_text:
                candidates |= numbers
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


def find_required_fragments(pattern: str) -> frozenset[str] | None:
    """Find fragments in lower case, of up to three letters, of which every match contains at least one.

    None if there are none.
    """
    branches = [_find_branch_fragments(branch) for branch in split_alternatives(pattern)]
    return (
        None if None in branches else frozenset(fragment for branch in branches for fragment in branch or ())
    )


def _find_branch_fragments(branch: str) -> frozenset[str] | None:
    """Find the fragments of one alternative: of its first letters, its longest literal, or a group.

    Of several sets the one with the longest fragments, of those the smallest.
    """
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
        if (
            is_required
            and (body := _parse_group_body(piece))
            and (fragments := find_required_fragments(body))
        ):
            groups.append(fragments)
    if longest := max(literals, key=len).lower():
        groups.insert(0, frozenset({longest[:_TRIGRAM]}))
    return max(groups, key=lambda group: (min(map(len, group)), -len(group)), default=None)


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


class KernelRule(NamedTuple):
    """A pattern in one part of a kernel name, and the op and category of the names that match."""

    id: str
    part: str
    folded: str  # pattern for the part in lower case; empty for none
    exact: str  # pattern for the part as written; empty for none
    op: str | None  # None leaves the op open; CARRIED parses it from the carried name
    category: str
    example: str

    def search(self, text: str, lower_text: str) -> str | None:
        """Search a part, supplied as written and in lower case; return the matching text, or None."""
        match = self.folded and compile_once(self.folded).search(lower_text)
        match = match or (self.exact and compile_once(self.exact).search(text))
        return (text[match.start() : match.end()] or text) if match else None

    @property
    def patterns(self) -> list[str]:
        """The patterns, any of which decides."""
        return [pattern for pattern in (self.folded, self.exact) if pattern]


class Classification(NamedTuple):
    """Op and category of a kernel name, and what decided them."""

    op: str | None  # None if the name leaves the role open
    category: str
    rule_id: str | None  # None if no rule matches
    basis: str  # deciding part of the name and the text that matched; empty if no rule matches


def parse_kernel_rules(table: str) -> tuple[KernelRule, ...]:
    """Parse a table of tab-separated lines; raise ValueError for other columns or an invalid line."""
    return tuple(_parse_rule(*row) for row in parse_table(table, _COLUMNS))


def _parse_rule(id: str, part: str, pattern: str, op: str, category: str, example: str) -> KernelRule:
    if part not in PARTS or category not in CATEGORIES:
        raise ValueError(f"rule {id}: unknown part or category")
    branches = split_alternatives(pattern)
    exact = "|".join(b for b in branches if "(?-i:" in b).replace("(?-i:", "(?:")
    folded = "|".join(b for b in branches if "(?-i:" not in b)
    return KernelRule(id, part, _lower_pattern(folded), exact, op or None, category, example)


def _lower_pattern(pattern: str) -> str:
    """Convert a pattern to lower case, except its escapes: faster than matching with IGNORECASE."""
    return re.sub(r"(?<!\\)[A-Z]", lambda letter: letter[0].lower(), pattern)


KERNEL_RULES: Final = parse_kernel_rules(_TABLE.read_text(encoding="utf-8"))
RULE_INDEXES: Final = {
    part: RuleIndex((i, rule.patterns) for i, rule in enumerate(KERNEL_RULES) if rule.part == part)
    for part in PARTS
}
_ARGUMENT_RULES: Final = [i for i, rule in enumerate(KERNEL_RULES) if rule.part == "args"]
_UNKNOWN: Final = Classification(None, "other", None, "")


@lru_cache(maxsize=1 << 15)
def classify_kernel(name: str) -> Classification:
    """Classify a kernel name by the first rule that matches; op None and category "other" if none does."""
    parsed = parse_kernel_name(name)
    index, matching_text = _match_name(parsed.base[:_MAX_PART_CHARS], parsed.inner[:_MAX_PART_CHARS])
    if parsed.arguments:
        arguments = ", ".join(parsed.arguments)[:_MAX_PART_CHARS]
        for earlier in _ARGUMENT_RULES:
            if earlier < index and (hit := KERNEL_RULES[earlier].search(arguments, arguments.lower())):
                index, matching_text = earlier, hit
                break
    if index == len(KERNEL_RULES):
        return _UNKNOWN
    rule = KERNEL_RULES[index]
    return Classification(_resolve_op(rule, parsed), rule.category, rule.id, f"{rule.part}: {matching_text}")


@lru_cache(maxsize=1 << 14)
def _match_name(base: str, inner: str) -> tuple[int, str]:
    """Find the first rule that matches base or carried name: its index and the matching text.

    The index is the number of rules if none matches.
    """
    texts = {"base": (base, base.lower()), "inner": (inner, inner.lower())}
    candidates = 0
    for part, (_, lower) in texts.items():
        candidates |= RULE_INDEXES[part].find_candidates(lower) if lower else 0
    for index in iter_set_bits(candidates):
        rule = KERNEL_RULES[index]
        if matching_text := rule.search(*texts[rule.part]):
            return index, matching_text
    return len(KERNEL_RULES), ""


def _resolve_op(rule: KernelRule, parsed: KernelName) -> str | None:
    if rule.op != CARRIED:
        return rule.op
    return None if parsed.is_cut else parse_carried_op(parsed.inner) or None


def parse_carried_op(inner: str) -> str:
    """Parse the op that a functor computes, such as `add` of `CUDAFunctor_add`; empty for no name."""
    *outer, leaf = inner.split("::")
    if leaf == "operator_call" and outer:
        leaf = outer[-1]
    word = leaf
    while (shorter := _AFFIXES.sub("", word)) != word and shorter:
        word = shorter
    return _OP_WORDS.get(word.lower(), word.lower())


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
