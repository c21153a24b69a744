"""The rules of the house as functions of a checkout: each returns the places that break it, as sentences.

`tests/test_house.py` asserts that they find nothing here, and that each finds a violation planted in a
small tree.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
ROOMS: Final = ("capture", "engines", "tracetui")

FILE_LINES: Final = 500
FUNCTION_LINES: Final = 40
COMPLEXITY: Final = 12
CLASS_LINES: Final = 250
CLASS_METHODS: Final = 30
MODULES: Final = 540  # of the product
ROOM_MODULES: Final = 25  # of one folder
SPLINTER_LINES: Final = 80  # a module this short with one importer beside it belongs into that importer
SHARED_BASENAMES: Final = 0.08  # share of the modules
PAGE_CHARACTERS: Final = {"ARCHITECTURE.md": 14_000, "README.md": 9_000}


# From the ground up: a module imports its own floor and those below it. The longest prefix that fits
# a module's name decides which floor is its own.
FLOORS: Final[tuple[tuple[str, ...], ...]] = (
    (
        "capture.errors",
        "capture.clean_text",
        "capture.native.schema",
        "capture.native.parts",
        "capture.native.emit",
        "capture.dense_lookup",
        "capture.classify",
        "capture.extensions",
        "capture.tasks",
    ),
    ("capture", "capture.graphs.capture_files"),
    ("capture.native", "capture.merge_ranks", "capture.devices"),
    ("capture.loaders", "capture.graphs"),
    ("capture.cache", "capture.export_runs"),
    ("capture.load_runs",),
    ("capture.record", "capture.watch"),
    ("engines.kernels", "engines.processor", "engines.models.spec"),
    ("engines.models", "engines.plan", "engines.token_sampling", "engines.kv_cache", "engines.rope"),
    ("engines.weights", "engines.host", "engines.layer", "engines.moe"),
    ("engines.decoder", "engines.ranks"),
    ("engines.fused",),
    ("engines",),
    ("engines.__main__",),
    ("tracetui",),
    ("tracetui.analysis.frames",),
    ("tracetui.analysis.time",),
    ("tracetui.analysis",),
    ("tracetui.compare",),
    ("tracetui.views.ink",),
    ("tracetui.views.charts",),
    ("tracetui.views",),
    ("tracetui.history",),
    ("tracetui.fleet.file_job",),
    ("tracetui.fleet.executors",),
    ("tracetui.fleet",),
    ("tracetui.report_formats", "tracetui.pr_comment"),
    ("tracetui.sql", "tracetui.token_digest", "tracetui.json_schema"),
    ("tracetui.api", "tracetui.mcp_tools"),
    ("tracetui.ui.key_table", "tracetui.ui.terminal"),
    ("tracetui.ui", "tracetui.ui.workers.feed", "tracetui.ui.workers.restore_steps"),
    ("tracetui.ui.pages",),
    ("tracetui.ui.widgets", "tracetui.ui.workers"),
    (
        "tracetui.ui.main_screen",
        "tracetui.ui.workspace",
        "tracetui.ui.renderer",
        "tracetui.ui.answer_updates",
    ),
    ("tracetui.ui.controllers", "tracetui.ui.tour"),
    ("tracetui.ui.keyboard",),
    ("tracetui.ui.app", "tracetui.ui.picture"),
    ("tracetui.verbs",),
    ("tracetui.cli",),
    ("tracetui.__main__",),
)

Graph = Mapping[str, frozenset[str]]
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module(NamedTuple):
    """One Python file of the product, parsed once."""

    name: str  # dotted; a package has the name of its folder
    path: Path
    place: str  # relative to the root, with slashes
    tree: ast.Module
    lines: int
    imports: frozenset[str]  # every name in an import, wherever it stands; `from a import b` gives a and a.b

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def nodes(self) -> Iterator[ast.AST]:
        return ast.walk(self.tree)


class Checkout:
    """A tree of packages and documents; parses each file once, whatever is asked of it."""

    def __init__(self, root: Path = ROOT, floors: Sequence[Sequence[str]] | None = None) -> None:
        self.root = root
        self.floors = FLOORS if floors is None else floors

    @cached_property
    def modules(self) -> list[Module]:
        paths = sorted(path for room in ROOMS for path in (self.root / room).rglob("*.py"))
        return [_parse_module(self.root, path) for path in paths]

    @cached_property
    def functions(self) -> list[tuple[Module, Function]]:
        return [(m, node) for m in self.modules for node in m.nodes if isinstance(node, Function)]

    @cached_property
    def graph(self) -> Graph:
        """Module → modules of the product that it imports; `from a import b` leads to a.b if that is one."""
        names = {module.name for module in self.modules}
        graph = {}
        for module in self.modules:
            targets = module.imports & names
            inner = {t for t in targets if any(other.startswith(t + ".") for other in targets)}
            graph[module.name] = frozenset(targets - inner - {module.name})
        return graph


def _parse_module(root: Path, path: Path) -> Module:
    text = path.read_text()
    name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
    tree = ast.parse(text)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    place = path.relative_to(root).as_posix()
    return Module(name, path, place, tree, len(text.splitlines()), frozenset(_list_imports(tree, package)))


def _list_imports(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _resolve_relative(node, package)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _resolve_relative(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    above = parts[: len(parts) - node.level + 1]
    return ".".join([*above, *([node.module] if node.module else [])])


# --- imports ---


def find_circles(checkout: Checkout) -> list[str]:
    """Return each circle of imports (Tarjan's strongly connected components)."""
    graph = checkout.graph
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    out: list[str] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for target in graph[name]:
            if target not in order:
                visit(target)
            if target in stack:
                low[name] = min(low[name], low[target])
        if low[name] == order[name]:
            ring = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(ring) > 1:
                out.append("these import each other: " + ", ".join(sorted(ring)))

    for name in graph:
        if name not in order:
            visit(name)
    return out


def find_upward_imports(checkout: Checkout) -> list[str]:
    """Return each import of a module on a higher floor than the importer's own."""
    floors = {name: _find_floor(name, checkout.floors) for name in checkout.graph}
    return [
        f"{name} imports {target}, which is on a higher floor"
        for name, targets in checkout.graph.items()
        for target in sorted(targets)
        if floors[target] > floors[name]
    ]


def _find_floor(name: str, floors: Sequence[Sequence[str]]) -> int:
    """Return the index of a module's floor, that of the longest prefix; KeyError if it has none."""
    fitting = [
        (len(prefix), number)
        for number, prefixes in enumerate(floors)
        for prefix in prefixes
        if name == prefix or name.startswith(prefix + ".")
    ]
    if not fitting:
        raise KeyError(name)
    return max(fitting)[1]


def find_circular_headers(checkout: Checkout) -> list[str]:
    """Return each C header that includes itself through others, or that has no include guard."""
    headers = [p for room in ROOMS for p in (checkout.root / room).rglob("*.h")]
    includes = {p: set(re.findall(r'^#include "([^"]+)"', p.read_text(), re.MULTILINE)) for p in headers}
    by_folder = {(p.parent, p.name): p for p in headers}
    out = [f"{p.name} has no include guard" for p in headers if not _has_include_guard(p.read_text())]
    for start in headers:
        todo, reached = [start], set[Path]()
        while todo:
            here = todo.pop()
            following = {by_folder[here.parent, n] for n in includes[here] if (here.parent, n) in by_folder}
            todo += following - reached
            reached |= following
        if start in reached:
            out.append(f"{start.name} includes itself through others")
    return out


def _has_include_guard(text: str) -> bool:
    return (
        "#pragma once" in text or re.search(r"^#ifndef (\w+)\n#define \1\b", text, re.MULTILINE) is not None
    )


# --- size ---


def find_long_files(checkout: Checkout) -> list[str]:
    """Return each file of more than FILE_LINES lines."""
    return [f"{m.place}: {m.lines} lines" for m in checkout.modules if m.lines > FILE_LINES]


def find_long_functions(checkout: Checkout) -> list[str]:
    """Return each function of more than FUNCTION_LINES lines, from its `def` to its end."""
    return [
        f"{module.place}: {node.name} has {_count_lines(node)} lines"
        for module, node in checkout.functions
        if _count_lines(node) > FUNCTION_LINES
    ]


def find_complex_functions(checkout: Checkout) -> list[str]:
    """Return each function with more than COMPLEXITY paths through it."""
    return [
        f"{module.place}: {node.name} has a complexity of {compute_complexity(node)}"
        for module, node in checkout.functions
        if compute_complexity(node) > COMPLEXITY
    ]


def compute_complexity(function: ast.AST) -> int:
    """Return McCabe's number: one, plus one per decision; each part of a condition counts."""
    total = 1
    for node in _iter_own_nodes(function):
        match node:
            case ast.If() | ast.IfExp() | ast.For() | ast.AsyncFor() | ast.While() | ast.ExceptHandler():
                total += 1
            case ast.BoolOp(values=values):
                total += len(values) - 1
            case ast.comprehension(ifs=ifs):
                total += 1 + len(ifs)
            case ast.match_case():
                total += 1
    return total


def _iter_own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of functions inside it, which count for themselves."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, Function | ast.ClassDef):
            yield node
            yield from _iter_own_nodes(node)


def find_large_classes(checkout: Checkout) -> list[str]:
    """Return each class of too many lines or methods."""
    out = []
    for module in checkout.modules:
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                methods = sum(isinstance(n, Function) for n in node.body)
                if _count_lines(node) > CLASS_LINES or methods > CLASS_METHODS:
                    out.append(
                        f"{module.place}: {node.name} has {_count_lines(node)} lines, {methods} methods"
                    )
    return out


def _count_lines(node: Function | ast.ClassDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def find_long_pages(checkout: Checkout) -> list[str]:
    """Return each document that has outgrown its page."""
    sizes = {page: len((checkout.root / page).read_text()) for page in PAGE_CHARACTERS}
    return [f"{page}: {n} characters" for page, n in sizes.items() if n > PAGE_CHARACTERS[page]]


# --- rooms ---


def find_crowded_rooms(checkout: Checkout) -> list[str]:
    """Return each folder of more than ROOM_MODULES modules besides those of a registry, and the product
    if it has more than MODULES.
    """
    folders = defaultdict[str, int](int)
    for module in checkout.modules:
        folders[module.place.rpartition("/")[0]] += not (module.is_package or _is_registered(module))
    out = [f"{folder} has {n} modules" for folder, n in folders.items() if n > ROOM_MODULES]
    return out + ([f"{len(checkout.modules)} modules"] if len(checkout.modules) > MODULES else [])


def find_splinters(checkout: Checkout) -> list[str]:
    """Return each short module with a single importer, which is in the same folder."""
    importers = defaultdict[str, set[str]](set)
    for name, targets in checkout.graph.items():
        for target in targets:
            importers[target].add(name)
    folders = {module.name: module.path.parent for module in checkout.modules}
    return [
        f"{module.place}: {module.lines} lines for {user} alone"
        for module in checkout.modules
        for user in importers[module.name]
        if len(importers[module.name]) == 1 and module.lines <= SPLINTER_LINES
        if not module.is_package and folders[user] == module.path.parent and not _is_registered(module)
    ]


def _is_registered(module: Module) -> bool:
    """Return whether a registry lists the module: it stays a file of its own however short it is."""
    return bool(list_top_level(module) & {"sniff", "VIEW", "FAMILY", "reference", "run", "KIND", "PAGE"})


def list_top_level(module: Module) -> set[str]:
    """Return the names that a module defines or assigns at top level."""
    names = set()
    for node in module.tree.body:
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        names |= {getattr(node, "name", ""), *(getattr(target, "id", "") for target in targets)}
    return names


def find_shared_basenames(checkout: Checkout) -> list[str]:
    """Return the basenames of several modules, if more than SHARED_BASENAMES of the modules have such a name.

    `analysis/X` may compute what `views/X` shows.
    """
    places = defaultdict[str, list[str]](list)
    for module in checkout.modules:
        if module.path.stem not in ("__init__", "__main__"):
            places[module.path.stem.strip("_")].append(module.name)
    shared = {base: names for base, names in places.items() if len(names) > 1}
    share = sum(map(len, shared.values())) / max(1, sum(map(len, places.values())))
    if share <= SHARED_BASENAMES:
        return []
    return [
        f"{share:.1%} of the modules share a basename",
        *(f"{b}: {', '.join(n)}" for b, n in shared.items()),
    ]


def find_gaps_in_maps(checkout: Checkout) -> list[str]:
    """Return each module that the docstring of its package does not list, and each entry without a module."""
    out = []
    for package in checkout.modules:
        if not package.is_package:
            continue
        folder = package.path.parent
        here = {m.path.stem for m in checkout.modules if m.path.parent == folder and not m.is_package}
        here |= {
            m.path.parent.name for m in checkout.modules if m.is_package and m.path.parent.parent == folder
        }
        listed = _list_map_entries(ast.get_docstring(package.tree) or "")
        out += [f"{package.place} does not list {name}" for name in sorted(here - listed - {"__main__"})]
        out += [f"{package.place} lists {name}, which is not there" for name in sorted(listed - here)]
    return out


def _list_map_entries(docstring: str) -> set[str]:
    """Return the names of lines such as `steps: start and end of each step`; a folder may end in a slash."""
    return set(re.findall(r"^ *(?:- )?`?([a-z_0-9]+)`?/?: ", docstring, re.MULTILINE))
