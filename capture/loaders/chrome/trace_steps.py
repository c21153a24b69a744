"""Find the steps of a trace: annotations of engines, profiler steps, numbered ranges, else implied ones."""

from bisect import bisect
from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

from capture.classify.step_annotations import StepAnnotation, parse_capture_annotation, parse_step_annotation
from capture.dense_lookup import filter_rows, has_value, put_columns
from capture.import_log import Log
from capture.loaders.chrome.trace_model import DEVICE_CATEGORIES, RUNTIME_CATEGORIES, CompleteEvents
from capture.step_ends import GRAPH_LAUNCH_PATTERN, REPLAY_STEP_NAME, derive_replay_steps, find_step_ends

STEP_FIELDS: Final = ("tokens", "context", "batch")  # columns of a step row, besides its phase
_ANNOTATION_CATEGORIES: Final = ("user_annotation", "cpu_op", "Operator")
_PROFILER_STEP: Final = "ProfilerStep"
DISPATCH_PATTERN: Final = r"^PjitFunction\(|LoadedExecutable::Execute"  # JAX starts a computation
_MIN_EMPTY_DISPATCHES: Final = 2  # steps: where each waits for the one before, only the first is empty
_MAX_OVERLAP_NS: Final = 2_000  # of steps one after the other, by rounding
_PHASES: Final = ("prefill", "decode")
_LOOPS: Final = ("iteration", "step", "train_step", "training_step")  # ranges around each pass of a loop
_MIN_DECODE_RATIO: Final = 2  # ranges called decode per range called prefill, from which each is a step
_OPTIMIZER_STEP: Final = "Optimizer.step#"  # PyTorch's range around it
_MIN_TRAINING_STEPS: Final = 2
TRAINING_STEP_NAME: Final = "training step"
_TRAINING_NOTE: Final = "steps are inferred from those of the optimizer: nothing in this file marks a step"
_MIN_CAPTURE_RATIO: Final = 10  # launches per kernel that ran, above which a trace shows a graph's capture


def mark_step_starts(complete: CompleteEvents) -> CompleteEvents:
    """Add `step` to the rows: the number of the step that a row starts, null for other rows.

    The labels get `starts_step`; `is_annotation`, whether an engine wrote them to mark a step; and `phase`,
    `batch`, `tokens` and `context` of that step. Annotated steps are numbered from 1 by start time.
    """
    pairs = zip(complete.labels["cat"], complete.labels["name"], strict=True)
    parsed = [parse_step_annotation(name) if cat in _ANNOTATION_CATEGORIES else None for cat, name in pairs]
    if not any(parsed):
        parsed = _parse_phase_names(complete)
    is_annotation = [step is not None and step.number is None for step in parsed]
    if any(is_annotation):
        return _mark_annotated_steps(complete, parsed, is_annotation)
    numbers = pl.Series(_select_step_numbers(complete.labels["name"], parsed), dtype=pl.Int64)
    starts = has_value(numbers).alias("starts_step")
    labels = put_columns(complete.labels, starts, pl.Series("is_annotation", is_annotation, dtype=pl.Boolean))
    return CompleteEvents(put_columns(complete.rows, numbers[complete.rows["label"]].alias("step")), labels)


def _parse_phase_names(complete: CompleteEvents) -> list[StepAnnotation | None]:
    """Read ranges of a program that are called prefill or decode as steps, if decode is one for each token.

    As many of prefill as of decode are whole answers, whose passes are the steps. Else those around the
    passes of a loop, if there are several.
    """
    pairs = zip(complete.labels["cat"], complete.labels["name"], strict=True)
    names = [name if cat == "user_annotation" and name in _PHASES + _LOOPS else None for cat, name in pairs]
    if not any(names):
        return [None] * len(names)
    counts = Counter(pl.Series(names)[complete.rows["label"]].drop_nulls())
    if counts["decode"] >= _MIN_DECODE_RATIO * max(1, counts["prefill"]):
        return [StepAnnotation(name) if name in _PHASES else None for name in names]
    return [StepAnnotation() if name in _LOOPS and counts[name] > 1 else None for name in names]


def _select_step_numbers(names: pl.Series, parsed: list[StepAnnotation | None]) -> list[int | None]:
    """Select the number of the step that each label starts: profiler steps if there are any, else all."""
    numbers = [None if step is None else step.number for step in parsed]
    steps = [n if name.startswith(_PROFILER_STEP) else None for n, name in zip(numbers, names, strict=True)]
    return steps if any(n is not None for n in steps) else numbers


def _mark_annotated_steps(
    complete: CompleteEvents, parsed: list[StepAnnotation | None], is_annotation: list[bool]
) -> CompleteEvents:
    """Start a step at each annotation, except an empty one and where a more detailed one starts it."""
    fields = {c: [getattr(step, c) if step else None for step in parsed] for c in ("phase", *STEP_FIELDS)}
    annotates = pl.Series(is_annotation)
    labels = complete.labels.with_columns(
        pl.Series(c, values, dtype=pl.String if c == "phase" else pl.Int64) for c, values in fields.items()
    ).with_columns(starts_step=annotates, is_annotation=annotates)
    details = pl.Series([step and step.detail for step in parsed], dtype=pl.Int64)
    annotations = complete.rows.with_row_index("row").filter(annotates[complete.rows["label"]])
    annotations = annotations.with_columns(detail=details[annotations["label"]])
    starts = sorted(_select_step_annotations(annotations.drop_nulls(["t", "dur", "detail"])))
    numbers = pl.Series([None], dtype=pl.Int64).new_from_index(0, complete.rows.height)
    numbers.scatter([row for _, row in starts], range(1, len(starts) + 1))
    is_unused = annotates[complete.rows["label"]] & numbers.is_null()
    rows = complete.rows.with_columns(step=numbers)
    if is_unused.any():  # annotations that start no step get labels of their own
        new_label = pl.when(is_unused).then(pl.col("label") + labels.height).otherwise("label")
        rows = rows.with_columns(label=new_label)
        unused = labels.with_columns(
            *(pl.lit(None, dtype=pl.Int64).alias(c) for c in STEP_FIELDS), starts_step=pl.lit(value=False)
        )
        labels = pl.concat([labels, unused])
    return CompleteEvents(rows, labels)


def _select_step_annotations(annotations: pl.DataFrame) -> Iterator[tuple[int, int]]:
    """Yield start and row of the annotations that start a step: the most detailed first, then the longest."""
    steps: list[tuple[int, int]] = []
    ordered = annotations.sort("detail", "t", "dur", descending=[True, False, True])
    for row, t, dur in ordered.select("row", "t", "dur").iter_rows():
        at = bisect(steps, (t, t))
        if not any(_is_same_step(t, t + dur, *other) for other in steps[max(at - 1, 0) : at + 1]):
            steps.insert(at, (t, t + dur))
            yield t, row


def _is_same_step(start: int, end: int, other_start: int, other_end: int) -> bool:
    """Whether two intervals share more than half of the shorter one."""
    shared = min(end, other_end) - max(start, other_start)
    return 2 * shared > min(end - start, other_end - other_start)


def read_step_annotations(complete: CompleteEvents) -> dict[int, StepAnnotation]:
    """Read the engine's annotation of each step; empty without annotations."""
    if not complete.labels["is_annotation"].any():
        return {}
    names = complete.labels["name"]
    steps = complete.rows.filter(pl.col("step").is_not_null()).select("step", "label").iter_rows()
    parsed = ((step, parse_step_annotation(names[label])) for step, label in steps)
    return {step: annotation for step, annotation in parsed if annotation}


def add_implied_steps(complete: CompleteEvents, log: Log) -> CompleteEvents:
    """Add a row for each step that graph launches or an optimizer imply, if no label starts a step."""
    if complete.labels["starts_step"].any():
        return complete
    for derive in (_derive_graph_steps, _derive_training_steps):
        steps, name, thread = derive(complete, log)
        if steps.height:
            return _append_steps(complete, steps, name, thread)
    return complete


def _derive_graph_steps(complete: CompleteEvents, log: Log) -> tuple[pl.DataFrame, str, str]:
    """Derive the steps of graph launches, with their name and thread."""
    labels, none = complete.labels, (pl.DataFrame(), "", "")
    is_launch = labels["name"].str.contains(GRAPH_LAUNCH_PATTERN)[complete.rows["label"]]
    if not is_launch.any():
        return none
    is_kernel = labels["cat"].is_in(DEVICE_CATEGORIES).fill_null(value=False)[complete.rows["label"]]
    rows = complete.rows.with_columns(is_launch=is_launch, is_kernel=is_kernel)
    rows = rows.drop_nulls(["t", "dur", "correlation"])
    launches = rows.filter("is_launch").select("t", "label", key="correlation")
    kernels = rows.filter("is_kernel").select("t", "dur", key="correlation", name="label")
    steps = derive_replay_steps(launches.drop("label"), kernels, log)
    return (steps, REPLAY_STEP_NAME, labels["thread"][int(launches["label"][0])]) if steps.height else none


def _derive_training_steps(complete: CompleteEvents, log: Log) -> tuple[pl.DataFrame, str, str]:
    """Derive the steps of training, each of which ends with the step of an optimizer; also name and thread.

    Of several optimizers, the one that is called least often ends a step.
    """
    labels = complete.labels.with_row_index("label").filter(pl.col("name").str.starts_with(_OPTIMIZER_STEP))
    rows = complete.rows.select("label", "t", "dur").drop_nulls()
    calls = rows.join(labels.select("label"), on="label", how="semi")
    counts = calls.group_by("label").len().filter(pl.col("len") >= _MIN_TRAINING_STEPS).sort("len", "label")
    if counts.is_empty():
        return pl.DataFrame(), "", ""
    label = counts["label"][0]
    thread = complete.labels["thread"][int(label)]
    is_of_thread = (complete.labels["thread"] == thread)[rows["label"]]
    ends = (calls.filter(label=label).select(end=pl.col("t") + pl.col("dur")).sort("end"))["end"]
    begins = ends.shift(1, fill_value=rows.filter(is_of_thread)["t"].min())
    log.note("inferred_steps", _TRAINING_NOTE, count=ends.len())
    steps = pl.DataFrame({"step": range(1, ends.len() + 1), "t": begins, "dur": ends - begins})
    return steps, TRAINING_STEP_NAME, thread


def _append_steps(complete: CompleteEvents, steps: pl.DataFrame, name: str, thread: str) -> CompleteEvents:
    """Append the rows of steps, with a label of their own."""
    label = {
        "cat": "user_annotation", "name": name, "thread": thread, "starts_step": True, "is_annotation": False,
    }  # fmt: skip
    step_rows = steps.with_columns(label=pl.lit(complete.labels.height, dtype=pl.UInt32))
    return CompleteEvents(
        pl.concat([complete.rows, step_rows], how="diagonal_relaxed"),
        pl.concat([complete.labels, pl.DataFrame(label)], how="diagonal_relaxed"),
    )


def extend_steps(complete: CompleteEvents) -> CompleteEvents:
    """Let each annotated step last until the next one begins, or the next annotation of an empty step.

    The last one ends with what its thread began after it, within the median of what lies between the others.
    """
    if not complete.labels["is_annotation"].any():
        return complete
    is_mark = pl.col("step").is_not_null() | complete.expand_label("is_annotation")
    rows = complete.rows.with_row_index("row").with_columns(thread=complete.expand_label("thread"))
    marks = rows.filter(is_mark & pl.col("dur").is_not_null() & pl.col("t").is_not_null()).sort("t")
    latest_end = pl.when(pl.col("step").is_not_null()).then(pl.col("t") + pl.col("dur")).cum_max().shift(1)
    marks = marks.filter(pl.col("step").is_not_null() | (pl.col("t") >= latest_end))
    if not marks["step"].count():
        return complete
    ends = find_step_ends(marks["t"], marks["dur"])
    between = (ends - marks["t"] - marks["dur"])[:-1].median()
    if isinstance(between, float) and between > 0:
        last, own_end = marks.row(-1, named=True), ends[-1]
        is_next = (pl.col("thread") == last["thread"]) & pl.col("t").is_between(own_end, own_end + between)
        latest = rows.filter(is_next).select((pl.col("t") + pl.col("dur")).max()).item()
        ends[-1] = max(own_end, latest or 0)
    is_step = marks["step"].is_not_null()
    dur = complete.rows["dur"].clone()
    dur = dur.scatter(marks["row"].filter(is_step), (ends - marks["t"]).filter(is_step))
    return CompleteEvents(complete.rows.with_columns(dur=dur), complete.labels)


def select_steps(rows: pl.DataFrame) -> pl.DataFrame:
    """Select label, t, dur and step of the rows that start a step; each lasts until the next one begins."""
    steps = rows[["label", "t", "dur", "step"]]
    if steps["step"].null_count() == steps.height:
        return steps.clear()
    steps = filter_rows(steps, has_value(steps["step"]))
    steps = steps if steps["t"].is_sorted() else steps.sort("t")
    return put_columns(steps, (find_step_ends(steps["t"], steps["dur"]) - steps["t"]).alias("dur"))


def note_overlapping_steps(complete: CompleteEvents, log: Log) -> None:
    """Note steps that begin before the one before ends: what runs then is of either."""
    starts = complete.rows.filter(pl.col("step").is_not_null()).drop_nulls(["t", "dur"])
    latest_end = (pl.col("t") + pl.col("dur")).cum_max().shift(1)
    count = starts.sort("t").select((pl.col("t") < latest_end - _MAX_OVERLAP_NS).sum()).item()
    if count:
        message = f"{count:,} of {starts.height:,} steps begin before another one ends"
        log.note("overlapping_steps", f"{message}: operations then count for the one begun last")


def drop_dispatch_steps(complete: CompleteEvents, is_work: pl.Series, log: Log) -> CompleteEvents:
    """Make spans of the steps if most of the work ran outside of them, or in others: they only started it."""
    steps, work = select_steps(complete.rows), complete.rows.filter(is_work).drop_nulls(["t", "dur"])
    if steps.is_empty():
        return complete
    is_inside = find_steps_at(work["t"], steps).is_not_null()
    inside_ns, total_ns = int(work["dur"].filter(is_inside).sum()), int(work["dur"].sum())
    empty = _count_empty_dispatches(complete, steps, find_steps_at(work["t"], steps))
    if 2 * inside_ns >= total_ns and empty < _MIN_EMPTY_DISPATCHES:
        return complete
    what = f"{1 - inside_ns / total_ns:.0%} of the work ran outside of the annotated steps"
    if 2 * inside_ns >= total_ns:
        what = f"{empty:,} of {steps.height:,} annotated steps ended before their work ran"
    log.note("dispatch_steps", f"{what}: they only start it, and count as spans")
    is_step = pl.col("starts_step")
    labels = complete.labels.with_columns(
        kind=pl.when(is_step).then(pl.lit("span")).otherwise("kind"),
        lens=pl.when(is_step).then(pl.lit("host")).otherwise("lens"),
        starts_step=False,
        is_annotation=False,
    )
    no_step = pl.lit(None, complete.rows["step"].dtype)
    return CompleteEvents(complete.rows.with_columns(step=no_step), labels)


def _count_empty_dispatches(complete: CompleteEvents, steps: pl.DataFrame, work_steps: pl.Series) -> int:
    """Count the steps that started a computation of XLA and in which none ran."""
    is_dispatch = complete.labels["name"].str.contains(DISPATCH_PATTERN)[complete.rows["label"]]
    started = find_steps_at(complete.rows["t"].filter(is_dispatch).drop_nulls(), steps).drop_nulls()
    return len(set(started) - set(work_steps.drop_nulls()))


def find_steps_at(times: pl.Series, steps: pl.DataFrame) -> pl.Series:
    """Find the number of the step that runs at each time; null between steps. `steps` are sorted by t."""
    if steps["t"].null_count() or steps["dur"].null_count():
        steps = steps.drop_nulls(["t", "dur"])
    index = find_last_before(steps["t"], times)
    end = (steps["t"] + steps["dur"])[index]
    return steps["step"][index].set(times >= end, None)


def find_last_before(sorted_times: pl.Series, times: pl.Series) -> pl.Series:
    """Find the index of the last sorted time that is not after each time; null before the first."""
    if times.null_count():
        times = times.fill_null(-(1 << 63))
    following = np.searchsorted(sorted_times.to_numpy(), times.to_numpy(), side="right")
    return pl.Series(following - 1).cast(pl.UInt32, strict=False)  # null for -1


def note_capture_trace(complete: CompleteEvents, log: Log) -> None:
    """Note that a trace shows the capture of a graph instead of its execution."""
    pairs = zip(complete.labels["cat"], complete.labels["name"], strict=True)
    names = [name for cat, name in pairs if cat in _ANNOTATION_CATEGORIES]
    captures = [capture for name in names if (capture := parse_capture_annotation(name))]
    if not captures:
        return
    launch = pl.col("cat").is_in(RUNTIME_CATEGORIES) & pl.col("name").str.contains("Launch")
    labels = complete.labels.select(is_launch=launch.fill_null(False), is_kernel=pl.col("kind") == "kernel")
    launches, kernels = (labels[c][complete.rows["label"]].sum() for c in labels.columns)
    if launches > _MIN_CAPTURE_RATIO * kernels:
        graph = f"batch {captures[0].batch}, {captures[0].mode}"
        counts = f"{launches} launches were recorded and {kernels} kernels ran"
        message = f"this is the capture of a graph ({graph}): {counts}; open it with its execution trace"
        log.note("graph_capture", message)
