"""Writes the parts of the documents that are facts of the code: `python -m tests.docs`; a test checks."""

import ast
import contextlib
import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
GUIDES: Final = ROOT / "tracetui" / "guides"
MAN_PAGE: Final = GUIDES / "tracetui.1"
ROOMS: Final = ("capture", "engines", "tracetui", "tests")
WIDEST_MODULE: Final = 34


def formats() -> str:
    """Return the formats as a table: name and writer; `tracetui formats` also says how to make one."""
    from capture import loaders

    rows = [f"| {format.FORMAT} | {format.PRODUCER} |" for format in loaders.formats()]
    return "\n".join(["| format | written by |", "|:--|:--|", *rows])


def views() -> str:
    """Return `tracetui report list` as it is printed."""
    return f"```text\n{_printed('report', 'list')}```"


def keys() -> str:
    """Return every key with what it does and where it works."""
    from tracetui.ui.keys import DIGITS, KEYS, written

    places = {"": "everywhere", "rows": "views", "live": "engine"}
    rows = [f"| {_code(written(key))} | {key.text} | {places[key.when]} |" for key in KEYS]
    rows.append(f"| `1` … `{DIGITS}` | the view of this number | everywhere |")
    return "\n".join(["| key | what it does | where |", "|:--|:--|:--|", *rows])


def columns() -> str:
    """Return the columns of an event with what they mean."""
    from capture.native.schema import COLUMNS

    rows = [f"| `{column.name}` | {column.meaning} |" for column in COLUMNS]
    return "\n".join(["| column | meaning |", "|:--|:--|", *rows])


def tree() -> str:
    """Return every module with the first line of its docstring; tests are told in one line."""
    lines = [line for room in ROOMS for line in _folder(ROOT / room, 0)]
    return "\n".join(["```text", *lines, "```"])


PARTS: Final[Mapping[Path, Mapping[str, Callable[[], str]]]] = {
    ROOT / "README.md": {"formats": formats},
    ROOT / "ARCHITECTURE.md": {"tree": tree},
    GUIDES / "views.md": {"list": views},
    GUIDES / "keys.md": {"keys": keys},
    GUIDES / "native-format.md": {"columns": columns},
    MAN_PAGE: {},  # generated as a whole
}


def rewritten(document: Path) -> str:
    """Return a document with its generated parts made anew."""
    if document == MAN_PAGE:
        from tests.man_page import man_page

        return man_page()
    text = document.read_text()
    for name, make in PARTS[document].items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        head, found, rest = text.partition(begin)
        if not found or end not in rest:
            raise ValueError(f"{document.name} has no part {name}")
        text = head + begin + make() + "\n" + end + rest.partition(end)[2]
    return text


def _printed(*arguments: str) -> str:
    from tracetui import cli

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        cli.main(list(arguments))
    return out.getvalue()


def _code(keys: str) -> str:
    return " ".join(f"`{key}`" for key in keys.split(" "))


def _folder(folder: Path, depth: int) -> list[str]:
    if folder.name == "tests":
        return [
            _entry("tests/", "fixtures, the rules of the house, mirrors of the rooms, bench/ (benchmarks)", 0)
        ]
    lines = [_entry(folder.name + "/", _first_line(folder / "__init__.py"), depth)]
    files = (file for file in sorted(folder.glob("*.py")) if file.name != "__init__.py")
    lines += [_entry(file.name, _first_line(file), depth + 1) for file in files]
    for sub in sorted(path for path in folder.iterdir() if path.is_dir() and any(path.glob("*.py"))):
        lines += _folder(sub, depth + 1)
    return lines


def _entry(name: str, about: str, depth: int) -> str:
    return f"{'  ' * depth + name:{WIDEST_MODULE}} {about}".rstrip()


def _first_line(file: Path) -> str:
    text = ast.get_docstring(ast.parse(file.read_text())) if file.exists() else ""
    return re.split(r"\n", text or "")[0].rstrip(".")


if __name__ == "__main__":
    for path in PARTS:
        path.write_text(rewritten(path))
