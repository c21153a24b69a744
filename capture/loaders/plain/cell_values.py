"""Convert cells to event columns: in bulk if lines are regular, else row by row."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import polars as pl

from capture.import_log import Log
from capture.loaders._delimited import LINE, is_blank, parse_floats, parse_scaled_integers
from capture.loaders._typed_cells import parse_decimal, scale_to_integer
from capture.loaders.plain.line_records import RecordCells, to_cell_text
from capture.loaders.plain.table_layout import MICROSECOND, OPERATOR, TIME_COLUMNS, TRACK_COLUMNS, TableLayout
from capture.run import list_column_types
from capture.tasks import run_parallel

_FLOAT_COLUMNS: Final = ("bytes", "flops")
_TEXT_COLUMNS: Final = ("name", "phase", "op", "shape", OPERATOR)
_MAX_INTEGER: Final = 1 << 62
_MAX_LAYER: Final = 1 << 31


def convert_columns(cells: pl.DataFrame, layout: TableLayout, log: Log) -> pl.DataFrame:
    """Convert regular lines in bulk; cells are named by the position of their heading."""
    cells_by_column = {column: cells[str(heading.position)] for column, heading in layout.columns.items()}
    converters = {
        column: partial(_convert_column, column, cells_by_column[column], layout)
        for column in _list_event_columns(layout)
    }
    if any(column in layout.columns for column in TRACK_COLUMNS):
        converters["track"] = partial(_join_tracks, cells, layout)
    columns = zip(converters, run_parallel(list(converters.values()), cells.height), strict=True)
    frame = pl.DataFrame([cells[LINE], *(series.alias(column) for column, series in columns)])
    if frame["dur"].null_count():
        texts = [cells_by_column[column].fill_null("") for column in ("name", "dur")]
        is_empty = frame["dur"].is_null() & is_blank(texts[0]) & is_blank(texts[1])
        _drop_empty_rows(log, int(is_empty.sum()))
        frame = frame.filter(~is_empty)
    _note_unknown_durations(log, frame["dur"].null_count())
    return frame


def convert_rows(rows: Iterable[tuple[int, RecordCells]], layout: TableLayout, log: Log) -> pl.DataFrame:
    """Convert any rows, which may lack cells, to the same columns."""
    parsers = {column: _build_parser(column, layout) for column in _list_event_columns(layout)}
    values_by_column: dict[str, list[Any]] = {column: [] for column in (LINE, *parsers, "track")}
    for line, cells in rows:
        texts = _list_texts(cells, layout, log)
        if not (texts["name"] or "").strip() and not (texts["dur"] or "").strip():
            _drop_empty_rows(log, 1)
            continue
        for column, parse in parsers.items():
            text = texts[column]
            values_by_column[column].append(None if text is None else parse(text))
        _note_unknown_durations(log, values_by_column["dur"][-1] is None)
        values_by_column["track"].append(_join_track(texts))
        values_by_column[LINE].append(line)
    types = list_column_types(*(parsers.keys() - {OPERATOR}), "track")
    types |= {LINE: pl.get_index_type(), "layer": pl.Int64, OPERATOR: pl.String}
    return pl.DataFrame(values_by_column, schema={column: types[column] for column in values_by_column})


def _list_event_columns(layout: TableLayout) -> list[str]:
    """List the event columns of a table, without the track."""
    return [column for column in layout.columns if column not in TRACK_COLUMNS]


def _drop_empty_rows(log: Log, count: int) -> None:
    log.drop("empty_row", "rows with neither a name nor a duration", count=count)


def _note_unknown_durations(log: Log, count: int) -> None:
    if count:
        message = "durations that are not a number are unknown"
        log.note("bad_duration", message, count=count, severity="data_loss")


def _convert_column(column: str, texts: pl.Series, layout: TableLayout) -> pl.Series:
    """Convert a column of cells; invalid numbers become null."""
    if column == "name":
        return texts
    if column in _TEXT_COLUMNS:
        return pl.select(pl.when(texts != "").then(texts)).to_series()
    if column in _FLOAT_COLUMNS:
        return parse_floats(texts, _build_parser(column, layout), comma=layout.has_decimal_comma)
    limit_end = _MAX_LAYER if column == "layer" else _MAX_INTEGER
    scale, parse = _find_scale(column, layout), _build_parser(column, layout)
    comma = layout.has_decimal_comma
    return parse_scaled_integers(texts, scale, parse, limit_end=limit_end, comma=comma)


def _join_tracks(cells: pl.DataFrame, layout: TableLayout) -> pl.Series:
    """Join device, stream, thread and so on to the column of tracks."""
    headings = {name: layout.columns[name] for name in TRACK_COLUMNS if name in layout.columns}
    cells_by_column = {name: pl.col(str(heading.position)) for name, heading in headings.items()}
    labels = [pl.when(text != "").then(pl.lit(f"{name} ") + text) for name, text in cells_by_column.items()]
    tracks = pl.concat_str(labels, separator=" ", ignore_nulls=True)
    return cells.select(track=pl.when(tracks != "").then(tracks)).to_series()


def _list_texts(cells: RecordCells, layout: TableLayout, log: Log) -> dict[str, str | None]:
    """Map known columns to their text; cells that a row lacks are None."""
    if missing_count := len(layout.headings) - len(cells):
        log.note("ragged", "rows with more or fewer cells than the header", severity="data_loss")
        cells = cells + [None] * missing_count
    return {column: to_cell_text(cells[heading.position]) for column, heading in layout.columns.items()}


def _join_track(texts: dict[str, str | None]) -> str | None:
    """Join a row's device, stream, thread and so on to its track; None if it has none."""
    return " ".join(f"{column} {texts[column]}" for column in TRACK_COLUMNS if texts.get(column)) or None


def _build_parser(column: str, layout: TableLayout) -> Callable[[str], Any]:
    """Build a parser of the cells of a column; it returns None for what is not a number, or no text."""
    if column in _TEXT_COLUMNS:
        return str if column == "name" else lambda text: text or None
    comma, scale = layout.has_decimal_comma, _find_scale(column, layout)
    limit_end = _MAX_LAYER if column == "layer" else _MAX_INTEGER

    def parse_real(text: str) -> float | None:
        value = parse_decimal(_normalise_decimal_comma(text, comma)) if text.isascii() else None
        return None if value is None else float(value)

    def parse_integer(text: str) -> int | None:
        number = parse_decimal(_normalise_decimal_comma(text, comma)) if text.isascii() else None
        value = scale_to_integer(number, scale)
        return value if value is not None and abs(value) < limit_end else None

    return parse_real if column in _FLOAT_COLUMNS else parse_integer


def _find_scale(column: str, layout: TableLayout) -> int:
    """Return the ns per unit of a time column, from its own heading or that of the duration; else 1."""
    if column not in TIME_COLUMNS:
        return 1
    return layout.columns[column].unit or layout.columns["dur"].unit or MICROSECOND


def _normalise_decimal_comma(text: str, comma: bool) -> str:
    """Replace a decimal comma by a point, in tables where cells are not separated by commas."""
    if comma and text.count(",") == 1 and text.rfind(",") > text.rfind("."):
        return text.replace(".", "").replace(",", ".")
    return text
