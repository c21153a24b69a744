"""Raw metallic rows with a duration as events: their meanings, and the steps that they make up."""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import polars as pl

from capture.loaders.metallic.names import Meaning, internal_meaning, op_meanings
from capture.loaders.metallic.patient_scan import INTERNAL, OP, Key, Raw

_DTYPES: Final = {c: pl.Int32() if c == "layer" else pl.Categorical() for c in Meaning._fields}
_ITERATION: Final = "iteration_total"
_FORWARD: Final = "forward_step_total"
_SIZES: Final = re.compile(r"batch=(\d{1,9}) \| m=(\d{1,9}) \| n=(\d{1,9}) \| k=(\d{1,9}) ")


class Timed(NamedTuple):
    """Rows with a duration, in their order: each is a row of `table`, at its own time; and what follows."""

    table: pl.DataFrame
    places: pl.Series  # which row of the table
    times: pl.DataFrame  # t, dur, step
    steps: pl.DataFrame
    names: pl.DataFrame  # what each raw name became


def timed(raw: Raw) -> Timed:
    rows = raw.rows.lazy().filter(pl.col("us").is_not_null()).select("key", "us", "stamp").collect()
    used = rows["key"].unique(maintain_order=True)
    names = _meanings(raw.keys[number] for number in used)
    table = _table(names, [raw.keys[number] for number in used])
    place = pl.zeros(len(raw.keys), pl.UInt32, eager=True).scatter(used, pl.int_range(used.len(), eager=True))
    index, dur = place.gather(rows["key"]), rows["us"] * 1000
    times = pl.DataFrame({"t": rows["stamp"] - dur, "dur": dur, "step": _steps(table, index)})
    steps = step_rows(table, index, times)
    if steps.height:
        index = index + (times["step"] == 0).cast(pl.UInt32) * table.height
        table = pl.concat([_host_in(table, "decode"), _host_in(table, "prefill")])
    return Timed(table, index, times, steps, _names(names))


def _host_in(table: pl.DataFrame, phase: str) -> pl.DataFrame:
    """Return the meanings with the phase of what the host does."""
    host = pl.when(pl.col("lens") == "host").then(pl.lit(phase, pl.Categorical()))
    return table.with_columns(phase=pl.coalesce("phase", host))


def whole(parts: Timed, others: list[pl.DataFrame], start: int) -> pl.DataFrame:
    """Return all events in one frame: each column is laid out once, the few other events behind the timed
    ones.
    """
    few = pl.concat([parts.steps, *others], how="diagonal")
    own = [c for c in parts.times.columns if c in few.columns]
    table = pl.concat([parts.table, few.drop(own)], how="diagonal", rechunk=True)
    first = parts.table.height
    few_places = pl.int_range(first, first + few.height, dtype=pl.UInt32, eager=True)
    index = pl.concat([parts.places, few_places], rechunk=True)
    times = pl.concat([parts.times, few.select(own)], how="diagonal")
    return table.select(pl.all().gather(index)).with_columns(times.with_columns(pl.col("t") - start))


def _meanings(keys: Iterable[Key]) -> dict[Key, Meaning]:
    """Return what each name says: the ops' by their names, then the internal kernels' as they come."""
    bare = list(dict.fromkeys(map(_bare, keys)))
    ops = op_meanings(sorted(key.first for key in bare if key.type == OP and key.first is not None))
    internals = [key for key in bare if key.type == INTERNAL]
    return {Key(OP, name): meaning for name, meaning in ops.items()} | {
        key: internal_meaning(key.first or "", key.second or "") for key in internals
    }


def _bare(key: Key) -> Key:
    """Return what a name is found by: the key without the shape of the matmul."""
    return key if key.shape is None else key._replace(shape=None)


def _table(names: Mapping[Key, Meaning], keys: list[Key]) -> pl.DataFrame:
    """Return meaning and work of each key."""
    meanings = [names[_bare(key)] for key in keys]
    columns = {
        c: pl.Series([m[i] for m in meanings], dtype=pl.String() if t == pl.Categorical() else t).cast(t)
        for i, (c, t) in enumerate(_DTYPES.items())
    }
    shape = pl.Series([key.shape for key in keys], dtype=pl.String).cast(pl.Categorical())
    flops = pl.Series([_work(key.shape) for key in keys], dtype=pl.Float64)
    return pl.DataFrame({**columns, "shape": shape, "flops": flops})


def _names(names: Mapping[Key, Meaning]) -> pl.DataFrame:
    """Return what each name in the file is called in the events: by kind of event, lens, name and path."""
    rows = [
        (m.lens, m.name, m.path, k.type, k.first, None) if k.type == OP
        else (m.lens, m.name, m.path, k.type, k.second, k.first)
        for k, m in names.items()
    ]  # fmt: skip
    columns = ("lens", "name", "path", "type", "raw", "parent")
    return pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String), orient="row")


def _work(shape: str | None) -> float | None:
    """Return the FLOPs of a matmul: it multiplies and adds batch · m · n · k times."""
    match = _SIZES.search(shape + " ") if shape else None
    if match is None:
        return None
    batch, m, n, k = (int(size) for size in match.groups())
    return 2.0 * batch * m * n * k


def _steps(table: pl.DataFrame, index: pl.Series) -> pl.Series:
    """Return the step of every row: 0 until decoding begins, then counted by the totals that close an
    iteration.
    """
    prefill = table["phase"] == "prefill"
    closes = _closing(table).gather(index)
    last = closes.sum()
    if not last:
        return pl.select(pl.when(prefill.gather(index)).then(pl.lit(0, pl.Int64))).to_series()
    begun = _decoding(table).gather(index).arg_max() or 0
    step = closes.cum_sum().cast(pl.Int64).shift(1, fill_value=0) + 1
    if not _goes_on(table, index, closes):
        step = step.clip(upper_bound=last)
    step = step.scatter(pl.int_range(begun, eager=True), 0) if begun else step
    return step.set(prefill.gather(index).fill_null(False), 0)


def _closing(table: pl.DataFrame) -> pl.Series:
    closer = _ITERATION if (table["name"] == _ITERATION).any() else _FORWARD
    return (table["lens"] == "host") & (table["name"] == closer)


def _decoding(table: pl.DataFrame) -> pl.Series:
    loop = table["name"].cast(pl.String).is_in([_ITERATION, _FORWARD])
    return (table["phase"] == "decode").fill_null(False) | ((table["lens"] == "host") & loop)


def _goes_on(table: pl.DataFrame, index: pl.Series, closes: pl.Series) -> bool:
    """Return whether the file ends within a further iteration; if not, the rest belongs to the last one."""
    after = closes.len() - (closes.reverse().arg_max() or 0)
    return bool((table["phase"].gather(index.slice(after)) == "decode").any())


def step_rows(table: pl.DataFrame, index: pl.Series, times: pl.DataFrame) -> pl.DataFrame:
    """Return prefill as step 0 where its tokens are known, and each iteration of the loop."""
    closed = times.filter(_closing(table).gather(index))
    if closed.is_empty():
        return pl.DataFrame()
    at = (times["step"] == 0).arg_true()
    meanings = _host_in(table, "prefill").select("lens", "name", "phase")
    prefill = meanings[index.gather(at)].with_columns(times.select("t", "dur")[at])
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
