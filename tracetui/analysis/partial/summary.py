"""The summary of many files: where the time of all went, how many steps each has, which files stand out."""

from dataclasses import replace
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis import select, steps, windows
from tracetui.analysis.kernels import total_tables
from tracetui.analysis.partial.algebra import MEMBERS, Partial, Shape
from tracetui.analysis.summary import BY, SCHEMA, stated
from tracetui.look import Look

SHAPES: Final = {
    "where": Shape(("part", "name"), {"count": "sum", "total_ns": "sum"}),
    "phases": Shape(("phase",), {"fewest": "low", "most": "high"}),
    "lacking": Shape(("view", "needs"), {"runs": "sum"}),
}
MOST: Final = 10  # rows of a part, and files that stand out
FAR: Final = 5.0  # times the usual distance from the median, from which on a file stands out
LEAST: Final = 0.02  # of the median, below which none does
_USUAL: Final = 1.4826  # makes of the median distance what a standard deviation is of a normal distribution


def partial(run: Run, look: Look) -> dict[str, pl.DataFrame]:
    """Return where the time of a run went, how many steps it has, and its time in all."""
    whole_look = replace(look, group=None, per="total")
    by = [c for c in BY if run.has(c)] if run.has("dur") else []
    tables = total_tables(run, whole_look, by) if by else []
    where = [
        table.select(
            part=pl.lit(column),
            name=pl.col(column).cast(pl.String).fill_null("other"),
            count=pl.col("count").cast(pl.Int64),
            total_ns=pl.col("total_ns").cast(pl.Int64),
        )
        for table, column in zip(tables, by, strict=True)
    ]
    empty = pl.DataFrame(
        schema={"part": pl.String, "name": pl.String, "count": pl.Int64, "total_ns": pl.Int64}
    )
    phases = (
        steps.paced(run)
        .group_by(phase=pl.col("phase").cast(pl.String).fill_null(""))
        .agg(fewest=pl.col("steps").sum().cast(pl.Int64))
        .with_columns(most="fewest")
    )
    rows = select.in_steps(run, replace(whole_look, filter="")) if by else None
    whole = windows.whole(run, whole_look, rows) if rows is not None else None
    facts = {"whole_ns": pl.Series([whole], dtype=pl.Int64), "listed": [bool(run.meta.get("listed"))]}
    return {"where": pl.concat([empty, *where]), "phases": phases, MEMBERS: pl.DataFrame(facts)}


def merged_summary(whole: Partial, look: Look) -> pl.DataFrame:
    """Return facts in part `run`, files that stand out, and where the time of all went."""
    members = whole.members
    total = 0 if members["listed"].any() else int(members["whole_ns"].sum())
    share = pl.col("total_ns") / total if total else pl.lit(None, pl.Float64)
    where = (
        whole.frames["where"]
        .sort("total_ns", "name", descending=[True, False], nulls_last=True)
        .group_by("part", maintain_order=True)
        .head(MOST)
        .with_columns(share=share)
    )
    parts = [where.filter(pl.col("part") == column) for column in BY]
    texts = [{"part": "run", "name": n, "text": t} for n, t in _facts(whole).items()]
    texts += [{"part": "outlier", **row} for row in outliers(members)]
    return pl.concat([pl.DataFrame(texts, schema=SCHEMA), *parts], how="diagonal").select(list(SCHEMA))


def _facts(whole: Partial) -> dict[str, str]:
    """Return what all runs state alike, how many there are, and how many steps they have."""
    members = whole.members
    words = {"files": f"{members['member'].n_unique():,}"}
    if members.height != members["member"].n_unique():
        words["runs"] = f"{members.height:,}"
    words |= stated(whole.meta)
    for phase, fewest, most in whole.frames["phases"].select("phase", "fewest", "most").rows():
        words[f"{phase} steps" if phase else "steps"] = f"{fewest:,}" + (
            f"–{most:,}" if most != fewest else ""
        )
    taken = members["whole_ns"].drop_nulls()
    if taken.len():
        words["time of a run"] = f"{units.duration(_number(taken.median()))} at the median"
        words["least, most"] = (
            f"{units.duration(_number(taken.min()))}, {units.duration(_number(taken.max()))}"
        )
    return words


def outliers(members: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the files whose time in all lies far from the median of all, the farthest first."""
    taken = members.drop_nulls("whole_ns")
    middle = _number(taken["whole_ns"].median())
    if taken.height < 4 or not middle:
        return []
    away = taken.with_columns(away=(pl.col("whole_ns") - middle).abs())
    bound = max(FAR * _USUAL * _number(away["away"].median()), LEAST * middle)
    far = away.filter(pl.col("away") > bound).sort("away", "source", descending=[True, False]).head(MOST)
    return [
        {
            "name": source.rpartition("/")[2],
            "text": f"{units.duration(ns)}, {ns / middle:.2f} times the median",
        }
        for source, ns in far.select("source", "whole_ns").rows()
    ]


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
