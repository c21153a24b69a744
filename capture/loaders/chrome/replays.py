"""Replays of graphs, told by their captures: operators, operands, modules and scopes of their kernels.

What the trace itself states stays. A replay to which no captured graph can be aligned is left as it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import polars as pl

from capture.classify.annotations import StepAnnotation
from capture.classify.fill import positions_of
from capture.importlog import Log
from capture.loaders.chrome.captured import CapturedGraph
from capture.loaders.chrome.captured_files import Captures
from capture.loaders.chrome.captured_fit import LEAST, Fit, Kernel, Need, choose
from capture.loaders.chrome.links import with_work
from capture.loaders.chrome.tables import Complete
from capture.native.schema import PATH_SEPARATOR

_GRAPH: Final = "GraphLaunch"
_GIVEN: Final = ("shape", "flops", "bytes", "role", "said", "layer", "op", "of_products")  # where it is open
_SCOPED: Final = ("path", "layer", "op", "of_products", "line")  # around a launch
_FIELDS: Final = ("operator", "operands", *_SCOPED)  # of a launch
_SHOWN: Final = 2  # graphs that are named in a sentence
_TOLD: Final = "_told"
_ALIKE: Final = ["signature", "requests", "tokens", "padded"]  # replays that are aligned once


def with_captures(
    kernels: pl.DataFrame,
    complete: Complete,
    steps: Mapping[int, StepAnnotation],
    captures: Captures,
    log: Log,
) -> pl.DataFrame:
    """Return kernels with what the captures of their graphs tell of them, where the trace leaves it open."""
    if not captures.paths or kernels.is_empty():
        return kernels
    kernels = kernels.with_row_index("row")
    replays = _replays(kernels, complete)
    if replays.is_empty():
        if captures.named:
            log.note("capture_unused", "the trace replays no graph that needs a capture")
        return kernels.drop("row")
    replays = replays.join(_needs(replays, steps), on="step", how="left", nulls_equal=True)
    chosen = _chosen(replays, complete.labels["name"], captures, log)
    for one, fit in chosen.others:
        log.note(*_refusal(fit), count=chosen.alike([one]).height)
    if not chosen.fits:
        return kernels.drop("row")
    told = _told(chosen)
    captures.sentence = _sentence(replays, told, [fit for _, fit in chosen.fits])
    log.note("captured_ops", captures.sentence, count=told.height)
    return _filled(kernels, with_work(*_linked(told), steps)).drop("row")


def _replays(kernels: pl.DataFrame, complete: Complete) -> pl.DataFrame:
    """Return the kernels of replayed graphs of which the trace tells no operator."""
    launching = complete.labels["name"].str.contains(_GRAPH).gather(complete.rows["label"])
    launches = complete.rows["correlation"].filter(launching).drop_nulls().unique()
    alone = pl.col("external").is_null() & pl.col("correlation").is_duplicated()
    replayed = pl.col("correlation").is_in(launches.implode()) | alone
    for column in ("role", "shape"):
        if column in kernels.columns:
            replayed &= pl.col(column).is_null()
    step = pl.col("step") if "step" in kernels.columns else pl.lit(None, dtype=pl.Int64)
    grid = pl.col("grid").cast(pl.String) if "grid" in kernels.columns else pl.lit(None, dtype=pl.String)
    return kernels.filter(replayed & pl.col("correlation").is_not_null()).select(
        "row", "label", "t", "dur", "at", "correlation", "place", step=step, grid=grid
    )


def _needs(replays: pl.DataFrame, steps: Mapping[int, StepAnnotation]) -> pl.DataFrame:
    """Return what a graph must serve in each step: requests, tokens, padded."""
    numbers = replays["step"].unique(maintain_order=True)
    said = [steps.get(step) if step is not None else None for step in numbers]
    columns = {"requests": "batch", "tokens": "tokens", "padded": "padded"}
    needs = [
        pl.Series(name, [getattr(s, of) if s else None for s in said], dtype=pl.Int64)
        for name, of in columns.items()
    ]
    return pl.DataFrame([numbers, *needs])


@dataclass(frozen=True, eq=False)
class _Chosen:
    """Replays in groups; for each kind of them the kernels of one group, and the graph that it is of or that
    comes nearest to it.
    """

    replays: pl.DataFrame
    kinds: list[tuple[pl.DataFrame, Fit | None]]

    @property
    def fits(self) -> list[tuple[pl.DataFrame, Fit]]:
        """Return the kinds that are of a graph."""
        return [(one, fit) for one, fit in self.kinds if fit and fit.quality >= LEAST]

    @property
    def others(self) -> list[tuple[pl.DataFrame, Fit | None]]:
        """Return the kinds that are of none."""
        return [(one, fit) for one, fit in self.kinds if not (fit and fit.quality >= LEAST)]

    def alike(self, ones: Sequence[pl.DataFrame], how: Literal["semi", "anti"] = "semi") -> pl.DataFrame:
        """Return all replays of the kinds of some groups, or all others."""
        kinds = pl.concat([one.select(_ALIKE) for one in ones]).unique()
        return self.replays.join(kinds, on=_ALIKE, how=how, nulls_equal=True, maintain_order="left")


def _chosen(replays: pl.DataFrame, names: pl.Series, captures: Captures, log: Log) -> _Chosen:
    """Return the graphs that replays are of, in groups.

    A group is all that one step replayed: the pieces of a graph; else each launch by itself: a step may
    replay graphs that have nothing to do with each other.
    """
    by_launch = 2 * pl.col("correlation") + 1
    steps = _grouped(replays, pl.coalesce(2 * pl.col("step"), by_launch))
    whole = _Chosen(steps, _kinds(steps, names, captures, log))
    several = [one for one, _ in whole.others if one["piece"].n_unique() > 1]
    if not several:
        return whole
    launches = _grouped(whole.alike(several), by_launch)
    apart = _kinds(launches, names, captures, log)
    kinds = [(one, fit) for one, fit in whole.kinds if not any(one is other for other in several)]
    return _Chosen(pl.concat([whole.alike(several, "anti"), launches]), kinds + apart)


def _grouped(replays: pl.DataFrame, group: pl.Expr) -> pl.DataFrame:
    """Return replays in groups and in their order: `piece` counts the launches of graphs in a group,
    `position` its kernels, `signature` is the same for groups of the same kernels.
    """
    ordered = replays.with_columns(group=group).sort(
        "group", "at", "correlation", "place", "t", maintain_order=True
    )
    piece = pl.col("correlation").rle_id().over("group").alias("piece")
    ordered = ordered.with_columns(piece, position=pl.int_range(pl.len()).over("group"))
    looks = pl.struct("position", "piece", "place", "label", "grid").hash()
    return ordered.with_columns(signature=looks.sum().over("group"))


def _kinds(
    replays: pl.DataFrame, names: pl.Series, captures: Captures, log: Log
) -> list[tuple[pl.DataFrame, Fit | None]]:
    """Return for each kind of group its kernels of one group, and the graph that it is of, or nearest to."""
    chosen: list[tuple[pl.DataFrame, Fit | None]] = []
    first = replays.group_by(_ALIKE, maintain_order=True).agg(pl.col("group").first())
    for group in first["group"]:
        one = replays.filter(pl.col("group") == group)
        need = Need(*one.select(_ALIKE[1:]).row(0))
        chosen.append((one, choose(captures.graphs(need, log), need, _pieces(one, names))))
    return chosen


def _pieces(group: pl.DataFrame, names: pl.Series) -> list[list[Kernel]]:
    """Return the kernels of one group, a list for each launch of a graph."""
    kernels = zip(names.gather(group["label"]), group["grid"], group["place"], group["piece"], strict=True)
    pieces: dict[int, list[Kernel]] = {}
    for name, grid, place, piece in kernels:
        pieces.setdefault(piece, []).append(Kernel(name, grid, place))
    return list(pieces.values())


def _told(chosen: _Chosen) -> pl.DataFrame:
    """Return the aligned kernels with the fields of their launch; `external` is the operator's call.

    Of a kernel that several launches may stand for, only what they have in common is told.
    """
    fits = chosen.fits
    graphs = list({id(fit.graph): fit.graph for _, fit in fits}.values())
    sizes = [sum(piece.height for piece in graph.pieces) for graph in graphs]
    behind = {id(graph): sum(sizes[:i]) for i, graph in enumerate(graphs)}
    launches = pl.concat([piece for graph in graphs for piece in graph.pieces])
    pairs = [
        one.select(*_ALIKE, "position").with_columns(
            first=pl.Series(fit.first, dtype=pl.Int64) + behind[id(fit.graph)],
            last=pl.Series(fit.last, dtype=pl.Int64) + behind[id(fit.graph)],
            graph=pl.lit(behind[id(fit.graph)]), sized=pl.lit(fit.sized),
        )
        for one, fit in fits
    ]  # fmt: skip
    key = [*_ALIKE, "position"]
    known = chosen.replays.join(
        pl.concat(pairs), on=key, how="inner", nulls_equal=True, maintain_order="left"
    ).drop_nulls(["first", "last"])
    first, last = (launches.select(_FIELDS)[known[end].cast(pl.UInt32)] for end in ("first", "last"))
    fields = [
        pl.select(pl.when(one.eq_missing(other)).then(one))[:, 0].alias(one.name)
        for one, other in zip(first, last, strict=True)
    ]
    call = pl.struct("group", "piece", "graph", call=launches["call"].gather(known["first"]))
    told = known.with_columns(*fields, external=call.rank("dense").cast(pl.Int64))
    return told.with_columns(operands=pl.when("sized").then("operands"))


def _linked(told: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    """Return aligned kernels as `with_work` wants them, and the names of their operators."""
    operators = told["operator"].cast(pl.Categorical())
    names = operators.drop_nulls().unique(maintain_order=True)
    linked = told.select("row", "dur", "step", *_SCOPED, "external", "operands").with_columns(
        operator=positions_of(operators, names), operands=pl.col("operands").cast(pl.Categorical())
    )
    return linked, names.cast(pl.String)


def _filled(kernels: pl.DataFrame, told: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels with what is told where it is open; a path goes on where the trace's own ends.

    `captured_line` is the function that launched the kernel into its graph.
    """
    given = [c for c in _GIVEN if c in told.columns]
    joined = kernels.join(
        told.select("row", "path", *given, captured_line="line"),
        on="row",
        how="left",
        maintain_order="left",
        suffix=_TOLD,
    )
    both = [c for c in given if c in kernels.columns]
    joined = joined.with_columns(pl.coalesce(c, c + _TOLD) for c in both)
    if "path" in kernels.columns:
        parts = [pl.col(c).cast(pl.String) for c in ("path", "path" + _TOLD)]
        path = pl.concat_str(parts, separator=PATH_SEPARATOR, ignore_nulls=True)
        known = pl.any_horizontal(part.is_not_null() for part in parts)
        joined = joined.with_columns(path=pl.when(known).then(path).cast(pl.Categorical()))
    return joined.drop([c + _TOLD for c in (*both, "path")], strict=False)


def _sentence(replays: pl.DataFrame, told: pl.DataFrame, fits: list[Fit]) -> str:
    """Return what was taken from which captures, for whoever reads ops and shapes."""
    part = float(told["dur"].sum()) / max(float(replays["dur"].sum()), 1.0)
    how = "aligned" if all(fit.named for fit in fits) else "aligned by position alone"
    share = f"{told.height:,} of {replays.height:,} kernels {how}, {100 * part:.0f} % of their time"
    unsized = "" if all(fit.sized for fit in fits) else "; which batch was replayed is not told: no shapes"
    graphs = list({id(fit.graph): _graph(fit.graph) for fit in fits}.values())
    more = f" and {len(graphs) - _SHOWN} more" if len(graphs) > _SHOWN else ""
    of = ", ".join(graphs[:_SHOWN]) + more
    return f"ops and shapes of replayed graphs are from their capture ({of}; {share}{unsized})"


def _graph(graph: CapturedGraph) -> str:
    return f"{graph.file}: {graph.mode} of batch {graph.batch or graph.rows or 'unknown'}"


def _refusal(nearest: Fit | None) -> tuple[str, str]:
    """Return id and message of a notice of replays that are of no graph: how near the best one came."""
    if nearest is None:
        return "capture_missing", "no capture is of a graph that serves these replays"
    near = f"{100 * nearest.quality:.0f} % of it could be aligned, {100 * LEAST:.0f} % are needed"
    return "capture_refused", f"the capture {_graph(nearest.graph)} is not of the graph replayed: {near}"
