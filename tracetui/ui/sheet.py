"""An answer as a sheet: which columns fit, how wide they are, and the text of their cells. No widget."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, takewhile
from types import MappingProxyType
from typing import Any, Final

import polars as pl
from msgspec import Struct, field

from tracetui import glyphs, units
from tracetui.analysis.frames.display_names import select_display_names
from tracetui.glyphs import (
    NAME_COLUMNS,
    count_cells,
    fit_cells,
    fit_code_line,
    fit_sentence,
    has_shape,
    is_sentence,
)
from tracetui.look import Look
from tracetui.views import TableStyle

SAMPLE_ROWS: Final = 200
TEXT_MOST_CELLS: Final = 28  # unless there is more room
NAME_LEAST_CELLS: Final = 14
TREND_CELLS: Final = 16
RETAINED_COLUMNS: Final = 2  # most important columns that full names do not push off the screen
KIND_STYLES: Final = {"text": "dim", "trend": "accent", "bar": "accent", "rule": "dim"}
FLOAT_LEAST_CELLS: Final = 9  # four digits in their longest form
GAP_CELLS: Final = 2
BAR: Final = "bar"  # name of the column that is drawn
BAR_HEADING: Final = "faster ◂ ▸ slower"
SIDE_BY_SIDE_CELLS: Final = 110  # least width for two tables side by side
SIDE_NAME_LEAST_CELLS: Final = 18  # of a name in each of the two tables
DISTINCT_LEAST_CELLS: Final = 8  # narrower names are not kept distinct
_SIDE: Final = re.compile(r"_[ab](?=_|$)")


SortOrder = tuple[str, bool]  # a column, and whether it falls


@dataclass(frozen=True)
class SheetColumn:
    """A column with its width on the screen."""

    name: str
    heading: str
    width: int
    kind: str  # name · whole (a name in full) · text · number · trend · bar · rule
    source_name: str = ""  # column of the rows that it shows; empty: `name`
    half_bar_value: float = 0.0  # of a bar: the value that fills half of its width
    full_width: int = 0  # of a text: in which no cell is cut
    is_prose: bool = False  # a text of sentences, which is cut at its end

    @property
    def source(self) -> str:
        return self.source_name or self.name


RULE: Final = SheetColumn("", "│", 1, "rule")


class Sheet(Struct, frozen=True, eq=False):
    """Rows with the natural width of each column, measured once, in the background."""

    rows: pl.DataFrame
    key: tuple[str, ...]
    columns: tuple[SheetColumn, ...]  # in their order; the naming column first
    rank: tuple[str, ...]  # by falling importance
    style: TableStyle | None = None
    display_names: Mapping[str, str] = field(default_factory=dict)  # of the rows, where they differ
    all_names: tuple[str, ...] = ()  # display names of the runs: names are cut to differ from all of them
    default_order: tuple[SortOrder, ...] = ()  # by which the rows came

    @property
    def sortable(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns if c.kind not in ("trend", "bar"))

    def arrange_columns(self, width: int, look: Look, first: int = 0) -> tuple[SheetColumn, ...]:
        """Return the columns for a width: of two tables side by side if there is room, else of one."""
        has_room = width >= SIDE_BY_SIDE_CELLS and not (
            look.one_table or look.columns or look.full_names or first
        )
        sorted_by = [column for column, _ in look.sort_orders]
        if has_room and self.style and self.style.sides and self._has_other_names:
            columns = self._arrange_side_by_side(width, self.style.sides)
        else:
            columns = self.lay_out_columns(width, first, look.full_names, look.columns)
        if {c.name for c in columns}.issuperset(sorted_by):
            return columns
        return self.lay_out_columns(width, first, look.full_names, look.columns, sorted_by)

    @property
    def _has_other_names(self) -> bool:
        """Whether a row has another name on the other side; equal ones need not stand twice."""
        pair = ("name_a", "name_b")
        if not set(pair) <= set(self.rows.columns):
            return True
        a, b = (self.rows[c] for c in pair)
        return bool((a != b).any())

    def lay_out_columns(
        self,
        width: int,
        first: int = 0,
        full_names: bool = False,
        chosen: Sequence[str] = (),
        sorted_by: Sequence[str] = (),
    ) -> tuple[SheetColumn, ...]:
        """Return the columns of one table: the name, then the chosen ones, else the most important.

        Columns that rows are sorted by come before these. `first` is the number of columns that are scrolled
        out to the left.
        """
        if not self.columns:
            return ()
        name, *others = self.columns
        names = self.resolve_columns(chosen)
        others = [c for n in (*names, *sorted_by) for c in others if c.name == n] if names else others
        others = list(dict.fromkeys(others))
        order = (*names, *self.rank)
        ranked = sorted(others, key=lambda c: (c.name not in sorted_by, order.index(c.name)))
        if full_names:
            name = replace(name, kind="whole", width=max(name.width, *map(len, self.display_names), 0))
            name_room = max(width // 2, width - _sum_widths(ranked[:RETAINED_COLUMNS]))
        else:
            narrow = self.style is not None and not self.style.wide_names
            name_room = width // 4 if narrow else width * 2 // 5
        least = min(name.width, max(NAME_LEAST_CELLS, name_room))
        best = {c.name for c in _select_fitting(ranked, width - least)}  # in their order; then the rest
        others = sorted(others, key=lambda c: c.name not in best)
        fitting = _select_fitting(others[first:], width - least)
        room = width - _sum_widths(fitting)
        name = replace(name, width=max(1, min(name.width, room, width)))
        return (name, *_widen_texts(fitting, room - name.width - GAP_CELLS, drop=not names))

    def list_hidden_prose(self, row: int, columns: Sequence[SheetColumn]) -> list[tuple[str, str]]:
        """Return heading and text of each sentence of a row that these columns cut or do not show."""
        widths = {c.name: c.width for c in columns}
        texts = [(c, self.rows[row, c.name]) for c in self.columns if c.is_prose and row < self.rows.height]
        return [(c.heading, t) for c, t in texts if t and count_cells(t) > widths.get(c.name, 0)]

    def resolve_columns(self, words: Sequence[str]) -> tuple[str, ...]:
        """Return the columns, without the name, that the user's words mean, in their order."""
        return resolve_columns(words, [c.name for c in self.columns[1:]])

    def _arrange_side_by_side(self, width: int, sides: Sequence[Sequence[str]]) -> tuple[SheetColumn, ...]:
        """Return the columns of two tables with a rule between; both names share the remaining room."""
        by_name = {c.name: c for c in self.columns}
        names = (sides[0][0], sides[-1][-1])
        room = width - 2 * (SIDE_NAME_LEAST_CELLS + GAP_CELLS) - (RULE.width + GAP_CELLS) * (len(sides) - 1)
        others = set(chain.from_iterable(sides)).difference(names)
        selected = by_name.keys() & set(names)
        for group in _group_by_meaning(filter(others.__contains__, self.rank)):
            need = _sum_widths(by_name[name] for name in group)
            if need <= room:
                selected |= set(group)
                room -= need
        for name in by_name.keys() & set(names):
            by_name[name] = replace(by_name[name], width=SIDE_NAME_LEAST_CELLS + room // 2)
        out: list[SheetColumn] = []
        for side in sides:
            out += [RULE] if out else []
            out += [by_name[name] for name in side if name in selected]
        return tuple(out)

    def list_styles(self, start: int, count: int, columns: Sequence[SheetColumn]) -> list[list[str]]:
        """Return the styles of the cells of some rows."""
        rows = self.rows.slice(start, count)
        by_column = self.style.cell_styles(rows) if self.style else {}
        styles = (by_column.get(c.source, [KIND_STYLES.get(c.kind, "")] * rows.height) for c in columns)
        return [list(row) for row in zip(*styles, strict=True)]

    def format_rows(
        self, start: int, count: int, columns: Sequence[SheetColumn], ascii: bool = False
    ) -> list[list[str]]:
        """Return the text of some rows, each cell as wide as its column."""
        if not columns:
            return []
        block = self.rows.slice(start, count)
        rule = [RULE.heading] * block.height
        texts = (rule if c is RULE else self._format_column(block[c.source], c, ascii) for c in columns)
        return [list(row) for row in zip(*texts, strict=True)]

    def _format_column(self, values: pl.Series, column: SheetColumn, ascii: bool) -> list[str]:
        """Return the cells of a column, each as wide as the column."""
        if self.display_names and column.name in NAME_COLUMNS and column.kind != "whole":
            values = values.cast(pl.String).replace(self.display_names)
        if column.kind in ("name", "whole") and column.name != "line":
            texts = tuple(units.format_cell(column.name, v) for v in values.to_list())
            cut = shorten_names((*self.all_names, *texts), column.width)
            return [fit_cells(cut[t], column.width) for t in texts]
        return [_format_cell(value, column, ascii) for value in values.to_list()]

    def find_row(self, key: Sequence[Any], near: int) -> int:
        """Return the row with a key, else `near`; in rows sorted by one integer, the last row before it."""
        last = max(0, self.rows.height - 1)
        if not self.key or not key or self.rows.is_empty():
            return min(near, last)
        if near <= last and self.read_key(near) == tuple(key):
            return near
        same = pl.all_horizontal(pl.col(k).eq_missing(pl.lit(v)) for k, v in zip(self.key, key, strict=True))
        matches = self.rows.lazy().select(same.arg_true()).collect().to_series()
        if matches.len():
            return int(matches[0])
        values = self.rows[self.key[0]]
        if len(key) == 1 and values.dtype.is_integer() and key[0] is not None and values.is_sorted():
            return max(0, int((values <= key[0]).sum()) - 1)
        return min(near, last)

    def read_key(self, row: int) -> tuple[Any, ...]:
        """Return the values of the key columns, empty if there is no such row."""
        if not 0 <= row < self.rows.height:
            return ()
        return tuple(self.rows[row, k] for k in self.key)


EMPTY: Final = Sheet(pl.DataFrame(), (), (), ())


def measure_sheet(
    rows: pl.DataFrame, key: Sequence[str], importance: Sequence[str], style: TableStyle | None = None,
    label_column: str = "", names: Mapping[str, str] = MappingProxyType({}), order: Sequence[SortOrder] = (),
) -> Sheet:  # fmt: skip
    """Return the sheet of rows: the naming column first; columns without any value are least important.

    `names` are the display names of the runs; `order` is that of the rows, measured if it is empty.
    """
    naming = next((c for c in (label_column, *key, *rows.columns) if c in rows.columns), None)
    ordered = [c for c in dict.fromkeys((naming, *rows.columns)) if c is not None and has_shape(rows[c])]
    display_names = select_display_names(rows, names)
    columns = tuple(s for c in ordered for s in _measure_columns(rows[c], c == naming, style, display_names))
    rank = _rank_columns(rows, [c.name for c in columns], importance)
    keys = tuple(k for k in key if k in rows.columns)
    all_names = tuple(names.values()) if naming in NAME_COLUMNS else ()
    by_default = _find_order(rows, naming, rank, tuple(order))
    return Sheet(rows, keys, columns, rank, style, display_names, all_names, by_default)


def _find_order(
    rows: pl.DataFrame, naming: str | None, rank: Sequence[str], order: tuple[SortOrder, ...]
) -> tuple[SortOrder, ...]:
    """Find the column by which rows came: rising, if it names them, else the most important number."""
    if order or naming is None or "depth" in rows.columns:  # a tree is in the order of its branches
        return order
    number = next((c for c in rank if c in rows.columns and rows[c].dtype.is_numeric()), naming)
    is_rising = _is_rising(rows[naming])
    if _is_falling(rows[number]) and not (is_rising and rows[naming].dtype.is_numeric()):
        return ((number, True),)
    return ((naming, False),) if is_rising else ()


def _is_falling(values: pl.Series) -> bool:
    """Whether numbers fall, or their sizes, and are not all equal; unknown ones may stand between them."""
    numbers = values.drop_nulls()
    if not numbers.dtype.is_numeric() or numbers.n_unique() < 2:
        return False
    return numbers.is_sorted(descending=True) or numbers.abs().is_sorted(descending=True)


def _is_rising(values: pl.Series) -> bool:
    """Whether two or more names, or numbers that name rows, rise."""
    is_text = values.dtype in (pl.String, pl.Categorical, pl.Enum)
    if values.len() < 2 or not (is_text or values.dtype.is_numeric()):
        return False
    return (values.cast(pl.String) if is_text else values).is_sorted()


def _rank_columns(rows: pl.DataFrame, columns: Sequence[str], importance: Sequence[str]) -> tuple[str, ...]:
    """Return the columns by falling importance, those without any value last."""
    empty = {c for c in rows.columns if rows.height and rows[c].null_count() == rows.height}
    ranks = {c: rank for rank, c in reversed(list(enumerate(importance)))}
    return tuple(sorted(columns, key=lambda c: (c in empty, ranks.get(c, len(importance)))))


def _measure_columns(
    values: pl.Series, naming: bool, style: TableStyle | None, display_names: Mapping[str, str]
) -> list[SheetColumn]:
    """Return a column and, if the style has one for it, the bar drawn from its values."""
    if display_names and values.name in NAME_COLUMNS:
        values = values.unique(maintain_order=True).cast(pl.String).replace(display_names)
    column = _measure_column(values, naming)
    if style is None or style.bar != values.name:
        return [column]
    largest = float(values.abs().max() or 0)  # type: ignore[arg-type]
    return [column, SheetColumn(BAR, BAR_HEADING, len(BAR_HEADING), "bar", values.name, largest)]


def _measure_column(values: pl.Series, naming: bool) -> SheetColumn:
    heading = units.format_heading(values.name)
    if isinstance(values.dtype, pl.List):
        return SheetColumn(
            values.name, heading, max(TREND_CELLS, len(heading)), "name" if naming else "trend"
        )
    is_number = values.dtype.is_numeric()
    width = max(len(heading) + 1, _measure_numbers(values) if is_number else _measure_texts(values))
    if naming:
        return SheetColumn(values.name, heading, width, "name")
    if is_number:
        return SheetColumn(values.name, heading, min(width, TEXT_MOST_CELLS), "number")
    sample = values.head(SAMPLE_ROWS).to_list() if width > TEXT_MOST_CELLS else []
    is_prose = any(isinstance(text, str) and is_sentence(text) for text in sample)
    narrow = min(width, TEXT_MOST_CELLS)
    return SheetColumn(values.name, heading, narrow, "text", full_width=width, is_prose=is_prose)


def _measure_numbers(values: pl.Series) -> int:
    """Return the width of numbers, by their extremes and a sample: numbers are never cut."""
    sample = [values.min(), values.max(), *values.head(SAMPLE_ROWS).to_list()]
    is_plain = units.select_formatter(values.name) is units.select_formatter("x")
    floor = FLOAT_LEAST_CELLS if is_plain and values.dtype.is_float() else 0
    return max(floor, *(len(_format_number(values.name, v)) for v in sample))


def _measure_texts(values: pl.Series) -> int:
    text = values.cast(pl.String, strict=False) if not isinstance(values.dtype, pl.Object) else values
    if text.len() <= SAMPLE_ROWS and text.dtype == pl.String:  # for few rows faster than a query
        return max((max(len(v), count_cells(v)) for v in text.to_list() if v is not None), default=0)
    longest = int(text.str.len_chars().max() or 0)  # type: ignore[arg-type]
    return max([longest, *(count_cells(v) for v in text.head(SAMPLE_ROWS).drop_nulls() if not v.isascii())])


def _sum_widths(columns: Iterable[SheetColumn]) -> int:
    """Return the cells of columns with the gaps behind them."""
    return sum(c.width + GAP_CELLS for c in columns)


def _widen_texts(columns: Sequence[SheetColumn], room: int, *, drop: bool) -> list[SheetColumn]:
    """Give remaining room to the texts that are cut, one after the other.

    With `drop`, a sentence also gets the room of those after it: one whole says more than two that are cut.
    """
    prose = [c for c in columns if c.is_prose] if drop else []
    while len(prose) > 1 and room < prose[0].full_width - prose[0].width:
        last = prose.pop()
        columns = [c for c in columns if c is not last]
        room += last.width + GAP_CELLS
    out: list[SheetColumn] = []
    for column in columns:
        more = max(0, min(room, column.full_width - column.width))
        room -= more
        out.append(replace(column, width=column.width + more) if more else column)
    return out


def _select_fitting(columns: Sequence[SheetColumn], room: int) -> list[SheetColumn]:
    """Return the first columns, as many as fit."""
    out: list[SheetColumn] = []
    for column in columns:
        room -= column.width + GAP_CELLS
        if room < 0:
            break
        out.append(column)
    return out


def _format_cell(value: Any, column: SheetColumn, ascii: bool) -> str:
    """Return a cell of a column that is not one of names."""
    if column.kind == "bar":
        return glyphs.draw_signed_bar((value or 0) / (column.half_bar_value or 1), column.width, ascii)
    if column.kind == "number":
        return fit_cells(_format_number(column.name, value), column.width, right=True)
    if column.kind == "trend":
        trend = "" if value is None else glyphs.draw_stable_sparkline(value, column.width, ascii)
        return fit_cells(trend, column.width)
    text = units.format_cell(column.name, value)
    if column.name == "line":
        return fit_code_line(text, column.width, ascii)
    return fit_sentence(text, column.width, ascii) if column.is_prose else fit_cells(text, column.width)


@lru_cache(maxsize=1 << 13, typed=True)
def _format_number(column: str, value: float | None) -> str:
    """Format a number; cached, because it is needed to measure and to display."""
    return units.format_cell(column, value)


@lru_cache(maxsize=32)
def shorten_names(names: tuple[str, ...], width: int) -> Mapping[str, str]:
    """Return each name cut to a width so that different names stay different, if the width allows."""
    distinct = dict.fromkeys(names)
    cut = {name: fit_cells(name, width).rstrip() for name in distinct}
    if width < DISTINCT_LEAST_CELLS:
        return cut
    for colliding in _group_equal(cut):
        cut |= cut_at_difference(colliding, width)
    return cut


def cut_at_difference(names: Sequence[str], width: int) -> dict[str, str]:
    """Return colliding names cut so that their first difference shows; if that fails, numbered."""
    start = _count_common_prefix(names)
    head = max(1, width // 3)
    cut = {name: _cut_around(name, start, head, width) for name in names}
    for colliding in _group_equal(cut):
        for number, name in enumerate(colliding, 1):
            mark = f"~{number}"
            cut[name] = fit_cells(cut[name], max(1, width - len(mark))).rstrip() + mark
    return cut


def _count_common_prefix(names: Sequence[str]) -> int:
    """Return the length of the common beginning of all names."""
    return sum(1 for _ in takewhile(lambda chars: len(set(chars)) == 1, zip(*names, strict=False)))


def _cut_around(name: str, start: int, head: int, width: int) -> str:
    """Return the beginning of a name, an ellipsis, and the text from just before position `start`."""
    if start <= head:
        return fit_cells(name, width).rstrip()
    tail = width - head - 1
    begin = max(head, min(start - 2, len(name) - tail))
    text = f"{name[:head]}…{name[begin : begin + tail]}"
    while count_cells(text) > width:
        text = text[:-1]
    return text


def _group_equal(cut: dict[str, str]) -> list[list[str]]:
    """Return the groups of names that were cut to the same text."""
    names_by_text: defaultdict[str, list[str]] = defaultdict(list)
    for name, text in cut.items():
        names_by_text[text].append(name)
    return [names for names in names_by_text.values() if len(names) > 1]


def resolve_columns(words: Iterable[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns named by words (headings, plain headings or names); unknown words are ignored."""
    by_word = {
        format_name(name): name
        for format_name in (units.format_heading, units.format_plain_heading, str)
        for name in reversed(names)
    }
    return tuple(dict.fromkeys(by_word[word] for word in words if word in by_word))


def _group_by_meaning(names: Iterable[str]) -> Iterable[list[str]]:
    """Group the columns that mean the same on both sides: `total_ns_a` with `total_ns_b`."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_SIDE.sub("", name), []).append(name)
    return groups.values()
