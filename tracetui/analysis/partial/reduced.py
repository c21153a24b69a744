"""Rows of many files added up, for views that ask how many they are, how long they took and what they did.

What a file contributes is its rows by some of their columns. Of all files together they are the rows of a
run, one for many launches each, of which such a view gives the answer that it gives of any run.
"""

from collections.abc import Sequence
from typing import Final

import polars as pl

from capture.run import DTYPES, Run
from tracetui.analysis import select
from tracetui.analysis.partial import standin
from tracetui.analysis.partial.algebra import Partial, Shape
from tracetui.look import Look

_WORK: Final = {"bytes": "moved", "flops": "worked"}  # what is added up → whether a row states any
_WORDS: Final = ("name", "op", "phase", "category", "lens", "shape", "line", "track", "path")
_NUMBERS: Final = ("layer", "step", *_WORK.values())
KEY: Final = (*_WORDS, *_NUMBERS)
SHAPES: Final = {
    "rows": Shape(KEY, dict.fromkeys(("count", "dur", *_WORK), "sum")),
    **standin.STEPS,
}


def partial(run: Run, look: Look, by: Sequence[str]) -> dict[str, pl.DataFrame]:
    """Return the rows of a run that the look speaks of, added up by these columns, and the steps."""
    known = [c for c in dict.fromkeys((*by, "lens")) if run.has(c)]
    work = [c for c in _WORK if run.has(c)]
    stated = [(pl.col(c) > 0).cast(pl.Int64).alias(_WORK[c]) for c in work]
    rows = select.timed(run, look).with_columns(stated)
    table = rows.group_by(*known, *(_WORK[c] for c in work)).agg(
        select.standing_for(run).sum().cast(pl.Int64).alias("count"),
        pl.col("dur").sum(),
        *(pl.when(pl.col(c).null_count() == 0).then(pl.col(c).sum()).alias(c) for c in work),
    )
    plain = [standin.plain(run, c) for c in known]
    sums = table.with_columns(plain).collect()
    return {"rows": sums.with_columns(_lacking(sums.columns)), **standin.steps_of(run)}


def _lacking(columns: Sequence[str]) -> list[pl.Expr]:
    """Return nulls for the columns of the key, and of the work, that a run does not have."""
    types = {**dict.fromkeys(_WORDS, pl.String()), **dict.fromkeys(_NUMBERS, pl.Int64())}
    types |= dict.fromkeys(_WORK, pl.Float64())
    return [pl.lit(None, kind).alias(c) for c, kind in types.items() if c not in columns]


def run_of(whole: Partial) -> Run:
    """Return the run of these sums."""
    rows = whole.frames["rows"].drop(_WORK.values()).with_columns(kind=pl.lit("kernel"))
    return standin.run_of(whole, rows.select(c for c in DTYPES if c in rows.columns))
