"""The operator that launched a kernel, by its External id: its shapes, operations and bytes, and its role."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import msgspec
import polars as pl

from capture.classify.annotations import StepAnnotation
from capture.classify.calls import Call, Work
from capture.classify.fill import positions_of
from capture.classify.names import role_of
from capture.classify.positions import distinct, kinds_of, rows_of
from capture.classify.work import work_of
from capture.loaders.chrome.layouts import END_OF_ARGUMENTS
from capture.loaders.chrome.tables import ATTENTION, OPERATORS

_ATTENDING: Final = f"{ATTENTION}|attn"  # operators whose work the sums of their step may decide
_OPEN: Final = "other"  # the category of a name that says nothing


class _Operands(msgspec.Struct, gc=False):
    """What the profiler records of the operands of a call."""

    dims: Any = msgspec.field(default=(), name="Input Dims")
    types: Any = msgspec.field(default=(), name="Input type")
    values: Any = msgspec.field(default=(), name="Concrete Inputs")


_DECODER: Final = msgspec.json.Decoder(_Operands)


def with_operators(
    kernels: pl.DataFrame, rows: pl.DataFrame, labels: pl.DataFrame, steps: Mapping[int, StepAnnotation]
) -> pl.DataFrame:
    """Return kernels with `shape`, `flops` and `bytes` of the call that launched them.

    `said` is the category and `role` the op that the operator's name speaks of. Kernels of one call share its
    work by their durations. `steps` says what is known of a step, for attention over a cache.
    """
    cleared = labels["name"].str.starts_with("Memset").gather(kernels["label"])
    kernels = kernels.with_columns(external=pl.when(~cleared).then("external"))
    calls = _calls(kernels, rows, labels)
    if calls.is_empty():
        return kernels
    row = rows_of(calls["external"], kernels["external"], keep="last")  # a number may stand for two calls
    linked = kernels.with_columns(calls[c].gather(row) for c in ("operator", "operands"))
    if linked["operator"].null_count() == linked.height:
        return kernels
    return with_work(linked, labels["name"], steps)


def with_work(linked: pl.DataFrame, names: pl.Series, steps: Mapping[int, StepAnnotation]) -> pl.DataFrame:
    """Return kernels with the work and the words of the calls that launched them, as `with_operators` does.

    `operator` is the place of a call's operator among `names`, `operands` what it states of them, `external`
    which call it is: these give way.
    """
    step = pl.col("step") if steps and "step" in linked.columns else pl.lit(None, dtype=pl.Int64)
    attending = names.str.contains(_ATTENDING).gather(linked["operator"])
    linked = linked.with_columns(within=pl.when(attending).then(step))
    kind, row = kinds_of(_work_key(linked))
    works = _work_columns(linked.select("operator", "operands", "within")[row], names, steps)
    linked = linked.with_columns(column.gather(kind) for column in works)
    call = linked["external"].drop_nulls()
    if kinds_of(call)[1].len() < call.len():
        share = pl.col("dur") / pl.col("dur").sum().over("external")
        linked = linked.with_columns(pl.col("flops", "bytes") * share.fill_nan(None))
    return linked.drop("operator", "operands", "within")


def _work_key(linked: pl.DataFrame) -> pl.Series:
    """Return a number that is the same for calls of the same work, null for no call."""
    operands = distinct(linked["operands"])
    steps = linked["within"].max()
    within = pl.col("within").fill_null(-1) + 1
    stated = positions_of(linked["operands"], operands).cast(pl.Int64).fill_null(operands.len())
    key = pl.col("operator").cast(pl.Int64) * (operands.len() + 1) + stated
    return linked.select(key=key * ((steps if isinstance(steps, int) else 0) + 2) + within)["key"]


def _calls(kernels: pl.DataFrame, rows: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    """Return the calls of operators, if kernels refer to any: external, operator (its label), operands."""
    operators = labels["cat"].is_in(OPERATORS).fill_null(value=False)
    if kernels["external"].null_count() == kernels.height or not operators.any():
        return pl.DataFrame()
    calls = rows.select("external", operands="args", operator="label")
    return calls.filter(pl.col("external").is_not_null() & operators.gather(rows["label"]))


def _work_columns(
    calls: pl.DataFrame, names: pl.Series, steps: Mapping[int, StepAnnotation]
) -> list[pl.Series]:
    """Return shape, flops, bytes, role and said of each call."""
    columns = (names.gather(calls["operator"]), calls["operands"].cast(pl.String), calls["within"])
    works = [
        _work(name, operands, None if within is None else steps.get(within))
        for name, operands, within in zip(*columns, strict=True)
    ]
    roles = [role_of(name) for name in columns[0]]
    said = [None if category == _OPEN else category for _, category in roles]
    shapes, flops, moved = zip(
        *((w.shape, w.flops, w.bytes) if w else (None, None, None) for w in works), strict=True
    )
    return [
        pl.Series("shape", shapes, dtype=pl.String).cast(pl.Categorical()),
        pl.Series("flops", flops, dtype=pl.Float64),
        pl.Series("bytes", moved, dtype=pl.Float64),
        pl.Series("role", [op for op, _ in roles], dtype=pl.String).cast(pl.Categorical()),
        pl.Series("said", said, dtype=pl.String).cast(pl.Categorical()),
    ]


def _work(name: str, operands: str | None, step: StepAnnotation | None) -> Work | None:
    """Return the work of a call, None where its operands do not tell."""
    call = None if operands is None else _call(name, operands)
    return None if call is None else work_of(replace(call, step=step) if step else call)


@lru_cache(maxsize=1 << 12)
def _call(name: str, operands: str) -> Call | None:
    """Return a call with the operands that are stated of it, None where they cannot be read."""
    if not operands.startswith("{"):  # cut out of a printed trace
        operands = "{" + operands.partition(END_OF_ARGUMENTS)[0] + "}"
    try:
        read = _DECODER.decode(operands)
    except (ValueError, msgspec.MsgspecError, RecursionError):
        return None
    dims = tuple(_sizes(d) for d in _items(read.dims))
    types = tuple(str(t) for t in _items(read.types))
    return Call(name, dims, types, tuple(str(v) for v in _items(read.values)))


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _sizes(dims: object) -> tuple[int, ...]:
    """Return the sizes of one tensor; those of a list of tensors are not taken for one."""
    sizes = tuple(_items(dims))
    return sizes if all(type(n) is int for n in sizes) else ()
