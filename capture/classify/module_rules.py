"""What the modules around a kernel say of its role: rules kept in a table beside this module.

Each row has an id that stays, a pattern for the end of a module path, a place among the modules of that
class under one parent, whether it speaks of products only or of all kernels, the op, and an example. The
first row that fits decides. Modules are named by their classes (`BertSelfOutput/Linear`) or by their
attributes (`attention/output/dense`), whichever the source writes.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from capture.native.schema import PATH_SEPARATOR

_TABLE: Final = Path(__file__).with_name("module_rules.tsv")
_COLUMNS: Final = ("id", "path", "place", "of", "op", "example")
MODULE: Final = "nn.Module: "  # how a profiler marks them among the scopes
_LOOKED_AT: Final = 1 << 12  # characters of a path, from its end
_DEPTH: Final = 8  # modules of a path, from the innermost
_COUNTER: Final = re.compile(r"_(\d{1,9})$")
_OF: Final = ("products", "all")
_PLACE: Final = re.compile(r"last|earlier|\d/\d|under (?:one|several)")


class ModuleRule(NamedTuple):
    """The end of a module path, and the role of kernels that run there."""

    id: str
    pattern: str
    # among its class under one parent: `2/3`, `last` or `earlier` of several; the same of its parent:
    # `under one` or `under several`; empty for any
    place: str
    of_products: bool  # speaks of matrix products and the softmax between them, else of all kernels
    op: str
    example: str


class Place(NamedTuple):
    """Where a module stands: the classes or attributes that lead to it, and its number among its like."""

    modules: str  # joined by slashes, the innermost last, without counters
    number: int = 1
    siblings: int = 1
    parents: int = 1  # that are like its own under one of theirs


def read_module_rules(table: str) -> tuple[ModuleRule, ...]:
    """Return the rules of a table of tab-separated lines; raise ValueError where a line is no rule."""
    header, *lines = table.splitlines()
    if tuple(header.split("\t")) != _COLUMNS:
        raise ValueError("the table of module rules has other columns")
    return tuple(_rule(line) for line in lines)


def _rule(line: str) -> ModuleRule:
    id, pattern, place, of, op, example = line.split("\t")
    if of not in _OF or (place and not _PLACE.fullmatch(place)):
        raise ValueError(f"rule {id}: it speaks of nothing known, or of no such place")
    return ModuleRule(id, rf"(?:^|/)(?:{pattern})", place, of == "products", op, example)


MODULE_RULES: Final = read_module_rules(_TABLE.read_text(encoding="utf-8"))


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern, compiled when a module first asks for it: a run without modules asks for none."""
    return re.compile(pattern)


@lru_cache(maxsize=1 << 14)
def rule_of_module(place: Place) -> ModuleRule | None:
    """Return the rule that decides what runs in a module; None where no rule fits."""
    for rule in MODULE_RULES:
        if _compiled(rule.pattern).search(place.modules) and _stands_there(rule.place, place):
            return rule
    return None


def _stands_there(wanted: str, place: Place) -> bool:
    if not wanted:
        return True
    if wanted in ("last", "earlier"):
        return place.siblings > 1 and (wanted == "last") == (place.number == place.siblings)
    if wanted.startswith("under"):
        return (wanted == "under one") == (place.parents == 1)
    return wanted == f"{place.number}/{place.siblings}"


def rules_of_paths(paths: Iterable[str]) -> Mapping[str, ModuleRule]:
    """Return path → rule for the scope paths that end within a module that a rule knows.

    A module's number among its like under one parent counts the modules that these paths name.
    """
    chains = {path: chain for path in paths if (chain := _modules(path))}
    numbers: dict[tuple[str, str], set[int]] = defaultdict(set)
    for chain in chains.values():
        for key, number in _counted(chain):
            numbers[key].add(number)
    ranks = {key: sorted(found) for key, found in numbers.items()}
    rules = {path: rule_of_module(_place(chain, ranks)) for path, chain in chains.items()}
    return {path: rule for path, rule in rules.items() if rule}


def _modules(path: str) -> tuple[str, ...]:
    """Return the modules of a scope path, the innermost last: those a profiler marks, else every scope."""
    scopes = path[-_LOOKED_AT:].split(PATH_SEPARATOR)
    marked = [scope.removeprefix(MODULE) for scope in scopes if scope.startswith(MODULE)]
    return tuple(marked or (scope.partition("(")[0] for scope in scopes))[-_DEPTH:]


def _counted(chain: tuple[str, ...]) -> list[tuple[tuple[str, str], int]]:
    """Return the counter of each module under its parent and class; 0 where it has none."""
    pairs = zip(("", *chain), chain, strict=False)
    found = [(parent, module, _COUNTER.search(module)) for parent, module in pairs]
    return [((parent, _COUNTER.sub("", module)), int(at[1]) if at else 0) for parent, module, at in found]


def _place(chain: tuple[str, ...], ranks: Mapping[tuple[str, str], list[int]]) -> Place:
    words = [_COUNTER.sub("", module) for module in chain]
    modules = "/".join(word for scope in words for word in scope.split(".") if word and not word.isdigit())
    counted = [(ranks[key].index(number) + 1, len(ranks[key])) for key, number in _counted(chain)]
    parents = counted[-2][1] if len(counted) > 1 else 1
    return Place(modules, *counted[-1], parents)
