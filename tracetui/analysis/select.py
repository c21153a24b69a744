"""Select the rows of a run that a look speaks of."""

from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from capture.errors import UsageError
from capture.native.schema import LENSES
from capture.ranks import ranks
from capture.run import Run
from tracetui import cancel
from tracetui.analysis import matching
from tracetui.analysis.facts import once as once
from tracetui.analysis.lookup import looked_up
from tracetui.look import Look

NOTHING: Final = "nothing matches this filter, phase and window"


@once
def rank_tracks(run: Run) -> dict[str, int]:
    """Return the tracks that belong to a rank, each with its rank."""
    return ranks(run)


def rank_numbers(run: Run) -> tuple[int, ...]:
    """Return the ranks of a run in order; none where no track says which rank's it is."""
    return tuple(sorted(set(rank_tracks(run).values())))


def with_rank(run: Run, rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return the rows with the rank of their track; null for those on no rank's."""
    tracks = rank_tracks(run)
    names = pl.Series("track", list(tracks), dtype=pl.String).cast(pl.Categorical())
    return rows.with_columns(looked_up("track", names, pl.Series("rank", list(tracks.values()), pl.Int64)))


@once
def lenses(run: Run) -> list[str]:
    """Return the lenses under which a run has timed leaf rows, in the order in which they are preferred."""
    if not run.has("lens"):
        return []
    timed = run.events["lens"].filter(run.events["kind"] == "kernel")
    names = set(timed.unique().cast(pl.String).drop_nulls())
    return [lens for lens in LENSES if lens in names]


def lens_of(run: Run, look: Look) -> str | None:
    """Return the lens in use: the one asked for, else the run's own, else the preferred one; None without."""
    available = lenses(run)
    if look.lens is not None:
        if look.lens not in LENSES:
            raise UsageError(f"no lens is called {look.lens!r}", todo=f"choose one of: {', '.join(LENSES)}")
        return look.lens
    preferred = run.meta.get("lens")
    return str(preferred) if preferred in available else available[0] if available else None


@once
def total(run: Run) -> int | None:
    """Return the time of all kernel rows under the lens in use, in ns; None without durations."""
    if not run.has("dur"):
        return None
    return int(timed(run, Look()).select(pl.col("dur").sum()).collect().item())


@once
def phases(run: Run) -> list[str]:
    """Return the phases of a run, in the order in which they begin."""
    if not run.has("phase"):
        return []
    phase = run.events["phase"]
    return [str(p) for p in phase.filter(changes(phase)).unique(maintain_order=True).drop_nulls()]


def changes(column: pl.Series) -> pl.Series:
    """Tell of each value whether it differs from that of the row before.

    Rows come in long stretches of one step or phase: what is distinct among these few is soon found.
    """
    codes = column if column.dtype.is_integer() else column.to_physical()
    return codes.ne_missing(codes.shift())


def of_kind(run: Run, kind: str, columns: Sequence[str]) -> pl.DataFrame:
    """Return the rows of a kind of which there are few, without a look at the others."""
    return run.events[(run.events["kind"] == kind).arg_true(), have(run, columns)]


def timed(
    run: Run, look: Look, kind: str = "kernel", lens: str | None = None, events: pl.DataFrame | None = None
) -> pl.LazyFrame:
    """Return rows of one kind with a duration, under one lens, in the phase, window and filter asked for:
    of all events of the run, or of some.
    """
    cancel.check()  # nearly every query begins here
    if not run.has("dur"):
        return run.events.clear().with_columns(dur=pl.lit(None, pl.Int64)).lazy()
    every = run.events if events is None else events
    rows = every.lazy().filter((pl.col("kind") == kind) & pl.col("dur").is_not_null())
    chosen = lens or lens_of(run, look)
    if chosen is not None:
        rows = rows.filter(pl.col("lens") == chosen if run.has("lens") else pl.lit(value=False))
    return narrowed(rows, run, look)


def narrowed(rows: pl.LazyFrame, run: Run, look: Look) -> pl.LazyFrame:
    """Return the rows in the phase, window, focus and filter asked for."""
    if look.phase is not None and run.has("phase"):
        rows = rows.filter(pl.col("phase") == look.phase)
    if look.window is not None and run.has("step"):
        rows = rows.filter(pl.col("step").is_between(*look.window))
    for column, value in look.focus:
        if run.has(column):
            rows = rows.filter(_is(run, column, value))
    for term in look.where:
        rows = rows.filter(matching.term_fits(run, term))
    return matching.matching(rows, run, look.filter)


def _is(run: Run, column: str, value: object) -> pl.Expr:
    """Return whether a column holds a value, or one of several words."""
    if isinstance(value, tuple):
        return pl.col(column).cast(pl.String).is_in(value)
    if isinstance(value, str) and run.events.schema[column].is_numeric():  # as a table of words shows it
        return pl.col(column).cast(pl.String) == value
    return pl.col(column).eq_missing(pl.lit(value))


def in_steps(run: Run, look: Look, events: pl.DataFrame | None = None) -> pl.LazyFrame:
    """Return timed rows; only those in a step where they are to be shared out over steps."""
    rows = timed(run, look, events=events)
    if look.per != "total" and run.has("step"):
        return rows.filter(pl.col("step").is_not_null())
    return rows


def with_group(run: Run, rows: pl.LazyFrame, group: str) -> pl.LazyFrame:
    """Return the rows with the column they are grouped by; null throughout where the source lacks it."""
    return rows if run.has(group) else rows.with_columns(pl.lit(None, pl.String).alias(group))


def all_instances(run: Run) -> bool:
    """Tell whether every row is one launch: no aggregate of many, no sum of a step."""
    return not (folded(run) or step_sums(run) or aggregates(run))


@once
def aggregates(run: Run) -> bool:
    """Tell whether the source states rows that stand for several launches."""
    if not run.has("count"):
        return False
    many = run.events[(run.events["count"] > 1).arg_true(), have(run, ("count", "step"))]
    return bool(many.select(whole(run).any()).item()) if many.height else False


def folded(run: Run) -> bool:
    """Tell whether steps that lie far back were folded while the run was followed."""
    return isinstance(run.meta.get("folded"), Mapping)


def whole(run: Run) -> pl.Expr:
    """Tell of each row whether it is as the source gave it, not one that older rows were folded into."""
    if not folded(run):
        return pl.lit(True)
    once = pl.col("count").fill_null(1) == 1 if run.has("count") else pl.lit(True)
    first = run.meta["folded"].get("before")
    if not run.has("step") or not isinstance(first, int):
        return once
    return pl.when(pl.col("step").is_null()).then(once).otherwise(pl.col("step") >= first)


def standing_for(run: Run) -> pl.Expr:
    """Return how many launches, samples or steps a row stands for."""
    return pl.col("count").fill_null(1) if run.has("count") else pl.repeat(1, pl.len(), dtype=pl.Int64)


def instance_dur(run: Run) -> pl.Expr:
    """Return the duration of a row that is one launch, null for a sum."""
    if all_instances(run):
        return pl.col("dur")
    if step_sums(run):
        return pl.lit(None, pl.Int64)
    return pl.when(pl.col("count").fill_null(1) == 1).then(pl.col("dur"))


@once
def step_sums(run: Run) -> bool:
    """Tell whether the source states one sum for each name and step, without times or launches."""
    if run.has("count") or not run.has("step") or on_timeline(run):
        return False
    key = [c for c in ("name", "step", "lens", "track", "path") if run.has(c)]
    rows = run.events.lazy().filter((pl.col("kind") == "kernel") & pl.col("step").is_not_null())
    sizes = rows.group_by(key).len()
    most, steps = sizes.select(pl.col("len").max(), pl.col("step").n_unique()).collect().row(0)
    return bool(most == 1 and steps > 1)


def on_timeline(run: Run, kinds: Sequence[str] = ("kernel",)) -> bool:
    """Tell whether any row of these kinds has a start."""
    if not run.has("t"):
        return False
    rows = run.events.lazy().filter(pl.col("kind").is_in(list(kinds)))
    return bool(rows.select(pl.col("t").is_not_null().any()).collect().item())


def start(run: Run) -> int:
    """Return where the run's own clock stands at its first event."""
    return int(run.events.select(pl.col("t").min()).item() or 0) if run.has("t") else 0


def has_kind(run: Run, kind: str) -> bool:
    """Tell whether the run has rows of a kind."""
    return kind in _kinds(run)


def why_no_kernels(run: Run) -> str:
    """Return the note for an answer without a kernel row: the look leaves none, or the run has none."""
    if has_kind(run, "kernel") or not has_kind(run, "span"):
        return NOTHING
    nested = run.has("path") or on_timeline(run, ("span",))
    return "this source has spans and no kernels" + ("; the tree view shows them" if nested else "")


@once
def _kinds(run: Run) -> frozenset[str]:
    return frozenset(run.events["kind"].unique().cast(pl.String))


def have(run: Run, columns: Sequence[str]) -> list[str]:
    """Return those of the columns that the run has."""
    return [c for c in columns if run.has(c)]


def notes(run: Run, look: Look) -> list[str]:
    """Return what the numbers are of: which lens, how many ranks, how much of a long run."""
    listed = run.meta.get("listed")  # where the source names a part of its kernels: why, in words
    return [*stopwatch(run, look), *together(run, look), *folding(run), *([str(listed)] if listed else [])]


def together(run: Run, look: Look) -> list[str]:
    """Return a note where times of several ranks are added."""
    number = len(set(rank_tracks(run).values()))
    if number < 2 or "track" in look.focused:
        return []
    return [
        f"times of {number} ranks, which run at once, are added; a step takes what its slowest rank takes"
    ]


def stopwatch(run: Run, look: Look) -> list[str]:
    """Return notes on the lens that the numbers are of, and on those that it leaves out."""
    notes = []
    chosen, available = lens_of(run, look), lenses(run)
    others = [x for x in available if x != chosen]
    if others:
        notes.append(f"{chosen} times; those of {', '.join(others)} cover the same time and are not added")
    if chosen is not None and chosen not in available:
        notes.append(
            f"this source has no {chosen} times; it has {', '.join(available) or 'none that name a lens'}"
        )
    return notes


def folding(run: Run) -> list[str]:
    """Return a note where old steps are no longer seen one by one."""
    if not folded(run):
        return []
    first = run.meta["folded"].get("before")
    since = f"steps since {first:,}" if isinstance(first, int) else "newest events"
    return [f"older steps are folded: percentiles, single launches and times are of the {since}"]
