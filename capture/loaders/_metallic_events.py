"""Raw metallic rows with a duration as events: their meanings, and the steps that they make up."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import polars as pl

from capture.loaders._metallic_lines import INTERNAL, OP, Key, Raw
from capture.loaders._metallic_names import Meaning, internal_meaning, op_meanings

_DTYPES: Final = {c: pl.Int32() if c == "layer" else pl.Categorical() for c in Meaning._fields}
_ITERATION: Final = "iteration_total"
_FORWARD: Final = "forward_step_total"
_SIZES: Final = re.compile(r"batch=(\d{1,9}) \| m=(\d{1,9}) \| n=(\d{1,9}) \| k=(\d{1,9}) ")


def timed(raw: Raw) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Events of the rows with a duration, in their order; the steps; and what each raw name became."""
    rows = raw.rows.lazy().filter(pl.col("us").is_not_null()).select("key", "us", "stamp").collect()
    used = rows["key"].unique(maintain_order=True)
    names = _meanings(raw.keys[number] for number in used)
    table = _table(names, [raw.keys[number] for number in used])
    place = pl.zeros(len(raw.keys), pl.UInt32, eager=True).scatter(used, pl.int_range(used.len(), eager=True))
    dur = rows["us"] * 1000
    index = place.gather(rows["key"])
    events = table.select(pl.all().gather(index)).with_columns(t=rows["stamp"] - dur, dur=dur)
    return *with_steps(events), _names(names)


def _meanings(keys: Iterable[Key]) -> dict[Key, Meaning]:
    """What each name says: the ops' by their names, then the internal kernels' as they come."""
    bare = list(dict.fromkeys(key._replace(shape=None) for key in keys))
    ops = op_meanings(sorted(key.first for key in bare if key.type == OP and key.first is not None))
    internals = [key for key in bare if key.type == INTERNAL]
    return {Key(OP, name): meaning for name, meaning in ops.items()} | {
        key: internal_meaning(key.first or "", key.second or "") for key in internals
    }


def _table(names: Mapping[Key, Meaning], keys: list[Key]) -> pl.DataFrame:
    """Meaning and work of each key."""
    meanings = [names[key._replace(shape=None)] for key in keys]
    columns = {
        c: pl.Series([m[i] for m in meanings], dtype=pl.String() if t == pl.Categorical() else t).cast(t)
        for i, (c, t) in enumerate(_DTYPES.items())
    }
    shape = pl.Series([key.shape for key in keys], dtype=pl.String).cast(pl.Categorical())
    flops = pl.Series([_work(key.shape) for key in keys], dtype=pl.Float64)
    return pl.DataFrame({**columns, "shape": shape, "flops": flops})


def _names(names: Mapping[Key, Meaning]) -> pl.DataFrame:
    """What each name in the file is called in the events: by kind of event, lens, name and path."""
    rows = [
        (m.lens, m.name, m.path, k.type, k.first, None) if k.type == OP
        else (m.lens, m.name, m.path, k.type, k.second, k.first)
        for k, m in names.items()
    ]  # fmt: skip
    columns = ("lens", "name", "path", "type", "raw", "parent")
    return pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String), orient="row")


def _work(shape: str | None) -> float | None:
    """A matmul multiplies and adds batch · m · n · k times."""
    found = _SIZES.search(shape + " ") if shape else None
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
