"""How a kernel was launched: the call on the host, and grid, block, registers, shared memory, occupancy."""

from typing import Any, Final

import msgspec
import polars as pl

from capture.classify.fill import positions_of
from capture.classify.positions import rows_of
from capture.loaders.chrome.layouts import END_OF_ARGUMENTS

COLUMNS: Final = ("grid", "block", "registers", "shared", "occupancy")
_SCHEMA: Final = {
    "grid": pl.Categorical(), "block": pl.Categorical(), "registers": pl.Int32(), "shared": pl.Int32(),
    "occupancy": pl.Float64(),
}  # fmt: skip
_LARGEST: Final = (1 << 31) - 1


class _Resources(msgspec.Struct, gc=False):
    """What the profiler records of a launch."""

    grid: Any = None
    block: Any = None
    registers: Any = msgspec.field(default=None, name="registers per thread")
    shared: Any = msgspec.field(default=None, name="shared memory")
    occupancy: Any = msgspec.field(default=None, name="est. achieved occupancy %")


_DECODER: Final = msgspec.json.Decoder(_Resources)


def with_launches(kernels: pl.DataFrame, host: pl.DataFrame) -> pl.DataFrame:
    """Return kernels with the call that launched each: `launch` and `launch_dur`, `launcher` (its label).

    `at` and `by` are the time and the place of that call; a kernel without one has its own.
    """
    row = rows_of(host["correlation"], kernels["correlation"], keep="first")
    calls = host.select(launch="t", launch_dur="dur", launcher="label", by="place")
    joined = kernels.with_columns(column.gather(row) for column in calls)
    return joined.with_columns(pl.coalesce("launch", "t").alias("at"), pl.coalesce("by", "place").alias("by"))


def with_resources(kernels: pl.DataFrame) -> pl.DataFrame:
    """Return kernels with what their arguments state of the launch, in place of the arguments.

    Many kernels state the same: each distinct text is read once.
    """
    texts = kernels["args"].unique().drop_nulls()
    stated = kernels.drop("args")
    if texts.is_empty():
        return stated
    table = pl.DataFrame([_read(text) for text in texts.cast(pl.String)], schema=_SCHEMA, orient="row")
    at = positions_of(kernels["args"], texts)
    known = [c for c in COLUMNS if table[c].null_count() < table.height]
    return stated.with_columns(table[c].gather(at) for c in known)


def _read(text: str) -> tuple[str | None, str | None, int | None, int | None, float | None]:
    """Return grid, block, registers, shared memory and occupancy; None for what is not stated."""
    try:
        read = _DECODER.decode(text if text.startswith("{") else _object(text))
    except (ValueError, msgspec.MsgspecError, RecursionError):
        return None, None, None, None, None
    occupancy = float(read.occupancy) if type(read.occupancy) in (int, float) else None
    return _sizes(read.grid), _sizes(read.block), _whole(read.registers), _whole(read.shared), occupancy


def _object(text: str) -> str:
    """Return what was cut out of a printed trace, behind its correlation number, as a JSON object."""
    return "{" + text.partition(END_OF_ARGUMENTS)[0].removeprefix(",") + "}"


def _sizes(value: object) -> str | None:
    """Return three sizes as `64x8x1`."""
    if not isinstance(value, list) or not 0 < len(value) <= 3 or any(_whole(n) is None for n in value):
        return None
    return "x".join(map(str, value))


def _whole(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= _LARGEST else None
