"""Captures of graphs: what each launch into a graph was made by, its operator, operands, modules and scopes.

A capture is a trace of the program while a graph was recorded: no kernel ran, but the host shows every
launch between the begin and the end of the capture of a stream, in the order of the graph.
"""

import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from capture.captures import batch_in_name
from capture.classify.annotations import CaptureAnnotation, read_capture, read_step
from capture.classify.python_frames import is_own_line
from capture.classify.work import has_model
from capture.loaders.chrome import any_json
from capture.loaders.chrome.frames import with_lines
from capture.loaders.chrome.scopes import is_scope, with_paths
from capture.loaders.chrome.tables import OPERATORS, Event, ns
from capture.source import Source
from capture.text import clean

RUNTIME: Final = ("cuda_runtime", "cuda_driver", "Runtime")
_LAUNCH: Final = re.compile(r"Launch(?:Cooperative)?Kernel|(?:Memcpy|Memset)\w*(?:Async|WithStream)")
_COPY: Final = re.compile(r"Mem(?:cpy|set)")  # stands for the name of a kernel where the launch is none
_FRAME: Final = "python_function"
_BEGIN: Final = "StreamBeginCapture"
_END: Final = "StreamEndCapture"


_OF_SCOPES: Final = {
    "path": pl.Categorical(), "layer": pl.Int32(), "op": pl.Categorical(), "of_products": pl.Boolean(),
}  # fmt: skip


class _Arguments(msgspec.Struct, gc=False):
    """What a launch or an operator states of itself."""

    kernel: Any = None
    grid: Any = None
    dims: Any = msgspec.field(default=(), name="Input Dims")
    types: Any = msgspec.field(default=(), name="Input type")
    values: Any = msgspec.field(default=(), name="Concrete Inputs")


_DECODER: Final = msgspec.json.Decoder(_Arguments)


@dataclass(frozen=True, eq=False)
class CapturedGraph:
    """One graph, or the pieces of one, as it was captured.

    `rows` is how many rows its operators mostly work on. Each piece has its launches in order: kernel (null
    where the capture does not name it), grid, operator, operands (as JSON), call (which call of the operator
    it is), path, layer, op (of_products: of products only), line.
    """

    file: str
    batch: int | None
    mode: str
    rows: int | None
    pieces: tuple[pl.DataFrame, ...]

    @property
    def size(self) -> int:
        """Return the largest batch that it serves, in requests or in rows; 0 where that is not known."""
        return max(self.batch or 0, self.rows or 0)


@dataclass(frozen=True)
class _Span:
    """One event: its times in ns, its thread, and what it states."""

    event: Event
    start: int
    end: int
    place: str
    name: str

    @property
    def stated(self) -> _Arguments:
        try:
            return _DECODER.decode(self.event.args)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return _Arguments()


@dataclass
class _Window:
    """The launches of one capture of a stream."""

    start: int
    end: int
    place: str
    said: CaptureAnnotation | None = None
    since: int = -1  # start of the annotation
    launches: list[_Span] = field(default_factory=list)

    def note(self, span: _Span) -> None:
        """Take what an annotation says, where the window is within it."""
        if span.start <= self.start <= span.end:
            self.said, self.since = read_capture(span.name), span.start


def read_graphs(path: Path) -> list[CapturedGraph]:
    """Return the graphs whose capture a file shows, the smallest first; raise UnreadableError for no file."""
    spans = _spans([event for event in any_json.read_events(Source.of(path)) if _is_wanted(event)])
    windows = _windows(spans)
    if not windows:
        return []
    pieces = _pieces(windows, spans)
    parts: dict[tuple[object, ...], list[pl.DataFrame]] = {}
    for window, piece in zip(windows, pieces, strict=True):
        if piece.height:
            own = () if window.said else (_rows([piece]),)
            parts.setdefault((window.said, window.since, *own), []).append(piece)
    return sorted((_graph(path, key[0], mine) for key, mine in parts.items()), key=lambda g: g.size)


def _graph(path: Path, said: Any, pieces: list[pl.DataFrame]) -> CapturedGraph:
    batch = said.batch if said else batch_in_name(path)
    mode = said.mode if said else ("full" if len(pieces) == 1 else "piecewise")
    return CapturedGraph(clean(path.name, 200), batch, mode, _rows(pieces), tuple(pieces))


def _is_wanted(event: Event) -> bool:
    if event.ph != "X":
        return False
    if event.cat in (*OPERATORS, *RUNTIME) or is_scope(event.cat, event.title):
        return True
    return event.cat == _FRAME and _is_own_line(event.title)


_is_own_line = lru_cache(maxsize=1 << 14)(is_own_line)  # few functions are called often


def _spans(events: Sequence[Event]) -> list[_Span]:
    """Return the events that have times, by start, the outer ones first."""
    text = {"t": [e.ts for e in events], "dur": [e.dur for e in events]}
    printed = {c: [bytes(v).decode("ascii", "replace").strip('" ') for v in vs] for c, vs in text.items()}
    times = pl.DataFrame(printed, schema={"t": pl.String, "dur": pl.String}).select(ns(pl.all()))
    spans = [
        _Span(event, t, t + dur, event.place, event.title)
        for event, t, dur in zip(events, times["t"], times["dur"], strict=True)
        if t is not None and dur is not None
    ]
    return sorted(spans, key=lambda span: (span.start, -span.end))


def _windows(spans: Sequence[_Span]) -> list[_Window]:
    """Return the captures of streams in order, with their launches.

    The k-th begin on a thread is closed by its k-th end. Where no begin is shown, an annotation of a
    capture stands for it.
    """
    named = [span for span in spans if read_capture(span.name)]
    windows = list(_begun(spans)) or [_Window(span.start, span.end, span.place) for span in named]
    windows.sort(key=lambda window: window.start)
    for window in windows:
        for span in named:  # the innermost is the last
            window.note(span)
    _fill(windows, [span for span in spans if _is_launch(span)])
    return windows


def _is_launch(span: _Span) -> bool:
    return span.event.cat in RUNTIME and bool(_LAUNCH.search(span.name))


def _fill(windows: Sequence[_Window], launches: Sequence[_Span]) -> None:
    """Put launches into the windows of their threads; both come in order of start."""
    for place in {window.place for window in windows}:
        mine = [window for window in windows if window.place == place]
        starts = [window.start for window in mine]
        for launch in (launch for launch in launches if launch.place == place):
            last = bisect(starts, launch.start) - 1
            if last >= 0 and launch.start <= mine[last].end:
                mine[last].launches.append(launch)


def _begun(spans: Sequence[_Span]) -> Iterator[_Window]:
    """Yield a window from each begin of a capture to its end, to the end of the trace where it has none."""
    begins, ends = ([span for span in spans if word in span.name] for word in (_BEGIN, _END))
    for place in {span.place for span in begins}:
        closing = (span.start for span in ends if span.place == place)
        for begin in (span for span in begins if span.place == place):
            yield _Window(begin.end, next(closing, 1 << 62), place)


def _pieces(windows: Sequence[_Window], spans: Sequence[_Span]) -> list[pl.DataFrame]:
    """Return the launches of each window with what surrounds them."""
    launches = [span for window in windows for span in window.launches]
    operators = _around(launches, [span for span in spans if span.event.cat in OPERATORS])
    rows = [
        (number, *_launched(span), *_called(around), span.start, span.place, span.place)
        for number, (span, around) in enumerate(zip(launches, operators, strict=True))
    ]
    schema = {
        "number": pl.UInt32, "kernel": pl.String, "grid": pl.String, "operator": pl.String,
        "operands": pl.String, "call": pl.Int64, "at": pl.Int64, "by": pl.String, "place": pl.String,
    }  # fmt: skip
    frame = _with_scopes(pl.DataFrame(rows, schema=schema, orient="row"), spans)
    frame = _with_lines(frame, spans).sort("number").drop("number", "at", "by", "place")
    counts = [len(window.launches) for window in windows]
    starts = [sum(counts[:i]) for i in range(len(counts))]
    return [frame.slice(start, count) for start, count in zip(starts, counts, strict=True)]


def _with_scopes(launches: pl.DataFrame, spans: Sequence[_Span]) -> pl.DataFrame:
    """Return the launches with the path, layer, op and of_products of the modules and scopes around them."""
    scopes = [
        (span.name, span.start, span.end - span.start, span.place)
        for span in spans
        if is_scope(span.event.cat, span.name) and not read_capture(span.name) and not read_step(span.name)
    ]
    schema = {"name": pl.String, "t": pl.Int64, "dur": pl.Int64, "place": pl.String}
    around = pl.DataFrame(scopes, schema=schema, orient="row").filter(pl.col("dur") > 0)
    if around.height:
        launches = with_paths(launches, around)
    lacking = [pl.lit(None, dtype=t).alias(c) for c, t in _OF_SCOPES.items() if c not in launches.columns]
    return launches.with_columns(lacking)


def _with_lines(launches: pl.DataFrame, spans: Sequence[_Span]) -> pl.DataFrame:
    """Return the launches with the function of a program around each, as text."""
    lines = [span for span in spans if span.event.cat == _FRAME and _is_own_line(span.name)]
    frames = [(i, span.start, span.end - span.start, span.place) for i, span in enumerate(lines)]
    schema = {"label": pl.UInt32, "t": pl.Int64, "dur": pl.Int64, "place": pl.String}
    launches = with_lines(
        launches, pl.DataFrame(frames, schema=schema, orient="row").filter(pl.col("dur") > 0)
    )
    if "line" not in launches.columns:
        return launches.with_columns(line=pl.lit(None, dtype=pl.Categorical()))
    names = pl.Series([span.name for span in lines], dtype=pl.String).cast(pl.Categorical())
    return launches.with_columns(names.gather(launches["line"]).alias("line"))


def _launched(span: _Span) -> tuple[str | None, str | None]:
    """Return the name and the grid of what was launched, as far as they are stated."""
    copy = _COPY.search(span.name)
    if copy:
        return copy[0], None
    stated = span.stated
    return stated.kernel if isinstance(stated.kernel, str) else None, grid_text(stated.grid)


def grid_text(grid: object) -> str | None:
    """Return the blocks of a launch as `64x8x1`, None where they are not stated."""
    return "x".join(map(str, grid)) if isinstance(grid, list) and grid else None


def _around(launches: Sequence[_Span], spans: Sequence[_Span]) -> Iterator[list[_Span]]:
    """Yield for each launch the spans of its thread that are open at its start, the innermost last."""
    by_place: dict[str, list[_Span]] = {}
    for span in spans:
        by_place.setdefault(span.place, []).append(span)
    ahead = {place: iter(mine) for place, mine in by_place.items()}
    coming = {place: next(mine, None) for place, mine in ahead.items()}
    stacks: dict[str, list[_Span]] = {place: [] for place in by_place}
    for launch in launches:
        stack = stacks.setdefault(launch.place, [])
        while (opens := coming.get(launch.place)) is not None and opens.start <= launch.start:
            stack[:] = [*(s for s in stack if s.end > opens.start), opens]
            coming[launch.place] = next(ahead[launch.place], None)
        stack[:] = [s for s in stack if s.end > launch.start]
        yield list(stack)


def _called(around: Sequence[_Span]) -> tuple[str | None, str | None, int | None]:
    """Return the operator whose work a launch is, its operands as JSON, and which call of it this is.

    The innermost one of which a model of its work is known, else the innermost.
    """
    if not around:
        return None, None, None
    span = next((s for s in reversed(around) if has_model(s.name)), around[-1])
    stated = span.stated
    operands = {"Input Dims": stated.dims, "Input type": stated.types, "Concrete Inputs": stated.values}
    return span.name, msgspec.json.encode(operands).decode(), span.start


def _rows(pieces: Sequence[pl.DataFrame]) -> int | None:
    """Return the first size that the first matrix of most calls has."""
    sizes: Counter[int] = Counter()
    for piece in pieces:
        for operands in piece.unique("call")["operands"].drop_nulls():
            dims = msgspec.json.decode(operands)["Input Dims"]
            matrices = (d for d in dims if isinstance(d, list) and len(d) > 1 and type(d[0]) is int)
            sizes.update([d[0] for d in matrices][:1])
    return sizes.most_common(1)[0][0] if sizes else None
