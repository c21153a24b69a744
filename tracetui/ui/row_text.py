"""A row as text that another program can take."""

from collections.abc import Mapping, Sequence
from typing import Any

from tracetui import glyphs, units
from tracetui.views import ink
from tracetui.views.ink import Line


def plain(row: Mapping[str, Any]) -> str:
    """Return headings and values, a pair a line."""
    return "\n".join(f"{units.heading(c)}\t{_cell(c, v)}" for c, v in row.items())


def markdown(row: Mapping[str, Any]) -> str:
    """Return a Markdown table of one row."""
    cells = [_cell(c, v).replace("|", "\\|") for c, v in row.items()]
    heads = [units.heading(c) for c in row]
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), cells))


def drawing(lines: Sequence[Line]) -> str:
    return ink.plain(lines)


def _cell(column: str, value: Any) -> str:
    return glyphs.sparkline(value, 20) if isinstance(value, list) else units.cell(column, value)
