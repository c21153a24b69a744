"""The present of a run: its last seconds against all of it, and its last minute second by second."""

from typing import Any, Final

import polars as pl
from msgspec import Struct

from capture.run import Run
from tracetui import units
from tracetui.analysis import facts, select, steps
from tracetui.analysis.paces import paces
from tracetui.look import Look

RECENT_S: Final = 5  # that are the present
MINUTE: Final = 60  # seconds of a strip
LATE: Final = 1.5  # times the median of the minute: a step that is named
NAMED: Final = 3  # late steps at most
ALARMING: Final = 2.0  # times the median of the minute before: a step of which everybody is told
SLOWED: Final = 0.75  # of the speed of the minute before, below which the present is told
ENOUGH: Final = 20  # steps that a minute has to have for that
SECOND: Final = 1_000_000_000
_KERNELS: Final = {
    "name": pl.String(), "share": pl.Float64(), "now_ns": pl.Int64(), "run_ns": pl.Int64(),
    "vs_run_pct": pl.Float64(),
}  # fmt: skip

# counters of a strip: what it is called, and in which unit
SAMPLED: Final = {
    "gpu_sm_frequency": ("gpu clock", "MHz"), "gpu_power": ("gpu power", "W"), "gpu_usage": ("gpu", "%"),
    "gpu_mem_used": ("gpu mem", "B"), "host_cpu_usage": ("cpu", "%"), "cpu_frequency": ("cpu clock", "MHz"),
    "process_mem_used": ("memory", "B"),
}  # fmt: skip


class Pace(Struct, frozen=True):
    """How fast steps of one phase went: tokens a second lately and in all, and the times of single steps."""

    phase: str | None
    now_per_s: float | None
    mean_per_s: float | None
    p50_ns: float
    p95_ns: float
    context: int | None
    steps: int  # in the last seconds


class Strip(Struct, frozen=True):
    """A figure second by second over the last minute, None where none is known; `usual` is its median."""

    name: str
    unit: str
    values: tuple[float | None, ...]
    usual: float
    highest: float  # of the whole time that is known


@facts.once
def recent_steps(run: Run) -> pl.DataFrame:
    """Return the steps of the newest one's phase that ended in the last seconds."""
    table = _of_newest_phase(run)
    end = pl.col("t") + pl.col("took_ns")
    return table.filter(end > end.max() - RECENT_S * SECOND)


@facts.once
def _of_newest_phase(run: Run) -> pl.DataFrame:
    table = paces(run)
    if table.is_empty() or table["phase"].n_unique() == 1:
        return table
    return table.filter(pl.col("phase").eq_missing(pl.lit(table["phase"][-1])))


def pace(run: Run) -> Pace | None:
    """Return how fast the run is now; None where no step is known with its time."""
    table, recent = _of_newest_phase(run), recent_steps(run)
    if table.is_empty():
        return None
    took = recent["took_ns"]
    contexts = table["context"].drop_nulls()
    return Pace(
        table["phase"][-1],
        _rate(recent),
        _rate(table),
        float(took.median() or 0),  # type: ignore[arg-type]
        float(took.quantile(0.95, "nearest") or 0),
        int(contexts[-1]) if contexts.len() else None,
        recent.height,
    )


def lately(run: Run) -> float | None:
    """Return tokens a second of the decode steps of the last seconds; None where these are all,
    where something else is done at present, and where steps do not tell their tokens.
    """
    table, recent = _of_newest_phase(run), recent_steps(run)
    decodes = recent.height > 0 and recent["phase"][-1] in (None, "decode")
    return _rate(recent) if decodes and recent.height < table.height else None


def _rate(table: pl.DataFrame) -> float | None:
    """Return tokens a second of these steps; None where one does not tell its tokens."""
    took = int(table["took_ns"].sum())
    return None if not took or table["tokens"].null_count() else int(table["tokens"].sum()) * 1e9 / took


def strips(run: Run) -> list[Strip]:
    """Return the strips of the last minute: tokens a second, the longest step, then what was sampled."""
    table = _of_newest_phase(run)
    if table.is_empty():
        return []
    end = pl.col("t") + pl.col("took_ns")
    last = int(table.select(end.max()).item()) // SECOND
    seconds = table.group_by(second=end // SECOND).agg(
        longest=pl.col("took_ns").max(), tokens=pl.col("tokens").sum() * 1e9 / pl.col("took_ns").sum()
    )
    told = [] if table["tokens"].null_count() else [_strip("tok/s", "tok/s", seconds, "tokens", last)]
    return [*told, _strip("step", "ns", seconds, "longest", last), *_sampled(run, last)]


def _sampled(run: Run, last: int) -> list[Strip]:
    """Return a strip of each counter that has a name in SAMPLED; of several devices of the first."""
    if not (run.has("value") and run.has("t")):
        return []
    rows = select.of_kind(run, "counter", ("name", "t", "value", "track")).drop_nulls(["t", "value"])
    found = []
    for name, (called, unit) in SAMPLED.items():
        own = rows.filter(pl.col("name").cast(pl.String) == name)
        if "track" in own.columns and own.height:
            own = own.filter(pl.col("track").eq_missing(pl.lit(own["track"][0])))
        if own.height:
            means = own.group_by(second=pl.col("t") // SECOND).agg(value=pl.col("value").mean())
            found.append(_strip(called, unit, means, "value", last))
    return found


def _strip(name: str, unit: str, seconds: pl.DataFrame, column: str, last: int) -> Strip:
    """Return the values of the minute that ends with a second: each keeps its place until it leaves."""
    known = dict(seconds.select("second", column).iter_rows())
    values = tuple(known.get(second) for second in range(last - MINUTE + 1, last + 1))
    told = sorted(v for v in values if v is not None)
    usual = told[len(told) // 2] if told else 0.0
    return Strip(name, unit, values, usual, max((v for v in known.values() if v is not None), default=0.0))


def kernels(run: Run) -> pl.DataFrame:
    """Return name, op, category, share, now_ns (a token), run_ns, vs_run_pct of the last seconds' kernels.

    Where steps tell no tokens, times are a step's.
    """
    recent = recent_steps(run)
    if recent.is_empty():
        return pl.DataFrame(schema=_KERNELS)
    rows = select.timed(run, Look(phase=recent["phase"][-1]))
    words = [c for c in ("op", "category") if run.has(c)]
    latest = rows.filter(pl.col("step").is_in(recent["step"].implode()))
    sums = latest.group_by("name").agg(
        pl.col("dur").sum().alias("now_ns"), *(pl.col(c).first() for c in words)
    )
    whole = rows.group_by("name").agg(pl.col("dur").sum().alias("run_ns"))
    here, all_of_it = _counted(recent), _of_run(run, recent["phase"][-1])
    table = sums.join(whole, on="name").collect()
    now, usual = pl.col("now_ns") / here, pl.col("run_ns") / all_of_it
    return table.select(
        pl.col("name", *words).cast(pl.String),
        share=pl.col("now_ns") / max(1, int(table["now_ns"].sum())),
        now_ns=now.round().cast(pl.Int64),
        run_ns=usual.round().cast(pl.Int64),
        vs_run_pct=100 * (now / usual - 1),
    ).sort("now_ns", "name", descending=[True, False])


def _counted(table: pl.DataFrame) -> int:
    """Return the tokens of steps; how many steps they are, where one tells none."""
    return table.height if table["tokens"].null_count() else max(1, int(table["tokens"].sum()))


def _of_run(run: Run, phase: str | None) -> int:
    """Return the same of all steps of a phase, also of those that are folded."""
    marks = steps.marks(run).filter(pl.col("phase").eq_missing(pl.lit(phase, pl.String)))
    recent = recent_steps(run)
    told = marks["tokens"].null_count() == 0 and recent["tokens"].null_count() == 0
    return max(1, int(marks["tokens" if told else "steps"].sum()))


def layers(run: Run) -> pl.DataFrame:
    """Return layer and over_pct: how far each is from the median of all in the last seconds."""
    recent = recent_steps(run)
    if recent.is_empty() or not run.has("layer"):
        return pl.DataFrame(schema={"layer": pl.Int64, "over_pct": pl.Float64})
    rows = select.timed(run, Look()).filter(
        pl.col("step").is_in(recent["step"].implode()), pl.col("layer").is_not_null()
    )
    sums = rows.group_by("layer").agg(pl.col("dur").sum()).sort("layer").collect()
    over = 100 * (pl.col("dur") / pl.col("dur").median() - 1)
    return sums.select(pl.col("layer").cast(pl.Int64), over_pct=over)


def last_step(run: Run) -> pl.DataFrame:
    """Return name, op, category, dur of the kernels of the newest step, in the order in which they ran."""
    recent = recent_steps(run)
    if recent.is_empty():
        return pl.DataFrame(schema={"name": pl.String, "dur": pl.Int64})
    columns = [c for c in ("name", "op", "category", "layer") if run.has(c)]
    rows = select.timed(run, Look()).filter(pl.col("step") == recent["step"][-1], pl.col("t").is_not_null())
    return rows.sort("t").select(pl.col(*columns).cast(pl.String), "dur").collect()


def late_steps(run: Run) -> list[str]:
    """Return a sentence for each of the newest steps of the minute that took much longer than usual."""
    table = _of_newest_phase(run)
    end = pl.col("t") + pl.col("took_ns")
    minute = table.filter(end > end.max() - MINUTE * SECOND)
    if minute.height < RECENT_S:
        return []
    usual = float(minute["took_ns"].median() or 0)  # type: ignore[arg-type]
    late = minute.filter(pl.col("took_ns") > LATE * usual).tail(NAMED)
    return [_late(run, step, took, usual) for step, took in late.select("step", "took_ns").iter_rows()][::-1]


def alarm(run: Run) -> str:
    """Return a sentence where the last seconds leave the line of the minute before them; empty where not.

    That is a step of at least twice the median, or a speed of less than three quarters.
    """
    table, recent = _of_newest_phase(run), recent_steps(run)
    if recent.is_empty():
        return ""
    end = table["t"] + table["took_ns"]
    since: Any = end.max()
    before = table.filter(end.is_between(since - MINUTE * SECOND, since - RECENT_S * SECOND))
    if before.height < ENOUGH:
        return ""
    usual = float(before["took_ns"].median() or 0)  # type: ignore[arg-type]
    late = (recent["took_ns"] >= ALARMING * usual).arg_true()
    now, then = _rate(recent), _rate(before)
    if now is not None and then is not None and now < SLOWED * then:
        speeds = units.speed(now), units.speed(then)
        return f"{speeds[0]} tok/s in the last {RECENT_S} seconds, {speeds[1]} in the minute before"
    return "" if late.is_empty() else _late(run, recent["step"][late[-1]], recent["took_ns"][late[-1]], usual)


def _late(run: Run, step: int, took: int, usual: float) -> str:
    text = f"step {step:,} took {units.duration(took)}, {took / usual:.1f}× the median"
    rows = select.timed(run, Look()).filter(pl.col("step").is_not_null())
    by_step = rows.group_by("name", "step").agg(pl.col("dur").sum()).collect()
    own = by_step.filter(pl.col("step") == step)
    if own.is_empty():  # it is folded: which of its kernels were slow only the file tells
        return text
    middle = by_step.group_by("name").agg(pl.col("dur").median().alias("usual"))
    over = own.join(middle, on="name").with_columns(over=pl.col("dur") - pl.col("usual"))
    name, most = over.sort("over", descending=True).select(pl.col("name").cast(pl.String), "over").row(0)
    return f"{text}; most of it {name} {units.difference(most)}" if most > 0 else text
