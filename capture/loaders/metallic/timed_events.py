"""Convert metallic events with a duration: meaning of their names, and the steps that they form."""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import polars as pl

from capture.loaders.metallic.line_reader import INTERNAL, OP, EventKey, RawEvents
from capture.loaders.metallic.op_names import OpMeaning, describe_internal_kernel, parse_op_names

_DTYPES: Final = {c: pl.Int32() if c == "layer" else pl.Categorical() for c in OpMeaning._fields}
_ITERATION: Final = "iteration_total"
_FORWARD: Final = "forward_step_total"
_SIZES: Final = re.compile(r"batch=(\d{1,9}) \| m=(\d{1,9}) \| n=(\d{1,9}) \| k=(\d{1,9}) ")


class TimedEvents(NamedTuple):
    """Events with a duration, in file order: each refers to a row of `table` and has its own time."""

    table: pl.DataFrame
    rows: pl.Series  # row of the table, per event
    times: pl.DataFrame  # t, dur, step
    steps: pl.DataFrame
    names: pl.DataFrame  # raw name → name in the events


def build_timed_events(raw: RawEvents) -> TimedEvents:
    """Convert all events with a duration."""
    is_timed = pl.col("duration_us").is_not_null()
    rows = raw.rows.lazy().filter(is_timed).select("key", "duration_us", "timestamp_ns").collect()
    key_ids = rows["key"].unique(maintain_order=True)
    meanings = _resolve_meanings(raw.keys[number] for number in key_ids)
    table = _build_table(meanings, [raw.keys[number] for number in key_ids])
    rows_used = pl.int_range(key_ids.len(), eager=True)
    row_by_key = pl.zeros(len(raw.keys), pl.UInt32, eager=True).scatter(key_ids, rows_used)
    table_rows, dur = row_by_key.gather(rows["key"]), rows["duration_us"] * 1000
    step = _number_steps(table, table_rows)
    times = pl.DataFrame({"t": rows["timestamp_ns"] - dur, "dur": dur, "step": step})
    steps = build_step_rows(table, table_rows, times)
    if steps.height:
        table_rows = table_rows + (times["step"] == 0).cast(pl.UInt32) * table.height
        table = pl.concat([_with_host_phase(table, "decode"), _with_host_phase(table, "prefill")])
    return TimedEvents(table, table_rows, times, steps, _build_name_table(meanings))


def _with_host_phase(table: pl.DataFrame, phase: str) -> pl.DataFrame:
    """Give host rows without a phase this phase."""
    host = pl.when(pl.col("lens") == "host").then(pl.lit(phase, pl.Categorical()))
    return table.with_columns(phase=pl.coalesce("phase", host))


def join_events(timed: TimedEvents, others: list[pl.DataFrame], start: int) -> pl.DataFrame:
    """Join timed and other events from time `start` on; each text column is built once, by gathering."""
    other_events = pl.concat([timed.steps, *others], how="diagonal")
    time_columns = [c for c in timed.times.columns if c in other_events.columns]
    table = pl.concat([timed.table, other_events.drop(time_columns)], how="diagonal", rechunk=True)
    table_height = timed.table.height
    other_rows = pl.int_range(table_height, table_height + other_events.height, dtype=pl.UInt32, eager=True)
    table_rows = pl.concat([timed.rows, other_rows], rechunk=True)
    times = pl.concat([timed.times, other_events.select(time_columns)], how="diagonal")
    return table.select(pl.all().gather(table_rows)).with_columns(times.with_columns(pl.col("t") - start))


def _resolve_meanings(keys: Iterable[EventKey]) -> dict[EventKey, OpMeaning]:
    """Map each key without its shape to the meaning of its name."""
    bare_keys = list(dict.fromkeys(map(_strip_shape, keys)))
    op_names = (key.op_name for key in bare_keys if key.type == OP)
    ops = parse_op_names(sorted(name for name in op_names if name is not None))
    internals = [key for key in bare_keys if key.type == INTERNAL]
    return {EventKey(OP, name): meaning for name, meaning in ops.items()} | {
        key: describe_internal_kernel(key.op_name or "", key.internal_name or "") for key in internals
    }


def _strip_shape(key: EventKey) -> EventKey:
    """Return the key without its matmul shape: names do not depend on it."""
    return key if key.shape is None else key._replace(shape=None)


def _build_table(meanings_by_key: Mapping[EventKey, OpMeaning], keys: list[EventKey]) -> pl.DataFrame:
    """Build one row of meaning and work per key."""
    meanings = [meanings_by_key[_strip_shape(key)] for key in keys]
    columns = {
        c: pl.Series([m[i] for m in meanings], dtype=pl.String() if t == pl.Categorical() else t).cast(t)
        for i, (c, t) in enumerate(_DTYPES.items())
    }
    shape = pl.Series([key.shape for key in keys], dtype=pl.String).cast(pl.Categorical())
    flops = pl.Series([_compute_flops(key.shape) for key in keys], dtype=pl.Float64)
    return pl.DataFrame({**columns, "shape": shape, "flops": flops})


def _build_name_table(names: Mapping[EventKey, OpMeaning]) -> pl.DataFrame:
    """List every raw name with its lens, name and path in the events."""
    rows = [
        (m.lens, m.name, m.path, k.type, k.op_name, None) if k.type == OP
        else (m.lens, m.name, m.path, k.type, k.internal_name, k.op_name)
        for k, m in names.items()
    ]  # fmt: skip
    columns = ("lens", "name", "path", "type", "raw", "parent")
    return pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String), orient="row")


def _compute_flops(shape: str | None) -> float | None:
    """Compute the FLOPs of a matmul, 2 · batch · m · n · k; None if the shape is incomplete."""
    match = _SIZES.search(shape + " ") if shape else None
    if match is None:
        return None
    batch, m, n, k = (int(size) for size in match.groups())
    return 2.0 * batch * m * n * k


def _number_steps(table: pl.DataFrame, table_rows: pl.Series) -> pl.Series:
    """Number the step of every row.

    It is 0 until decoding begins, then counted by the totals that end an iteration. If no iteration ends, it
    is 0 in prefill and null elsewhere.
    """
    is_prefill = table["phase"] == "prefill"
    closes_step = _is_step_end(table).gather(table_rows)
    last = closes_step.sum()
    if not last:
        return pl.select(pl.when(is_prefill.gather(table_rows)).then(pl.lit(0, pl.Int64))).to_series()
    is_loop = (table["lens"] == "host") & table["name"].cast(pl.String).is_in([_ITERATION, _FORWARD])
    is_decoding = (table["phase"] == "decode").fill_null(False) | is_loop
    decode_start = is_decoding.gather(table_rows).arg_max() or 0
    step = closes_step.cum_sum().cast(pl.Int64).shift(1, fill_value=0) + 1
    after_last = table_rows.slice(closes_step.len() - (closes_step.reverse().arg_max() or 0))
    if not (table["phase"].gather(after_last) == "decode").any():  # no iteration was left open
        step = step.clip(upper_bound=last)
    step = step.scatter(pl.int_range(decode_start, eager=True), 0) if decode_start else step
    return step.set(is_prefill.gather(table_rows).fill_null(False), 0)


def _is_step_end(table: pl.DataFrame) -> pl.Series:
    closer = _ITERATION if (table["name"] == _ITERATION).any() else _FORWARD
    return (table["lens"] == "host") & (table["name"] == closer)


def build_step_rows(table: pl.DataFrame, table_rows: pl.Series, times: pl.DataFrame) -> pl.DataFrame:
    """Build a step row per iteration, and step 0 for prefill if its tokens are known."""
    iterations = times.filter(_is_step_end(table).gather(table_rows))
    if iterations.is_empty():
        return pl.DataFrame()
    prefill_rows = (times["step"] == 0).arg_true()
    meanings = _with_host_phase(table, "prefill").select("lens", "name", "phase")
    prefill_times = times.select("t", "dur")[prefill_rows]
    prefill_events = meanings[table_rows.gather(prefill_rows)].with_columns(prefill_times)
    tokens = prefill_events.filter((pl.col("lens") == "host") & (pl.col("name") == "block_0_total")).height
    number, one = pl.int_range(1, iterations.height + 1, dtype=pl.Int64), pl.lit(1, pl.Int64)
    steps = iterations.select("t", "dur", step=number, tokens=one, phase=pl.lit("decode", pl.Categorical()))
    if tokens:
        kernels = prefill_events.filter((pl.col("phase") == "prefill") & pl.col("t").is_not_null())
        start, end = pl.col("t").min(), (pl.col("t") + pl.col("dur")).max()
        first = kernels.select(
            t=start, dur=end - start, step=pl.lit(0, pl.Int64), tokens=pl.lit(tokens, pl.Int64),
            phase=pl.lit("prefill", pl.Categorical()),
        )  # fmt: skip
        steps = pl.concat([first, steps]).with_columns(context=pl.col("step") + tokens)
    return steps.with_columns(kind=pl.lit("step", pl.Categorical()), name="phase", batch=one)
