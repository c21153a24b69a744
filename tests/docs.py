"""Writes the parts of the documents that are facts of the code: `python -m tests.docs`; a test checks."""

import contextlib
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
GUIDES: Final = ROOT / "tracetui" / "guides"
MAN_PAGE: Final = GUIDES / "tracetui.1"


def formats() -> str:
    """Return the formats as a table: name and writer; `tracetui formats` also says how to make one."""
    from capture import loaders

    rows = [f"| {format.FORMAT} | {format.PRODUCER} |" for format in loaders.list_formats()]
    return "\n".join(["| format | written by |", "|:--|:--|", *rows])


def views() -> str:
    """Return `tracetui report list` as it is printed."""
    return f"```text\n{_printed('report', 'list')}```"


def keys() -> str:
    """Return every key with what it does and where it works."""
    from tracetui.ui.key_table import DIGITS, KEYS, format_keys

    places = {"": "everywhere", "rows": "views", "live": "engine"}
    rows = [f"| {_code(format_keys(key))} | {key.help} | {places[key.when]} |" for key in KEYS]
    rows.append(f"| `1` … `{DIGITS}` | the view of this number | everywhere |")
    return "\n".join(["| key | what it does | where |", "|:--|:--|:--|", *rows])


def columns() -> str:
    """Return the columns of an event with what they mean."""
    from capture.native.schema import COLUMNS

    rows = [f"| `{column.name}` | {column.meaning} |" for column in COLUMNS]
    return "\n".join(["| column | meaning |", "|:--|:--|", *rows])


PARTS: Final[Mapping[Path, Mapping[str, Callable[[], str]]]] = {
    ROOT / "README.md": {"formats": formats},
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


if __name__ == "__main__":
    for path in PARTS:
        path.write_text(rewritten(path))
