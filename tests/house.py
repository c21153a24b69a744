"""The rules of the house as functions of a checkout: each returns the places that break it, in words.

`tests/test_house.py` asserts that they return nothing here, and something where a fault was planted.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
ROOMS: Final = ("capture", "engines", "tracetui")

FILE_LINES: Final = 300
FUNCTION_LINES: Final = 40
COMPLEXITY: Final = 12
CLASS_LINES: Final = 250
CLASS_METHODS: Final = 30

# From the ground up: a module imports its own floor and those below it. The longest prefix that fits
# a module's name decides which floor is its own.
FLOORS: Final[tuple[tuple[str, ...], ...]] = (
    (
        "capture.errors",
        "capture.text",
        "capture.native.schema",
        "capture.native.parts",
        "capture.native.emit",
        "capture.classify",
        "capture.compiled",
    ),
    ("capture",),
    ("capture.native", "capture.frames", "capture.ranks", "capture.devices"),
    ("capture.loaders",),
    ("capture.cache", "capture.export"),
    ("capture.open",),
    ("capture.record", "capture.watch"),
    ("engines.kernels", "engines.processor", "engines.models.spec"),
    ("engines.models", "engines.plan", "engines.sample", "engines.cache", "engines.rope"),
    ("engines.weights", "engines.host", "engines.layer", "engines.experts"),
    ("engines.decoder", "engines.ranks"),
    ("engines.fused",),
    ("engines",),
    ("engines.__main__",),
    ("tracetui",),
    ("tracetui.analysis.statistics", "tracetui.analysis.laws"),
    ("tracetui.analysis",),
    ("tracetui.analysis.compare",),
    ("tracetui.views.ink",),
    ("tracetui.views.charts",),
    ("tracetui.views",),
    ("tracetui.fleet.job", "tracetui.fleet.fold"),
    ("tracetui.fleet.executors",),
    ("tracetui.fleet",),
    ("tracetui.report", "tracetui.pr_comment"),
    ("tracetui.sql", "tracetui.digest", "tracetui.schema"),
    ("tracetui.profile", "tracetui.agent_tools"),
    ("tracetui.ui.keys", "tracetui.ui.terminal"),
    ("tracetui.ui", "tracetui.ui.workers.feed"),
    ("tracetui.ui.pages",),
    ("tracetui.ui.panes", "tracetui.ui.workers"),
    ("tracetui.ui.main_screen", "tracetui.ui.workspace", "tracetui.ui.renderer", "tracetui.ui.questions"),
    ("tracetui.ui.controllers", "tracetui.ui.keyboard", "tracetui.ui.tour"),
    ("tracetui.ui.palette", "tracetui.ui.key_commands"),
    ("tracetui.ui.app", "tracetui.ui.picture"),
    ("tracetui.verbs",),
    ("tracetui.cli",),
    ("tracetui.__main__",),
)

Graph = Mapping[str, frozenset[str]]


def sources(root: Path) -> list[Path]:
    """Return every Python file of the rooms."""
    return sorted(path for room in ROOMS for path in (root / room).rglob("*.py"))


def module_name(root: Path, path: Path) -> str:
    """Return the dotted name of a file; a package has the name of its folder."""
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def imported_names(path: Path, name: str) -> set[str]:
    """Return every module that a file names in an import, wherever in the file it stands.

    `from a import b` names both `a` and `a.b`; `name` is the file's own and resolves relative imports.
    """
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = _imported_from(node, package)
            names |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return names


def _imported_from(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    above = parts[: len(parts) - node.level + 1]
    return ".".join([*above, *([node.module] if node.module else [])])


def import_graph(root: Path) -> Graph:
    """Return for each module of the rooms the modules of the rooms that it imports.

    Where `from a import b` names a module `a.b`, that is the arrow, and not its package.
    """
    paths = {module_name(root, path): path for path in sources(root)}
    graph: dict[str, frozenset[str]] = {}
    for name, path in paths.items():
        targets = imported_names(path, name) & paths.keys()
        inner = {t for t in targets if any(other.startswith(t + ".") for other in targets)}
        graph[name] = frozenset(targets - inner - {name})
    return graph


def circles(graph: Graph) -> list[str]:
    """Return each circle of imports as a sentence (Tarjan's strongly connected components)."""
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


def floor_of(name: str, floors: Sequence[Sequence[str]] = FLOORS) -> int:
    """Return the number of the floor that a module stands on; raise KeyError where it has none."""
    fitting = [
        (len(prefix), number)
        for number, prefixes in enumerate(floors)
        for prefix in prefixes
        if name == prefix or name.startswith(prefix + ".")
    ]
    if not fitting:
        raise KeyError(name)
    return max(fitting)[1]


def upward_arrows(graph: Graph, floors: Sequence[Sequence[str]] = FLOORS) -> list[str]:
    """Return each import of a floor above the importer's own."""
    return [
        f"{name} imports {target}, which stands above it"
        for name, targets in graph.items()
        for target in sorted(targets)
        if floor_of(target, floors) > floor_of(name, floors)
    ]


def long_files(root: Path) -> list[str]:
    """Return each file of more than FILE_LINES lines."""
    sizes = {path: len(path.read_text().splitlines()) for path in sources(root)}
    return [f"{_place(root, path)}: {n} lines" for path, n in sizes.items() if n > FILE_LINES]


def long_functions(root: Path) -> list[str]:
    """Return each function of more than FUNCTION_LINES lines, from its `def` to its end."""
    return [
        f"{_place(root, path)}: {node.name} has {_lines(node)} lines"
        for path, node in _functions(root)
        if _lines(node) > FUNCTION_LINES
    ]


def complex_functions(root: Path) -> list[str]:
    """Return each function with more than COMPLEXITY ways through it."""
    return [
        f"{_place(root, path)}: {node.name} has a complexity of {complexity(node)}"
        for path, node in _functions(root)
        if complexity(node) > COMPLEXITY
    ]


def complexity(function: ast.AST) -> int:
    """Return McCabe's number: one, and one more for every decision, each part of a condition counted."""
    total = 1
    for node in _own_nodes(function):
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


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield what stands in a function, without the functions inside it: those count for themselves."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node
            yield from _own_nodes(node)


def large_classes(root: Path) -> list[str]:
    """Return each class of too many lines or methods."""
    out = []
    for path in sources(root):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                methods = sum(isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) for n in node.body)
                if _lines(node) > CLASS_LINES or methods > CLASS_METHODS:
                    place = _place(root, path)
                    out.append(f"{place}: {node.name} has {_lines(node)} lines and {methods} methods")
    return out


def unlisted_modules(root: Path) -> list[str]:
    """Return each module that the tree in ARCHITECTURE.md does not name."""
    listed = listed_paths((root / "ARCHITECTURE.md").read_text())
    return [
        f"{_place(root, path)} is not in ARCHITECTURE.md"
        for path in sources(root)
        if path.name != "__init__.py" and _place(root, path) not in listed
    ]


def listed_paths(text: str) -> set[str]:
    """Return the files of a tree in a document: an entry a line, folders end in a slash."""
    paths, above = set(), list[str]()
    for line in text.partition("<!-- tree -->")[2].partition("<!-- /tree -->")[0].splitlines():
        entry = line.strip().split(" ")[0]
        depth = (len(line) - len(line.lstrip())) // 2
        if entry.endswith("/"):
            above = [*above[:depth], entry.rstrip("/")]
        elif entry.endswith(".py"):
            paths.add("/".join([*above[:depth], entry]))
    return paths


def _functions(root: Path) -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path in sources(root):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield path, node


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _place(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()
