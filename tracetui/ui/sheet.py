"""An answer as a sheet: which columns fit, how wide they are, and the cells of the rows in sight."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import polars as pl
from msgspec import Struct, field

from tracetui import glyphs, units
from tracetui.look import Look
from tracetui.shown_names import COLUMNS, shown_names
from tracetui.ui.column_names import alike, meant
from tracetui.ui.names import shortened
from tracetui.ui.terminal.paint import fit, width_of
from tracetui.views import Dress

SAMPLE: Final = 200
TEXT_WIDEST: Final = 28
NAME_LEAST: Final = 14
TREND: Final = 16
KEPT: Final = 2  # columns that stay beside whole names
STYLE: Final = {"text": "dim", "trend": "accent", "bar": "accent", "rule": "dim"}  # of kinds that have one
FLOAT: Final = 9  # four digits in their longest form
GAP: Final = 2
BAR: Final = "bar"  # the column that is drawn instead of written
BAR_HEADING: Final = "faster ◂ ▸ slower"
BESIDE: Final = 110  # cells from which two tables stand side by side
SIDE_LEAST: Final = 18  # of a name in one of them


@dataclass(frozen=True)
class Column:
    """A column at its place on the screen."""

    name: str
    heading: str
    width: int
    kind: str  # name · whole (a name as it is) · text · number · trend · bar · rule
    of: str = ""  # the column of the rows that it shows, where that has another name
    top: float = 0.0  # of a bar: the value that fills half of it

    @property
    def source(self) -> str:
        return self.of or self.name


RULE: Final = Column("", "│", 1, "rule")


class Sheet(Struct, frozen=True, eq=False):
    """Rows with the width that each column wants; measured once, in the background."""

    rows: pl.DataFrame
    key: tuple[str, ...]
    columns: tuple[Column, ...]  # as they come; the naming column first
    rank: tuple[str, ...]  # by falling importance
    dress: Dress | None = None
    shown: Mapping[str, str] = field(default_factory=dict)  # names that are not shown as they are

    @property
    def sortable(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns if c.kind not in ("trend", "bar"))

    def arranged(self, width: int, look: Look, first: int = 0) -> tuple[Column, ...]:
        """Return the columns to show: two tables side by side where there is room, else one."""
        beside = width >= BESIDE and not (look.one_table or look.columns or look.full_names or first)
        if beside and self.dress and self.dress.sides:
            return self._beside(width, self.dress.sides)
        return self.layout(width, first, look.full_names, look.columns)

    def layout(
        self, width: int, first: int = 0, full_names: bool = False, chosen: Sequence[str] = ()
    ) -> tuple[Column, ...]:
        """Return the columns for a width: the name, then those chosen, in their order, else the most
        important; `first` skips some.
        """
        if not self.columns:
            return ()
        name, *others = self.columns
        own = self.meant(chosen)
        others = [c for n in own for c in others if c.name == n] or others
        if full_names:
            name = replace(name, kind="whole", width=max(name.width, *map(len, self.shown), 0))
            part = max(width // 2, width - self._kept(others))
        else:
            narrow = self.dress is not None and not self.dress.wide_names
            part = width // 4 if narrow else width * 2 // 5
        least = min(name.width, max(NAME_LEAST, part))
        ordered = others if own else self._order(others, width - least)
        shown = _fitting(ordered[first:], width - least)
        room = width - sum(c.width + GAP for c in shown)
        return (_wide(name, max(1, min(name.width, room, width))), *shown)

    def meant(self, words: Sequence[str]) -> tuple[str, ...]:
        """Return the columns beside the name that are meant, in the order of the words."""
        return meant(words, [c.name for c in self.columns[1:]])

    def _kept(self, others: list[Column]) -> int:
        """Return the cells of the most important columns, which whole names do not push off the screen."""
        ranked = sorted(others, key=lambda c: self.rank.index(c.name))
        return sum(c.width + GAP for c in ranked[:KEPT])

    def _order(self, others: list[Column], room: int) -> list[Column]:
        """Return what fits, in its own order, then the rest, which is reached by scrolling to the right."""
        ranked = sorted(others, key=lambda c: self.rank.index(c.name))
        best = {c.name for c in _fitting(ranked, room)}
        return [c for c in others if c.name in best] + [c for c in others if c.name not in best]

    def _beside(self, width: int, sides: Sequence[Sequence[str]]) -> tuple[Column, ...]:
        """Return two tables of the same columns, and what lies between; the names share what is left."""
        by_name = {c.name: c for c in self.columns}
        names = (sides[0][0], sides[-1][-1])
        room = width - 2 * (SIDE_LEAST + GAP) - (RULE.width + GAP) * (len(sides) - 1)
        wanted = [n for side in sides for n in side if n in by_name and n not in names]
        fitting, room = _fitting_pairs(alike(sorted(wanted, key=self.rank.index)), by_name, room)
        shown = (fitting | set(names)) & by_name.keys()
        wide = {n: _wide(c, SIDE_LEAST + room // 2) if n in names else c for n, c in by_name.items()}
        out: list[Column] = []
        for side in sides:
            out += [RULE] if out else []
            out += [wide[n] for n in side if n in shown]
        return tuple(out)

    def tones(self, start: int, count: int, columns: Sequence[Column]) -> list[list[str]]:
        """Return the style of the cells of some rows."""
        rows = self.rows.slice(start, count)
        own = self.dress.tones(rows) if self.dress else {}
        plain = [[STYLE.get(c.kind, "")] * rows.height for c in columns]
        styles = [own.get(c.source, p) for c, p in zip(columns, plain, strict=True)]
        return [list(row) for row in zip(*styles, strict=True)]

    def cells(
        self, start: int, count: int, columns: Sequence[Column], ascii: bool = False
    ) -> list[list[str]]:
        """Return the text of some rows, each cell as wide as its column."""
        if not columns:
            return []
        block = self.rows.slice(start, count)
        written = [
            [RULE.heading] * block.height if c is RULE else _written(block[c.source], c, self.shown, ascii)
            for c in columns
        ]
        return [list(row) for row in zip(*written, strict=True)]

    def find(self, wanted: Sequence[Any], near: int) -> int:
        """Return the row of a key; where it is gone, the last one before it of rows in the order of a number,
        else the place where the cursor was.
        """
        last = max(0, self.rows.height - 1)
        if not self.key or not wanted or self.rows.is_empty():
            return min(near, last)
        if near <= last and self.identity(near) == tuple(wanted):
            return near
        same = pl.all_horizontal(
            pl.col(k).eq_missing(pl.lit(v)) for k, v in zip(self.key, wanted, strict=True)
        )
        matches = self.rows.lazy().select(same.arg_true()).collect().to_series()
        if matches.len():
            return int(matches[0])
        own = self.rows[self.key[0]]
        if len(self.key) == 1 and own.dtype.is_integer() and wanted[0] is not None and own.is_sorted():
            return max(0, int((own <= wanted[0]).sum()) - 1)
        return min(near, last)

    def identity(self, row: int) -> tuple[Any, ...]:
        """Return the values that name a row; empty for a row that is not there."""
        if not 0 <= row < self.rows.height:
            return ()
        return tuple(self.rows[row, k] for k in self.key)


EMPTY: Final = Sheet(pl.DataFrame(), (), (), ())


def measure(
    rows: pl.DataFrame, key: Sequence[str], importance: Sequence[str], dress: Dress | None = None,
    label: str = "", shown: Mapping[str, str] | None = None,
) -> Sheet:  # fmt: skip
    """Return the sheet of rows: the naming column first, columns without any value last in importance.

    `shown` is how names are shown that are not shown as they are, where that is known of these rows.
    """
    names = rows.columns
    naming = next((c for c in (label, *key, *names) if c in names), None)
    order = [naming, *(c for c in names if c != naming)] if naming else []
    shown = names_shown(rows) if shown is None else shown
    columns = tuple(part for c in order for part in _dressed(rows[c], c == naming, dress, shown))
    rank = _ranked(rows, [c.name for c in columns], importance)
    return Sheet(rows, tuple(k for k in key if k in names), columns, rank, dress, shown)


def names_shown(rows: pl.DataFrame) -> dict[str, str]:
    """Return the names of kernels that are not shown as they are, with what is shown in their place."""
    distinct = (rows[c].unique(maintain_order=True) for c in rows.columns if c in COLUMNS)
    return shown_names(name for own in distinct for name in own.cast(pl.String).drop_nulls().to_list())


def _ranked(rows: pl.DataFrame, columns: Sequence[str], importance: Sequence[str]) -> tuple[str, ...]:
    """Return the columns by falling importance; those without any value come last."""
    empty = {c for c in rows.columns if rows.height and rows[c].null_count() == rows.height}
    places = {c: place for place, c in reversed(list(enumerate(importance)))}
    return tuple(sorted(columns, key=lambda c: (c in empty, places.get(c, len(importance)))))


def _dressed(values: pl.Series, naming: bool, dress: Dress | None, shown: Mapping[str, str]) -> list[Column]:
    """Return a column, and the bar that is drawn of it."""
    if shown and values.name in COLUMNS:
        values = values.unique(maintain_order=True).cast(pl.String).replace(shown)
    column = _measured(values, naming)
    if dress is None or dress.bar != values.name:
        return [column]
    top = float(values.abs().max() or 0)  # type: ignore[arg-type]
    return [column, Column(BAR, BAR_HEADING, len(BAR_HEADING), "bar", values.name, top)]


def _fitting_pairs(
    groups: Sequence[Sequence[str]], columns: Mapping[str, Column], room: int
) -> tuple[set[str], int]:
    """Return the columns of the groups that fit whole, the first groups first, and the room that is left."""
    shown: set[str] = set()
    for group in groups:
        need = sum(columns[name].width + GAP for name in group)
        if need <= room:
            shown |= set(group)
            room -= need
    return shown, room


def _measured(values: pl.Series, naming: bool) -> Column:
    heading = units.heading(values.name)
    kind = "name" if naming else _kind(values.dtype)
    if isinstance(values.dtype, pl.List):
        return Column(values.name, heading, max(TREND, len(heading)), kind)
    width = max(len(heading) + 1, _number(values) if values.dtype.is_numeric() else _text(values))
    return Column(values.name, heading, width if naming else min(width, TEXT_WIDEST), kind)


def _kind(dtype: pl.DataType) -> str:
    return "trend" if isinstance(dtype, pl.List) else "number" if dtype.is_numeric() else "text"


def _number(values: pl.Series) -> int:
    """Return how wide the numbers get, by their extremes and a sample: no number is ever cut."""
    seen = [values.min(), values.max(), *values.head(SAMPLE).to_list()]
    floor = FLOAT if values.dtype.is_float() and units.writer(values.name) is units.writer("x") else 0
    return max(floor, max(len(_figure(values.name, v)) for v in seen))


def _text(values: pl.Series) -> int:
    text = values.cast(pl.String, strict=False) if not isinstance(values.dtype, pl.Object) else values
    if text.len() <= SAMPLE and text.dtype == pl.String:  # of few rows sooner than a query of them
        return max((max(len(v), width_of(v)) for v in text.to_list() if v is not None), default=0)
    longest = int(text.str.len_chars().max() or 0)  # type: ignore[arg-type]
    return max([longest, *(width_of(v) for v in text.head(SAMPLE).drop_nulls() if not v.isascii())])


def _wide(column: Column, width: int) -> Column:
    return replace(column, width=width)


def _fitting(columns: Sequence[Column], room: int) -> list[Column]:
    """Return columns from the first on, as long as they fit whole."""
    out: list[Column] = []
    for column in columns:
        room -= column.width + GAP
        if room < 0:
            break
        out.append(column)
    return out


def _written(values: pl.Series, column: Column, shown: Mapping[str, str], ascii: bool) -> list[str]:
    """Return the cells of a column, each as wide as the column."""
    if shown and column.name in COLUMNS and column.kind != "whole":
        values = values.cast(pl.String).replace(shown)
    if column.kind in ("name", "whole"):
        texts = [units.cell(column.name, v) for v in values.to_list()]
        cut = shortened(texts, column.width)
        return [fit(cut[t], column.width) for t in texts]
    return [_cell(value, column, ascii) for value in values.to_list()]


def _cell(value: Any, column: Column, ascii: bool) -> str:
    """Return one cell of a column that is no column of names."""
    if column.kind == "bar":
        return glyphs.signed_bar((value or 0) / (column.top or 1), column.width, ascii)
    if column.kind == "number":
        return fit(_figure(column.name, value), column.width, right=True)
    if column.kind == "trend":
        return fit("" if value is None else glyphs.course(value, column.width, ascii), column.width)
    return fit(units.cell(column.name, value), column.width)


@lru_cache(maxsize=1 << 13, typed=True)
def _figure(column: str, value: float | None) -> str:
    """Return a number as it is written; it is asked for when it is measured and when it comes into sight."""
    return units.cell(column, value)
