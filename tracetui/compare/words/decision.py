"""The first lines about a comparison: each phase, what carries its change, and the headline."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Final

import polars as pl

from tracetui import units
from tracetui.analysis.frames.display_names import map_names_in
from tracetui.analysis.frames.selection import list_ranks
from tracetui.analysis.frames.statistics import MIN_SAMPLES
from tracetui.compare import params
from tracetui.compare.diff import Diff, change_ns
from tracetui.compare.evidence.phase_totals import (
    GAP,
    KERNELS,
    STEP,
    GapChange,
    find_gap_change,
    find_late_rank,
)
from tracetui.compare.evidence.sample_size import (
    describe_uncertainty,
    estimate_recordings_needed,
    format_floor_limit,
    format_requirement,
    select_floor,
)
from tracetui.compare.pairing.comparability import describe_counts, describe_unknown_sizes
from tracetui.compare.pairing.equal_work import UNEQUAL_WORK, WorkDifference, describe_differences
from tracetui.compare.replaced_rows import describe_merged_rows
from tracetui.look import Terms

UNDECIDED: Final = "undecided"
GAP_NAME: Final = "time between kernels"
DECIDED: Final = ("slower", "faster", "same")
COUNTED_VERDICTS: Final = ("slower", "faster", "new", "gone", "same")
NUMBERED_GROUPS: Final = ("layer", "step")  # groupings whose rows are numbers
_DECISION_LETTERS: Final = (20, 19)  # of a long name: how many are kept of its start and of its end
_BY_NO_ROW: Final = "carried by no row"
_HEADLINE_LETTERS: Final = (16, 16)


@dataclass(frozen=True, eq=False)
class Decision:
    """What to know first about a comparison."""

    phases: pl.DataFrame  # phase, what (its step time if known, and its kernels), with verdicts
    carriers: pl.DataFrame  # phase, name, delta_ns, change_pct, verdict, share, named, is_wait
    works: tuple[WorkDifference, ...] = ()  # in what the work of the runs differs

    def as_dict(self) -> dict[str, Any]:
        """Convert to a JSON object."""
        return {
            "phases": self.phases.drop("floor").to_dicts(),
            "carried_by": self.carriers.drop("is_wait").to_dicts(),
            "differences": [asdict(work) for work in self.works],
        }


def compute_decision(compared: Diff) -> Decision:
    """Sort phases by their time, and rows and gaps by their share of a phase's change."""
    totals = compared.phases
    size = ((pl.col("a_ns") + pl.col("b_ns")) * pl.col("steps").clip(1)).max().over("phase")
    phases = totals.filter(pl.col("what") != GAP).sort(size, descending=True, maintain_order=True)
    carriers = _find_carriers(compared, phases.unique("phase", maintain_order=True))
    return Decision(phases, carriers, compared.works)


def _find_carriers(compared: Diff, phases: pl.DataFrame) -> pl.DataFrame:
    """Find the rows and gaps that make up each phase's change, per step or token, largest first.

    Work comes before waits, which follow from work of other threads.
    """
    gaps = compared.phases.filter(pl.col("what") == GAP).select(
        "phase",
        pl.lit(GAP_NAME).alias("name"),
        "delta_ns",
        "verdict",
        before="a_ns",
        instead=pl.lit(None, pl.String),
    )
    has_median = pl.col("median_delta_ns").is_not_null() & ~pl.col("per").is_in(["launch", "run"])
    per = phases.select("phase", pl.col("steps").clip(1).alias("units"))
    delta = pl.when(has_median).then("median_delta_ns").otherwise(pl.col("delta_ns") / pl.col("units"))
    before = pl.when(has_median).then("median_a_ns").otherwise(pl.col("total_a_ns") / pl.col("units"))
    rows = _select_rows(compared).join(per, on="phase", nulls_equal=True, maintain_order="left")
    is_wait = (pl.col("category").cast(pl.String) == "wait").fill_null(value=False)
    rows = rows.select(
        "phase", "name", delta.alias("delta_ns"), "verdict", "instead", before=before, is_wait=is_wait
    )
    size = pl.col("delta_ns").abs()
    table = pl.concat([gaps, rows], how="diagonal_relaxed").drop_nulls("delta_ns")
    table = table.with_columns(pl.col("is_wait").fill_null(value=False))
    table = table.sort("is_wait", size, "name", descending=[False, True, False], maintain_order=True)
    of_kind = size / size.sum().over("phase", "is_wait")
    share_before = of_kind.cum_sum().over("phase", "is_wait") - of_kind
    share = (size / size.sum()).over("phase")
    return table.with_columns(
        share=share.fill_nan(0.0),
        change_pct=pl.when(pl.col("before") > 0).then(100 * pl.col("delta_ns") / pl.col("before")),
        named=(share_before < params.MOST) & (size > 0) & (~pl.col("is_wait") | (share >= params.MIN_CHANGE)),
    ).drop("before")


def _select_rows(compared: Diff) -> pl.DataFrame:
    """Return the rows, without their phases if whole steps are judged."""
    phases = compared.phases["phase"]
    if phases.len() and phases.null_count() == phases.len():
        return compared.rows.with_columns(phase=pl.lit(None, compared.rows["phase"].dtype))
    return compared.rows


def select_main_phase(compared: Diff) -> dict[str, Any] | None:
    """Select the totals of the phase that takes longest: its steps, else its kernels; None without phases."""
    phases = compute_decision(compared).phases
    return phases.row(0, named=True) if phases.height else None


def is_decided(compared: Diff) -> bool:
    """True if the phase that takes longest has a verdict."""
    row = select_main_phase(compared)
    return row is not None and row["verdict"] in DECIDED


@lru_cache(maxsize=2)  # a view asks for the lines and for their number
def describe_decision(compared: Diff, terms: Terms) -> tuple[str, ...]:
    """Describe in what the work differs; then each phase, and what carries its change."""
    decision, names = compute_decision(compared), map_names_in(compared.rows, compared.sides)
    differences, lines = _describe_work(compared), list[str]()
    for phase in decision.phases["phase"].unique(maintain_order=True).head(params.MAX_NAMED):
        in_phase = pl.col("phase").eq_missing(pl.lit(phase, pl.String))
        total, *kernels = decision.phases.filter(in_phase).to_dicts()
        rows = [total, *(k for k in kernels if not _is_redundant(total, k))]
        first, *others = (_describe_total(row, compared) for row in rows)
        carriers = decision.carriers.filter(in_phase)
        place = _find_gap(compared, carriers, total, terms)
        first = _complete_first(first, carriers, place, total, names)
        is_open = all(f"{UNDECIDED}: " in line for line in (first, *others))  # then the cause stands higher
        lines += [first, *others * (not is_open)]
        if differences and differences[0].startswith(UNEQUAL_WORK):
            lines.insert(0, differences.pop(0))
        described = _describe_change(compared, rows, carriers, place, terms, names)
        details = *differences, *described
        lines += [f"  {text}" for text in details if text and not _is_in_first(text, first)]
        lines += others * is_open
        differences.clear()
    return tuple(lines) or tuple(differences)


def _is_in_first(text: str, first: str) -> bool:
    """True if the first line names the place between kernels that a text describes."""
    return text.startswith("time between") and text.partition(": ")[0].removeprefix("time ") in first


def _complete_first(
    first: str,
    carriers: pl.DataFrame,
    place: GapChange | None,
    total: dict[str, Any],
    names: Mapping[str, str],
) -> str:
    """Add to an undecided first line what is decided, before it, else where most of the change is."""
    if not first.startswith(UNDECIDED):
        return first
    decided = _describe_decided_row(carriers, total, names) or _describe_wait(place, names)
    return f"{decided}{first}{'' if decided else _describe_most(place, total, names)}"


def _describe_change(
    compared: Diff,
    totals: Sequence[dict[str, Any]],
    carriers: pl.DataFrame,
    place: GapChange | None,
    terms: Terms,
    names: Mapping[str, str],
) -> tuple[str, ...]:
    """Describe what makes up the change of a phase, and what would decide it; a text may be empty."""
    total = totals[0]
    carried = _describe_carriers(carriers, total, terms.threshold, names)
    if carried.startswith(_BY_NO_ROW):
        carriers = carriers.with_columns(pl.col("named") & pl.col("is_wait"))  # others are named below
    return (
        carried,
        _describe_waits(carriers.filter("is_wait", "named"), names),
        _describe_replaced(carriers, names),
        describe_merged_rows(_select_rows(compared), carriers) or _describe_additions(carriers, total, names),
        _describe_gap(place, names),
        _describe_small_changes(carriers, names),
        _describe_requirement(totals, compared, terms),
    )


def _describe_work(compared: Diff) -> list[str]:
    """Describe in what the work differs, or that its sizes are unknown."""
    has_other_work = any(work.is_work for work in compared.works)
    unknown = "" if has_other_work else describe_unknown_sizes(compared.sides)
    return [*describe_differences(compared.works), *([unknown] if unknown else [])]


def _describe_decided_row(carriers: pl.DataFrame, total: dict[str, Any], names: Mapping[str, str]) -> str:
    """Name the decided row of the largest change before a phase that is undecided; empty without one.

    One that is less than 1 % of the phase says nothing of it.
    """
    size = pl.col("delta_ns").abs()
    is_row = (pl.col("name") != GAP_NAME) & pl.col("change_pct").is_not_null()
    rows = carriers.filter(is_row, pl.col("verdict").is_in(["slower", "faster"]))
    rows = rows.filter(size >= params.NEGLIGIBLE * total["a_ns"]).sort(size, "name", descending=[True, False])
    if rows.is_empty():
        return ""
    row = rows.row(0, named=True)
    name = row["instead"] or _shorten_name(names.get(row["name"], row["name"]), *_DECISION_LETTERS)
    return f"{name} {row['verdict'].upper()} {row['change_pct']:+.1f}%; overall "


def _describe_wait(place: GapChange | None, names: Mapping[str, str]) -> str:
    """Name a place between kernels that has a verdict before a phase that is undecided; else empty."""
    if place is None or place.verdict not in ("slower", "faster"):
        return ""
    where, _, change = _describe_gap(place, names).rpartition(": ")
    return f"{where} {place.verdict.upper()} {change}; overall "


def _describe_replaced(rows: pl.DataFrame, names: Mapping[str, str]) -> str:
    """Describe what ran instead of kernels that are gone; empty if nothing did that the lines above lack."""
    is_above = pl.col("named") | pl.col("verdict").is_in(["slower", "faster"])
    is_above |= pl.col("instead").is_in(rows.filter("named")["instead"].implode())
    replaced = rows.filter(pl.col("instead").is_not_null() & ~is_above)
    return f"ran instead: {_list_changes(replaced, params.MAX_EXAMPLES, names)}" if replaced.height else ""


def _is_redundant(step: dict[str, Any], kernels: dict[str, Any]) -> bool:
    """True if the kernels of a phase show the same as its steps."""
    difference = abs(step["delta_ns"] - kernels["delta_ns"])
    is_close = difference <= (1 - params.MOST) * abs(step["delta_ns"])
    return bool(step["verdict"] == kernels["verdict"] and is_close)


def _describe_total(row: dict[str, Any], compared: Diff) -> str:
    """Describe a phase: `SLOWER: decode step 10 ms → 12 ms per token, +2 ms (+20.0%); p 0.001`."""
    a, b = row["a_ns"], row["b_ns"]
    works = [w for w in compared.works if w.is_work and w.is_about(row["phase"])]
    what = {STEP: "step", KERNELS: "kernels"}[row["what"]]
    unit = "in all" if row["per"] == "run" else f"per {row['per']}"
    change = ""
    if a:
        change = f", {units.format_difference(b - a)} ({100 * (b / a - 1):+.1f}%{_format_interval(row)})"
    lead = f"{row['phase']} {what}" if row["phase"] else what
    head = f"{lead} {units.format_duration(a)} → {units.format_duration(b)} {unit}{change}"
    if works:
        return f"not judged: {head}{_format_per_sequence(row, works)}"
    if 0 < row["steps"] < MIN_SAMPLES and not compared.sides.has_repeats:
        facts, steps = (
            describe_counts(compared.sides, row["phase"]),
            f"{row['steps']} step{'s' * (row['steps'] > 1)}",
        )
        return f"as measured: {head}; {facts}{steps} per side, no spread known: record {MIN_SAMPLES} or more"
    word, why = _describe_verdict(row, compared)
    return f"{word}: {head}{_format_rate(row)}{f'; {why}' if why else ''}"


def _format_per_sequence(row: dict[str, Any], works: Sequence[WorkDifference]) -> str:
    """Format the same times per step if they are per token, else per sequence, if the batches differ."""
    batch = next((w for w in works if w.what == "batch"), None)
    if batch is None or row["per"] == "run" or row["phase"] == "prefill":
        return ""
    sizes = [float(text.replace(",", "")) for text in (batch.a, batch.b)]
    powers, per = (1, "step") if row["per"] == "token" else (-1, "sequence")
    a, b = (row[c] * size**powers for c, size in zip(("a_ns", "b_ns"), sizes, strict=True))
    times = f"{units.format_duration(a)} → {units.format_duration(b)} per {per}"
    return f"; {times} ({b / a - 1:+.1%})" if a else ""


def _format_interval(row: dict[str, Any]) -> str:
    """Format within what the change is likely to be; empty if that is unknown, or anything."""
    if row["low_ns"] is None or row["low_ns"] == row["high_ns"]:
        return ""
    low, high = (100 * row[c] / row["a_ns"] for c in ("low_ns", "high_ns"))
    if low < 0 and high >= params.LARGEST_CHANGE_PCT:
        return ""
    largest = (
        f"{high:+,.0f}%" if high < params.LARGEST_CHANGE_PCT else f"over +{params.LARGEST_CHANGE_PCT:,}%"
    )
    return f"; 95% likely {low:+,.0f}% to {largest}"


def _format_rate(row: dict[str, Any]) -> str:
    """Format tokens per second of decode; mark a prefill of one step as the time to the first token."""
    if row["what"] != STEP or not row["a_ns"] or not row["b_ns"]:
        return ""
    if row["phase"] == "decode" and row["per"] == "token":
        return f", {1e9 / row['a_ns']:,.1f} → {1e9 / row['b_ns']:,.1f} tokens/s at the median"
    return ", time to first token" if row["phase"] == "prefill" and row["steps"] == 1 else ""


def _describe_verdict(row: dict[str, Any], compared: Diff) -> tuple[str, str]:
    """Describe the verdict by one word, which a narrow screen never cuts, and its reason if that is short."""
    if row["verdict"] == "same":
        return "same", ""
    if row["verdict"] == "~" and row["p"] is not None:
        return UNDECIDED, ""
    if row["verdict"] == "~":
        return UNDECIDED, "no steps, so one total per run" if row[
            "per"
        ] == "run" else "a time of 0 ns has no test"
    sides = compared.sides
    if sides.has_known_spread:
        return row["verdict"].upper(), f"p {row['p']:.2g}"
    limit = format_floor_limit(select_floor(row, sides))
    return row["verdict"].upper(), f"if equal runs differ by no more than {limit}"


def _describe_requirement(rows: Sequence[dict[str, Any]], compared: Diff, terms: Terms) -> str:
    """Describe why the first of these totals that is undecided is, and what would decide it; else empty."""
    for row in rows:
        is_about_code = not any(w.is_work and w.is_about(row["phase"]) for w in compared.works)
        is_few = 0 < row["steps"] < MIN_SAMPLES and not compared.sides.has_repeats
        if row["verdict"] == "~" and row["p"] is not None and is_about_code and not is_few:
            more = estimate_recordings_needed(row, compared.sides, terms)
            why = describe_uncertainty(row, compared.sides, terms)
            return f"{row['what']}: {why}; {format_requirement(more, compared.recording_seconds)}"
    return ""


def _describe_carriers(
    rows: pl.DataFrame, total: dict[str, Any], least_change: float, names: Mapping[str, str]
) -> str:
    """Describe the rows that make up most of a change, or that none do; empty if nothing changed.

    A step that other programs interrupt anywhere is longer, while the median of each row is not.
    """
    named, change = rows.filter("named"), total["delta_ns"]
    in_rows, is_decided = float(rows["delta_ns"].sum()), named["verdict"].is_in(COUNTED_VERDICTS).any()
    is_elsewhere = in_rows * change < (1 - params.MOST) * change**2
    if rows.height and not is_decided and is_elsewhere and abs(change) >= least_change * total["a_ns"]:
        sums = f"{units.format_difference(in_rows)}, the {total['what']} by {units.format_difference(change)}"
        return f"{_BY_NO_ROW}: their medians changed by {sums}"
    named = named.filter(~pl.col("is_wait"))
    return f"carried by {_list_changes(named, params.MAX_NAMED, names)}" if named.height else ""


def _describe_waits(rows: pl.DataFrame, names: Mapping[str, str]) -> str:
    return f"waits: {_list_changes(rows, params.MAX_EXAMPLES, names)}" if rows.height else ""


def _find_gap(
    compared: Diff, carriers: pl.DataFrame, total: dict[str, Any], terms: Terms
) -> GapChange | None:
    """Find between which kernels the time lies that carries a change; None if it is in no one place."""
    sides, phase, place = compared.sides, total["phase"], None
    has_several = [len(list_ranks(run)) > 1 for run in sides]
    if all(has_several):
        change = total["delta_ns"] if total["what"] == STEP else params.MIN_CHANGE * total["a_ns"]
        place = find_late_rank(sides, phase, terms, change)
    elif not any(has_several):
        gaps = carriers.filter("named", name=GAP_NAME)
        for delta in gaps["delta_ns"].head(1):
            place = find_gap_change(sides, phase, terms, delta)
    is_unequal = any(work.is_work and work.is_about(phase) for work in compared.works)
    return replace(place, verdict="~") if place and is_unequal else place


def _describe_most(place: GapChange | None, total: dict[str, Any], names: Mapping[str, str]) -> str:
    """Describe the place between kernels of most of a change worth a word, or beside one of kernels."""
    if place is None or not total["a_ns"]:
        return ""
    if total["what"] != STEP:
        is_large = abs(place.delta_ns) >= params.MIN_CHANGE * total["a_ns"]
        longer = "longer" if place.delta_ns > 0 else "shorter"
        waits = f"waits {units.format_duration(abs(place.delta_ns))} {longer}"
        return f", {waits} {_describe_place(place, names)}" if is_large else ""
    change = total["delta_ns"]
    is_large = abs(change) >= params.MIN_CHANGE * total["a_ns"]
    is_most = place.delta_ns * change >= params.MOST * change**2
    part = f"{units.format_difference(place.delta_ns)} of it"
    return f", {part} {_describe_place(place, names)}" if is_large and is_most else ""


def _describe_gap(place: GapChange | None, names: Mapping[str, str]) -> str:
    """Describe the change of the time at a place: `time between a and b: +8 ms`; empty without one."""
    if place is None:
        return ""
    mark = "" if place.verdict in ("slower", "faster") else " ~"
    return f"time {_describe_place(place, names)}: {units.format_difference(place.delta_ns)}{mark}"


def _describe_place(place: GapChange, names: Mapping[str, str]) -> str:
    """Describe a place between kernels: `between a and b on rank 1 (its arrival)`."""
    before, after = (_shorten_name(names.get(n, n), *_DECISION_LETTERS) for n in (place.before, place.after))
    where = f"between {before} and {after}" if before != after else f"between two {after}"
    if place.ranks:
        is_few = len(place.ranks) <= params.MAX_EXAMPLES
        where += (
            f" on rank {' and '.join(map(str, place.ranks))}" if is_few else f" on {len(place.ranks)} ranks"
        )
    return where + " (its arrival)" * place.is_arrival


def _describe_small_changes(rows: pl.DataFrame, names: Mapping[str, str]) -> str:
    """Describe rows with a verdict that carry little of the change; empty if there are none."""
    small = rows.filter(pl.col("verdict").is_in(["slower", "faster"]) & ~pl.col("named"))
    text = f"decided but small: {_list_changes(small, params.MAX_NAMED, names)}"
    return text if small.height else ""


def _describe_additions(carriers: pl.DataFrame, total: dict[str, Any], names: Mapping[str, str]) -> str:
    """Describe rows of one side only that are not named above, if they are no less than 1 % of the phase.

    Of steps it is 0.1 %: what runs in each of them on one side only tells how the code differs.
    """
    least = params.NEGLIGIBLE if total["per"] == "run" else params.LEAST_OF_ONE_SIDE
    is_large = pl.col("delta_ns").abs() >= least * total["a_ns"]
    others = carriers.filter(is_large, ~pl.col("named"))
    parts = []
    for verdict, side in (("new", "b"), ("gone", "a")):
        rows = others.filter(pl.col("verdict") == verdict)
        parts += [f"only in {side}: {_list_changes(rows, params.MAX_EXAMPLES, names)}"] * (rows.height > 0)
    return "; ".join(parts)


def _list_changes(rows: pl.DataFrame, limit: int, names: Mapping[str, str]) -> str:
    """List names and changes of the first rows; `~` marks rows without a verdict.

    Rows in whose place the same ran instead, as in each layer, are summed.
    """
    columns = rows.select("name", "delta_ns", "verdict", "instead").iter_rows()
    sums: dict[tuple[str, str], float] = {}
    for name, delta, verdict, instead in columns:
        mark = "" if verdict in ("slower", "faster", "new", "gone") else " ~"
        key = instead or _shorten_name(names.get(name, name), *_DECISION_LETTERS), mark
        sums[key] = sums.get(key, 0.0) + delta
    changes = [f"{name} {units.format_difference(delta)}{mark}" for (name, mark), delta in sums.items()]
    more = f" and {len(changes) - limit} more" if len(changes) > limit else ""
    return f"{', '.join(changes[:limit])}{more}"


def _shorten_name(name: str, head: int, tail: int) -> str:
    return name if len(name) <= head + tail + 1 else f"{name[:head]}…{name[-tail:]}"


def format_headline(compared: Diff, group: str | None = None) -> str:
    """Format the headline: the first row to look at, that of all kernels, and how many rows changed."""
    doubt = "" if compared.comparability.ok else "NOT comparable"
    counts = ", ".join(count_verdicts(compared)) or "no rows"
    parts = (doubt, describe_first_change(compared, group), _describe_total_change(compared), counts)
    return "; ".join(part for part in parts if part)


def count_verdicts(compared: Diff) -> list[str]:
    """Count the rows of each verdict: `2 slower`, `5 undecided`."""
    verdicts = compared.rows["verdict"].to_list()
    counts = [f"{verdicts.count(v)} {v}" for v in COUNTED_VERDICTS if v in verdicts]
    undecided = sum(v not in COUNTED_VERDICTS for v in verdicts)
    return [*counts, f"{undecided} undecided"] if undecided else counts


def select_decided_rows(compared: Diff) -> pl.DataFrame:
    """Select the rows that are slower or faster, largest change first."""
    rows = compared.rows.filter(pl.col("verdict").is_in(["slower", "faster"]))
    return rows.sort(change_ns().abs(), "name", descending=[True, False])


def describe_first_change(compared: Diff, group: str | None = None) -> str:
    """Describe the decided row of the largest change; if there is none, the one nearest to a verdict."""
    rows = select_decided_rows(compared)
    if not rows.height:
        has_tests = compared.rows["p"].is_not_null().any()
        return f"no row evidently changed{_describe_nearest(compared)}" if has_tests else ""
    row = rows.row(0, named=True)
    before = row["median_a_ns"]
    change = f" {row['median_delta_ns'] / before:+.1%}" if before else ""
    where = f" in {row['phase']}" if row["phase"] else ""
    lead = f"{group} " if group in NUMBERED_GROUPS else ""
    name = row["instead"] or _shorten_name(row["name"], *_HEADLINE_LETTERS)
    return f"{lead}{name} {row['verdict']}{change}{where}"


def _describe_nearest(compared: Diff) -> str:
    """Describe the undecided row with the most evidence; empty if that is little."""
    is_near = (pl.col("verdict") == "~") & (pl.col("p_adjusted") < params.NEARLY_DECIDED_P)
    rows = compared.rows.filter(is_near & (pl.col("median_a_ns") > 0))
    for row in rows.sort("p_adjusted", "name").head(1).iter_rows(named=True):
        change = row["median_delta_ns"] / row["median_a_ns"]
        name = _shorten_name(row["name"], *_HEADLINE_LETTERS)
        return f", nearest {name} {change:+.1%} (p {row['p_adjusted']:.2g})"
    return ""


def _describe_total_change(compared: Diff) -> str:
    before, after = int(compared.rows["total_a_ns"].sum()), int(compared.rows["total_b_ns"].sum())
    return f"kernels {after / before - 1:+.1%}" if before else ""
