"""Raw metallic rows with a duration as events: their meanings, and the steps that they make up."""

import re
from collections.abc import Iterable
from typing import Final

import polars as pl

from capture.loaders._metallic_lines import INTERNAL, OP
from capture.loaders._metallic_names import Meaning, internal_meaning, op_meanings

_DTYPES: Final = {c: pl.Int32() if c == "layer" else pl.Categorical() for c in Meaning._fields}
_ITERATION: Final = "iteration_total"
_FORWARD: Final = "forward_step_total"
_SIZES: Final = re.compile(r"batch=(\d{1,9}) \| m=(\d{1,9}) \| n=(\d{1,9}) \| k=(\d{1,9}) ")


def timed(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Events of the rows with a duration, in their order; the steps; and what each raw name became."""
    rows = rows.filter(pl.col("us").is_not_null())
    ops = rows["first"].unique().drop_nulls().sort()
    host = rows.lazy().with_row_index("row").filter(pl.col("type") == INTERNAL)
    parents = host.select("row", "first", "second").collect()
    internals = parents.select("first", "second").unique(maintain_order=True)
    pairs = internals.cast(pl.String).rows()
    by_op = op_meanings(sorted(ops.cast(pl.String)))
    meanings = [*(by_op[name] for name in ops.cast(pl.String)), *(internal_meaning(*p) for p in pairs)]
    table = _table(meanings)
    index = _positions(rows["first"], ops)
    own = parents.join(internals.with_row_index("own", offset=ops.len()), on=["first", "second"], how="left")
    index = index.scatter(own["row"], own["own"])
    shape, flops = rows["shape"], _flops(rows["shape"])
    events = table.select(pl.all().gather(index)).with_columns(
        t=rows["stamp"] - rows["us"] * 1000, dur=rows["us"] * 1000, shape=shape, flops=flops
    )
    return *with_steps(events), _names(ops.cast(pl.String), pairs, table)


def _table(meanings: Iterable[Meaning]) -> pl.DataFrame:
    rows = list(meanings)
    return pl.DataFrame(
        {
            c: pl.Series([row[i] for row in rows], dtype=pl.String() if t == pl.Categorical() else t).cast(t)
            for i, (c, t) in enumerate(_DTYPES.items())
        }
    )


def _names(ops: pl.Series, internals: list[tuple[str, str]], table: pl.DataFrame) -> pl.DataFrame:
    """What each name in the file is called in the events: by kind of event, lens, name and path."""
    types = [OP] * ops.len() + [INTERNAL] * len(internals)
    return table.select(pl.col("lens", "name", "path").cast(pl.String)).with_columns(
        type=pl.Series(types, dtype=pl.String),
        raw=pl.Series([*ops, *(name for _, name in internals)], dtype=pl.String),
        parent=pl.Series([*[None] * ops.len(), *(parent for parent, _ in internals)], dtype=pl.String),
    )


def _positions(texts: pl.Series, distinct: pl.Series) -> pl.Series:
    """For every row the position of its text among the distinct ones."""
    codes = distinct.to_physical()
    highest = codes.max()
    size = highest + 1 if isinstance(highest, int) else 1
    index = pl.zeros(size, pl.UInt32, eager=True).scatter(codes, pl.int_range(codes.len(), eager=True))
    return index.gather(texts.to_physical())


def _flops(shapes: pl.Series) -> pl.Series:
    distinct = shapes.unique().drop_nulls()
    values = pl.Series([_work(s) for s in distinct.cast(pl.String)], dtype=pl.Float64)
    return values.gather(_positions(shapes, distinct))


def _work(shape: str) -> float | None:
    """A matmul multiplies and adds batch · m · n · k times."""
    found = _SIZES.search(shape + " ")
    if found is None:
        return None
    batch, m, n, k = (int(size) for size in found.groups())
    return 2.0 * batch * m * n * k


def with_steps(events: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The events with step and phase where the loop's totals tell them, and a row for each step."""
    name, host = pl.col("name"), pl.col("lens") == "host"
    closer = _ITERATION if (events["name"] == _ITERATION).any() else _FORWARD
    closes = host & (name == closer)
    decoding = (pl.col("phase") == "decode") | (host & name.is_in([_ITERATION, _FORWARD]))
    begun = decoding.fill_null(False).cum_max()
    step = pl.when(begun.not_()).then(0).otherwise(closes.cum_sum().shift(1, fill_value=0) + 1)
    events = events.with_columns(
        step=pl.when(pl.col("phase") == "prefill").then(0).otherwise(step).cast(pl.Int64),
    )
    closed = events.filter(closes)
    if closed.is_empty():
        return _prefill_only(events), pl.DataFrame()
    events = _closed_steps(events, closed.height)
    place = pl.when(pl.col("step") == 0).then(pl.lit("prefill")).otherwise(pl.lit("decode"))
    phase = pl.coalesce("phase", pl.when(pl.col("lens") == "host").then(place.cast(pl.Categorical())))
    events = events.with_columns(phase=phase)
    return events, step_rows(events, closed)


def _prefill_only(events: pl.DataFrame) -> pl.DataFrame:
    return events.with_columns(step=pl.when(pl.col("phase") == "prefill").then(0).cast(pl.Int64))


def _closed_steps(events: pl.DataFrame, last: int) -> pl.DataFrame:
    """What follows the last iteration belongs to it, unless the file ends within a further one."""
    after = events.filter(pl.col("step") > last)
    if (after["phase"] == "decode").any():
        return events
    return events.with_columns(pl.col("step").clip(upper_bound=last))


def step_rows(events: pl.DataFrame, closed: pl.DataFrame) -> pl.DataFrame:
    """Prefill as step 0 where its tokens are known, and each iteration of the loop."""
    prefill = events.filter(pl.col("step") == 0)
    tokens = prefill.filter((pl.col("lens") == "host") & (pl.col("name") == "block_0_total")).height
    steps = closed.select(
        kind=pl.lit("step", pl.Categorical()),
        name=pl.lit("decode", pl.Categorical()),
        phase=pl.lit("decode", pl.Categorical()),
        t="t",
        dur="dur",
        step=pl.int_range(1, closed.height + 1, dtype=pl.Int64),
        tokens=pl.lit(1, pl.Int64),
        context=pl.int_range(1, closed.height + 1, dtype=pl.Int64) + tokens if tokens else None,
        batch=pl.lit(1, pl.Int64),
    )
    if not tokens:
        return steps.drop("context")
    scoped = prefill.filter((pl.col("phase") == "prefill") & pl.col("t").is_not_null())
    span = scoped.select(t=pl.col("t").min(), dur=(pl.col("t") + pl.col("dur")).max() - pl.col("t").min())
    word = pl.lit("prefill", pl.Categorical())
    first = span.with_columns(
        kind=pl.lit("step", pl.Categorical()),
        name=word,
        phase=word,
        step=pl.lit(0, pl.Int64),
        tokens=pl.lit(tokens, pl.Int64),
        context=pl.lit(tokens, pl.Int64),
        batch=pl.lit(1, pl.Int64),
    )
    return pl.concat([first, steps], how="diagonal")
