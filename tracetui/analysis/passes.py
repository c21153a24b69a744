"""The passes of a training run: which steps are whole, what was done in them, how long each took."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from capture.classify.names import phase_of
from capture.run import Run
from tracetui.analysis import select, steps
from tracetui.look import Look

PHASES: Final = ("forward", "backward", "optimizer")
STEP: Final = "step"
RUN: Final = "run"  # all that was done, where the source marks no phases

_LABELS: Final = {
    "phase": pl.String(),
    "name": pl.String(),
    "category": pl.String(),
    "op": pl.String(),
    "path": pl.String(),
    "layer": pl.Int32(),
}
_APART: Final = ", timed in Python"  # ends the name of a pass that was timed in a run without the profiler
_TORCH: Final = re.compile(r"autograd::|(?:\w+::)*\w+Backward\d*$|Optimizer\.zero_grad#")  # parts of a pass


@dataclass(frozen=True, eq=False)
class Passes:
    """What is known of the passes that a look speaks of."""

    run: Run
    look: Look
    steps: int | None  # how many whole steps; none where steps are not told
    work: pl.DataFrame  # phase, name, category, op, path, layer, count, total_ns, flops; by falling time
    walls: Mapping[str, tuple[int, int]]  # phase → passes, and what they took in all
    stated: Mapping[str, float]  # shares that the source prints: then its kernels are the longest few

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the names of the phases into which the run is split."""
        return PHASES if marked(self.run) else (RUN,)

    def of(self, phase: str) -> pl.DataFrame:
        """Return what was done in a phase, or in all of a step or a run."""
        return self.work if phase in (STEP, RUN) else self.work.filter(pl.col("phase") == phase)

    def whole(self, phase: str) -> int | None:
        """Return the time of all kernels of a phase; None where only a part of them is listed."""
        return None if self.stated else int(self.of(phase)["total_ns"].sum())


def marked(run: Run) -> bool:
    """Tell whether any phase of training is marked."""
    return not set(PHASES).isdisjoint(select.phases(run))


def passes(run: Run, look: Look) -> Passes:
    """Return the passes of the whole steps that the look speaks of."""
    whole_steps = _whole_steps(run, look)
    marks = steps.marks(run)
    marks = (
        marks.clear() if whole_steps is None else marks.filter(pl.col("step").is_in(whole_steps.implode()))
    )
    walls = _walls(run, look, whole_steps) | _step_wall(marks)
    count = None if whole_steps is None else int(marks["steps"].sum())
    return Passes(run, look, count, _work(run, look, whole_steps), walls, _stated(run))


def apart(run: Run, phase: str) -> int | None:
    """Return how long one pass took in a run without the profiler; None where none was timed."""
    times = run.meta.get("unprofiled_ns")
    if isinstance(times, Mapping):
        parts = [times.get(p) for p in (PHASES if phase == STEP else (phase,))]
        numbers = [n for n in parts if isinstance(n, int)]
        return sum(numbers) if len(numbers) == len(parts) else None
    own = run.events.filter(kind="span", phase=phase) if run.has("phase") else run.events.clear()
    own = own.filter(pl.col("name").cast(pl.String).str.ends_with(_APART))
    return int(own["dur"].sum()) if own.height and run.has("dur") else None


def _whole_steps(run: Run, look: Look) -> pl.Series | None:
    """Return the steps in which every phase was seen that has kernels; None without steps or phases."""
    if not (run.has("step") and marked(run)):
        return None
    rows = select.timed(run, look).filter(pl.col("phase").cast(pl.String).is_in(PHASES))
    phased = rows.filter(pl.col("step").is_not_null()).select("step", "phase").unique().collect()
    if phased.is_empty():
        return None
    counts = phased.group_by("step").agg(pl.len())
    return counts.filter(pl.col("len") == phased["phase"].n_unique())["step"]


def _work(run: Run, look: Look, whole_steps: pl.Series | None) -> pl.DataFrame:
    """Return the rows of whole steps; of the phases, where no steps are told; all, without phases."""
    lacking = {c: kind for c, kind in {**_LABELS, "flops": pl.Float64()}.items() if not run.has(c)}
    rows = select.timed(run, look).with_columns(pl.lit(None, kind).alias(c) for c, kind in lacking.items())
    whole = pl.col("phase").cast(pl.String).is_in(PHASES) if marked(run) else pl.lit(value=True)
    if whole_steps is not None:
        whole = pl.col("step").is_in(whole_steps.implode())
    flops = pl.when(pl.col("flops").count() > 0).then(pl.col("flops").sum())
    sums = (
        rows.filter(whole)
        .group_by(*_LABELS)
        .agg(
            select.standing_for(run).sum().cast(pl.Int64).alias("count"),
            pl.col("dur").sum().alias("total_ns"),
            flops.alias("flops"),
        )
    )
    plain = sums.with_columns(pl.col(c).cast(kind) for c, kind in _LABELS.items())
    order = [True, *(False for _ in _LABELS)]
    return plain.sort("total_ns", *_LABELS, descending=order, nulls_last=True).collect()


def _walls(run: Run, look: Look, whole_steps: pl.Series | None) -> dict[str, tuple[int, int]]:
    """Return phase → how many spans are called by it, and what they took."""
    if not marked(run):
        return {}
    spans = select.timed(run, look, "span", "wall" if run.has("lens") else None)
    spans = spans.filter(pl.col("phase").cast(pl.String).is_in(PHASES))
    if whole_steps is not None:
        spans = spans.filter(pl.col("step").is_null() | pl.col("step").is_in(whole_steps.implode()))
    path = pl.col("path") if run.has("path") else pl.lit(None)
    sums = (
        spans.group_by(pl.col("phase", "name").cast(pl.String), path.cast(pl.String).alias("path"))
        .agg(select.standing_for(run).sum().cast(pl.Int64).alias("count"), pl.col("dur").sum())
        .collect()
    )
    walls: dict[str, tuple[int, int]] = {}
    for phase, name, where, count, dur in sums.iter_rows():
        if _is_pass(phase, name, where):
            times, total = walls.get(phase, (0, 0))
            walls[phase] = (times + count, total + dur)
    return walls


def _is_pass(phase: str, name: str, path: str | None) -> bool:
    """Tell whether a span is the phase itself: not something within it, nor a pass that was timed apart."""
    if name.endswith(_APART) or _TORCH.match(name):
        return False
    return phase_of(name) == phase and phase_of(path or "") != phase


def _step_wall(marks: pl.DataFrame) -> dict[str, tuple[int, int]]:
    timed = marks.drop_nulls("wall_ns")
    return {STEP: (int(timed["steps"].sum()), int(timed["wall_ns"].sum()))} if timed.height else {}


def _stated(run: Run) -> dict[str, float]:
    """Return the shares that the source prints, `matmul_forward_%` and its like, in per cent."""
    if not run.has("value"):
        return {}
    rows = run.events.filter(kind="counter").select(pl.col("name").cast(pl.String), "value")
    return dict(rows.filter(pl.col("name").str.contains(r"^(matmul|other)_(forward|train)_%$")).iter_rows())
