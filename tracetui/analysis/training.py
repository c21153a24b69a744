"""Training runs: how long each phase took, on which kernels, and how much of it was matrix products.

Whose work a row is, is told by its plan or its scope where there is one, and by the kernel's name where not.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import polars as pl

from capture.native.schema import PATH_SEPARATOR
from capture.run import Run
from tracetui.analysis import select
from tracetui.analysis.passes import PHASES, RUN, STEP, Passes, apart, marked, passes
from tracetui.analysis.series import samples
from tracetui.look import Look

TOP: Final = 5
SCHEMA: Final = {
    **dict.fromkeys(("part", "phase", "name", "category"), pl.String()),
    **dict.fromkeys(("count", "total_ns", "mean_ns"), pl.Int64()),
    **dict.fromkeys(("share", "time_ratio", "flops", "flop_ratio"), pl.Float64()),
    "bytes": pl.Int64(),
    "text": pl.String(),
}

_OF_ATTENTION: Final = r"(?i)scores|final[ _]matmul|out(put)?[ _]proj|\bo_proj"
_LOG_SOFTMAX: Final = r"(?i)log_?softmax"  # of the loss, and never of attention
_NO_MODULE: Final = r"(?i)^\[|::|^\w*backward\d*$|step$|^iter|loss$"  # of a path, what is no module
_GRADIENTS: Final = "AccumulateGrad"  # as autograd calls what adds up the gradient of a parameter
_LOSS: Final = r"(?i)nll_?loss|cross_?entropy|log_?softmax|\bloss"  # of a path without a module
_NAMED: Final = ("loss", "embed", "grad_accum")  # backward work that belongs to no layer and has a name
_PRINTED: Final = {"forward": "forward", "backward": "backward", "optimizer": "optimizer", STEP: "train"}
_UNMARKED: Final = (
    "no phase is marked in this source: figures are of the whole run; ranges or annotations called forward, "
    "backward and optimizer would tell them apart"
)
_FORESEEN: Final = {
    "held before the model": "bytes_before",
    "weights, gradients, moments": "bytes_of_states",
    "foreseen at its fullest": "bytes_needed",
}
_UNKNOWN: Final = "this source does not tell"

Row = dict[str, Any]


def training_table(run: Run, look: Look) -> tuple[pl.DataFrame, list[str]]:
    """Return one row a figure, part by part, and notes; where there is no answer, text says why."""
    measured = passes(run, look)
    rows = [{"part": name, **row} for name, part in PARTS.items() for row in part(measured)]
    return pl.DataFrame(rows, schema=SCHEMA), _notes(measured)


def _notes(measured: Passes) -> list[str]:
    notes = [] if marked(measured.run) else [_UNMARKED]
    if measured.steps is not None:
        notes.append(f"totals are of {measured.steps:,} {'step' if measured.steps == 1 else 'steps'}")
    if measured.stated:
        notes.append("the source lists the longest kernels only; shares are those that it prints")
    if measured.work["category"].eq("attention").any():
        notes.append("fused attention holds products, but is not counted among them")
    return notes


def _times(measured: Passes) -> Iterator[Row]:
    """Yield each phase on each clock: the wall, the kernels, and the wall without the profiler."""
    for phase in dict.fromkeys((*PHASES, STEP, *measured.parts)):
        count, wall = measured.walls.get(phase, (0, 0))
        if count:
            yield _figure(phase, "wall", count, wall, share=_share_of_step(measured, phase, wall))
        elif phase == "forward":
            yield {"phase": phase, "text": f"{_UNKNOWN} how long the forward pass took as a whole"}
        kernels = measured.of(phase)
        if (
            kernels.height
            and not measured.stated
            and (count or phase in measured.parts or marked(measured.run))
        ):
            own = _sum(phase, "kernels", kernels, wall or None)
            yield own | {"mean_ns": round(own["total_ns"] / count) if count else None}
        yield from _unprofiled(measured, phase, wall / count if count else None)


def _share_of_step(measured: Passes, phase: str, wall: int) -> float | None:
    whole = measured.walls.get(STEP, (0, 0))[1]
    return wall / whole if whole and phase != STEP else None


def _unprofiled(measured: Passes, phase: str, wall: float | None) -> Iterator[Row]:
    """Yield the same pass without a profiler, and how it compares."""
    name, took = "without the profiler", apart(measured.run, phase)
    if took is not None:
        yield _figure(phase, name, 1, took) | {"time_ratio": took / wall if wall else None}
    elif phase == "forward":
        yield {"phase": phase, "name": name, "text": f"{_UNKNOWN} how long a pass takes then"}


def _top(measured: Passes) -> Iterator[Row]:
    """Yield the kernels of each phase that took most of it."""
    for phase in measured.parts:
        own = measured.of(phase)
        if own.is_empty():
            yield _no_kernels(phase, [phase])
        sums = own.group_by("name", "category").agg(pl.col("count", "total_ns").sum())
        order = sums.sort("total_ns", "name", "category", descending=[True, False, False])
        for row in order.head(TOP).to_dicts():
            share = _share(row["total_ns"], measured.whole(phase))
            figure = _figure(phase, row["name"], row["count"], row["total_ns"], share=share)
            yield figure | {"category": row["category"]}


def _others(measured: Passes) -> Iterator[Row]:
    """Yield what of each phase is no matrix product, by category."""
    for phase in measured.parts:
        others = measured.of(phase).filter(pl.col("category").ne_missing("matmul"))
        if measured.of(phase).is_empty() and not _is_stated(measured, phase):
            yield _no_kernels(phase, [phase])
            continue
        yield _of_phase(measured, phase, "all but matmul", others)
        sums = others.group_by(pl.col("category").fill_null("other")).agg(pl.col("count", "total_ns").sum())
        for row in sums.sort("total_ns", "category", descending=[True, False]).to_dicts():
            share = _share(row["total_ns"], measured.whole(phase))
            figure = _figure(phase, row["category"], row["count"], row["total_ns"], share=share)
            yield figure | {"category": row["category"]}


def _products(measured: Passes) -> Iterator[Row]:
    """Yield the share of matrix products in the forward pass, and in the whole step."""
    for phase in ("forward", STEP) if marked(measured.run) else (RUN,):
        unseen = [] if _is_stated(measured, phase) else _unseen(measured, phase)
        if unseen:
            yield _no_kernels(phase, unseen)
            continue
        own, product = measured.of(phase), pl.col("category").eq_missing("matmul")
        yield _of_phase(measured, phase, "matmul", own.filter(product))
        yield _of_phase(measured, phase, "other", own.filter(~product))


def _unseen(measured: Passes, phase: str) -> list[str]:
    """Return the phases that belong to the question and of which no kernel is known."""
    asked = {"forward", "backward", *measured.walls} if phase == STEP else {phase}
    return [p for p in PHASES if p in asked and measured.of(p).is_empty()]


def _attention(measured: Passes) -> Iterator[Row]:
    """Yield softmax against the products of attention and its output projection, in a forward pass."""
    phase = measured.parts[0]
    softmax, products = _stated_attention(measured.run) if measured.stated else _split(measured.of(phase))
    missing = [name for name, rows in (("softmax", softmax), ("matmul", products)) if rows.is_empty()]
    if missing:
        yield {"phase": phase, "text": f"{_UNKNOWN} attention's {' and '.join(missing)} apart"}
        return
    part, whole = _sum(phase, "softmax", softmax), _sum(phase, "matmul", products)
    part["flops"], whole["flops"] = _flops(softmax), _flops(products)
    yield from (part, whole)
    yield {
        "phase": phase,
        "name": "softmax / matmul",
        "time_ratio": _share(part["total_ns"], whole["total_ns"]),
        **_flop_ratio(measured.run, part, whole),
    }


def _flop_ratio(run: Run, softmax: Row, products: Row) -> Row:
    """Return the ratio of FLOPs as the rows count them, else by the shape of the model."""
    if softmax["flops"] and products["flops"]:
        return {"flop_ratio": softmax["flops"] / products["flops"]}
    ratio = _by_formula(run)
    text = "FLOPs by the course's formula" if ratio else f"{_UNKNOWN} flops, nor the shape of the model"
    return {"flop_ratio": ratio, "text": text}


def _split(forward: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return softmax and products; a scope called softmax holds its kernels, the loss's is left out."""
    path = pl.col("path").fill_null("")
    of_loss = path.str.contains(_LOG_SOFTMAX) | pl.col("name").fill_null("").str.contains(_LOG_SOFTMAX)
    softmax = path.str.contains("(?i)softmax") | pl.col("category").eq_missing("softmax")
    softmax &= ~of_loss
    attention = pl.col("op").is_in(["attn.core", "attn.out"]).fill_null(False)
    attention |= path.str.contains(_OF_ATTENTION)
    product = pl.col("category").eq_missing("matmul")
    return forward.filter(softmax), forward.filter(product & attention & ~softmax)


def _stated_attention(run: Run) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return what a report prints of both."""
    spans = run.events.filter(kind="span") if run.has("category") else run.events.clear()
    lacking = (pl.lit(None, pl.Int64).alias("count"), pl.lit(None, pl.Float64).alias("flops"))
    softmax, products = (spans.filter(category=c) for c in ("softmax", "matmul"))
    return softmax.select(*lacking, total_ns="dur"), products.select(*lacking, total_ns="dur")


def _by_formula(run: Run) -> float | None:
    """Return softmax FLOPs over those of a layer's products; None where the sizes are unknown."""
    sizes = [run.meta.get(c) for c in ("heads", "d_model", "context")]
    heads, width, context = (n if isinstance(n, int) and n > 0 else None for n in sizes)
    if heads is None or width is None or context is None:
        return None
    return heads * context**2 / (4 * width * context**2 + 2 * context * width**2)


def _owners(measured: Passes) -> Iterator[Row]:
    """Yield whose work the backward pass was: a module's, or something that is named instead."""
    backward = measured.of("backward")
    if backward.is_empty():
        yield _no_kernels("backward", ["backward"])
    elif not (measured.run.has("path") or measured.run.has("layer")):
        yield {"phase": "backward", "text": f"{_UNKNOWN} modules: neither path nor layer"}
    else:
        owned = backward.with_columns(owner=_owner())
        for owner in ("modules", *_NAMED, "unattributed"):
            part = owned.filter(owner=owner)
            if part.height or owner == "modules":
                yield _sum("backward", owner, part, measured.whole("backward"))


def _owner() -> pl.Expr:
    """Return the layer of a row, or a scope below its phase that is neither autograd's own nor a thread's."""
    scopes = pl.col("path").str.split(PATH_SEPARATOR)
    inner = scopes.list.eval(pl.element().filter(~pl.element().str.contains(_NO_MODULE)))
    owned = pl.col("layer").is_not_null() | (inner.list.len() > 0).fill_null(False)
    named = pl.when(pl.col("op").is_in(_NAMED)).then(pl.col("op"))
    gradients = pl.when(pl.col("path").str.contains(_GRADIENTS, literal=True)).then(pl.lit("grad_accum"))
    loss = pl.when(pl.col("path").str.contains(_LOSS)).then(pl.lit("loss"))
    modules = pl.when(owned).then(pl.lit("modules"))
    return pl.coalesce(named, gradients, modules, loss, pl.lit("unattributed"))


def _memory(measured: Passes) -> Iterator[Row]:
    """Yield the most that each phase was seen to take, beside what the weights and the whole step need."""
    seen = select.have(measured.run, ("phase", "bytes"))
    rows = (
        samples(measured.run, measured.look, "memory", "bytes").collect()
        if len(seen) == 2
        else pl.DataFrame()
    )
    for phase in PHASES if rows.height else ():
        own = rows.filter(pl.col("phase") == phase).group_by(
            pl.col("name").cast(pl.String), maintain_order=True
        )
        for name, most in own.agg(pl.col("bytes").max().cast(pl.Int64)).iter_rows():
            yield {"phase": phase, "name": name.removesuffix(f", {phase}"), "bytes": most}
    if not rows.height or not rows["phase"].is_in(list(PHASES)).any():
        yield {"phase": STEP, "text": f"{_UNKNOWN} how much memory a phase takes"}
    for name, fact in _FORESEEN.items():
        size = measured.run.meta.get(fact)
        if isinstance(size, int):
            yield {"phase": STEP, "name": name, "bytes": size}


def _no_kernels(phase: str, of: list[str]) -> Row:
    return {"phase": phase, "text": f"{_UNKNOWN} the kernels of {' and '.join(of)}"}


def _is_stated(measured: Passes, phase: str) -> bool:
    return f"matmul_{_PRINTED.get(phase)}_%" in measured.stated


def _of_phase(measured: Passes, phase: str, name: str, rows: pl.DataFrame) -> Row:
    """Return rows with their share of the phase; where the source prints the share, that alone."""
    what = "matmul" if name == "matmul" else "other"
    percent = measured.stated.get(f"{what}_{_PRINTED.get(phase)}_%")
    if percent is not None:
        return {"phase": phase, "name": name, "share": percent / 100}
    return _sum(phase, name, rows, measured.whole(phase))


def _flops(rows: pl.DataFrame) -> float | None:
    return float(rows["flops"].sum()) if rows["flops"].count() else None


def _sum(phase: str, name: str, rows: pl.DataFrame, whole: int | None = None) -> Row:
    """Return rows added up, with their share of a whole."""
    total = int(rows["total_ns"].sum())
    count = int(rows["count"].sum()) if rows["count"].count() else None
    return _figure(phase, name, count, total, share=_share(total, whole))


def _figure(phase: str, name: str, count: int | None, total: int, *, share: float | None = None) -> Row:
    mean = round(total / count) if count else None
    figures = {"count": count, "total_ns": total, "mean_ns": mean, "share": share}
    return {"phase": phase, "name": name, **figures}


def _share(part: int, whole: int | None) -> float | None:
    return part / whole if whole else None


PARTS: Final[dict[str, Callable[[Passes], Iterator[Row]]]] = {
    "time": _times,
    "top": _top,
    "others": _others,
    "matmul": _products,
    "attention": _attention,
    "owners": _owners,
    "memory": _memory,
}
