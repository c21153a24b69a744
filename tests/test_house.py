"""The rules of the house: who may import whom, what loads when, how large things get, what is listed."""

import ast
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from capture.loaders import LOADERS
from engines.kernels import KERNELS
from engines.models import FAMILIES
from tests import house
from tests.house import ROOT
from tracetui.guides import TOPICS
from tracetui.verbs import VERBS
from tracetui.views import VIEWS

SOURCES = house.sources(ROOT)
STDLIB = sys.stdlib_module_names


def outside(names: set[str], root: str) -> bool:
    """Whether one of the imported names is a package or lies in it."""
    return any(name == root or name.startswith(root + ".") for name in names)


def room(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", SOURCES, ids=room)
def test_imports_keep_to_the_rooms(path: Path) -> None:
    names, place = house.imported_names(path, house.module_name(ROOT, path)), room(path)
    if place.startswith("capture/"):
        assert not outside(names, "tracetui") and not outside(names, "engines")
    if place.startswith("engines/"):
        assert not outside(names, "tracetui")
        assert not outside(names, "polars") and not outside(names, "textual")
        allowed = tuple(f"capture.{n}" for n in ("compiled", "errors", "native", "nvidia", "record", "roofs"))
        ours = {n for n in names if n.startswith("capture.")}
        assert all(n.startswith(allowed) for n in ours), ours
    if place.startswith("tracetui/"):
        assert not outside(names, "engines") and not outside(names, "torch")
    if place in ("capture/native/schema.py", "capture/native/emit.py"):
        ours = {n for n in names if n.split(".")[0] not in STDLIB}
        assert all(n.startswith("capture.native") for n in ours), ours
    if not place.startswith(("capture/record/", "engines/")):
        assert not outside(names, "torch")
        assert not outside(names, "pynvml") and not outside(names, "psutil")
    if not place.startswith("tracetui/ui/"):
        assert not outside(names, "textual")
    if place != "tracetui/views/charts.py":
        assert not outside(names, "plotext")


RULES: dict[str, Callable[[Path], list[str]]] = {
    "no circles": lambda root: house.circles(house.import_graph(root)),
    "arrows downwards": lambda root: house.upward_arrows(house.import_graph(root)),
    "file length": house.long_files,
    "function length": house.long_functions,
    "complexity": house.complex_functions,
    "class size": house.large_classes,
    "ARCHITECTURE lists every module": house.unlisted_modules,
}


@pytest.mark.parametrize("rule", RULES)
def test_the_house_keeps_its_rules(rule: str) -> None:
    assert RULES[rule](ROOT) == []


PLANTED = {
    "no circles": ("tracetui/views/kernels.py", "from tracetui.views import tree\n", "tracetui/views/tree.py",
                   "from tracetui.views import kernels\n", "import each other"),
    "arrows downwards": ("tracetui/units.py", "from tracetui.views import kernels\n", "", "",
                         "tracetui.units imports tracetui.views.kernels"),
    "file length": ("capture/text.py", "# a line\n" * 400, "", "", "capture/text.py"),
    "function length": ("capture/text.py", "def long() -> None:\n" + "    print()\n" * 41, "", "",
                        "long has 42 lines"),
    "complexity": ("capture/text.py", "def ways(x: int) -> int:\n" + "    if x:\n        x += 1\n" * 13
                   + "    return x\n", "", "", "ways has a complexity of 14"),
    "class size": ("capture/text.py", "class Many:\n"
                   + "".join(f"    def m{i}(self) -> None: ...\n" for i in range(31)), "", "", "31 methods"),
    "ARCHITECTURE lists every module": ("capture/_planted.py", "", "", "", "capture/_planted.py is not in"),
}  # fmt: skip


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The rooms and the page that lists them, to plant faults in."""
    for name in house.ROOMS:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "ARCHITECTURE.md", tmp_path)
    return tmp_path


@pytest.mark.parametrize("rule", RULES)
def test_a_planted_fault_is_found(rule: str, copy: Path) -> None:
    first, text, second, more, expected = PLANTED[rule]
    for place, planted in ((first, text), (second, more)):
        if place:
            path = copy / place
            path.write_text((path.read_text() if path.exists() else "") + "\n" + planted)
    broken = RULES[rule](copy)
    assert any(expected in sentence for sentence in broken), broken


@pytest.mark.parametrize("path", SOURCES, ids=room)
def test_nothing_dangerous(path: Path) -> None:
    names = house.imported_names(path, house.module_name(ROOT, path))
    for name in ("pickle", "marshal", "shelve", "yaml", "mmap"):
        assert not outside(names, name), f"{name} has no place here"
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in ("eval", "exec", "torch.load", "os.system", "tempfile.mktemp"), called
            assert not any(
                k.arg == "shell" and isinstance(k.value, ast.Constant) and k.value.value
                for k in node.keywords
            )


def defining(folder: str, name: str) -> set[str]:
    """The modules below a folder that define or assign a name at their top level, dotted."""
    out = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
            names = {getattr(node, "name", None), *(getattr(t, "id", None) for t in targets)}
            if name in names and path.name != "__init__.py":
                out.add(".".join(path.relative_to(ROOT / folder).with_suffix("").parts))
    return out


@pytest.mark.parametrize(
    ("folder", "listed", "mark"),
    [
        ("capture/loaders", LOADERS, "sniff"),
        ("tracetui/views", VIEWS, "VIEW"),
        ("engines/kernels", KERNELS, "reference"),
        ("engines/models", FAMILIES, "FAMILY"),
        ("tracetui/verbs", VERBS, "run"),
    ],
    ids=["loaders", "views", "kernels", "models", "verbs"],
)
def test_registries_are_whole(folder: str, listed: tuple[str, ...], mark: str) -> None:
    assert defining(folder, mark) == set(listed)
    assert len(listed) == len(set(listed))


def test_guides_are_listed() -> None:
    assert {p.stem for p in (ROOT / "tracetui/guides").glob("*.md")} == set(TOPICS)


@pytest.mark.parametrize(
    ("modules", "never"),
    [
        ("capture.native.schema, capture.native.emit", ("polars", "torch", "textual", "numpy")),
        (
            "capture.loaders, tracetui.cli, tracetui.report",
            ("torch", "scipy", "textual", "pandas", "plotext"),
        ),
        ("tracetui.ui.app, tracetui.views.diff", ("torch", "scipy", "pandas", "numpy")),
        ("tracetui.verbs.live", ("polars", "textual", "torch")),  # an engine does not wait for them
    ],
)
def test_what_really_loads(modules: str, never: tuple[str, ...]) -> None:
    code = f"import sys, {modules}\nprint(*[m for m in {never!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == []
