"""The rows of each report of `nsys stats` as events: sums, traces, ranges."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import polars as pl

from capture.at_once import at_once
from capture.classify.names import phase_of
from capture.loaders._distinct import of_distinct
from capture.loaders._nsight_text import number_cut_names
from capture.loaders._separated import BLANKS
from capture.loaders.nsys.reports import Section
from capture.native.schema import PATH_SEPARATOR

_COPY: Final = r"(?i)^\[?(?:CUDA )?mem(?:cpy|set)"
_DEVICE_NUMBER: Final = r"\((\d+)\)\s*$"


def _sums(table: Section, **fixed: str) -> pl.DataFrame:
    """Return the rows of a summary: count, total and the spread that it prints."""
    columns = {"dur": "total time", "min": "min", "max": "max", "p50": "med", "std": "stddev"}
    return pl.DataFrame(
        {
            "name": number_cut_names(table.text("name").to_list()),
            "count": table.whole("count"),
            **{name: table.ns(column) for name, column in columns.items()},
        },
        schema_overrides={"name": pl.String},
    ).with_columns(_fixed(**fixed))


def _fixed(**words: str) -> list[pl.Expr]:
    return [pl.lit(word).alias(column) for column, word in words.items()]


def _copies_marked() -> pl.Expr:
    copy = pl.col("name").str.contains(_COPY)
    return pl.when(copy).then(pl.lit("copy")).alias("category")


def _kernels(table: Section) -> pl.DataFrame:
    return _sums(table, kind="kernel", lens="gpu").with_columns(_copies_marked())


def _sizes(table: Section) -> pl.DataFrame:
    columns = {"name": table.text("name"), "count": table.whole("count"), "bytes": table.bytes("total")}
    return pl.DataFrame(columns).with_columns(_fixed(kind="memory"))


def _calls(table: Section) -> pl.DataFrame:
    return _sums(table, kind="span", lens="host", category="host")


def _ranges(table: Section) -> pl.DataFrame:
    rows = _sums(table, kind="span", lens="wall").with_columns(_plain_name(pl.col("name")))
    return rows.with_columns(phase=_phases(rows["name"]))


def _plain_name(name: pl.Expr) -> pl.Expr:
    """Return the names of ranges without the colon of the default domain."""
    return name.str.strip_prefix(":")


def _phases(texts: pl.Series) -> pl.Series:
    words = texts.unique()
    phases = pl.Series([phase_of(word) for word in words], dtype=pl.String)
    return texts.replace_strict(words, phases, return_dtype=pl.String)


def _range_kernels(table: Section) -> pl.DataFrame:
    """Return kernels under every range that encloses them: with more than one range they must not be added
    up.
    """
    ranges = table.text("nvtx range").str.strip_prefix(":")
    kind = "span" if ranges.n_unique() > 1 else "kernel"
    return _sums(table, kind=kind, lens="gpu").with_columns(path=ranges)


def _device_trace(table: Section) -> pl.DataFrame:
    reads: dict[str, Callable[[], pl.Series]] = {
        "name": partial(table.text, "name"),
        "t": partial(table.ns, "start"),
        "dur": partial(table.ns, "duration"),
        "bytes": partial(table.bytes, "bytes"),
        "track": partial(_gpu_tracks, table),
    }
    columns = at_once(list(reads.values()), table.cells.height)
    return pl.DataFrame(dict(zip(reads, columns, strict=True))).with_columns(
        _copies_marked(), *_fixed(kind="kernel", lens="gpu")
    )


def _gpu_tracks(table: Section) -> pl.Series:
    device, stream = pl.col("device").str.strip_chars(BLANKS), pl.col("strm").str.strip_chars(BLANKS)
    number = pl.lit("gpu") + device.str.extract(_DEVICE_NUMBER)
    stated = pl.when(device != "").then(device)
    lane = pl.when(stream != "").then(pl.lit("/stream") + stream).otherwise(pl.lit(""))
    names = ("device", "strm")
    printed = pl.DataFrame({name: table.printed(name) for name in names})
    tracks = of_distinct(printed, names, pl.coalesce(number, stated, pl.lit("gpu?")) + lane)
    return tracks.cast(pl.String)


def _call_trace(table: Section) -> pl.DataFrame:
    columns = {"name": table.text("name"), "t": table.ns("start"), "dur": table.ns("duration")}
    rows = pl.DataFrame({**columns, "track": _threads(table)})
    return rows.with_columns(_fixed(kind="span", lens="host", category="host"))


def _range_trace(table: Section) -> pl.DataFrame:
    return _traced_ranges(table, "wall", "start", "duration")


def _projection(table: Section) -> pl.DataFrame:
    """Return NVTX ranges laid over the device time of what they launched."""
    return _traced_ranges(table, "gpu", "projected start", "projected duration")


def _traced_ranges(table: Section, lens: str, start: str, duration: str) -> pl.DataFrame:
    names = table.text("name").str.strip_prefix(":")
    by_id = dict(zip(table.text("rangeid"), names, strict=True))
    paths = [_above(stack, by_id) for stack in table.text("rangestack")]
    columns = {
        "name": names,
        "t": table.ns(start),
        "dur": table.ns(duration),
        "path": pl.Series(paths, dtype=pl.String),
        "track": _threads(table),
    }
    rows = pl.DataFrame(columns).with_columns(_fixed(kind="span", lens=lens))
    whole = rows.select(pl.concat_str("path", "name", separator=PATH_SEPARATOR, ignore_nulls=True))
    return rows.with_columns(phase=_phases(whole.to_series()))


def _above(stack: str, names: Mapping[str, str]) -> str | None:
    """Return the names of the ranges around the last of a stack of ids, None where there are none."""
    *above, _ = stack.strip(":").split(":")
    return PATH_SEPARATOR.join([names[i] for i in above if i in names]) or None


def _threads(table: Section) -> pl.Series:
    tid = table.text("tid")
    track = pl.format("pid{}/tid{}", pl.lit(table.text("pid")), pl.lit(tid))
    return pl.select(pl.when(tid != "").then(track)).to_series()


READERS: Final[Mapping[str, Callable[[Section], pl.DataFrame]]] = {
    "kernels": _kernels,
    "copies": _kernels,
    "device": _kernels,
    "sizes": _sizes,
    "calls": _calls,
    "ranges": _ranges,
    "range_kernels": _range_kernels,
    "device_trace": _device_trace,
    "call_trace": _call_trace,
    "range_trace": _range_trace,
    "projection": _projection,
}
