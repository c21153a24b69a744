"""The rules of the house: who may import whom, what loads when, and that every registry is whole."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from capture.loaders import LOADERS
from engines.kernels import KERNELS
from tests.house import imported_names, module_name
from tracetui.views import VIEWS

ROOT = Path(__file__).parent.parent
SOURCES = sorted(p for room in ("capture", "engines", "tracetui") for p in (ROOT / room).rglob("*.py"))
STDLIB = sys.stdlib_module_names


def imports(path: Path) -> set[str]:
    """Every module that a file names in an import, wherever in the file it stands."""
    return imported_names(path, module_name(ROOT, path))


def outside(found: set[str], root: str) -> bool:
    return any(name == root or name.startswith(root + ".") for name in found)


def room(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def defines(path: Path, name: str) -> bool:
    return any(isinstance(n, ast.FunctionDef) and n.name == name for n in ast.parse(path.read_text()).body)


def place_in(folder: Path, path: Path) -> str:
    return ".".join(path.relative_to(folder).with_suffix("").parts)


@pytest.mark.parametrize("path", SOURCES, ids=room)
def test_imports_keep_to_the_rooms(path: Path) -> None:
    found, place = imports(path), room(path)
    layers = ["tracetui/analysis/", "tracetui/views/", "tracetui/report", "tracetui/ui/"]
    if place.startswith("capture/"):
        assert not outside(found, "tracetui") and not outside(found, "engines")
    if place.startswith("engines/"):
        assert not outside(found, "tracetui")
        assert not outside(found, "polars") and not outside(found, "textual")
        allowed = (
            "capture.native.schema",
            "capture.native.emit",
            "capture.record",
            "capture.errors",
            "capture.roofs",
        )
        named = {n for n in found if n.startswith("capture.")}
        assert all(n.startswith(allowed) for n in named), named
    if place.startswith("tracetui/"):
        assert not outside(found, "engines") and not outside(found, "torch")
    if place in ("capture/native/schema.py", "capture/native/emit.py"):
        assert all(n.split(".")[0] in STDLIB or n.startswith("capture.native.schema") for n in found), found
    if not place.startswith(("capture/record/", "engines/")):
        assert not outside(found, "torch")
        assert not outside(found, "pynvml") and not outside(found, "psutil")
    if not place.startswith("tracetui/ui/"):
        assert not outside(found, "textual")
    if place != "tracetui/views/ink.py":
        assert not outside(found, "plotext")
    rank = next((i for i, layer in enumerate(layers) if place.startswith(layer)), None)
    if rank is not None:
        above = [layer.rstrip("/").replace("/", ".") for layer in layers[rank + 1 :]]
        assert not any(outside(found, name) for name in above)


@pytest.mark.parametrize("path", SOURCES, ids=room)
def test_nothing_dangerous(path: Path) -> None:
    tree = ast.parse(path.read_text())
    found = imports(path)
    for name in ("pickle", "marshal", "shelve", "yaml", "mmap"):
        assert not outside(found, name), f"{name} has no place here"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in ("eval", "exec", "torch.load", "os.system", "tempfile.mktemp"), called
            assert not any(
                k.arg == "shell" and isinstance(k.value, ast.Constant) and k.value.value
                for k in node.keywords
            )


@pytest.mark.parametrize(
    ("folder", "listed"),
    [("capture/loaders", LOADERS), ("tracetui/views", VIEWS), ("engines/kernels", KERNELS)],
    ids=["loaders", "views", "kernels"],
)
def test_registries_are_whole(folder: str, listed: tuple[str, ...]) -> None:
    helpers = {"ink", "launch", "compile"}
    there = {p.stem for p in (ROOT / folder).glob("*.py") if not p.stem.startswith("_")} - helpers
    if folder == "capture/loaders":
        there = {place_in(ROOT / folder, p) for p in (ROOT / folder).rglob("*.py") if defines(p, "sniff")}
    assert there == set(listed)
    assert len(listed) == len(set(listed))


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


def test_large_files_are_few() -> None:
    """Files stay near 300 lines; past 450 they have stopped being one thing."""
    sizes = {room(p): len(p.read_text().splitlines()) for p in SOURCES}
    assert {name: n for name, n in sizes.items() if n > 450} == {}
