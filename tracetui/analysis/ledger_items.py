"""The items of the ledger: the time above the bound, by op, layers and cause."""

from typing import Final

import polars as pl

from tracetui.analysis import gap_causes
from tracetui.analysis.packed import grouped

MEMORY, COMPUTE, LAUNCH, UNKNOWN = "memory", "compute", "launch", "no model"
COPY, COMM, RANK = "copy", "communication", "another rank"
GAP: Final = "gap"
BOUND: Final = "bound"

GOOD: Final = 0.8  # of the roof, which well-tuned kernels reach: the careful end of what is recoverable
ODD: Final = 1.5  # times what layers usually lose: a layer that is named
MATTERS: Final = 0.005  # of the step: less than this names no layer
FEW: Final = 4  # layers, among which none is odd

_CAUSES: Final = 1 << 8  # at most
_DOWN_TO_A_LAUNCH: Final = (gap_causes.HOST, gap_causes.SYNC)
# of rows; gaps have others
CAUSE: Final = pl.Enum([MEMORY, COMPUTE, LAUNCH, UNKNOWN, COPY, COMM, RANK])
_ITEM: Final = {
    "op": pl.String(), "layers": pl.String(), "cause": pl.String(), "count": pl.Int64(), "own_ns": pl.Int64(),
    "recoverable_ns": pl.Int64(), "low_ns": pl.Int64(), "by": pl.String(), "begin": pl.Int64(),
    "longest_ns": pl.Int64(), "after": pl.String(), "odd": pl.Int64(), "odd_ns": pl.Int64(),
    "usual_ns": pl.Float64(), "queued": pl.Float64(),
}  # fmt: skip


def items(rows: pl.DataFrame, gaps: pl.DataFrame, step_ns: int, *, by_layer: bool = False) -> pl.DataFrame:
    """Return one row an op, layers and cause, and one a cause of gaps, by falling `recoverable_ns`.

    `own_ns` is the time of its rows, or of the gaps; `recoverable_ns` what of it lies above the bound;
    `low_ns` the careful end of that. Of gaps `by` is the stack that was waited in, `begin` and `longest_ns`
    the place of the longest, `after` what ended it, and `queued` how many kernels waited, in the mean, when
    that which ended a gap was launched. Of ops `odd` is the layer that loses the most where
    that is much more than the `usual_ns` of the others; layers stand apart where each is asked for.
    """
    rows = rows.with_columns(pl.col("layer").cast(pl.Int64))
    parts = [_above(rows, step_ns, by_layer=by_layer), _idle(gaps)]
    table = pl.concat([pl.DataFrame(schema=_ITEM), *parts], how="diagonal")
    order = ["recoverable_ns", "own_ns", "op", "layers"]
    return table.sort(order, descending=[True, True, False, False], maintain_order=True)


def _above(rows: pl.DataFrame, step_ns: int, *, by_layer: bool) -> pl.DataFrame:
    """Return a row an op, layers and cause: what its rows took, and what of that lies above their bounds."""
    computed = int(rows.filter(pl.col("class") == "compute")["own"].sum())
    careful = (pl.col("own") - (pl.col("bound") / GOOD)).clip(0).sum().round()
    sums = (
        pl.col("count").sum(),
        pl.col("own").sum().alias("own_ns"),
        (pl.col("own") - pl.col("bound")).sum().alias("recoverable_ns"),
        careful.cast(pl.Int64).alias("low_ns"),
    )
    by = grouped(rows.lazy(), ("op", "cause", "layer"), sums)
    over, several = pl.col("recoverable_ns"), pl.col("layer").is_not_null()
    odd = several & (over > ODD * over.median()) & (over - over.median() > MATTERS * step_ns)
    table = by.group_by("op", "cause", *(["layer"] if by_layer else [])).agg(
        pl.col("layer").drop_nulls().sort().alias("each"),
        pl.when(several.sum() >= FEW)
        .then(pl.col("layer").filter(odd & (over == over.max())).first())
        .alias("odd"),
        over.max().alias("odd_ns"),
        over.median().alias("usual_ns"),
        pl.col("count", "own_ns", "recoverable_ns", "low_ns").sum(),
    )
    hidden = pl.col("cause").is_in([COPY, COMM, RANK])  # at most under all the computation there is
    low = pl.when(hidden).then(pl.min_horizontal("own_ns", pl.lit(computed))).otherwise("low_ns")
    layers = [ranges(found) for found in table["each"].to_list()]
    return table.with_columns(
        pl.col("op", "cause").cast(pl.String),
        layers=pl.Series(layers, dtype=pl.String),
        low_ns=pl.min_horizontal(low, "recoverable_ns"),
    ).drop("each", "layer", strict=False)


def ranges(numbers: list[int]) -> str | None:
    """Return numbers in order as a text, those that follow each other as 3–7; None for none."""
    parts: list[list[int]] = []
    for n in numbers:
        if parts and n == parts[-1][-1] + 1:
            parts[-1][1:] = [n]
        else:
            parts.append([n])
    return ", ".join("–".join(map(str, part)) for part in parts) or None


def _idle(gaps: pl.DataFrame) -> pl.DataFrame:
    """Return a row a cause of gaps; of what the host waited for, a row a stack."""
    longest = pl.col("gap_ns").arg_max()
    spare = (pl.col("gap_ns") - pl.col("delay_ns")).clip(0).sum()
    cause, by = (pl.col(c).to_physical().cast(pl.Int64) for c in ("cause", "by"))
    return (
        gaps.group_by(((by.fill_null(-1) + 1) * _CAUSES + cause).alias("number"))  # sooner than by both
        .agg(
            pl.col("cause", "by").first().cast(pl.String),
            count=pl.len().cast(pl.Int64),
            own_ns=pl.col("gap_ns").sum(),
            recoverable_ns=pl.col("gap_ns").sum(),
            low_ns=pl.when(pl.col("cause").first().is_in(_DOWN_TO_A_LAUNCH)).then(spare).otherwise(0),
            begin=pl.col("begin").get(longest),
            longest_ns=pl.col("gap_ns").max(),
            after=pl.col("after").get(longest).cast(pl.String),
            queued=pl.col("queued").mean(),
        )
        .drop("number")
        .with_columns(op=pl.lit(GAP))
    )
