"""Link kernels to the operator that launched them by External id: shape, FLOPs, bytes and op."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import msgspec
import polars as pl

from capture.classify.name_rules import infer_op_and_category
from capture.classify.operator_work import OperatorCall, estimate_work
from capture.classify.step_annotations import StepAnnotation
from capture.dense_lookup import encode_dense, find_distinct, find_positions, find_rows
from capture.loaders._json_document import decode_or_none
from capture.loaders.chrome.trace_model import ATTENTION, OPERATOR_CATEGORIES

_ATTENTION_NAMES: Final = f"{ATTENTION}|attn"  # of operators whose work may depend on the sums of their step
_UNKNOWN_CATEGORY: Final = "other"
_WORK_SCHEMA: Final = {
    "shape": pl.Categorical(), "flops": pl.Float64(), "bytes": pl.Float64(),
    "operator_op": pl.Categorical(), "operator_category": pl.Categorical(),
}  # fmt: skip


class OperandFields(msgspec.Struct, gc=False):
    """The operands of a call as profilers write them."""

    dims: Any = msgspec.field(default=(), name="Input Dims")
    types: Any = msgspec.field(default=(), name="Input type")
    values: Any = msgspec.field(default=(), name="Concrete Inputs")


_DECODER: Final = msgspec.json.Decoder(OperandFields)


def with_operators(
    kernels: pl.DataFrame, rows: pl.DataFrame, labels: pl.DataFrame, steps: Mapping[int, StepAnnotation]
) -> pl.DataFrame:
    """Add `shape`, `flops` and `bytes` of the operator call that launched each kernel.

    Also adds `operator_op` and `operator_category`, which the operator's name implies. The kernels of one
    call share its work by duration. `steps` has the annotations of steps, for attention over a cache.
    """
    is_memset = labels["name"].str.starts_with("Memset").gather(kernels["label"])
    kernels = kernels.with_columns(external_id=pl.when(~is_memset).then("external_id"))
    calls = _select_calls(kernels, rows, labels)
    if calls.is_empty():
        return kernels
    row = find_rows(calls["external_id"], kernels["external_id"], keep="last")  # ids may be reused
    linked = kernels.with_columns(calls[c].gather(row) for c in ("operator", "operands"))
    if linked["operator"].null_count() == linked.height:
        return kernels
    return with_work(linked, labels["name"], steps)


def with_work(linked: pl.DataFrame, names: pl.Series, steps: Mapping[int, StepAnnotation]) -> pl.DataFrame:
    """Add the work of operator calls to their kernels, as `with_operators` does.

    Consumes the columns `operator` (index into `names`) and `operands`; `external_id` identifies the call.
    """
    step = pl.col("step") if steps and "step" in linked.columns else pl.lit(None, dtype=pl.Int64)
    is_attention = names.str.contains(_ATTENTION_NAMES).gather(linked["operator"])
    linked = linked.with_columns(attention_step=pl.when(is_attention).then(step))
    code, row = encode_dense(_build_work_key(linked))
    columns = ("operator", "operands", "attention_step")
    works = _build_work_columns(linked.select(columns)[row], names, steps)
    linked = linked.with_columns(column.gather(code) for column in works)
    call_ids = linked["external_id"].drop_nulls()
    if encode_dense(call_ids)[1].len() < call_ids.len():
        share = pl.col("dur") / pl.col("dur").sum().over("external_id")
        linked = linked.with_columns(pl.col("flops", "bytes") * share.fill_nan(None))
    return linked.drop(columns)


def _build_work_key(linked: pl.DataFrame) -> pl.Series:
    """Build an integer that is equal for calls of equal work, null for no call."""
    operands = find_distinct(linked["operands"])
    last_step = linked["attention_step"].max()
    steps = (last_step if isinstance(last_step, int) else 0) + 2
    step = pl.col("attention_step").fill_null(-1) + 1
    operand_code = find_positions(linked["operands"], operands).cast(pl.Int64).fill_null(operands.len())
    key = pl.col("operator").cast(pl.Int64) * (operands.len() + 1) + operand_code
    return linked.select(key=key * steps + step)["key"]


def _select_calls(kernels: pl.DataFrame, rows: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    """Select external_id, operator (its label) and operands of the calls; empty if no kernel has an id."""
    is_operator = labels["cat"].is_in(OPERATOR_CATEGORIES).fill_null(value=False)
    if kernels["external_id"].null_count() == kernels.height or not is_operator.any():
        return pl.DataFrame()
    calls = rows.select("external_id", operands="args", operator="label")
    return calls.filter(pl.col("external_id").is_not_null() & is_operator.gather(rows["label"]))


def _build_work_columns(
    calls: pl.DataFrame, names: pl.Series, steps: Mapping[int, StepAnnotation]
) -> pl.DataFrame:
    """Build shape, flops, bytes, operator_op and operator_category of each call."""
    rows = []
    columns = (names.gather(calls["operator"]), calls["operands"].cast(pl.String), calls["attention_step"])
    for name, operands, number in zip(*columns, strict=True):
        call = None if operands is None else _parse_call(name, operands)
        step = steps.get(number)
        work = call and estimate_work(replace(call, step=step) if step else call)
        op, category = infer_op_and_category(name)
        reported = (work.shape, work.flops, work.bytes) if work else (None, None, None)
        rows.append((*reported, op, None if category == _UNKNOWN_CATEGORY else category))
    return pl.DataFrame(rows, schema=_WORK_SCHEMA, orient="row")


@lru_cache(maxsize=1 << 12)
def _parse_call(name: str, operands: str) -> OperatorCall | None:
    """Parse the operands of a call; None if they are invalid."""
    fields = decode_or_none(_DECODER.decode, operands)
    if fields is None:
        return None
    dims = tuple(_parse_dims(d) for d in _as_list(fields.dims))
    types = tuple(str(t) for t in _as_list(fields.types))
    return OperatorCall(name, dims, types, tuple(str(v) for v in _as_list(fields.values)))


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _parse_dims(dims: object) -> tuple[int, ...]:
    """Parse the dims of one tensor; empty for anything else, such as a list of tensors."""
    sizes = tuple(_as_list(dims))
    return sizes if all(type(n) is int for n in sizes) else ()
