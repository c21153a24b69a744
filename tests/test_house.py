"""The rules of the house: imports, sizes, rooms and words; what loads when; what is listed.

Each rule is a function in `tests/house.py` or `house_words.py`. It must find nothing in this checkout,
and must find the violation that `PLANTED` puts into an otherwise empty tree.
"""

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from capture.loaders import LOADERS
from engines.kernels import KERNELS
from engines.models import FAMILIES
from tests import house, house_words
from tests.house import ROOT, Checkout, Module
from tracetui.guides import TOPICS
from tracetui.verbs import VERBS
from tracetui.views import VIEWS

pytestmark = pytest.mark.xdist_group("house")  # every file is parsed once

CHECKOUT: Final = Checkout(ROOT)

ENGINES_MAY_IMPORT: Final = (
    "device_roofs",
    "errors",
    "extensions",
    "native",
    "nvidia",
    "plugins",
    "record",
)  # of capture

RULES: Final[dict[str, Callable[[Checkout], list[str]]]] = {
    "no circles": house.find_circles,
    "imports point downwards": house.find_upward_imports,
    "C headers include no circle": house.find_circular_headers,
    "file length": house.find_long_files,
    "function length": house.find_long_functions,
    "complexity": house.find_complex_functions,
    "class size": house.find_large_classes,
    "length of documents": house.find_long_pages,
    "rooms of few modules": house.find_crowded_rooms,
    "no splinters": house.find_splinters,
    "unique basenames": house.find_shared_basenames,
    "maps list their modules": house.find_gaps_in_maps,
    "functions begin with a verb": house_words.find_unclear_function_names,
    "no empty words": house_words.find_empty_words,
    "unique class names": house_words.find_shared_class_names,
    "docstrings": house_words.find_unclear_docstrings,
    "constants of comparison in one module": house_words.find_scattered_constants,
}

# rule → files of a tree that breaks it, and what the sentence contains
PLANTED: Final[dict[str, tuple[dict[str, str], str]]] = {
    "no circles": (
        {"capture/a.py": "from capture import b\n", "capture/b.py": "import capture.a\n"},
        "these import each other: capture.a, capture.b",
    ),
    "imports point downwards": (
        {"capture/run.py": "from tracetui import cli\n", "tracetui/cli.py": ""},
        "capture.run imports tracetui.cli",
    ),
    "C headers include no circle": (
        {"engines/a.h": '#pragma once\n#include "b.h"\n', "engines/b.h": '#pragma once\n#include "a.h"\n'},
        "a.h includes itself",
    ),
    "file length": ({"capture/a.py": "# a line\n" * 501}, "capture/a.py: 501 lines"),
    "function length": ({"capture/a.py": "def f():\n" + "    f()\n" * 40}, "f has 41 lines"),
    "complexity": (
        {"capture/a.py": "def f(x):\n" + "    if x:\n        x += 1\n" * 12},
        "f has a complexity of 13",
    ),
    "class size": (
        {"capture/a.py": "class Many:\n" + "".join(f"    def m{i}(self): ...\n" for i in range(31))},
        "31 methods",
    ),
    "length of documents": ({"README.md": "x" * 9001}, "README.md: 9001 characters"),
    "rooms of few modules": ({f"capture/m{i}.py": "" for i in range(26)}, "capture has 26 modules"),
    "no splinters": (
        {"capture/a.py": "from capture import b\n", "capture/b.py": "X = 1\n"},
        "capture/b.py: 1 lines for capture.a alone",
    ),
    "unique basenames": ({"capture/a.py": "", "engines/a.py": ""}, "a: capture.a, engines.a"),
    "maps list their modules": (
        {"capture/__init__.py": '"""Map.\n\ngone: was here\n"""\n', "capture/a.py": ""},
        "does not list a",
    ),
    "functions begin with a verb": ({"capture/a.py": "def quickly():\n    print()\n"}, "quickly"),
    "no empty words": ({"capture/a.py": "def read(told):\n    return told\n"}, "capture/a.py:1 told"),
    "unique class names": (
        {f"capture/{m}.py": "class Row: ...\n" for m in "ab"},
        "Row: capture.a, capture.b",
    ),
    "docstrings": ({"capture/a.py": "def read_it(x):\n    print(x)\n"}, "read_it has no docstring"),
    "constants of comparison in one module": (
        {"tracetui/compare/pairs.py": "LEVEL = 0.05\n"},
        "tracetui/compare/pairs.py:1 LEVEL",
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_house_rule_holds(rule: str) -> None:
    assert RULES[rule](CHECKOUT) == []


@pytest.mark.parametrize("rule", RULES)
def test_house_rule_reports_violation(rule: str, tmp_path: Path) -> None:
    files, expected = PLANTED[rule]
    pages = dict.fromkeys(house.PAGE_CHARACTERS, "")
    for place, text in (pages | files).items():
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    sentences = RULES[rule](Checkout(tmp_path))
    assert any(expected in sentence for sentence in sentences), sentences


def is_imported(module: Module, *packages: str) -> bool:
    """Return whether a module imports one of the packages or anything inside one."""
    return any(name == p or name.startswith(p + ".") for name in module.imports for p in packages)


def test_outer_rooms_stay_apart() -> None:
    allowed = tuple(f"capture.{n}" for n in ENGINES_MAY_IMPORT)
    for module in CHECKOUT.modules:
        ours = {name for name in module.imports if name.startswith("capture.")}
        if module.place.startswith("capture/"):
            assert not is_imported(module, "tracetui", "engines"), module.place
        elif module.place.startswith("engines/"):
            assert not is_imported(module, "tracetui", "polars", "textual"), module.place
            assert all(name.startswith(allowed) for name in ours), (module.place, ours)
        else:
            assert not is_imported(module, "engines", "torch"), module.place


def test_heavy_libraries_have_one_place() -> None:
    for module in CHECKOUT.modules:
        if module.place in ("capture/native/schema.py", "capture/native/emit.py"):
            foreign = {n for n in module.imports if n.split(".")[0] not in sys.stdlib_module_names}
            assert all(n.startswith("capture.native") for n in foreign), (module.place, foreign)
        if not module.place.startswith(("capture/record/", "engines/")):
            assert not is_imported(module, "torch", "pynvml", "psutil"), module.place
        if not module.place.startswith("tracetui/ui/"):
            assert not is_imported(module, "textual"), module.place
        if module.place != "tracetui/views/charts.py":
            assert not is_imported(module, "plotext"), module.place


def test_nothing_dangerous_is_called() -> None:
    forbidden = ("eval", "exec", "torch.load", "os.system", "tempfile.mktemp")
    for module in CHECKOUT.modules:
        assert not is_imported(module, "pickle", "marshal", "shelve", "yaml", "mmap"), module.place
        for node in module.nodes:
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in forbidden, (module.place, node.lineno)
                shells = [k.value for k in node.keywords if k.arg == "shell"]
                assert not any(isinstance(v, ast.Constant) and v.value for v in shells), module.place


def list_defining_modules(folder: str, name: str) -> set[str]:
    """Return the modules below a folder, dotted, that define a name at top level."""
    inside = [m for m in CHECKOUT.modules if m.place.startswith(folder + "/") and not m.is_package]
    prefix = folder.replace("/", ".") + "."
    return {m.name.removeprefix(prefix) for m in inside if name in house.list_top_level(m)}


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
def test_registry_lists_every_module(folder: str, listed: tuple[str, ...], mark: str) -> None:
    assert list_defining_modules(folder, mark) == set(listed)
    assert len(listed) == len(set(listed))


def test_guides_are_listed() -> None:
    assert {p.stem for p in (ROOT / "tracetui/guides").glob("*.md")} == set(TOPICS)


@pytest.mark.parametrize(
    ("modules", "never"),
    [
        ("capture.native.schema, capture.native.emit", ("polars", "torch", "textual", "numpy")),
        (
            "capture.loaders, tracetui.cli, tracetui.report_formats",
            ("torch", "scipy", "textual", "pandas", "plotext"),
        ),
        ("tracetui.ui.app, tracetui.views.diff", ("torch", "scipy", "pandas", "numpy")),
        ("tracetui.verbs.live", ("polars", "textual", "torch")),  # an engine does not wait for them
    ],
)
def test_what_really_loads(modules: str, never: tuple[str, ...]) -> None:
    code = f"import sys, {modules}\nprint(*[m for m in {never!r} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert result.stdout.split() == []
