"""Run: metadata and one validated event frame of one execution; LiveRun: a snapshot of a growing one."""

import math
import sys
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count
from typing import Any, Final

import msgspec
import polars as pl

from capture.clean_text import MAX_NAME_CHARS, clean
from capture.dense_lookup import FEW_ROWS, find_distinct, put_columns
from capture.import_log import ImportLog, Log
from capture.launch_archive import LaunchArchive
from capture.native.schema import CATEGORIES, COLUMNS, KINDS, LENSES
from capture.tasks import run_parallel

DTYPES: Final[Mapping[str, pl.DataType]] = {
    c.name: {"cat": pl.Categorical(), "i64": pl.Int64(), "i32": pl.Int32(), "f64": pl.Float64()}[c.type]
    for c in COLUMNS
}
MAX_VALUE: Final = 1e30  # sums and squares of values up to this stay finite
MAX_DURATION_NS: Final = 1 << 61  # ends, and differences between them, still fit into 64 bits
UNNAMED_ROW: Final = "unnamed"
_MIN_REPEATS: Final = 8  # repeats per text from which cleaning the distinct texts is faster
_NOT_PRINTABLE_ASCII: Final = r"[^ -~]"  # any character outside printable ASCII
_NULL_COLUMNS: Final = {name: pl.Series(name, [None], dtype) for name, dtype in DTYPES.items()}
_ALLOWED_WORDS: Final = {"kind": KINDS, "lens": LENSES, "category": CATEGORIES}


@dataclass(frozen=True, eq=False)
class Run:
    """One execution. `tables` keeps what a source reports besides events."""

    name: str
    meta: Mapping[str, Any]
    events: pl.DataFrame
    log: ImportLog
    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)

    def has(self, column: str) -> bool:
        """Return whether any event has a value in this column."""
        return column in self.events.columns

    def with_events(self, events: pl.DataFrame) -> "Run":
        """Return a run with these events instead; of a snapshot nothing else is left."""
        return Run(self.name, self.meta, events, self.log, self.tables)


def build_run(
    name: str,
    meta: Mapping[str, Any],
    events: pl.DataFrame,
    log: Log,
    tables: Mapping[str, pl.DataFrame] | None = None,
    *,
    enriched: bool = False,
) -> Run:
    """Return a run from a loader's events: cast, cleaned, checked, filled from names, frozen.

    Set `enriched` if the loader has filled layer, op, category and phase itself.
    Raises ValueError for columns or words outside the schema: bugs of the loader, not of the file.
    """
    frame = _check_closed_words(_cast_to_schema(events).rechunk())
    frame = _fill_missing_names(_clean_text_columns(frame), log)
    frame = drop_impossible_durations(_drop_impossible_starts(frame, log), log)
    frame = _drop_impossible_values(frame, log)
    if not enriched:
        # slow to import; not needed until a file is read
        from capture.classify.columns_from_names import fill_from_names

        frame = fill_from_names(frame)
    return build_checked_run(name, meta, drop_empty_columns(frame).rechunk(), log, tables or {})


def build_checked_run(
    name: str, meta: Mapping[str, Any], events: pl.DataFrame, log: Log, tables: Mapping[str, pl.DataFrame]
) -> Run:
    """Return a run from events that have each passed `build_run` already."""
    return Run(
        name=clean(name, 200) or "run",
        meta=clean_meta(meta),
        events=events,
        log=log.freeze(),
        tables={clean(k): _clean_table(t) for k, t in tables.items()},
    )


def with_log(run: Run, log: Log) -> Run:
    """Return the run with the log of the finished import."""
    return replace(run, log=log.freeze())


def clean_meta(value: Any) -> Any:
    """Return metadata with clean text; numbers outside the float range become None."""
    if isinstance(value, str):
        return clean(value, 10_000)
    if isinstance(value, Mapping):
        return {clean(str(k), 200): clean_meta(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [clean_meta(v) for v in value]
    if isinstance(value, int | float) and not abs(value) <= sys.float_info.max:
        return None
    return value


def _cast_to_schema(events: pl.DataFrame) -> pl.DataFrame:
    unknown = set(events.columns) - set(DTYPES)
    if unknown:
        raise ValueError(f"columns outside the schema: {sorted(unknown)}")
    schema = events.schema
    types = {c: t for c, t in DTYPES.items() if c in schema}
    if schema == types:
        return events
    tasks = [partial(events[c].cast, t) for c, t in types.items()]
    return pl.DataFrame(run_parallel(tasks, events.height))


def _check_closed_words(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with a kind in every row; raise ValueError for words not in the schema."""
    if "kind" not in frame.columns:
        frame = frame.insert_column(0, pl.lit("kernel", dtype=pl.Categorical()).alias("kind"))
    elif frame["kind"].null_count():
        frame = frame.with_columns(pl.col("kind").fill_null("kernel"))
    closed = [c for c in _ALLOWED_WORDS if c in frame.columns]
    for column, words in _list_distinct_words(frame, closed).items():
        allowed = _ALLOWED_WORDS[column]
        if not words <= set(allowed):
            raise ValueError(f"{column} contains {sorted(words - set(allowed))}, allowed are {allowed}")
    return frame


def _clean_text_columns(frame: pl.DataFrame) -> pl.DataFrame:
    columns = [c for c, t in frame.schema.items() if t == pl.Categorical and c not in _ALLOWED_WORDS]
    words = _list_distinct_words(frame, columns).items()
    swaps_by_column = {c: {n: new for n in names if (new := clean(n)) != n} for c, names in words}
    replaced = [
        pl.col(c).cast(pl.String).replace(swaps).cast(pl.Categorical())
        for c, swaps in swaps_by_column.items()
        if swaps
    ]
    return frame.with_columns(replaced) if replaced else frame


def _fill_missing_names(frame: pl.DataFrame, log: Log) -> pl.DataFrame:
    """Return the frame with a name in every row: views identify rows by it."""
    nameless = frame["name"].null_count() if "name" in frame.columns else 0
    if not nameless:
        return frame
    log.repair("no_name", f"rows without a name are named {UNNAMED_ROW!r}", count=nameless)
    return frame.with_columns(pl.col("name").fill_null(UNNAMED_ROW))


def _list_distinct_words(frame: pl.DataFrame, columns: Sequence[str]) -> dict[str, set[str]]:
    """Return column → its distinct words."""
    if frame.height <= FEW_ROWS:
        return {c: set(frame[c].to_list()) - {None} for c in columns}
    distinct_words = run_parallel([partial(find_distinct, frame[column]) for column in columns], frame.height)
    return {c: set(words.cast(pl.String)) for c, words in zip(columns, distinct_words, strict=True)}


def _clean_table(table: pl.DataFrame) -> pl.DataFrame:
    tasks = [partial(_clean_texts, table[c]) for c, t in table.schema.items() if t == pl.String]
    table = put_columns(table, *run_parallel(tasks, table.height))
    table.columns = _deduplicate_names(map(clean, table.columns))
    return table


def _clean_texts(texts: pl.Series) -> pl.Series:
    """Return the texts cleaned; each distinct text is processed once."""
    if texts.len() <= FEW_ROWS:
        words = set(texts.to_list()) - {None}
    else:
        few = texts.head(FEW_ROWS).n_unique()
        candidates = texts if few * _MIN_REPEATS > FEW_ROWS else texts.unique()  # few repeats do not pay
        unclean = candidates.filter(
            candidates.str.contains(_NOT_PRINTABLE_ASCII) | (candidates.str.len_bytes() > MAX_NAME_CHARS)
        )
        words = set(unclean.unique().drop_nulls())
    swaps = {word: new for word in words if (new := clean(word)) != word}
    return texts.replace(swaps) if swaps else texts


def _deduplicate_names(names: Iterable[str]) -> list[str]:
    """Return names of at most 200 characters; repeated ones get a suffix (2), (3), …"""
    names_so_far: dict[str, None] = {}
    for name in names:
        numbered = (f"{name[:190]} ({n})" for n in count(2))
        names_so_far[next(form for form in chain((name[:200],), numbered) if form not in names_so_far)] = None
    return list(names_so_far)


def _drop_impossible_starts(frame: pl.DataFrame, log: Log) -> pl.DataFrame:
    """Return the frame with starts further than 73 years from zero set to null; log them."""
    if "t" not in frame.columns or not _has_values_beyond(frame["t"], -MAX_DURATION_NS, MAX_DURATION_NS):
        return frame
    is_near = pl.col("t").is_between(-MAX_DURATION_NS, MAX_DURATION_NS)
    far_count = frame.select((~is_near).sum()).item()
    log.repair("bad_start", "starts further than 73 years from zero are ignored", count=far_count)
    return frame.with_columns(pl.when(is_near).then("t").alias("t"))


def drop_impossible_durations(frame: pl.DataFrame, log: Log) -> pl.DataFrame:
    """Drop and log rows whose duration is negative or above 73 years: sums would be meaningless."""
    if "dur" not in frame.columns or not _has_values_beyond(frame["dur"], 0, MAX_DURATION_NS):
        return frame
    possible = frame.filter(pl.col("dur").is_null() | pl.col("dur").is_between(0, MAX_DURATION_NS))
    dropped = frame.height - possible.height
    log.drop("bad_duration", "durations that are negative or impossibly long", count=dropped)
    return possible


def _has_values_beyond(numbers: pl.Series, least: float, most: float) -> bool:
    low: Any = numbers.min()
    high: Any = numbers.max()
    return low is not None and not (least <= low and high <= most)


def _drop_impossible_values(frame: pl.DataFrame, log: Log) -> pl.DataFrame:
    """Return the frame with values that are not finite or above 1e30 set to null; log them."""
    columns = [c for c, type in frame.schema.items() if type == pl.Float64]
    columns = [
        c for c in columns if _has_values_beyond(frame[c], -MAX_VALUE, MAX_VALUE) or _has_nan(frame[c])
    ]
    if not columns:
        return frame
    is_possible = pl.col(columns).is_between(-MAX_VALUE, MAX_VALUE)
    bad_count = sum(frame.select((~is_possible).sum()).row(0))
    log.repair("bad_figure", "numbers that are not finite, or above 1e30, are ignored", count=bad_count)
    return frame.with_columns(pl.when(is_possible).then(pl.col(columns)).name.keep())


def _has_nan(numbers: pl.Series) -> bool:
    return math.isnan(numbers.sum())


def drop_empty_columns(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the columns in the order of the schema, without those that are all null."""
    columns = {column.name: column for column in frame.get_columns()}
    present = [c for c in DTYPES if c in columns]
    return frame[[c for c in present if c in ("kind", "name") or columns[c].null_count() < frame.height]]


def select_or_null(frame: pl.DataFrame, columns: Collection[str]) -> pl.DataFrame:
    """Return these columns of the schema; a column that the frame lacks is all null."""
    missing = [c for c in columns if c not in frame.columns]
    return frame.hstack([_NULL_COLUMNS[c].new_from_index(0, frame.height) for c in missing])[[*columns]]


class Chunk(msgspec.Struct, frozen=True, eq=False):
    """Immutable events, and results computed from them alone, by question."""

    events: pl.DataFrame
    cache: dict[Hashable, Any] = msgspec.field(default_factory=dict)


class ChunkList:
    """Chunks in order; neighbours of similar size are merged, so that a long run has few."""

    def __init__(self, max_rows: int | None = None, chunks: Sequence[Chunk] = ()) -> None:
        """Merge chunks up to `max_rows` rows, None for any number."""
        self._max_rows = max_rows
        self.chunks = [piece for piece in chunks if piece.events.height]

    @property
    def height(self) -> int:
        return sum(frame.height for frame in self)

    def add(self, frame: pl.DataFrame) -> None:
        """Append a frame."""
        self.chunks.append(Chunk(frame))
        while len(self.chunks) > 1 and self._should_merge(*self.chunks[-2:]):
            last = [self.chunks.pop().events for _ in range(2)][::-1]
            self.chunks.append(Chunk(pl.concat(last, how="diagonal", rechunk=True)))

    def _should_merge(self, left: Chunk, right: Chunk) -> bool:
        small, large = right.events.height, left.events.height
        return large < 2 * small and (self._max_rows is None or small + large <= self._max_rows)

    def split_off_retained(
        self, is_retained: Callable[[pl.DataFrame], bool]
    ) -> tuple[pl.DataFrame, list[Chunk]]:
        """Return all up to the last chunk that is not retained as one frame, and the chunks after it."""
        first = len(self.chunks)
        while first and is_retained(self.chunks[first - 1].events):
            first -= 1
        frames = [piece.events for piece in self.chunks[:first]]
        return pl.concat(frames, how="diagonal") if frames else pl.DataFrame(), self.chunks[first:]

    def prepend_frame(self, frame: pl.DataFrame, chunks: Sequence[Chunk]) -> "ChunkList":
        """Return a frame and the chunks after it as a list like this one."""
        return ChunkList(self._max_rows, (Chunk(frame), *chunks))

    def __iter__(self) -> Iterator[pl.DataFrame]:
        return (piece.events for piece in self.chunks)


@dataclass(frozen=True, eq=False, kw_only=True)
class LiveRun(Run):
    """A snapshot of a growing run. A run made from it with other events is a `Run` (`Run.with_events`)."""

    chunks: tuple[Chunk, ...] = ()  # the events, in this order; none if it has ended
    archive: LaunchArchive = field(default_factory=LaunchArchive)  # launches of compacted steps
    earlier_steps: pl.DataFrame = field(default_factory=pl.DataFrame)  # history, also of compacted steps


def list_chunks(run: Run) -> tuple[Chunk, ...]:
    """Return the chunks of a run; none if it does not grow."""
    return run.chunks if isinstance(run, LiveRun) else ()


def list_column_types(*columns: str) -> dict[str, Any]:
    """Map columns of the event schema to their types, texts as strings."""
    return {c: pl.String if DTYPES[c] == pl.Categorical else DTYPES[c] for c in columns}
