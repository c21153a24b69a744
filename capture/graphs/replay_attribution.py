"""Fill operator, operands, modules and scopes of replayed kernels from the matching captures.

What the trace itself reports stays. A replay that matches no captured graph is left as it is.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import polars as pl

from capture.classify.step_annotations import StepAnnotation
from capture.clean_text import clean
from capture.dense_lookup import find_positions
from capture.errors import UnreadableError
from capture.graphs.capture_files import MAX_ADJACENT_BYTES, parse_batch
from capture.graphs.capture_match import (
    MIN_QUALITY,
    GraphMatch,
    GraphRequirement,
    ReplayedKernel,
    find_best_match,
)
from capture.graphs.capture_reader import CapturedGraph, read_captured_graphs
from capture.import_log import Log
from capture.loaders.chrome.launch_context import with_work
from capture.loaders.chrome.trace_model import CompleteEvents
from capture.native.schema import PATH_SEPARATOR

_GRAPH_LAUNCH: Final = "GraphLaunch"
_FILLED_COLUMNS: Final = (  # of a kernel, where they are missing
    "shape", "dtype", "flops", "bytes", "operator_op", "operator_category", "layer", "op", "is_products_only",
)  # fmt: skip
_SCOPE_COLUMNS: Final = ("path", "layer", "op", "is_products_only", "line")  # of a launch
_LAUNCH_COLUMNS: Final = ("operator", "operands", *_SCOPE_COLUMNS)
_MAX_NAMED_GRAPHS: Final = 2  # in the summary
_SUFFIX: Final = "_captured"
_KIND_KEYS: Final = ["signature", "requests", "tokens", "padded"]  # equal for replays that are matched once


@dataclass
class CaptureSet:
    """The captures that may belong to a trace; each file is read once, and only if a replay needs it."""

    paths: Sequence[Path] = ()
    are_requested: bool = False  # by the user: then a single one without a graph is an error
    summary: str = ""  # for the user: what was filled from which captures; empty for nothing
    _graphs_by_path: dict[Path, list[CapturedGraph]] = field(default_factory=dict)

    def iter_graphs(self, requirement: GraphRequirement, log: Log) -> Iterator[CapturedGraph]:
        """Yield the graphs that may meet a requirement, smallest first, without reading smaller files."""
        waiting: list[CapturedGraph] = []
        least = max(requirement.requests or 0, requirement.padded or 0)
        for path in sorted(self.paths, key=lambda path: parse_batch(path) or 0):
            batch = parse_batch(path)
            if batch is not None and batch < least:
                continue
            ready = [graph for graph in waiting if graph.size < (batch or 0)]
            yield from sorted(ready, key=lambda graph: graph.size)
            waiting = [graph for graph in waiting if graph not in ready] + self._read_once(path, log)
        yield from sorted(waiting, key=lambda graph: graph.size)

    def _read_once(self, path: Path, log: Log) -> list[CapturedGraph]:
        if path not in self._graphs_by_path:
            self._graphs_by_path[path] = self._read_graphs(path, log)
        return self._graphs_by_path[path]

    def _read_graphs(self, path: Path, log: Log) -> list[CapturedGraph]:
        name = clean(path.name, 200)
        is_only_request = self.are_requested and len(self.paths) == 1
        try:
            if not self.are_requested and path.stat().st_size > MAX_ADJACENT_BYTES:
                message = f"{name} in the same folder is large and was not read: --capture {name} reads it"
                log.note("capture_large", message)
                return []
            graphs = read_captured_graphs(path)
        except (OSError, UnreadableError):
            if is_only_request:
                raise
            return []
        if not graphs and is_only_request:
            raise UnreadableError("contains no graph capture", where=clean(str(path), 4096))
        return graphs


def attribute_replays(
    kernels: pl.DataFrame,
    complete: CompleteEvents,
    annotations: Mapping[int, StepAnnotation],
    captures: CaptureSet,
    log: Log,
) -> pl.DataFrame:
    """Fill the missing columns of replayed kernels from the captures of their graphs."""
    if kernels.is_empty():
        return kernels
    kernels = kernels.with_row_index("row")
    replays = _select_replays(kernels, complete)
    if replays.is_empty():
        if captures.are_requested:
            log.note("capture_unused", "the trace replays no graph that needs a capture")
        return kernels.drop("row")
    requirements = _compute_requirements(replays, annotations)
    replays = replays.join(requirements, on="step", how="left", nulls_equal=True)
    groups = _match_groups(replays, complete.labels["name"], captures, log)
    for group, nearest in groups.unmatched:
        log.note(*_build_refusal_notice(nearest), count=groups.select_kinds([group]).height)
    if not groups.matched:
        return kernels.drop("row")
    launches = _join_launch_columns(groups)
    captures.summary = _describe_attribution(replays, launches, [match for _, match in groups.matched])
    log.note("captured_ops", captures.summary, count=launches.height)
    with_operator_work = with_work(*_encode_operators(launches), annotations)
    return _fill_open_columns(kernels, with_operator_work).drop("row")


def _select_replays(kernels: pl.DataFrame, complete: CompleteEvents) -> pl.DataFrame:
    """Select the kernels of replayed graphs whose operator the trace does not report."""
    is_graph_launch = complete.labels["name"].str.contains(_GRAPH_LAUNCH).gather(complete.rows["label"])
    graph_launches = complete.rows["correlation"].filter(is_graph_launch).drop_nulls().unique()
    shares_launch = pl.col("external_id").is_null() & pl.col("correlation").is_duplicated()
    is_replayed = pl.col("correlation").is_in(graph_launches.implode()) | shares_launch
    for column in ("operator_op", "shape"):
        if column in kernels.columns:
            is_replayed &= pl.col(column).is_null()
    step = pl.col("step") if "step" in kernels.columns else pl.lit(None, dtype=pl.Int64)
    grid = pl.col("grid").cast(pl.String) if "grid" in kernels.columns else pl.lit(None, dtype=pl.String)
    return kernels.filter(is_replayed & pl.col("correlation").is_not_null()).select(
        "row", "label", "t", "dur", "host_t", "correlation", "thread", step=step, grid=grid
    )


def _compute_requirements(replays: pl.DataFrame, annotations: Mapping[int, StepAnnotation]) -> pl.DataFrame:
    """Compute what a graph must serve in each step: requests, tokens, padded."""
    steps = replays["step"].unique(maintain_order=True)
    by_step = map(annotations.get, steps)
    rows = [(a.batch, a.tokens, a.padded) if a else (None, None, None) for a in by_step]
    schema = dict.fromkeys(_KIND_KEYS[1:], pl.Int64)
    return pl.DataFrame(rows, schema=schema, orient="row").insert_column(0, steps)


@dataclass(frozen=True, eq=False)
class _GroupMatches:
    """Replays in groups; for each kind, the kernels of one group and the nearest graph."""

    replays: pl.DataFrame
    kinds: list[tuple[pl.DataFrame, GraphMatch | None]]

    @property
    def matched(self) -> list[tuple[pl.DataFrame, GraphMatch]]:
        """The kinds whose graph is good enough."""
        return [(group, match) for group, match in self.kinds if match and match.quality >= MIN_QUALITY]

    @property
    def unmatched(self) -> list[tuple[pl.DataFrame, GraphMatch | None]]:
        """The kinds without a graph that is good enough."""
        return [kind for kind in self.kinds if not (kind[1] and kind[1].quality >= MIN_QUALITY)]

    def select_kinds(
        self, groups: Sequence[pl.DataFrame], how: Literal["semi", "anti"] = "semi"
    ) -> pl.DataFrame:
        """Select all replays of the kinds of some groups (`semi`), or all others (`anti`)."""
        kinds = pl.concat([group.select(_KIND_KEYS) for group in groups]).unique()
        return self.replays.join(kinds, on=_KIND_KEYS, how=how, nulls_equal=True, maintain_order="left")


def _match_groups(replays: pl.DataFrame, names: pl.Series, captures: CaptureSet, log: Log) -> _GroupMatches:
    """Match replays to graphs in groups.

    A group is everything that one step replays, the pieces of a graph; without a match, each launch is a
    group of its own, because a step may replay unrelated graphs.
    """
    by_launch = 2 * pl.col("correlation") + 1
    by_step = _group_replays(replays, pl.coalesce(2 * pl.col("step"), by_launch))
    steps = _GroupMatches(by_step, _match_kinds(by_step, names, captures, log))
    several = [group for group, _ in steps.unmatched if group["piece"].n_unique() > 1]
    if not several:
        return steps
    launches = _group_replays(steps.select_kinds(several), by_launch)
    kinds = [(group, match) for group, match in steps.kinds if not any(group is other for other in several)]
    kinds += _match_kinds(launches, names, captures, log)
    return _GroupMatches(pl.concat([steps.select_kinds(several, "anti"), launches]), kinds)


def _group_replays(replays: pl.DataFrame, group: pl.Expr) -> pl.DataFrame:
    """Group and sort replays; add piece, position and signature.

    `piece` numbers the graph launches of a group, `position` its kernels; `signature` is equal for groups of
    equal kernels.
    """
    ordered = replays.with_columns(group=group).sort(
        "group", "host_t", "correlation", "thread", "t", maintain_order=True
    )
    piece = pl.col("correlation").rle_id().over("group").alias("piece")
    ordered = ordered.with_columns(piece, position=pl.int_range(pl.len()).over("group"))
    kernel_hash = pl.struct("position", "piece", "thread", "label", "grid").hash()
    return ordered.with_columns(signature=kernel_hash.sum().over("group"))


def _match_kinds(
    replays: pl.DataFrame, names: pl.Series, captures: CaptureSet, log: Log
) -> list[tuple[pl.DataFrame, GraphMatch | None]]:
    """Match one group of each kind to its nearest graph."""
    kinds: list[tuple[pl.DataFrame, GraphMatch | None]] = []
    first = replays.group_by(_KIND_KEYS, maintain_order=True).agg(pl.col("group").first())
    for key in first["group"]:
        group = replays.filter(pl.col("group") == key)
        requirement = GraphRequirement(*group.select(_KIND_KEYS[1:]).row(0))
        graphs = captures.iter_graphs(requirement, log)
        kinds.append((group, find_best_match(graphs, requirement, _split_pieces(group, names))))
    return kinds


def _split_pieces(group: pl.DataFrame, names: pl.Series) -> list[list[ReplayedKernel]]:
    kernels = group.select("piece", names.gather(group["label"]).alias("name"), "grid", "thread")
    pieces = kernels.partition_by("piece", maintain_order=True, include_key=False)
    return [[ReplayedKernel(*kernel) for kernel in piece.iter_rows()] for piece in pieces]


def _join_launch_columns(groups: _GroupMatches) -> pl.DataFrame:
    """Join to each aligned kernel the columns of its launch; `external_id` identifies the operator call.

    If a kernel may come from several launches, only the values that these share are joined.
    """
    matches = groups.matched
    graphs = list({id(match.graph): match.graph for _, match in matches}.values())
    sizes = [sum(piece.height for piece in graph.pieces) for graph in graphs]
    offsets = {id(graph): sum(sizes[:i]) for i, graph in enumerate(graphs)}
    launches = pl.concat([piece for graph in graphs for piece in graph.pieces])
    pairs = [
        group.select(*_KIND_KEYS, "position").with_columns(
            first=pl.Series(match.first, dtype=pl.Int64) + offsets[id(match.graph)],
            last=pl.Series(match.last, dtype=pl.Int64) + offsets[id(match.graph)],
            graph=pl.lit(offsets[id(match.graph)]),
            has_known_batch=pl.lit(match.is_unique_size),
        )
        for group, match in matches
    ]
    aligned = groups.replays.join(
        pl.concat(pairs), on=[*_KIND_KEYS, "position"], how="inner", nulls_equal=True, maintain_order="left"
    ).drop_nulls(["first", "last"])
    first, last = (launches.select(_LAUNCH_COLUMNS)[aligned[c].cast(pl.UInt32)] for c in ("first", "last"))
    columns = [
        pl.select(pl.when(one.eq_missing(other)).then(one))[:, 0].alias(one.name)
        for one, other in zip(first, last, strict=True)
    ]
    call = pl.struct("group", "piece", "graph", call=launches["call"].gather(aligned["first"]))
    joined = aligned.with_columns(*columns, external_id=call.rank("dense").cast(pl.Int64))
    return joined.with_columns(operands=pl.when("has_known_batch").then("operands"))


def _encode_operators(launches: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    """Encode the operators of aligned kernels as `with_work` needs them; also return their names."""
    operators = launches["operator"].cast(pl.Categorical())
    names = operators.drop_nulls().unique(maintain_order=True)
    linked = launches.select(
        "row", "label", "dur", "step", *_SCOPE_COLUMNS, "external_id", "operands"
    ).with_columns(
        operator=find_positions(operators, names), operands=pl.col("operands").cast(pl.Categorical())
    )
    return linked, names.cast(pl.String)


def _fill_open_columns(kernels: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Fill the missing columns of kernels; the path of the launch is appended to the trace's own.

    Adds `captured_line`, the function that launched the kernel into its graph.
    """
    columns = [c for c in _FILLED_COLUMNS if c in launches.columns]
    captured = launches.select("row", "path", *columns, captured_line="line")
    joined = kernels.join(captured, on="row", how="left", maintain_order="left", suffix=_SUFFIX)
    shared = [c for c in columns if c in kernels.columns]
    joined = joined.with_columns(pl.coalesce(c, c + _SUFFIX) for c in shared)
    if "path" in kernels.columns:
        parts = [pl.col(c).cast(pl.String) for c in ("path", "path" + _SUFFIX)]
        path = pl.concat_str(parts, separator=PATH_SEPARATOR, ignore_nulls=True)
        has_path = pl.any_horizontal(part.is_not_null() for part in parts)
        joined = joined.with_columns(path=pl.when(has_path).then(path).cast(pl.Categorical()))
    return joined.drop([c + _SUFFIX for c in (*shared, "path")], strict=False)


def _describe_attribution(replays: pl.DataFrame, launches: pl.DataFrame, matches: list[GraphMatch]) -> str:
    time_share = float(launches["dur"].sum()) / max(float(replays["dur"].sum()), 1.0)
    how = "aligned" if all(match.is_by_name for match in matches) else "aligned by position alone"
    share = f"{launches.height:,} of {replays.height:,} kernels {how}, {100 * time_share:.0f} % of their time"
    has_shapes = all(match.is_unique_size for match in matches)
    no_shapes = "" if has_shapes else "; no shapes, because the replayed batch size is unknown"
    graphs = list({id(match.graph): _describe_graph(match.graph) for match in matches}.values())
    more = f" and {len(graphs) - _MAX_NAMED_GRAPHS} more" if len(graphs) > _MAX_NAMED_GRAPHS else ""
    captures = ", ".join(graphs[:_MAX_NAMED_GRAPHS]) + more
    return f"ops and shapes are from captures of graphs: {share}{no_shapes} ({captures})"


def _describe_graph(graph: CapturedGraph) -> str:
    return f"{graph.file}: {graph.mode}, batch {graph.batch or graph.rows or 'unknown'}"


def _build_refusal_notice(nearest: GraphMatch | None) -> tuple[str, str]:
    """Build id and message of a notice for replays without a matching graph."""
    if nearest is None:
        return "capture_missing", "no capture has a graph that serves these replays"
    alignment = f"{100 * nearest.quality:.0f} % aligned, {100 * MIN_QUALITY:.0f} % needed"
    graph = _describe_graph(nearest.graph)
    return "capture_refused", f"the capture {graph} does not match the replayed graph: {alignment}"
