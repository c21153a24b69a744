"""Read graph captures: operator, operands, modules and scopes of each launch.

A capture is a trace of the program while a graph was recorded: no kernel ran, but the host shows every launch
between the begin and the end of the capture of a stream, in the order of the graph.
"""

import re
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from capture.classify.experts_work import EXPERTS_KERNELS
from capture.classify.operator_work import has_work_model
from capture.classify.step_annotations import (
    CaptureAnnotation,
    parse_capture_annotation,
    parse_step_annotation,
)
from capture.clean_text import clean
from capture.graphs.capture_files import parse_batch
from capture.loaders._json_document import decode_or_none
from capture.loaders.chrome import lenient_reader
from capture.loaders.chrome.launch_context import (
    SCOPE_SCHEMA,
    OperandFields,
    find_function_owner,
    is_scope,
    with_lines,
    with_paths,
)
from capture.loaders.chrome.trace_model import (
    OPERATOR_CATEGORIES,
    RUNTIME_CATEGORIES,
    TraceEvent,
    convert_us_to_ns,
)
from capture.source import Source

_LAUNCH: Final = re.compile(r"Launch(?:Cooperative)?Kernel|(?:Memcpy|Memset)\w*(?:Async|WithStream)")
_COPY: Final = re.compile(r"Mem(?:cpy|set)")  # a copy has no kernel: this word stands for its name
_FUNCTION_CATEGORY: Final = "python_function"
_BEGIN: Final = "StreamBeginCapture"
_END: Final = "StreamEndCapture"
_TOP_K: Final = "topk"
_INTERVAL_SCHEMA: Final = {"t": pl.Int64, "dur": pl.Int64, "thread": pl.String}

_find_function_owner = lru_cache(maxsize=1 << 14)(find_function_owner)  # a trace repeats the same few names


class _Arguments(OperandFields, gc=False):
    """The arguments of a launch or an operator."""

    kernel: Any = None
    grid: Any = None


_DECODER: Final = msgspec.json.Decoder(_Arguments)


@dataclass(frozen=True, eq=False)
class CapturedGraph:
    """One captured graph, or the pieces of one.

    A piece is a table of launches in order: kernel (null if the capture does not name it), grid, operator,
    operands (as JSON), call (id of the operator call), path, layer, op, is_products_only, and line (the
    user's function).
    """

    file: str
    batch: int | None
    mode: str
    rows: int | None  # leading dimension of most operands
    pieces: tuple[pl.DataFrame, ...]

    @property
    def size(self) -> int:
        """The largest batch that it serves, in requests or in rows; 0 if unknown."""
        return max(self.batch or 0, self.rows or 0)


@dataclass(frozen=True)
class _HostSpan:
    """One host event, with its times in ns."""

    event: TraceEvent
    start: int
    end: int
    thread: str
    name: str

    def parse_arguments(self) -> _Arguments:
        return decode_or_none(_DECODER.decode, self.event.args) or _Arguments()


@dataclass
class _CaptureWindow:
    """The launches of one capture of a stream."""

    start: int
    end: int
    thread: str
    annotation: tuple[CaptureAnnotation, int] | None = None  # the innermost around its start, and its start
    launches: list[_HostSpan] = field(default_factory=list)


def read_captured_graphs(path: Path) -> list[CapturedGraph]:
    """Read the graphs whose capture a file shows, smallest first; raise UnreadableError if that fails."""
    events = lenient_reader.read_events(Source.from_path(path))
    spans = _build_spans([event for event in events if _is_relevant(event)])
    windows = _find_capture_windows(spans)
    if not windows:
        return []
    pieces_by_graph: dict[Any, list[pl.DataFrame]] = {}  # without annotations, pieces of one size are a graph
    for number, piece in _iter_pieces(windows, spans):
        key = windows[number].annotation or (None, _find_common_leading_dim([piece]))
        pieces_by_graph.setdefault(key, []).append(piece)
    graphs = [_build_graph(path, annotation, pieces) for (annotation, _), pieces in pieces_by_graph.items()]
    return sorted(graphs, key=attrgetter("size"))


def _build_graph(
    path: Path, annotation: CaptureAnnotation | None, pieces: list[pl.DataFrame]
) -> CapturedGraph:
    batch = annotation.batch if annotation else parse_batch(path)
    mode = annotation.mode if annotation else ("full" if len(pieces) == 1 else "piecewise")
    rows = _find_common_leading_dim(pieces)
    return CapturedGraph(clean(path.name, 200), batch, mode, rows, tuple(pieces))


def _is_relevant(event: TraceEvent) -> bool:
    if event.ph != "X":
        return False
    if event.cat in (*OPERATOR_CATEGORIES, *RUNTIME_CATEGORIES) or is_scope(event.cat, event.title):
        return True
    return event.cat == _FUNCTION_CATEGORY and bool(_find_function_owner(event.title))


def _build_spans(events: Sequence[TraceEvent]) -> list[_HostSpan]:
    """Build spans of the events with times, by start, outer ones first."""
    raw = {"t": [e.ts for e in events], "dur": [e.dur for e in events]}
    texts = {c: [bytes(v).decode("ascii", "replace").strip('" ') for v in vs] for c, vs in raw.items()}
    times = pl.DataFrame(texts, schema={"t": pl.String, "dur": pl.String}).select(convert_us_to_ns(pl.all()))
    spans = [
        _HostSpan(event, t, t + dur, event.thread, event.title)
        for event, t, dur in zip(events, times["t"], times["dur"], strict=True)
        if t is not None and dur is not None
    ]
    return sorted(spans, key=lambda span: (span.start, -span.end))


def _find_capture_windows(spans: Sequence[_HostSpan]) -> list[_CaptureWindow]:
    """Find the captures of streams in order, with their launches.

    The k-th begin on a thread is closed by its k-th end. If no begin is recorded, the annotations of captures
    are the windows.
    """
    annotations = [(parsed, span) for span in spans if (parsed := parse_capture_annotation(span.name))]
    windows = list(_iter_capture_windows(spans)) or [
        _CaptureWindow(span.start, span.end, span.thread) for _, span in annotations
    ]
    windows.sort(key=attrgetter("start"))
    for window in windows:
        for parsed, span in annotations:  # the innermost is the last
            if span.start <= window.start <= span.end:
                window.annotation = parsed, span.start
    _assign_launches(windows, spans)
    return windows


def _assign_launches(windows: Sequence[_CaptureWindow], spans: Sequence[_HostSpan]) -> None:
    """Assign launches to the windows of their threads; both are sorted by start."""
    by_thread: dict[str, list[_CaptureWindow]] = defaultdict(list)
    for window in windows:
        by_thread[window.thread].append(window)
    for span in spans:
        if span.event.cat in RUNTIME_CATEGORIES and _LAUNCH.search(span.name):
            of_thread = by_thread[span.thread]
            last = bisect(of_thread, span.start, key=attrgetter("start")) - 1
            if last >= 0 and span.start <= of_thread[last].end:
                of_thread[last].launches.append(span)


def _iter_capture_windows(spans: Sequence[_HostSpan]) -> Iterator[_CaptureWindow]:
    """Yield a window from each begin of a capture to its end, or to the end of the trace."""
    begins, ends = ([span for span in spans if word in span.name] for word in (_BEGIN, _END))
    for thread in {span.thread for span in begins}:
        end_times = (span.start for span in ends if span.thread == thread)
        for begin in (span for span in begins if span.thread == thread):
            yield _CaptureWindow(begin.end, next(end_times, 1 << 62), thread)


def _iter_pieces(
    windows: Sequence[_CaptureWindow], spans: Sequence[_HostSpan]
) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield each window that has launches: its number, and a table of them with operators and scopes."""
    numbered = [(number, span) for number, window in enumerate(windows) for span in window.launches]
    operators = [span for span in spans if span.event.cat in OPERATOR_CATEGORIES]
    rows = list(_iter_launches(numbered, operators))
    schema = {
        "window": pl.UInt32, "kernel": pl.String, "grid": pl.String, "operator": pl.String,
        "operands": pl.String, "call": pl.Int64, "host_t": pl.Int64, "host_thread": pl.String,
    }  # fmt: skip
    frame = _with_scopes(pl.DataFrame(rows, schema=schema, orient="row").with_row_index("row"), spans)
    frame = _with_function_names(frame, spans).sort("row").drop("row", "host_t", "host_thread")
    pieces = frame.partition_by("window", maintain_order=True, include_key=False, as_dict=True)
    yield from ((number, piece) for (number,), piece in pieces.items())


def _iter_launches(
    numbered: Sequence[tuple[int, _HostSpan]], operators: Sequence[_HostSpan]
) -> Iterator[tuple[Any, ...]]:
    """Yield window, kernel, grid, operator, operands, call, start and thread of each launch.

    A kernel of experts is a call of its own, whose operands end with the number of experts per token.
    """
    chosen = None
    enclosing_spans = _iter_enclosing_spans([span for _, span in numbered], operators)
    for (number, span), enclosing in zip(numbered, enclosing_spans, strict=True):
        kernel, grid = _read_kernel_and_grid(span)
        chosen = _find_top_k(enclosing) or chosen
        operator, operands, call = _find_calling_operator(enclosing)
        if kernel and operands and chosen and kernel.startswith(EXPERTS_KERNELS):
            operator, operands = f"{operator} / {kernel}", _append_value(operands, chosen)
            call = span.start
        yield number, kernel, grid, operator, operands, call, span.start, span.thread


def _with_scopes(launches: pl.DataFrame, spans: Sequence[_HostSpan]) -> pl.DataFrame:
    """Add path, layer, op and is_products_only of the modules and scopes around each launch."""
    scopes = [
        (span.name, span.start, span.end - span.start, span.thread)
        for span in spans
        if is_scope(span.event.cat, span.name)
        and not parse_capture_annotation(span.name)
        and not parse_step_annotation(span.name)
    ]
    schema = {"name": pl.String, **_INTERVAL_SCHEMA}
    scope_frame = pl.DataFrame(scopes, schema=schema, orient="row").filter(pl.col("dur") > 0)
    if scope_frame.height:
        launches = with_paths(launches, scope_frame)
    return pl.concat([launches, pl.DataFrame(schema=SCOPE_SCHEMA)], how="diagonal")


def _with_function_names(launches: pl.DataFrame, spans: Sequence[_HostSpan]) -> pl.DataFrame:
    """Add `line`, the name of the program's function around each launch."""
    functions = [s for s in spans if s.event.cat == _FUNCTION_CATEGORY and _find_function_owner(s.name)]
    rows = [
        (i, s.start, s.end - s.start, s.thread, _find_function_owner(s.name)) for i, s in enumerate(functions)
    ]
    schema = {"label": pl.UInt32, **_INTERVAL_SCHEMA, "owner": pl.Int8}
    function_frame = pl.DataFrame(rows, schema=schema, orient="row").filter(pl.col("dur") > 0)
    launches = with_lines(launches, function_frame)
    if "line" not in launches.columns:
        return launches.with_columns(line=pl.lit(None, dtype=pl.Categorical()))
    names = pl.Series([span.name for span in functions], dtype=pl.String).cast(pl.Categorical())
    return launches.with_columns(names.gather(launches["line"]).alias("line"))


def _read_kernel_and_grid(span: _HostSpan) -> tuple[str | None, str | None]:
    """Read name and grid of what was launched, as far as the capture has them."""
    copy = _COPY.search(span.name)
    if copy:
        return copy[0], None
    arguments = span.parse_arguments()
    kernel = arguments.kernel if isinstance(arguments.kernel, str) else None
    has_grid = isinstance(arguments.grid, list) and arguments.grid
    return kernel, "x".join(map(str, arguments.grid)) if has_grid else None


def _iter_enclosing_spans(
    launches: Sequence[_HostSpan], spans: Sequence[_HostSpan]
) -> Iterator[list[_HostSpan]]:
    """Yield for each launch the spans of its thread that are open at its start, innermost last."""
    waiting: dict[str, list[_HostSpan]] = defaultdict(list)  # by thread, the next one last
    stacks: dict[str, list[_HostSpan]] = defaultdict(list)
    for span in reversed(spans):
        waiting[span.thread].append(span)
    for launch in launches:
        upcoming, stack = waiting[launch.thread], stacks[launch.thread]
        while upcoming and upcoming[-1].start <= launch.start:
            opening = upcoming.pop()
            stack[:] = [*(s for s in stack if s.end > opening.start), opening]
        stack[:] = [s for s in stack if s.end > launch.start]
        yield list(stack)


def _find_top_k(enclosing: Sequence[_HostSpan]) -> str | None:
    """Find how many experts a token chooses, if the innermost operator is their choice."""
    if not enclosing or enclosing[-1].name.lower() != _TOP_K:
        return None
    values = enclosing[-1].parse_arguments().values
    is_count = isinstance(values, list) and len(values) > 1 and str(values[1]).isdecimal()
    return str(values[1]) if is_count else None


def _append_value(operands: str, value: str) -> str:
    """Append a value to the operands of a call (JSON)."""
    fields = msgspec.json.decode(operands)
    values = fields["Concrete Inputs"]
    fields["Concrete Inputs"] = [*(values if isinstance(values, list) else []), value]
    return msgspec.json.encode(fields).decode()


def _find_calling_operator(enclosing: Sequence[_HostSpan]) -> tuple[str | None, str | None, int | None]:
    """Find the operator whose work a launch is: its name, its operands as JSON, and the id of the call.

    It is the innermost one with a work model, else the innermost.
    """
    if not enclosing:
        return None, None, None
    span = next((s for s in reversed(enclosing) if has_work_model(s.name)), enclosing[-1])
    arguments = span.parse_arguments()
    operands = {
        "Input Dims": arguments.dims, "Input type": arguments.types, "Concrete Inputs": arguments.values,
    }  # fmt: skip
    return span.name, msgspec.json.encode(operands).decode(), span.start


def _find_common_leading_dim(pieces: Sequence[pl.DataFrame]) -> int | None:
    """Find the leading dimension of the first matrix of most calls; None without any."""
    sizes: Counter[int] = Counter()
    for piece in pieces:
        for operands in piece.unique("call")["operands"].drop_nulls():
            dims = msgspec.json.decode(operands)["Input Dims"]
            matrices = (d for d in dims if isinstance(d, list) and len(d) > 1 and type(d[0]) is int)
            sizes.update([d[0] for d in matrices][:1])
    return sizes.most_common(1)[0][0] if sizes else None
