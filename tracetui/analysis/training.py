"""Training runs: time of each phase, its kernels, and the share of matrix products.

A row's phase and owner come from its plan or scope, else from the kernel's name.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from capture.classify.name_rules import find_phase
from capture.native.schema import PATH_SEPARATOR
from capture.run import Run
from tracetui.analysis.frames.selection import build_totals, list_phases, select_timed
from tracetui.analysis.time.series import select_samples
from tracetui.analysis.time.step_table import build_step_facts
from tracetui.look import Look

PHASES: Final = ("forward", "backward", "optimizer")
STEP: Final = "step"
RUN: Final = "run"  # everything, if the source marks no phases
TOP_KERNELS: Final = 5
SCHEMA: Final = {
    **dict.fromkeys(("part", "phase", "name", "category"), pl.String()),
    **dict.fromkeys(("count", "total_ns", "mean_ns"), pl.Int64()),
    **dict.fromkeys(("share", "time_ratio", "flops", "flop_ratio"), pl.Float64()),
    "bytes": pl.Int64(),
    "text": pl.String(),
}
_TEXTS: Final = ("phase", "name", "category", "op", "path")
_LABELS: Final = {**dict.fromkeys(_TEXTS, pl.String()), "layer": pl.Int32()}
_UNPROFILED_SUFFIX: Final = ", timed in Python"  # ends the name of a pass timed without the profiler
# spans inside a pass
_INNER_SPAN: Final = re.compile(r"autograd::|(?:\w+::)*\w+Backward\d*$|Optimizer\.zero_grad#")
_OF_ATTENTION: Final = r"(?i)scores|final[ _]matmul|out(put)?[ _]proj|\bo_proj"
_LOG_SOFTMAX: Final = r"(?i)log_?softmax"  # of the loss, never of attention
_NO_MODULE: Final = r"(?i)^\[|::|^\w*backward\d*$|step$|^iter|loss$"  # parts of a path that are not modules
_GRADIENTS: Final = "AccumulateGrad"  # autograd's node that sums a parameter's gradient
_LOSS: Final = r"(?i)nll_?loss|cross_?entropy|log_?softmax|\bloss"  # of a path without a module
_NAMED: Final = ("loss", "embed", "grad_accum")  # named backward work outside all layers
_PRINTED: Final = {"forward": "forward", "backward": "backward", "optimizer": "optimizer", STEP: "train"}
_UNMARKED: Final = (
    "this source marks no phase: figures are of the whole run; ranges or annotations named forward, "
    "backward and optimizer separate them"
)
_MEMORY_PLAN: Final = {
    "held before the model": "bytes_before",
    "weights, gradients, moments": "bytes_of_states",
    "foreseen at its fullest": "bytes_needed",
}
_NOT_REPORTED: Final = "this source does not report"
Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class TrainingPasses:
    """Complete steps of a training run that the look selects, with their kernels and durations."""

    run: Run
    look: Look
    step_count: int | None  # complete steps; None without steps
    work: pl.DataFrame  # phase, name, category, op, path, layer, count,  total_ns, flops; by falling time
    wall_times: Mapping[str, tuple[int, int]]  # phase → number of passes, total ns
    reported_shares: Mapping[str, float]  # printed by the source, which then lists only its longest kernels

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases into which the run is split."""
        return PHASES if has_training_phases(self.run) else (RUN,)

    def select(self, phase: str) -> pl.DataFrame:
        """Return the work of a phase, or all of it for a step or run."""
        return self.work if phase in (STEP, RUN) else self.work.filter(pl.col("phase") == phase)

    def sum_kernel_ns(self, phase: str) -> int | None:
        """Return the kernel time of a phase; None if only a part of its kernels is listed."""
        return None if self.reported_shares else int(self.select(phase)["total_ns"].sum())


def has_training_phases(run: Run) -> bool:
    """True if any phase of training is marked."""
    return not set(PHASES).isdisjoint(list_phases(run))


def measure_passes(run: Run, look: Look) -> TrainingPasses:
    """Measure the complete steps that the look selects."""
    complete_steps, count = _find_complete_steps(run, look), None
    wall_times = _sum_wall_times(run, look, complete_steps)
    if complete_steps is not None:
        facts = build_step_facts(run).filter(pl.col("step").is_in(complete_steps.implode()))
        count, timed = int(facts["steps"].sum()), facts.drop_nulls("wall_ns")
        if timed.height:
            wall_times[STEP] = int(timed["steps"].sum()), int(timed["wall_ns"].sum())
    work = _sum_work(run, look, complete_steps)
    return TrainingPasses(run, look, count, work, wall_times, _read_reported_shares(run))


def find_unprofiled_ns(run: Run, phase: str) -> int | None:
    """Return the duration of one pass in a run without the profiler; None if none was timed."""
    times = run.meta.get("unprofiled_ns")
    if isinstance(times, Mapping):
        durations = [times.get(p) for p in (PHASES if phase == STEP else (phase,))]
        known_ns = [n for n in durations if isinstance(n, int)]
        return sum(known_ns) if len(known_ns) == len(durations) else None
    spans = run.events.filter(kind="span", phase=phase) if run.has("phase") else run.events.clear()
    spans = spans.filter(pl.col("name").cast(pl.String).str.ends_with(_UNPROFILED_SUFFIX))
    return int(spans["dur"].sum()) if spans.height and run.has("dur") else None


def _find_complete_steps(run: Run, look: Look) -> pl.Series | None:
    """Return the steps that have every phase with kernels; None without steps or phases."""
    if not (run.has("step") and has_training_phases(run)):
        return None
    rows = select_timed(run, look).filter(pl.col("phase").cast(pl.String).is_in(PHASES))
    step_phases = rows.filter(pl.col("step").is_not_null()).select("step", "phase").unique().collect()
    if step_phases.is_empty():
        return None
    counts = step_phases.group_by("step").agg(pl.len())
    return counts.filter(pl.col("len") == step_phases["phase"].n_unique())["step"]


def _sum_work(run: Run, look: Look, complete_steps: pl.Series | None) -> pl.DataFrame:
    """Return the sums of rows in complete steps; without steps, in phases; without phases, of all rows."""
    missing = {c: kind for c, kind in {**_LABELS, "flops": pl.Float64()}.items() if not run.has(c)}
    rows = select_timed(run, look).with_columns(pl.lit(None, kind).alias(c) for c, kind in missing.items())
    if complete_steps is not None:
        rows = rows.filter(pl.col("step").is_in(complete_steps.implode()))
    elif has_training_phases(run):
        rows = rows.filter(pl.col("phase").cast(pl.String).is_in(PHASES))
    flops = pl.when(pl.col("flops").count() > 0).then(pl.col("flops").sum()).alias("flops")
    sums = rows.group_by(*_LABELS).agg(*build_totals(run), flops)
    table = sums.with_columns(pl.col(c).cast(kind) for c, kind in _LABELS.items())
    order = [True, *(False for _ in _LABELS)]
    return table.sort("total_ns", *_LABELS, descending=order, nulls_last=True).collect()


def _sum_wall_times(run: Run, look: Look, complete_steps: pl.Series | None) -> dict[str, tuple[int, int]]:
    """Return for each phase the number of its spans, and their total time."""
    if not has_training_phases(run):
        return {}
    spans = select_timed(run, look, "span", "wall" if run.has("lens") else None)
    spans = spans.filter(pl.col("phase").cast(pl.String).is_in(PHASES))
    if complete_steps is not None:
        spans = spans.filter(pl.col("step").is_null() | pl.col("step").is_in(complete_steps.implode()))
    path = (pl.col("path") if run.has("path") else pl.lit(None)).cast(pl.String).alias("path")
    groups = spans.group_by(pl.col("phase", "name").cast(pl.String), path)
    wall_times: dict[str, tuple[int, int]] = {}
    for phase, name, where, count, dur in groups.agg(*build_totals(run)).collect().iter_rows():
        if _is_pass(phase, name, where):
            times, total = wall_times.get(phase, (0, 0))
            wall_times[phase] = (times + count, total + dur)
    return wall_times


def _is_pass(phase: str, name: str, path: str | None) -> bool:
    """True if a span is the phase itself, neither part of it nor timed without the profiler."""
    if name.endswith(_UNPROFILED_SUFFIX) or _INNER_SPAN.match(name):
        return False
    return find_phase(name) == phase and find_phase(path or "") != phase


def _read_reported_shares(run: Run) -> dict[str, float]:
    """Return the shares that the source prints, `matmul_forward_%` and the like, in per cent."""
    if not run.has("value"):
        return {}
    rows = run.events.filter(kind="counter").select(pl.col("name").cast(pl.String), "value")
    return dict(rows.filter(pl.col("name").str.contains(r"^(matmul|other)_(forward|train)_%$")).iter_rows())


def compute_training_table(run: Run, look: Look) -> tuple[pl.DataFrame, list[str]]:
    """Return one row per figure, part by part, and notes; `text` explains a missing answer."""
    passes = measure_passes(run, look)
    rows = [{"part": name, **row} for name, iter_rows in PARTS.items() for row in iter_rows(passes)]
    return pl.DataFrame(rows, schema=SCHEMA), _note_limits(passes)


def _note_limits(passes: TrainingPasses) -> list[str]:
    notes = [] if has_training_phases(passes.run) else [_UNMARKED]
    if passes.step_count is not None:
        notes.append(f"totals are of {passes.step_count:,} {'step' if passes.step_count == 1 else 'steps'}")
    if passes.reported_shares:
        notes.append("the source lists only the longest kernels; shares are those it prints")
    if passes.work["category"].eq("attention").any():
        notes.append("fused attention contains products, but is not counted as matmul")
    return notes


def _iter_times(passes: TrainingPasses) -> Iterator[Row]:
    """Yield the time of each phase: wall, kernels, and wall without the profiler."""
    step_wall = passes.wall_times.get(STEP, (0, 0))[1]
    for phase in dict.fromkeys((*PHASES, STEP, *passes.phases)):
        count, wall = passes.wall_times.get(phase, (0, 0))
        if count:
            share = _divide(wall, step_wall) if phase != STEP else None
            yield _build_row(phase, "wall", count, wall, share=share)
        elif phase == "forward":
            yield {"phase": phase, "text": f"{_NOT_REPORTED} how long the forward pass took as a whole"}
        kernels = passes.select(phase)
        is_marked = count or phase in passes.phases or has_training_phases(passes.run)
        if kernels.height and is_marked and not passes.reported_shares:
            row = _build_sum_row(phase, "kernels", kernels, wall or None)
            yield row | {"mean_ns": round(row["total_ns"] / count) if count else None}
        yield from _iter_unprofiled(passes, phase, _divide(wall, count))


def _iter_unprofiled(passes: TrainingPasses, phase: str, wall: float | None) -> Iterator[Row]:
    """Yield the same pass without the profiler, and the ratio."""
    name, took_ns = "without the profiler", find_unprofiled_ns(passes.run, phase)
    if took_ns is not None:
        yield _build_row(phase, name, 1, took_ns) | {"time_ratio": _divide(took_ns, wall)}
    elif phase == "forward":
        yield {"phase": phase, "name": name, "text": f"{_NOT_REPORTED} how long a pass takes then"}


def _iter_top_kernels(passes: TrainingPasses) -> Iterator[Row]:
    for phase in passes.phases:
        work = passes.select(phase)
        if work.is_empty():
            yield _build_no_kernels_row(phase, [phase])
        sums = work.group_by("name", "category").agg(pl.col("count", "total_ns").sum())
        order = sums.sort("total_ns", "name", "category", descending=[True, False, False])
        yield from _iter_category_rows(passes, phase, order.head(TOP_KERNELS))


def _iter_category_rows(passes: TrainingPasses, phase: str, rows: pl.DataFrame) -> Iterator[Row]:
    """Yield rows (`name`, `category`, sums) with their shares of the phase."""
    for row in rows.iter_rows(named=True):
        share = _divide(row["total_ns"], passes.sum_kernel_ns(phase))
        figure = _build_row(phase, row["name"], row["count"], row["total_ns"], share=share)
        yield figure | {"category": row["category"]}


def _iter_others(passes: TrainingPasses) -> Iterator[Row]:
    """Yield the work of each phase besides matrix products, by category."""
    for phase in passes.phases:
        others = passes.select(phase).filter(pl.col("category").ne_missing("matmul"))
        if passes.select(phase).is_empty() and not _is_reported(passes, phase):
            yield _build_no_kernels_row(phase, [phase])
            continue
        yield _build_share_row(passes, phase, "all but matmul", others)
        sums = others.group_by(pl.col("category").fill_null("other")).agg(pl.col("count", "total_ns").sum())
        sums = sums.sort("total_ns", "category", descending=[True, False]).with_columns(name="category")
        yield from _iter_category_rows(passes, phase, sums)


def _iter_products(passes: TrainingPasses) -> Iterator[Row]:
    """Yield the share of matrix products in the forward pass, and in the whole step."""
    for phase in ("forward", STEP) if has_training_phases(passes.run) else (RUN,):
        missing = [] if _is_reported(passes, phase) else _list_unseen_phases(passes, phase)
        if missing:
            yield _build_no_kernels_row(phase, missing)
            continue
        work, is_product = passes.select(phase), pl.col("category").eq_missing("matmul")
        yield _build_share_row(passes, phase, "matmul", work.filter(is_product))
        yield _build_share_row(passes, phase, "other", work.filter(~is_product))


def _list_unseen_phases(passes: TrainingPasses, phase: str) -> list[str]:
    """Return the phases in question without any known kernel."""
    required = {"forward", "backward", *passes.wall_times} if phase == STEP else {phase}
    return [p for p in PHASES if p in required and passes.select(p).is_empty()]


def _iter_attention(passes: TrainingPasses) -> Iterator[Row]:
    """Yield softmax, and the products of attention and its output projection, of a forward pass."""
    phase = passes.phases[0]
    if passes.reported_shares:
        softmax, products = _read_reported_attention(passes.run)
    else:
        softmax, products = _split_attention(passes.select(phase))
    missing = [name for name, rows in (("softmax", softmax), ("matmul", products)) if rows.is_empty()]
    if missing:
        yield {"phase": phase, "text": f"{_NOT_REPORTED} attention's {' and '.join(missing)} separately"}
        return
    softmax_row, product_row = (
        _build_sum_row(phase, name, rows) | {"flops": _sum_flops(rows)}
        for name, rows in (("softmax", softmax), ("matmul", products))
    )
    yield from (softmax_row, product_row)
    time_ratio = _divide(softmax_row["total_ns"], product_row["total_ns"])
    flop_ratio = _compute_flop_ratio(passes.run, softmax_row, product_row)
    yield {"phase": phase, "name": "softmax / matmul", "time_ratio": time_ratio, **flop_ratio}


def _compute_flop_ratio(run: Run, softmax: Row, products: Row) -> Row:
    """Return the ratio of FLOPs as rows count them, else from the shape of the model."""
    if softmax["flops"] and products["flops"]:
        return {"flop_ratio": softmax["flops"] / products["flops"]}
    ratio = _compute_formula_ratio(run)
    text = "FLOPs by the course's formula" if ratio else f"{_NOT_REPORTED} flops, nor the shape of the model"
    return {"flop_ratio": ratio, "text": text}


def _split_attention(forward: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return softmax and products of attention; a scope named softmax contains its kernels.

    The softmax of the loss is left out.
    """
    path, category = pl.col("path").fill_null(""), pl.col("category")
    is_loss = path.str.contains(_LOG_SOFTMAX) | pl.col("name").fill_null("").str.contains(_LOG_SOFTMAX)
    is_softmax = (path.str.contains("(?i)softmax") | category.eq_missing("softmax")) & ~is_loss
    has_op = pl.col("op").is_in(["attn.core", "attn.out"]).fill_null(False)
    is_product = category.eq_missing("matmul") & (has_op | path.str.contains(_OF_ATTENTION))
    return forward.filter(is_softmax), forward.filter(is_product & ~is_softmax)


def _read_reported_attention(run: Run) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return softmax and products as a report prints them."""
    spans = run.events.filter(kind="span") if run.has("category") else run.events.clear()
    missing = (pl.lit(None, pl.Int64).alias("count"), pl.lit(None, pl.Float64).alias("flops"))
    softmax, products = (spans.filter(category=c) for c in ("softmax", "matmul"))
    return softmax.select(*missing, total_ns="dur"), products.select(*missing, total_ns="dur")


def _compute_formula_ratio(run: Run) -> float | None:
    """Return softmax FLOPs over those of a layer's products; None if sizes are unknown."""
    sizes = [run.meta.get(c) for c in ("heads", "d_model", "context")]
    heads, width, context = (n if isinstance(n, int) and n > 0 else None for n in sizes)
    if heads is None or width is None or context is None:
        return None
    return heads * context**2 / (4 * width * context**2 + 2 * context * width**2)


def _iter_owners(passes: TrainingPasses) -> Iterator[Row]:
    """Yield the owners of backward work: modules, or named work outside them."""
    backward = passes.select("backward")
    if backward.is_empty():
        yield _build_no_kernels_row("backward", ["backward"])
    elif not (passes.run.has("path") or passes.run.has("layer")):
        yield {"phase": "backward", "text": f"{_NOT_REPORTED} modules: neither path nor layer"}
    else:
        with_owner = backward.with_columns(owner=_owner())
        for owner in ("modules", *_NAMED, "unattributed"):
            work = with_owner.filter(owner=owner)
            if work.height or owner == "modules":
                yield _build_sum_row("backward", owner, work, passes.sum_kernel_ns("backward"))


def _owner() -> pl.Expr:
    """Return the layer's owner of a row: a scope below its phase that is not autograd's or a thread's."""
    scopes = pl.col("path").str.split(PATH_SEPARATOR)
    module_scopes = scopes.list.eval(pl.element().filter(~pl.element().str.contains(_NO_MODULE)))
    has_module = pl.col("layer").is_not_null() | (module_scopes.list.len() > 0).fill_null(False)
    by_op = pl.when(pl.col("op").is_in(_NAMED)).then(pl.col("op"))
    gradients = pl.when(pl.col("path").str.contains(_GRADIENTS, literal=True)).then(pl.lit("grad_accum"))
    loss = pl.when(pl.col("path").str.contains(_LOSS)).then(pl.lit("loss"))
    modules = pl.when(has_module).then(pl.lit("modules"))
    return pl.coalesce(by_op, gradients, modules, loss, pl.lit("unattributed"))


def _iter_memory(passes: TrainingPasses) -> Iterator[Row]:
    """Yield the peak memory of each phase, and what weights and the whole step need."""
    rows = pl.DataFrame(schema={"phase": pl.String, "name": pl.String, "bytes": pl.Float64})
    if passes.run.has("phase") and passes.run.has("bytes"):
        rows = select_samples(passes.run, passes.look, "memory", "bytes").collect()
    for phase in PHASES:
        by_name = pl.col("name").cast(pl.String)
        of_phase = rows.filter(pl.col("phase") == phase).group_by(by_name, maintain_order=True)
        for name, peak in of_phase.agg(pl.col("bytes").max().cast(pl.Int64)).iter_rows():
            yield {"phase": phase, "name": name.removesuffix(f", {phase}"), "bytes": peak}
    if not rows["phase"].is_in(list(PHASES)).any():
        yield {"phase": STEP, "text": f"{_NOT_REPORTED} how much memory a phase takes"}
    for name, fact in _MEMORY_PLAN.items():
        size = passes.run.meta.get(fact)
        if isinstance(size, int):
            yield {"phase": STEP, "name": name, "bytes": size}


def _build_no_kernels_row(phase: str, phases: list[str]) -> Row:
    return {"phase": phase, "text": f"{_NOT_REPORTED} the kernels of {' and '.join(phases)}"}


def _is_reported(passes: TrainingPasses, phase: str) -> bool:
    return f"matmul_{_PRINTED.get(phase)}_%" in passes.reported_shares


def _build_share_row(passes: TrainingPasses, phase: str, name: str, rows: pl.DataFrame) -> Row:
    """Return rows with their share of the phase; if the source prints the share, that alone."""
    kind = "matmul" if name == "matmul" else "other"
    percent = passes.reported_shares.get(f"{kind}_{_PRINTED.get(phase)}_%")
    if percent is not None:
        return {"phase": phase, "name": name, "share": percent / 100}
    return _build_sum_row(phase, name, rows, passes.sum_kernel_ns(phase))


def _sum_flops(rows: pl.DataFrame) -> float | None:
    return float(rows["flops"].sum()) if rows["flops"].count() else None


def _build_sum_row(phase: str, name: str, rows: pl.DataFrame, base: int | None = None) -> Row:
    """Return the sum of rows, with their share of a whole."""
    total = int(rows["total_ns"].sum())
    count = int(rows["count"].sum()) if rows["count"].count() else None
    return _build_row(phase, name, count, total, share=_divide(total, base))


def _build_row(phase: str, name: str, count: int | None, total: int, *, share: float | None = None) -> Row:
    mean = round(total / count) if count else None
    figures = {"count": count, "total_ns": total, "mean_ns": mean, "share": share}
    return {"phase": phase, "name": name, **figures}


def _divide(part: int, base: float | None) -> float | None:
    return part / base if base else None


PARTS: Final[dict[str, Callable[[TrainingPasses], Iterator[Row]]]] = {
    "time": _iter_times,
    "top": _iter_top_kernels,
    "others": _iter_others,
    "matmul": _iter_products,
    "attention": _iter_attention,
    "owners": _iter_owners,
    "memory": _iter_memory,
}
