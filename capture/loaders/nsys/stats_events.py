"""Convert each report of `nsys stats` to events: sums, traces, ranges."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import polars as pl

from capture.classify.name_rules import find_phase
from capture.dense_lookup import evaluate_per_distinct
from capture.loaders._delimited import BLANKS
from capture.loaders._nsight_text import number_cut_names
from capture.loaders.nsys.printed_reports import PrintedTable
from capture.native.schema import PATH_SEPARATOR
from capture.tasks import run_parallel

_COPY: Final = r"(?i)^\[?(?:CUDA )?mem(?:cpy|set)"
_DEVICE_NUMBER: Final = r"\((\d+)\)\s*$"


def _read_sums(table: PrintedTable, **constants: str) -> pl.DataFrame:
    """Read the rows of a summary: count, total and the spread that it prints."""
    columns = {"dur": "total time", "min": "min", "max": "max", "p50": "med", "std": "stddev"}
    return pl.DataFrame(
        {
            "name": number_cut_names(table.read_text("name").to_list()),
            "count": table.read_integers("count"),
            **{name: table.read_ns(column) for name, column in columns.items()},
        },
        schema_overrides={"name": pl.String},
    ).with_columns(_constant_columns(**constants))


def _constant_columns(**values: str) -> list[pl.Expr]:
    return [pl.lit(value).alias(column) for column, value in values.items()]


def _copy_category() -> pl.Expr:
    is_copy = pl.col("name").str.contains(_COPY)
    return pl.when(is_copy).then(pl.lit("copy")).alias("category")


def _read_kernels(table: PrintedTable) -> pl.DataFrame:
    return _read_sums(table, kind="kernel", lens="gpu").with_columns(_copy_category())


def _read_sizes(table: PrintedTable) -> pl.DataFrame:
    names, counts = table.read_text("name"), table.read_integers("count")
    columns = {"name": names, "count": counts, "bytes": table.read_bytes("total")}
    return pl.DataFrame(columns).with_columns(_constant_columns(kind="memory"))


def _read_ranges(table: PrintedTable) -> pl.DataFrame:
    rows = _read_sums(table, kind="span", lens="wall").with_columns(pl.col("name").str.strip_prefix(":"))
    return rows.with_columns(phase=_infer_phases(rows["name"]))


def _infer_phases(texts: pl.Series) -> pl.Series:
    distinct = texts.unique()
    phases = pl.Series([find_phase(text) for text in distinct], dtype=pl.String)
    return texts.replace_strict(distinct, phases, return_dtype=pl.String)


def _read_range_kernels(table: PrintedTable) -> pl.DataFrame:
    """Read kernels under every range that encloses them; with several ranges they must not be added up."""
    ranges = table.read_text("nvtx range").str.strip_prefix(":")
    kind = "span" if ranges.n_unique() > 1 else "kernel"
    return _read_sums(table, kind=kind, lens="gpu").with_columns(path=ranges)


def _read_device_trace(table: PrintedTable) -> pl.DataFrame:
    readers: dict[str, Callable[[], pl.Series]] = {
        "name": partial(table.read_text, "name"),
        "t": partial(table.read_ns, "start"),
        "dur": partial(table.read_ns, "duration"),
        "bytes": partial(table.read_bytes, "bytes"),
        "track": partial(_build_gpu_tracks, table),
    }
    columns = run_parallel(list(readers.values()), table.cells.height)
    return pl.DataFrame(dict(zip(readers, columns, strict=True))).with_columns(
        _copy_category(), *_constant_columns(kind="kernel", lens="gpu")
    )


def _build_gpu_tracks(table: PrintedTable) -> pl.Series:
    device, stream = pl.col("device").str.strip_chars(BLANKS), pl.col("strm").str.strip_chars(BLANKS)
    device_by_number = pl.lit("gpu") + device.str.extract(_DEVICE_NUMBER)
    device_as_printed = pl.when(device != "").then(device)
    stream_part = pl.when(stream != "").then(pl.lit("/stream") + stream).otherwise(pl.lit(""))
    track = pl.coalesce(device_by_number, device_as_printed, pl.lit("gpu?")) + stream_part
    printed = pl.DataFrame({name: table.read_cells(name) for name in ("device", "strm")})
    return evaluate_per_distinct(printed, printed.columns, track).cast(pl.String)


def _read_call_trace(table: PrintedTable) -> pl.DataFrame:
    columns = {"name": table.read_text("name"), "t": table.read_ns("start"), "dur": table.read_ns("duration")}
    rows = pl.DataFrame({**columns, "track": _build_thread_tracks(table)})
    return rows.with_columns(_constant_columns(kind="span", lens="host", category="host"))


def _read_traced_ranges(table: PrintedTable, lens: str, start: str, duration: str) -> pl.DataFrame:
    names = table.read_text("name").str.strip_prefix(":")
    by_id = dict(zip(table.read_text("rangeid"), names, strict=True))
    paths = [_build_path(stack, by_id) for stack in table.read_text("rangestack")]
    columns = {
        "name": names,
        "t": table.read_ns(start),
        "dur": table.read_ns(duration),
        "path": pl.Series(paths, dtype=pl.String),
        "track": _build_thread_tracks(table),
    }
    rows = pl.DataFrame(columns).with_columns(_constant_columns(kind="span", lens=lens))
    full_paths = rows.select(pl.concat_str("path", "name", separator=PATH_SEPARATOR, ignore_nulls=True))
    return rows.with_columns(phase=_infer_phases(full_paths.to_series()))


def _build_path(stack: str, names: Mapping[str, str]) -> str | None:
    """Join the names of the ranges around the last of a stack of ids; None if there are none."""
    *parents, _ = stack.strip(":").split(":")
    return PATH_SEPARATOR.join([names[i] for i in parents if i in names]) or None


def _build_thread_tracks(table: PrintedTable) -> pl.Series:
    tid = table.read_text("tid")
    track = pl.format("pid{}/tid{}", pl.lit(table.read_text("pid")), pl.lit(tid))
    return pl.select(pl.when(tid != "").then(track)).to_series()


READERS: Final[Mapping[str, Callable[[PrintedTable], pl.DataFrame]]] = {
    "kernels": _read_kernels,
    "copies": _read_kernels,
    "device": _read_kernels,
    "sizes": _read_sizes,
    "calls": partial(_read_sums, kind="span", lens="host", category="host"),
    "ranges": _read_ranges,
    "range_kernels": _read_range_kernels,
    "device_trace": _read_device_trace,
    "call_trace": _read_call_trace,
    "range_trace": partial(_read_traced_ranges, lens="wall", start="start", duration="duration"),
    "projection": partial(  # NVTX ranges projected onto the device time of what they launched
        _read_traced_ranges, lens="gpu", start="projected start", duration="projected duration"
    ),
}
