"""Select the rows of a run that a Look asks for; find its lenses, ranks, phases and kinds of rows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Final

import polars as pl

from capture.errors import UsageError
from capture.merge_ranks import map_tracks_to_ranks
from capture.native.schema import LENSES
from capture.run import Run
from capture.tasks import check_cancelled
from tracetui.analysis.frames.codes import group_by_packed_key, map_by_code
from tracetui.analysis.frames.name_filter import is_name_match, is_term_match
from tracetui.analysis.frames.run_memo import cache_per_run
from tracetui.look import Look

NO_MATCH: Final = "nothing matches this filter, phase and window"
_OPTION_OFF: Final = ("", "0", "false")
_STACK_PATTERN: Final = r"\b(encoder|decoder)(?:\.| / )(?:layers?|blocks?|h)(?:\.| / )\d"


@cache_per_run
def find_rank_tracks(run: Run) -> dict[str, int]:
    """Return the rank of each track that belongs to one."""
    return map_tracks_to_ranks(run)


def list_ranks(run: Run) -> tuple[int, ...]:
    """Return the ranks of a run in order; empty if no track names its rank."""
    return tuple(sorted(set(find_rank_tracks(run).values())))


def with_rank(run: Run, rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return the rows with `rank`, that of their track; null for tracks of no rank."""
    tracks = find_rank_tracks(run)
    names = pl.Series("track", list(tracks), dtype=pl.String).cast(pl.Categorical())
    return rows.with_columns(map_by_code("track", names, pl.Series("rank", list(tracks.values()), pl.Int64)))


def find_trace_option(run: Run, option: str) -> str | None:
    """Return the value of this key in the header of a trace, as text; None if it has none."""
    reported = run.tables.get("trace")
    if reported is None or not {"key", "value"} <= set(reported.columns):
        return None
    values = reported.filter(key=option)["value"]
    return None if values.is_empty() else str(values[0])


def has_option_on(run: Run, option: str) -> bool:
    """True if the source reports that it was recorded with an option of torch.profiler."""
    return (find_trace_option(run, option) or "0").lower() not in _OPTION_OFF


@cache_per_run
def list_lenses(run: Run) -> list[str]:
    """Return the lenses under which a run has timed kernel rows, the preferred one first."""
    if not run.has("lens"):
        return []
    is_kernel, lenses = run.events["kind"] == "kernel", run.events["lens"]
    return [lens for lens in LENSES if (is_kernel & (lenses == lens)).any()]


def resolve_lens(run: Run, look: Look) -> str | None:
    """Return the lens in use: the requested one, else the run's own, else the preferred; None without any.

    Raises UsageError for an unknown lens.
    """
    available = list_lenses(run)
    if look.lens is not None:
        if look.lens not in LENSES:
            raise UsageError(f"no lens {look.lens!r}", todo=f"choose one of: {', '.join(LENSES)}")
        return look.lens
    preferred = run.meta.get("lens")
    return str(preferred) if preferred in available else available[0] if available else None


@cache_per_run
def compute_total_ns(run: Run) -> int | None:
    """Return the time of all kernel rows under the lens in use; None without durations."""
    if not run.has("dur"):
        return None
    return int(select_timed(run, Look()).select(pl.col("dur").sum()).collect().item())


@cache_per_run
def list_phases(run: Run) -> list[str]:
    """Return the phases of a run, in the order in which they begin."""
    if not run.has("phase"):
        return []
    phase = run.events["phase"]
    return [str(p) for p in phase.filter(is_change(phase)).unique(maintain_order=True).drop_nulls()]


def is_change(column: pl.Series) -> pl.Series:
    """Return for each value whether it differs from the row before.

    Rows of one step or phase are adjacent, so distinct values are found quickly among the changes.
    """
    codes = column if column.dtype.is_integer() else column.to_physical()
    return codes.ne_missing(codes.shift())


def select_kind(run: Run, kind: str, columns: Sequence[str]) -> pl.DataFrame:
    """Return the rows of a rare kind, without scanning the other columns."""
    return run.events[(run.events["kind"] == kind).arg_true(), select_existing(run, columns)]


def select_timed(
    run: Run, look: Look, kind: str = "kernel", lens: str | None = None, events: pl.DataFrame | None = None
) -> pl.LazyFrame:
    """Return the rows of one kind with a duration, under one lens, that the look selects.

    `events` restricts them to a part of the run's events.
    """
    check_cancelled()  # nearly every query starts here
    if not run.has("dur"):
        return run.events.clear().with_columns(dur=pl.lit(None, pl.Int64)).lazy()
    all_events = run.events if events is None else events
    rows = all_events.lazy().filter((pl.col("kind") == kind) & pl.col("dur").is_not_null())
    chosen = lens or resolve_lens(run, look)
    if chosen is not None:
        rows = rows.filter(pl.col("lens") == chosen if run.has("lens") else pl.lit(value=False))
    return filter_rows(rows, run, look)


def filter_rows(rows: pl.LazyFrame, run: Run, look: Look) -> pl.LazyFrame:
    """Return the rows in the phase, step range, focus and filter of the look."""
    if look.phase is not None and run.has("phase"):
        rows = rows.filter(pl.col("phase") == look.phase)
    if look.window is not None and run.has("step"):
        rows = rows.filter(pl.col("step").is_between(*look.window))
    for column, value in look.focus:
        if run.has(column):
            rows = rows.filter(_is_value(run, column, value))
        elif column == "stack" and run.has("path"):
            rows = rows.filter(extract_stack(pl.col("path")) == value)
    for term in look.where:
        rows = rows.filter(is_term_match(run, term))
    return rows.filter(is_name_match(run, look.filter)) if look.filter else rows


def extract_stack(path: pl.Expr) -> pl.Expr:
    """Return of which stack of layers a path is, encoder or decoder; else null."""
    return path.cast(pl.String).str.extract(_STACK_PATTERN)


def sum_unfiltered_ns(run: Run, look: Look, *conditions: pl.Expr) -> int:
    """Return the time of all rows, including filtered ones: what shares refer to."""
    rows = select_timed(run, replace(look, filter="", where=())).filter(*conditions)
    return int(rows.select(pl.col("dur").sum()).collect().item())


def _is_value(run: Run, column: str, value: object) -> pl.Expr:
    """True for rows whose column equals a value, or one of several."""
    if isinstance(value, tuple):
        return pl.col(column).cast(pl.String).is_in([str(one) for one in value])
    if isinstance(value, str) and run.events.schema[column].is_numeric():  # tables of texts show such numbers
        return pl.col(column).cast(pl.String) == value
    return pl.col(column).eq_missing(pl.lit(value))


def select_in_steps(run: Run, look: Look, events: pl.DataFrame | None = None) -> pl.LazyFrame:
    """Return timed rows; only those in a step if totals are divided by steps or tokens."""
    rows = select_timed(run, look, events=events)
    if look.per != "total" and run.has("step"):
        return rows.filter(pl.col("step").is_not_null())
    return rows


def with_group(run: Run, rows: pl.LazyFrame, group: str) -> pl.LazyFrame:
    """Return the rows with the grouping column; null throughout if the source lacks it."""
    return rows if run.has(group) else rows.with_columns(pl.lit(None, pl.String).alias(group))


def has_only_launches(run: Run) -> bool:
    """True if every row is one launch: no aggregate, no sum of a step."""
    return not (is_folded(run) or has_step_sums(run) or has_aggregates(run))


@cache_per_run
def has_aggregates(run: Run) -> bool:
    """True if some row of the source represents several launches."""
    if not run.has("count"):
        return False
    many = run.events[(run.events["count"] > 1).arg_true(), select_existing(run, ("count", "step"))]
    return bool(many.select(is_unfolded(run).any()).item()) if many.height else False


def is_folded(run: Run) -> bool:
    """True if old steps were compacted while the run was followed."""
    return isinstance(run.meta.get("folded"), Mapping)


def is_unfolded(run: Run) -> pl.Expr:
    """True for original rows, False for compacted blocks of older rows."""
    if not is_folded(run):
        return pl.lit(True)
    is_single = pl.col("count").fill_null(1) == 1 if run.has("count") else pl.lit(True)
    first = run.meta["folded"].get("before")
    if not run.has("step") or not isinstance(first, int):
        return is_single
    return pl.when(pl.col("step").is_null()).then(is_single).otherwise(pl.col("step") >= first)


def select_unfolded(run: Run, rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return the original rows, without compacted blocks of older rows."""
    return rows.filter(is_unfolded(run)) if is_folded(run) else rows


def launch_count(run: Run) -> pl.Expr:
    """Return the number of launches, samples or steps that each row represents."""
    return pl.col("count").fill_null(1) if run.has("count") else pl.repeat(1, pl.len(), dtype=pl.Int64)


def build_totals(run: Run) -> tuple[pl.Expr, pl.Expr]:
    """Return expressions of `count`, the number of launches of a group, and `total_ns`, their time."""
    count = pl.col("count").fill_null(1).sum() if run.has("count") else pl.len()
    return count.cast(pl.Int64).alias("count"), pl.col("dur").sum().alias("total_ns")


@cache
def common_value(column: str) -> pl.Expr:
    """Return the value of a column that all rows of a group share, else null."""
    return pl.when(pl.col(column).n_unique() == 1).then(pl.col(column).first()).alias(column)


def instance_dur(run: Run) -> pl.Expr:
    """Return the duration of a row that is one launch, null for a sum."""
    if has_only_launches(run):
        return pl.col("dur")
    if has_step_sums(run):
        return pl.lit(None, pl.Int64)
    return pl.when(pl.col("count").fill_null(1) == 1).then(pl.col("dur"))


@cache_per_run
def has_step_sums(run: Run) -> bool:
    """True if the source reports one sum per name and step, without times or launches."""
    if run.has("count") or not run.has("step") or has_start_times(run):
        return False
    key = [c for c in ("name", "step", "lens", "track", "path") if run.has(c)]
    rows = run.events.lazy().filter((pl.col("kind") == "kernel") & pl.col("step").is_not_null())
    sizes = rows.group_by(key).len()
    rows_per_key, steps = sizes.select(pl.col("len").max(), pl.col("step").n_unique()).collect().row(0)
    return bool(rows_per_key == 1 and steps > 1)


def has_start_times(run: Run, kinds: Sequence[str] = ("kernel",)) -> bool:
    """True if any row of these kinds has a start."""
    if not run.has("t"):
        return False
    t, kind = run.events["t"], run.events["kind"]
    return any(t.filter(kind == name).count() for name in kinds)


def find_start_ns(run: Run) -> int:
    """Return the start of the run's first event on its own clock; 0 if unknown."""
    return int(run.events.select(pl.col("t").min()).item() or 0) if run.has("t") else 0


@cache_per_run
def has_kind(run: Run, kind: str) -> bool:
    """True if the run has rows of a kind."""
    return bool((run.events["kind"] == kind).any())


def name_work(run: Run) -> str:
    """Return the noun for a row of work: kernel; operation or span where only a host is recorded."""
    if resolve_lens(run, Look()) != "host":
        return "kernel"
    return "span" if run.meta.get("work") == "spans" else "operation"


def explain_no_kernels(run: Run) -> str:
    """Return the note for an answer without kernels: the look selects none, or the run has none."""
    if has_kind(run, "kernel") or not has_kind(run, "span"):
        return NO_MATCH
    has_tree = run.has("path") or has_start_times(run, ("span",))
    return "this source has spans and no kernels" + ("; the tree view shows them" if has_tree else "")


def select_existing(run: Run, columns: Sequence[str]) -> list[str]:
    """Return the columns that the run has."""
    return [c for c in columns if run.has(c)]


def note_selection(run: Run, look: Look) -> list[str]:
    """Return notes on the basis of the numbers: lens, ranks, folding, and kernels that the source omits."""
    listed = run.meta.get("listed")  # why the source lists only a part of its kernels
    notes = [*note_lens(run, look), *note_added_ranks(run, look), *note_folding(run)]
    return [*notes, str(listed)] if listed else notes


def note_added_ranks(run: Run, look: Look) -> list[str]:
    """Return a note if times of several ranks are added."""
    number = len(list_ranks(run))
    if number < 2 or "track" in look.focus_values:
        return []
    return [f"times of {number} concurrent ranks are summed; a step lasts as long as its slowest rank"]


def note_lens(run: Run, look: Look) -> list[str]:
    """Return notes on the lens in use and on the lenses left out."""
    notes = []
    chosen, available = resolve_lens(run, look), list_lenses(run)
    other_lenses = [x for x in available if x != chosen]
    if other_lenses:
        notes.append(f"{chosen} times; {', '.join(other_lenses)} times overlap and are left out")
    if chosen is not None and chosen not in available:
        names = ", ".join(available) or "none that name a lens"
        notes.append(f"this source has no {chosen} times; it has {names}")
    return notes


def note_folding(run: Run) -> list[str]:
    """Return a note if old steps were compacted."""
    if not is_folded(run):
        return []
    first = run.meta["folded"].get("before")
    since = f"steps since {first:,}" if isinstance(first, int) else "newest events"
    return [f"older steps are folded: percentiles, launches and times cover the {since}"]


def map_to_categories(run: Run, column: str = "name") -> dict[str, str]:
    """Return the category of each name, or op, whose kernels all share one."""
    if column == "category" or not run.has("category") or column not in _find_category_keys(run).columns:
        return {}
    pairs = _find_category_keys(run).select(column, "category").unique().drop_nulls()
    return dict(pairs.filter(pl.col(column).is_unique()).sort(column).iter_rows())


@cache_per_run
def _find_category_keys(run: Run) -> pl.DataFrame:
    """Return the distinct name, op and category of kernels with a category."""
    rows = run.events.lazy().filter((pl.col("kind") == "kernel") & pl.col("category").is_not_null())
    columns = [c for c in ("name", "op", "category") if run.has(c)]
    return group_by_packed_key(rows, columns).cast(pl.String)
