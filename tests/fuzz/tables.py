"""Changes of tables and of printed text: cells, quotes, columns, separators, lines."""

import csv
import io
import re
from collections.abc import Callable
from random import Random
from typing import Final

from tests.fuzz.hostile_values import cell, word

Rows = list[list[str]]

SEPARATORS: Final = (",", ";", "\t", "|")
_NUMBER: Final = re.compile(r"[-+]?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?", re.IGNORECASE)


def separator_of(text: str) -> str:
    """Return the separator that stands most often in the first lines."""
    head = text[:2000]
    return max(SEPARATORS, key=head.count)


def changed_table(text: str, draw: Random, other: str = "") -> str:
    """Return a table with one change: of its cells, its columns, or of how it is written."""
    separator = separator_of(text)
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
    if not rows or draw.random() < 0.25:
        return changed_text(text, draw, other)
    draw.choice(_TABLE)(rows, draw)
    new = separator if draw.random() < 0.95 else draw.choice(SEPARATORS)
    out = io.StringIO()
    quoting = csv.QUOTE_ALL if draw.random() < 0.1 else csv.QUOTE_MINIMAL
    ends = draw.choice(("\n", "\n", "\n", "\r\n", "\r"))
    csv.writer(out, delimiter=new, quoting=quoting, lineterminator=ends).writerows(rows)
    return out.getvalue()


def _cells(rows: Rows, draw: Random) -> None:
    row = rows[min(len(rows) - 1, int(draw.expovariate(0.3)))] if draw.random() < 0.5 else draw.choice(rows)
    if row:
        row[draw.randrange(len(row))] = cell(draw)


def _a_column(rows: Rows, draw: Random) -> None:
    """Give every cell of a column the same odd value."""
    at, value, first = draw.randrange(max(1, len(rows[0]))), cell(draw), draw.randrange(2)
    for row in rows[first:]:
        if at < len(row):
            row[at] = value


def _heading(rows: Rows, draw: Random) -> None:
    row = draw.choice(rows[:3])
    if row:
        row[draw.randrange(len(row))] = draw.choice((*row, word(draw), "file", "name", "kind", "run", ""))


def _columns(rows: Rows, draw: Random) -> None:
    """Remove, repeat, move or add a column."""
    at, to, what = (
        draw.randrange(max(1, len(rows[0]))),
        draw.randrange(max(1, len(rows[0]))),
        draw.randrange(4),
    )
    for row in rows:
        if at < len(row) and what < 3:
            taken = row[at] if what == 1 else row.pop(at)
            if what:
                row.insert(to, taken)
        elif what == 3:
            row.insert(to, cell(draw))


def _ragged(rows: Rows, draw: Random) -> None:
    row = draw.choice(rows)
    row[draw.randrange(len(row) + 1) :] = [cell(draw) for _ in range(draw.choice((0, 0, 1, 2, 30)))]


def _rows(rows: Rows, draw: Random) -> None:
    """Repeat, remove or swap rows, or put a heading or an empty row between them."""
    at, to = draw.randrange(len(rows)), draw.randrange(len(rows))
    match draw.randrange(5):
        case 0:
            rows.insert(to, list(rows[at]))
        case 1:
            del rows[at]
        case 2:
            rows[at], rows[to] = rows[to], rows[at]
        case 3:
            rows.insert(to, list(rows[0]))
        case _:
            rows.insert(to, [])


_TABLE: Final[tuple[Callable[[Rows, Random], None], ...]] = (
    _cells, _cells, _cells, _a_column, _heading, _columns, _ragged, _rows,
)  # fmt: skip


def changed_text(text: str, draw: Random, other: str = "") -> str:
    """Return a printed text with one change: of a number, a word, a line, or of some characters."""
    match draw.randrange(8):
        case 0 | 1:
            return _swapped(text, _NUMBER, draw)
        case 2:
            return _swapped(text, re.compile(r"[A-Za-z_][\w.]*"), draw)
        case 3 | 4:
            return _other_lines(text, draw, other)
        case 5:
            start, end = sorted((draw.randrange(len(text) + 1), draw.randrange(len(text) + 1)))
            end = min(end, start + draw.choice((1, 3, 20, 300)))
            return text[:start] + text[end:]
        case 6:
            at = draw.randrange(len(text) + 1)
            return text[:at] + cell(draw) + text[at:]
    return _swapped(text, re.compile(r"[^\w\s]+|[ \t]{2,}"), draw)


def _swapped(text: str, pattern: re.Pattern[str], draw: Random) -> str:
    """Return the text with one fitting piece replaced: by an odd one, or by another piece of the text."""
    found = list(pattern.finditer(text))
    if not found:
        return text + cell(draw)
    one = draw.choice(found)
    new = cell(draw) if draw.random() < 0.7 else draw.choice(found).group()
    return text[: one.start()] + new + text[one.end() :]


def _other_lines(text: str, draw: Random, other: str) -> str:
    lines = text.split("\n")
    at, to = draw.randrange(len(lines)), draw.randrange(len(lines))
    match draw.randrange(6):
        case 0:
            del lines[at]
        case 1:
            lines.insert(to, lines[at])
        case 2:
            lines[at], lines[to] = lines[to], lines[at]
        case 3:
            lines[at] = lines[at][: draw.randrange(len(lines[at]) + 1)]
        case 4:
            lines.insert(to, draw.choice((other or text).split("\n")))
        case _:
            lines[at : at + 2] = ["".join(lines[at : at + 2])]
    return "\n".join(lines)
