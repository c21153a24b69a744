"""A Run: what happened in one execution, as metadata and one validated frame."""

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count
from typing import Any, Final

import polars as pl

from capture.at_once import at_once
from capture.classify.positions import distinct
from capture.importlog import ImportLog, Log
from capture.native.schema import CATEGORIES, COLUMNS, KINDS, LENSES
from capture.shelf import Shelf
from capture.text import MAX_NAME, clean

DTYPES: Final[Mapping[str, pl.DataType]] = {
    c.name: {"cat": pl.Categorical(), "i64": pl.Int64(), "i32": pl.Int32(), "f64": pl.Float64()}[c.type]
    for c in COLUMNS
}
LARGEST: Final = 1e30  # of a figure; sums and squares of such are still finite
LONGEST_NS: Final = 1 << 61  # an end, and the time between any two of them, is still a number of 64 bits
UNNAMED: Final = "unnamed"
FEW: Final = 1 << 10  # rows whose distinct words are found sooner one by one

_AGAIN: Final = 8  # times that a text comes, from which the distinct ones are sooner found
_UNCLEAR: Final = r"[^ -~]"  # what is not a printable letter of ASCII

_UNKNOWN: Final = {name: pl.Series(name, [None], dtype) for name, dtype in DTYPES.items()}
_CLOSED: Final = {"kind": KINDS, "lens": LENSES, "category": CATEGORIES}


@dataclass(frozen=True, eq=False)
class Run:
    """One execution. `tables` keeps whole what a source states that is not an event."""

    name: str
    meta: Mapping[str, Any]
    events: pl.DataFrame
    log: ImportLog
    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    shelf: Shelf | None = None  # launches of steps that were folded, of a run that is followed

    def has(self, column: str) -> bool:
        """Return whether any event has a value in this column."""
        return column in self.events.columns


def build(
    name: str,
    meta: Mapping[str, Any],
    events: pl.DataFrame,
    log: Log,
    tables: Mapping[str, pl.DataFrame] | None = None,
    *,
    enriched: bool = False,
) -> Run:
    """Return a run of the events that a loader has read: cast, cleaned, checked, filled from names, frozen.

    A loader that says `enriched` has filled layer, op, category and phase itself. Raises ValueError for
    columns and closed words that the schema does not have: faults of the loader, not of the file.
    """
    frame = _check_closed_words(_cast(events).rechunk())
    frame = _name_all(_clean_names(frame), log)
    frame = _leave_out_figures(_drop_impossible(frame, log), log)
    if not enriched:
        from capture.classify.fill import fill_from_names  # no screen needs rules of names before it reads

        frame = fill_from_names(frame)
    return checked(name, meta, tidy(frame).rechunk(), log, tables or {})


def checked(
    name: str, meta: Mapping[str, Any], events: pl.DataFrame, log: Log, tables: Mapping[str, pl.DataFrame]
) -> Run:
    """Return a run of events that have passed `build` already, part by part."""
    return Run(
        name=clean(name, 200) or "run",
        meta=clean_meta(meta),
        events=events,
        log=log.freeze(),
        tables={clean(k): _clean_table(t) for k, t in tables.items()},
    )


def with_log(run: Run, log: Log) -> Run:
    """Return the run with the log of a whole import, once all of it is read."""
    return replace(run, log=log.freeze())


def clean_meta(value: Any) -> Any:
    """Return metadata with all its text cleaned, and without what is no number that a float can be."""
    if isinstance(value, str):
        return clean(value, 10_000)
    if isinstance(value, Mapping):
        return {clean(str(k), 200): clean_meta(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [clean_meta(v) for v in value]
    if isinstance(value, int | float) and not abs(value) <= sys.float_info.max:
        return None
    return value


def _cast(events: pl.DataFrame) -> pl.DataFrame:
    unknown = set(events.columns) - set(DTYPES)
    if unknown:
        raise ValueError(f"columns that the schema does not know: {sorted(unknown)}")
    known = {c: t for c, t in DTYPES.items() if c in events.columns}
    if events.schema == known:
        return events
    return events.select(pl.col(c).cast(t) for c, t in known.items())


def _check_closed_words(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with a kind; raise ValueError for words that a closed column does not have."""
    if "kind" not in frame.columns:
        frame = frame.insert_column(0, pl.lit("kernel", dtype=pl.Categorical()).alias("kind"))
    elif frame["kind"].null_count():
        frame = frame.with_columns(pl.col("kind").fill_null("kernel"))
    closed = [c for c in _CLOSED if c in frame.columns]
    for column, words in _words(frame, closed).items():
        allowed = _CLOSED[column]
        if not words <= set(allowed):
            raise ValueError(f"{column} holds {sorted(words - set(allowed))}, known are {allowed}")
    return frame


def _clean_names(frame: pl.DataFrame) -> pl.DataFrame:
    text = [c for c in frame.columns if frame.schema[c] == pl.Categorical and c not in _CLOSED]
    words = _words(frame, text).items()
    dirty = {c: swaps for c, names in words if (swaps := {n: new for n in names if (new := clean(n)) != n})}
    if not dirty:
        return frame
    return frame.with_columns(
        pl.col(c).cast(pl.String).replace(swaps).cast(pl.Categorical()) for c, swaps in dirty.items()
    )


def _name_all(frame: pl.DataFrame, log: Log) -> pl.DataFrame:
    """Return the frame with a name in every row: views tell rows by it."""
    nameless = frame["name"].null_count() if "name" in frame.columns else 0
    if not nameless:
        return frame
    log.repair("no_name", f"rows without a name are called {UNNAMED!r}", count=nameless)
    return frame.with_columns(pl.col("name").fill_null(UNNAMED))


def _words(frame: pl.DataFrame, columns: Sequence[str]) -> dict[str, set[str]]:
    """Return column → its distinct words."""
    if frame.height <= FEW:
        return {c: set(frame[c].to_list()) - {None} for c in columns}
    found = at_once([partial(distinct, frame[column]) for column in columns], frame.height)
    return {c: set(words.cast(pl.String)) for c, words in zip(columns, found, strict=True)}


def _clean_table(table: pl.DataFrame) -> pl.DataFrame:
    texts = [table[c] for c, t in table.schema.items() if t == pl.String]
    table = table.with_columns(at_once([partial(_clean_texts, column) for column in texts], table.height))
    return table.rename(dict(zip(table.columns, _told_apart(map(clean, table.columns)), strict=True)))


def _clean_texts(texts: pl.Series) -> pl.Series:
    """Return texts cleaned, each distinct one that may need it once."""
    words = texts if _vary(texts) else texts.unique()
    unclear = words.filter(words.str.contains(_UNCLEAR) | (words.str.len_bytes() > MAX_NAME))
    swaps = {word: new for word in unclear.unique().drop_nulls() if (new := clean(word)) != word}
    return texts.replace(swaps) if swaps else texts


def _vary(texts: pl.Series) -> bool:
    """Return whether texts seem to repeat so little that each is sooner looked at than found again."""
    return texts.head(FEW).n_unique() * _AGAIN > min(FEW, texts.len())


def _told_apart(names: Iterable[str]) -> list[str]:
    """Return names of at most 200 characters; of equal ones the second is followed by (2), and so on."""
    told: dict[str, None] = {}
    for name in names:
        again = (f"{name[:190]} ({n})" for n in count(2))
        told[next(form for form in chain((name[:200],), again) if form not in told)] = None
    return list(told)


def _drop_impossible(frame: pl.DataFrame, log: Log) -> pl.DataFrame:
    """Drop and log rows whose duration is below zero or beyond 73 years: it belongs to no sum.

    A start that lies further from zero is taken for none.
    """
    if "t" in frame.columns and is_beyond(frame["t"], -LONGEST_NS, LONGEST_NS):
        near = pl.col("t").is_between(-LONGEST_NS, LONGEST_NS)
        far = frame.select((~near).sum()).item()
        frame = frame.with_columns(pl.when(near).then("t").alias("t"))
        log.repair("bad_start", "starts that are further than 73 years from zero are left out", count=far)
    if "dur" not in frame.columns or not is_beyond(frame["dur"], 0, LONGEST_NS):
        return frame
    kept = frame.filter(pl.col("dur").is_null() | pl.col("dur").is_between(0, LONGEST_NS))
    log.drop(
        "bad_duration", "durations that are negative or impossibly long", count=frame.height - kept.height
    )
    return kept


def is_beyond(numbers: pl.Series, least: int, most: int) -> bool:
    """Return whether any number is below the least or above the most."""
    low: Any = numbers.min()
    high: Any = numbers.max()
    return low is not None and (low < least or high > most)


def _leave_out_figures(frame: pl.DataFrame, log: Log) -> pl.DataFrame:
    """Return the frame without figures that are not finite, or larger than anything measured; log them."""
    figures = [c for c, type in frame.schema.items() if type == pl.Float64]
    good = {
        c: pl.col(c).is_between(-LARGEST, LARGEST) for c in figures if frame[c].null_count() < frame.height
    }
    bad = frame.select((~fits).sum().alias(c) for c, fits in good.items()).row(0) if good else ()
    if not any(bad):
        return frame
    log.repair("bad_figure", "figures that are not finite, or beyond 1e30, are left out", count=sum(bad))
    return frame.with_columns(pl.when(fits).then(c).alias(c) for c, fits in good.items())


def tidy(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the columns in the schema's order, without those that hold nothing but nulls."""
    known = [c for c in DTYPES if c in frame.columns]
    return frame[[c for c in known if c in ("kind", "name") or frame[c].null_count() < frame.height]]


def widened(frame: pl.DataFrame, columns: Collection[str]) -> pl.DataFrame:
    """Return these columns of the schema, null throughout where the frame lacks one."""
    absent = [_UNKNOWN[c].new_from_index(0, frame.height) for c in columns if c not in frame.columns]
    return frame.hstack(absent)[[*columns]]
