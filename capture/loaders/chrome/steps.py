"""Which rows open a step: annotations of serving engines, else the profiler's numbers, else numbered ones."""

from bisect import bisect
from collections.abc import Iterator
from typing import Final

import polars as pl

from capture.classify.annotations import StepAnnotation, read_capture, read_step
from capture.importlog import Log
from capture.loaders.chrome.tables import Complete

FACTS: Final = ("tokens", "context", "batch")  # what a step row says of its step, beside its phase
_ANNOTATING: Final = ("user_annotation", "cpu_op", "Operator")
_PROFILER: Final = "ProfilerStep"
_RUNTIME: Final = ("cuda_runtime", "cuda_driver", "Runtime")
_FEW: Final = 10  # times more launches than kernels ran tell a graph's capture from its execution


def opened(complete: Complete) -> Complete:
    """Return the events with the `step` that a row opens, null for rows that open none.

    The labels get `opens`, whether their rows do; `stated`, whether an engine wrote them to mark a step; and
    `phase`, `batch`, `tokens`, `context` of that step. Steps of engines are numbered from 1 in order of time.
    """
    pairs = complete.labels.select("cat", "name").iter_rows()
    read = [read_step(name) if cat in _ANNOTATING else None for cat, name in pairs]
    stated = [step is not None and step.number is None for step in read]
    if any(stated):
        return _opened_by_engine(complete, read, stated)
    numbers = pl.Series(_numbers(complete.labels["name"], read), dtype=pl.Int64)
    labels = complete.labels.with_columns(opens=numbers.is_not_null(), stated=False)
    return Complete(complete.rows.with_columns(step=numbers.gather(complete.rows["label"])), labels)


def said_of(complete: Complete) -> dict[int, StepAnnotation]:
    """Return what an engine's annotation says of each step, empty where there is none."""
    if not complete.labels["stated"].any():
        return {}
    names = complete.labels["name"]
    steps = complete.rows.filter(pl.col("step").is_not_null()).select("step", "label").iter_rows()
    return {step: said for step, label in steps if (said := read_step(names[label]))}


def steps_at(times: pl.Series, steps: pl.DataFrame) -> pl.Series:
    """Return the number of the step that runs at each time, none between steps."""
    steps = steps.drop_nulls(["t", "dur"]).sort("t")
    index = last_before(steps["t"], times)
    end = (steps["t"] + steps["dur"]).gather(index)
    return pl.select(pl.when(times < end).then(steps["step"].gather(index)))[:, 0]


def last_before(sorted_times: pl.Series, times: pl.Series) -> pl.Series:
    """Return the index of the last of the sorted times that is not after each time, none before the first."""
    index = sorted_times.search_sorted(times.fill_null(-(1 << 63)), side="right").cast(pl.Int64) - 1
    return pl.select(pl.when(index >= 0).then(index))[:, 0]


def note_capture(complete: Complete, log: Log) -> None:
    """Say it where a trace shows the capture of a graph and not its execution."""
    names = complete.labels.filter(pl.col("cat").is_in(_ANNOTATING))["name"]
    captured = [capture for name in names if (capture := read_capture(name))]
    if not captured:
        return
    launch = pl.col("cat").is_in(_RUNTIME) & pl.col("name").str.contains("Launch")
    kinds = complete.labels.select(launch=launch.fill_null(False), kernel=pl.col("kind") == "kernel")
    launches, kernels = (kinds[c].gather(complete.rows["label"]).sum() for c in kinds.columns)
    if launches > _FEW * kernels:
        first = captured[0]
        log.note(
            "graph_capture",
            f"this is the capture of a graph (batch {first.batch}, {first.mode}): {launches} launches were "
            f"recorded and {kernels} kernels ran; open it with its execution trace",
        )


def _numbers(names: pl.Series, read: list[StepAnnotation | None]) -> list[int | None]:
    """Return the number of the step that each label opens: the profiler's own, else any that are numbered."""
    numbers = [None if step is None else step.number for step in read]
    own = [n if name.startswith(_PROFILER) else None for n, name in zip(numbers, names, strict=True)]
    return own if any(n is not None for n in own) else numbers


def _opened_by_engine(complete: Complete, read: list[StepAnnotation | None], stated: list[bool]) -> Complete:
    """Open a step at each annotation, but none where a more detailed one opens the same step."""
    facts = {c: [getattr(step, c) if step else None for step in read] for c in ("phase", *FACTS)}
    mine = pl.Series(stated)
    labels = complete.labels.with_columns(
        pl.Series(c, values, dtype=pl.String if c == "phase" else pl.Int64) for c, values in facts.items()
    ).with_columns(opens=mine, stated=mine)
    details = pl.Series([step.detail if step else 0 for step in read])
    found = complete.rows.with_row_index("row").filter(mine.gather(complete.rows["label"]))
    found = found.with_columns(detail=details.gather(found["label"])).drop_nulls(["t", "dur"])
    winners = sorted(_winners(found))
    numbers = pl.Series([None], dtype=pl.Int64).new_from_index(0, complete.rows.height)
    numbers.scatter([row for _, row in winners], range(1, len(winners) + 1))
    idle = mine.gather(complete.rows["label"]) & numbers.is_null()
    rows = complete.rows.with_columns(step=numbers)
    if idle.any():  # labels of their own for annotations that open no step
        rows = rows.with_columns(label=pl.when(idle).then(pl.col("label") + labels.height).otherwise("label"))
        silent = labels.with_columns(
            *(pl.lit(None, dtype=pl.Int64).alias(c) for c in FACTS), opens=pl.lit(value=False)
        )
        labels = pl.concat([labels, silent])
    return Complete(rows, labels)


def _winners(found: pl.DataFrame) -> Iterator[tuple[int, int]]:
    """Return start and row of the annotations that open a step: the most detailed first, then the widest."""
    taken: list[tuple[int, int]] = []
    ordered = found.sort("detail", "t", "dur", descending=[True, False, True])
    for row, t, dur in ordered.select("row", "t", "dur").iter_rows():
        at = bisect(taken, (t, t))
        if not any(_same_step(t, t + dur, *other) for other in taken[max(at - 1, 0) : at + 1]):
            taken.insert(at, (t, t + dur))
            yield t, row


def _same_step(start: int, end: int, other_start: int, other_end: int) -> bool:
    """Return whether two intervals share more than half of the shorter one."""
    shared = min(end, other_end) - max(start, other_start)
    return 2 * shared > min(end - start, other_end - other_start)
