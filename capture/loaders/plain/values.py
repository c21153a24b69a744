"""What the cells of a plain table mean: column by column where its lines are regular, else row by row."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import polars as pl
from polars._typing import PolarsDataType

from capture.at_once import at_once
from capture.importlog import Log
from capture.loaders._numbers import exact, number
from capture.loaders._separated import LINE, blank, reals, whole_numbers
from capture.loaders.plain.columns import MICROSECOND, TIMES, TRACKS
from capture.loaders.plain.layout import Layout
from capture.loaders.plain.rows import Cells, as_text

_REAL: Final = ("bytes", "flops")
_TEXT: Final = ("name", "phase", "op", "shape")
_LARGEST: Final = 1 << 62
_LARGEST_LAYER: Final = 1 << 31


def values_at_once(cells: pl.DataFrame, layout: Layout, log: Log) -> pl.DataFrame:
    """Return the columns of lines that have a cell for each heading, cells by the place of their heading."""
    texts = {column: cells[str(found.at)] for column, found in layout.columns.items()}
    reads = {column: partial(_values, column, texts[column], layout) for column in _stated(layout)}
    if any(column in layout.columns for column in TRACKS):
        reads["track"] = partial(_tracks, cells, layout)
    columns = zip(reads, at_once(list(reads.values()), cells.height), strict=True)
    frame = pl.DataFrame([cells[LINE], *(series.alias(column) for column, series in columns)])
    if frame["dur"].null_count():
        empty = (
            frame["dur"].is_null() & blank(texts["name"].fill_null("")) & blank(texts["dur"].fill_null(""))
        )
        _drop_empty(log, int(empty.sum()))
        frame = frame.filter(~empty)
    _note_unknown(log, frame["dur"].null_count())
    return frame


def values_by_row(rows: Iterable[tuple[int, Cells]], layout: Layout, log: Log) -> pl.DataFrame:
    """Return the same columns of any rows, which may lack cells."""
    out: dict[str, list[Any]] = {c: [] for c in (LINE, *_stated(layout), "track")}
    for line, cells in rows:
        texts = _texts(cells, layout, log)
        if not (texts["name"] or "").strip() and not (texts["dur"] or "").strip():
            _drop_empty(log, 1)
            continue
        for column in _stated(layout):
            out[column].append(_value(column, texts[column], layout))
        _note_unknown(log, out["dur"][-1] is None)
        out["track"].append(_track(texts))
        out[LINE].append(line)
    return pl.DataFrame({c: pl.Series(v, dtype=_type(c)) for c, v in out.items()})


def _stated(layout: Layout) -> list[str]:
    """Return the columns of the events that a table states, but for the track."""
    return [column for column in layout.columns if column not in TRACKS]


def _type(column: str) -> PolarsDataType:
    if column == LINE:
        return pl.get_index_type()
    if column in _TEXT or column == "track":
        return pl.String()
    return pl.Float64() if column in _REAL else pl.Int64()


def _drop_empty(log: Log, count: int) -> None:
    log.drop("empty_row", "rows with neither a name nor a duration", count=count)


def _note_unknown(log: Log, count: int) -> None:
    if count:
        message = "durations that are no number stand as unknown"
        log.note("bad_duration", message, count=count, severity="data_loss")


def _values(column: str, texts: pl.Series, layout: Layout) -> pl.Series:
    """Return a column of cells as the event column wants it; what is no number is null."""
    if column == "name":
        return texts
    if column in _TEXT:
        return pl.select(pl.when(texts != "").then(texts)).to_series()
    if column in _REAL:
        return reals(texts, _parser(column, layout), comma=layout.comma)
    most = _LARGEST_LAYER if column == "layer" else _LARGEST
    return whole_numbers(
        texts, _scale(column, layout), _parser(column, layout), most=most, comma=layout.comma
    )


def _tracks(cells: pl.DataFrame, layout: Layout) -> pl.Series:
    """Return the column of tracks, which devices, streams and threads name together."""
    places = {column: pl.col(str(layout.columns[column].at)) for column in TRACKS if column in layout.columns}
    parts = [pl.when(text != "").then(pl.lit(f"{column} ") + text) for column, text in places.items()]
    tracks = pl.concat_str(parts, separator=" ", ignore_nulls=True)
    return cells.select(track=pl.when(tracks != "").then(tracks)).to_series()


def _texts(cells: Cells, layout: Layout, log: Log) -> dict[str, str | None]:
    """Return the text of each column that is understood; cells that a row lacks are None."""
    lacking = len(layout.headings) - len(cells)
    if lacking:
        log.note("ragged", "rows with more or fewer cells than the header", severity="data_loss")
        cells = cells + [None] * lacking
    return {column: as_text(cells[found.at]) for column, found in layout.columns.items()}


def _track(texts: dict[str, str | None]) -> str | None:
    """Return the track that a row's device, stream and thread name together, None where it has none."""
    return " ".join(f"{column} {texts[column]}" for column in TRACKS if texts.get(column)) or None


def _value(column: str, text: str | None, layout: Layout) -> Any:
    """Return a cell as the event column wants it; what is no number is None."""
    if column in _TEXT:
        return text if column == "name" else text or None
    return None if text is None else _parser(column, layout)(text)


def _parser(column: str, layout: Layout) -> Callable[[str], Any]:
    """Return what reads the numbers of a column, and gives None for any other text."""
    comma, scale = layout.comma, _scale(column, layout)
    most = _LARGEST_LAYER if column == "layer" else _LARGEST

    def real(text: str) -> float | None:
        value = number(_dotted(text, comma)) if text.isascii() else None
        return None if value is None else float(value)

    def whole(text: str) -> int | None:
        value = exact(number(_dotted(text, comma)), scale) if text.isascii() else None
        return value if value is not None and abs(value) < most else None

    return real if column in _REAL else whole


def _scale(column: str, layout: Layout) -> int:
    """Return the ns of one unit of a column of times, by its own heading or that of the durations; else 1."""
    if column not in TIMES:
        return 1
    return layout.columns[column].unit or layout.columns["dur"].unit or MICROSECOND


def _dotted(text: str, comma: bool) -> str:
    """Return a number with a decimal point, where tables without commas between cells may write a comma."""
    if comma and text.count(",") == 1 and text.rfind(",") > text.rfind("."):
        return text.replace(".", "").replace(",", ".")
    return text
