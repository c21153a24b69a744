"""Classify the module path around a kernel by the rules of module_rules.tsv.

Each row of the table has a stable id, a pattern for the end of a module path, a position among the modules of
that class under one parent, the kernels to which it applies (products or all), the op, and an example. The
first match decides. Modules are named by class (`BertSelfOutput/Linear`) or by attribute
(`attention/output/dense`), as the source writes them.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from capture.classify.rule_index import compile_once, parse_table
from capture.native.schema import PATH_SEPARATOR

_TABLE: Final = Path(__file__).with_name("module_rules.tsv")
_COLUMNS: Final = ("id", "path", "place", "of", "op", "example")
MODULE_PREFIX: Final = "nn.Module: "  # of scopes that are modules, as profilers write them
_MAX_PATH_CHARS: Final = 1 << 12  # of a path, from its end
_MAX_MODULES: Final = 8  # of a path, from the innermost
_COUNTER: Final = re.compile(r"_(\d{1,9})$")
_KERNELS: Final = ("products", "all")
_POSITION: Final = re.compile(r"last|earlier|\d/\d|under (?:one|several)")


class ModuleRule(NamedTuple):
    """The end of a module path, and the op of the kernels that run in such a module."""

    id: str
    pattern: str
    # position among the modules of its class under one parent: `2/3`, `last` or `earlier` of several; the
    # same of its parent: `under one` or `under several`; empty for any
    position: str
    is_products_only: bool  # applies to matrix products and the softmax between them, else to all kernels
    op: str
    example: str


class ModulePosition(NamedTuple):
    """A module: the path that leads to it, and its number among the modules of its class."""

    path: str  # classes or attributes, joined by slashes, innermost last, without counters
    number: int = 1
    siblings: int = 1
    parent_siblings: int = 1  # modules of its parent's class under its grandparent


def parse_module_rules(table: str) -> tuple[ModuleRule, ...]:
    """Parse a table of tab-separated lines; raise ValueError for other columns or an invalid line."""
    return tuple(_parse_rule(*row) for row in parse_table(table, _COLUMNS))


def _parse_rule(id: str, pattern: str, position: str, kernels: str, op: str, example: str) -> ModuleRule:
    if kernels not in _KERNELS or (position and not _POSITION.fullmatch(position)):
        raise ValueError(f"rule {id}: unknown kernels or position")
    return ModuleRule(id, rf"(?:^|/)(?:{pattern})", position, kernels == "products", op, example)


MODULE_RULES: Final = parse_module_rules(_TABLE.read_text(encoding="utf-8"))


@lru_cache(maxsize=1 << 14)
def find_module_rule(module: ModulePosition) -> ModuleRule | None:
    """Find the rule that decides the op of kernels in a module."""
    for rule in MODULE_RULES:
        if compile_once(rule.pattern).search(module.path) and _is_at_position(rule.position, module):
            return rule
    return None


def _is_at_position(position: str, module: ModulePosition) -> bool:
    if not position:
        return True
    if position in ("last", "earlier"):
        return module.siblings > 1 and (position == "last") == (module.number == module.siblings)
    if position.startswith("under"):
        return (position == "under one") == (module.parent_siblings == 1)
    return position == f"{module.number}/{module.siblings}"


def find_path_rules(paths: Iterable[str]) -> Mapping[str, ModuleRule]:
    """Find path → rule for the scope paths whose innermost module has one.

    The number of a module among its siblings counts the modules that these paths name.
    """
    chains = {path: chain for path in paths if (chain := _split_modules(path))}
    counters: dict[tuple[str, str], set[int]] = defaultdict(set)
    for chain in chains.values():
        for key, counter in _parse_counters(chain):
            counters[key].add(counter)
    sorted_counters = {key: sorted(numbers) for key, numbers in counters.items()}
    rules = {path: find_module_rule(_locate_module(chain, sorted_counters)) for path, chain in chains.items()}
    return {path: rule for path, rule in rules.items() if rule}


def _split_modules(path: str) -> tuple[str, ...]:
    """Split a scope path into its modules, innermost last; without a profiler's mark every scope is one."""
    scopes = path[-_MAX_PATH_CHARS:].split(PATH_SEPARATOR)
    marked = [scope.removeprefix(MODULE_PREFIX) for scope in scopes if scope.startswith(MODULE_PREFIX)]
    return tuple(marked or (scope.partition("(")[0] for scope in scopes))[-_MAX_MODULES:]


def _parse_counters(chain: tuple[str, ...]) -> list[tuple[tuple[str, str], int]]:
    """Parse (parent, class) and counter of each module: (`Block_0`, `Linear`), 3 of `Linear_3`; 0 if none."""
    counters = []
    for parent, module in zip(("", *chain), chain, strict=False):
        match = _COUNTER.search(module)
        counters.append(((parent, _COUNTER.sub("", module)), int(match[1]) if match else 0))
    return counters


def _locate_module(
    chain: tuple[str, ...], sorted_counters: Mapping[tuple[str, str], list[int]]
) -> ModulePosition:
    """Locate the innermost module of a chain among its siblings."""
    words = [_COUNTER.sub("", module) for module in chain]
    path = "/".join(word for scope in words for word in scope.split(".") if word and not word.isdigit())
    positions = [
        (sorted_counters[key].index(counter) + 1, len(sorted_counters[key]))
        for key, counter in _parse_counters(chain)
    ]
    parent_siblings = positions[-2][1] if len(positions) > 1 else 1
    return ModulePosition(path, *positions[-1], parent_siblings)
