"""The decision of a comparison: what each phase takes now, what carries the change, and what is small."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import polars as pl

from tracetui import units
from tracetui.analysis.compare import what_it_takes
from tracetui.analysis.compare.diff import Diff
from tracetui.analysis.compare.phase_totals import GAP, KERNELS, STEP
from tracetui.analysis.statistics import FEWEST
from tracetui.look import Terms
from tracetui.shown_names import shown_names

APART: Final = 2.8  # spreads of one run, by which two of the same rarely differ: twice the root of two
NAMED: Final = 0.9  # of the change, of which what carries it is named
MOST: Final = 7  # names in a sentence
MOST_PHASES: Final = 4
ALIKE: Final = 0.2  # of a change, by which that of the kernels may differ from that of the step
SMALL: Final = 4  # decided rows that are named though they carry little
GAP_NAME: Final = "time between kernels"


@dataclass(frozen=True, eq=False)
class Decision:
    """What a person has to know first of a comparison."""

    phases: pl.DataFrame  # phase, what: its step time where known, and its kernels
    carriers: pl.DataFrame  # phase, name, delta_ns, change_pct, verdict, share, named

    def as_dict(self) -> dict[str, Any]:
        """Return the decision for JSON."""
        return {"phases": self.phases.to_dicts(), "carried_by": self.carriers.to_dicts()}


def decision(compared: Diff) -> Decision:
    """Return the phases, the longest first, and rows and gaps by their part of a phase's change."""
    totals = compared.phases
    size = ((pl.col("a_ns") + pl.col("b_ns")) * pl.col("steps").clip(1)).max().over("phase")
    phases = totals.filter(pl.col("what") != GAP).sort(size, descending=True, maintain_order=True)
    return Decision(phases, _carriers(compared, phases.unique("phase", maintain_order=True)))


def _carriers(compared: Diff, phases: pl.DataFrame) -> pl.DataFrame:
    gaps = compared.phases.filter(pl.col("what") == GAP).select(
        "phase", pl.lit(GAP_NAME).alias("name"), "delta_ns", "verdict", before="a_ns"
    )
    typical = pl.col("median_delta_ns").is_not_null() & (pl.col("per") != "launch")
    per = phases.select("phase", pl.col("steps").clip(1).alias("units"))
    rows = compared.rows.join(per, on="phase", how="inner", nulls_equal=True, maintain_order="left").select(
        "phase",
        "name",
        pl.when(typical)
        .then("median_delta_ns")
        .otherwise(pl.col("delta_ns") / pl.col("units"))
        .alias("delta_ns"),
        "verdict",
        before=pl.when(typical).then("median_a_ns").otherwise(pl.col("total_a_ns") / pl.col("units")),
    )
    size = pl.col("delta_ns").abs()
    table = pl.concat([gaps, rows], how="vertical_relaxed").drop_nulls("delta_ns")
    table = table.sort(size, "name", descending=[True, False], maintain_order=True)
    share = (size / size.sum()).over("phase")
    before = share.cum_sum().over("phase") - share
    return table.with_columns(
        share=share.fill_nan(0.0),
        change_pct=pl.when(pl.col("before") > 0).then(100 * pl.col("delta_ns") / pl.col("before")),
        named=(before < NAMED) & (size > 0),
    ).drop("before")


@lru_cache(maxsize=2)  # a view says them, and how many they are
def sentences(compared: Diff, terms: Terms) -> tuple[str, ...]:
    """Return the decision in a few lines: phases, what carries their changes, what is decided but small."""
    found = decision(compared)
    lines = []
    for phase in found.phases["phase"].unique(maintain_order=True).head(MOST_PHASES):
        of_phase = pl.col("phase").eq_missing(pl.lit(phase, pl.String))
        whole, *kernels = found.phases.filter(of_phase).to_dicts()
        shown = (whole, *(k for k in kernels if not _alike(whole, k)))
        lines += [_total(row, terms, compared.seconds) for row in shown]
        own = found.carriers.filter(of_phase)
        lines += [f"  {text}" for text in (_carried(own), _small(own)) if text]
    return tuple(lines)


def _alike(step: dict[str, Any], kernels: dict[str, Any]) -> bool:
    """Tell whether the kernels say of a phase what its steps say already."""
    apart = abs(step["delta_ns"] - kernels["delta_ns"])
    return bool(step["verdict"] == kernels["verdict"] and apart <= ALIKE * abs(step["delta_ns"]))


def _total(row: dict[str, Any], terms: Terms, seconds: float | None) -> str:
    a, b = row["a_ns"], row["b_ns"]
    what = {STEP: "step", KERNELS: "kernels"}[row["what"]]
    each = "in all" if row["per"] == "run" else f"a {row['per']}"
    change = f", {units.difference(b - a)} ({100 * (b / a - 1):+.1f}%{_interval(row)})" if a else ""
    lead = f"{row['phase']} {what}" if row["phase"] else what
    head = f"{lead} {units.duration(a)} → {units.duration(b)} {each}{change}"
    word, why = _verdict(row, terms, seconds)
    return f"{word}: {head}{_rate(row)}{f'; {why}' if why else ''}"


def _interval(row: dict[str, Any]) -> str:
    if row["low_ns"] is None or row["low_ns"] == row["high_ns"]:
        return ""
    low, high = (100 * row[c] / row["a_ns"] for c in ("low_ns", "high_ns"))
    return f"; 95%: {low:+,.0f} to {high:+,.0f}%"


def _rate(row: dict[str, Any]) -> str:
    """Return tokens a second of decode, and that a prefill of one step is the time to the first token."""
    if row["what"] != STEP or not row["a_ns"] or not row["b_ns"]:
        return ""
    if row["phase"] == "decode" and row["per"] == "token":
        return f", {1e9 / row['a_ns']:,.1f} → {1e9 / row['b_ns']:,.1f} tokens/s"
    return ", time to first token" if row["phase"] == "prefill" and row["steps"] == 1 else ""


def _verdict(row: dict[str, Any], terms: Terms, seconds: float | None) -> tuple[str, str]:
    """Return the verdict as one word, which a narrow screen never cuts off, and what it rests on."""
    if row["verdict"] == "same":
        return "same", ""
    if row["verdict"] == "~":
        return "undecided", _why_undecided(row, terms, seconds)
    doubt = "" if terms.trusted else f", if runs differ by {terms.floor.percent}"
    return row["verdict"].upper(), f"p {row['p']:.2g}{doubt}"


def _why_undecided(row: dict[str, Any], terms: Terms, seconds: float | None) -> str:
    if row["p"] is None:
        return "this source has no spread"
    return f"{_doubt(row, terms)}; {what_it_takes.words(what_it_takes.more_recordings(row, terms), seconds)}"


def _doubt(row: dict[str, Any], terms: Terms) -> str:
    if terms.repeated:
        return "the runs of a side scatter too much"
    if row["steps"] < FEWEST:
        return f"{row['steps']} step{'s' * (row['steps'] > 1)} a side ({FEWEST} tell more)"
    if abs(math.log(row["b_ns"] / row["a_ns"])) > APART * terms.floor.spread:
        return "the steps scatter too much"
    known = "run-to-run floor" if terms.floor.known else "assumed run-to-run floor"
    return f"below the {known} of {terms.floor.percent}"


def _carried(rows: pl.DataFrame) -> str:
    """Return what the change is made of until most of it is named; empty where nothing changed."""
    named = rows.filter("named")
    if named.is_empty():
        return ""
    parts = [_part(row) for row in _short(named.head(MOST))]
    more = named.height - MOST
    rest = f" and {more} more" if more > 0 else ""
    return f"carried by {', '.join(parts)}{rest}"


def _small(rows: pl.DataFrame) -> str:
    decided = pl.col("verdict").is_in(["slower", "faster"])
    small = rows.filter(decided & ~pl.col("named"))
    more = f" and {small.height - SMALL} more" if small.height > SMALL else ""
    parts = ", ".join(_part(row) for row in _short(small.head(SMALL)))
    return f"decided but small: {parts}{more}" if parts else ""


def _short(rows: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the rows with names that fit a sentence."""
    shown = shown_names(rows["name"].to_list())
    for row in rows.iter_rows(named=True):
        yield row | {"name": _brief(shown.get(row["name"], row["name"]))}


def _brief(name: str, longest: int = 40) -> str:
    return name if len(name) <= longest else f"{name[: longest // 2]}…{name[-longest // 2 + 1 :]}"


def _part(row: dict[str, Any]) -> str:
    sign = "" if row["verdict"] in ("slower", "faster", "new", "gone") else " ~"
    return f"{row['name']} {units.difference(row['delta_ns'])}{sign}"
