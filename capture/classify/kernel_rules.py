"""Classify a kernel name by the rules of kernel_rules.tsv: op, category and the deciding rule.

Each row of the table has a stable id, the part of the name it searches, a pattern, the op and category it
concludes, and a name that it decides. The first match decides: the name of the kernel comes before the name
that it carries, and template arguments count only in rows that say so. Case is ignored except in `(?-i:…)`.
"""

import re
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from capture.classify.kernel_name_parts import KernelName, parse_kernel_name
from capture.classify.rule_index import (
    RuleIndex,
    compile_once,
    iter_set_bits,
    parse_table,
    split_alternatives,
)
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
