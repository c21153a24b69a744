"""Metallic events without a duration: memory, backend choices, caches, kernel launches, unknown ones."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
import polars as pl

from capture.importlog import Log
from capture.loaders._json_document import as_float, value_of
from capture.loaders.metallic.patient_scan import TIMED, Raw
from capture.native.schema import PATH_SEPARATOR

_UNTIMED: Final = (
    "GpuKernelDispatched", "KernelBackendSelected", "ResourceCacheAccess", "ResourceCacheSummary",
    "CacheEviction", "GgufFileMmap", "ModelWeights", "HostMemory", "ForwardStep", "TensorMemory",
    "TensorPreparationStats",
)  # fmt: skip
VARIANTS: Final = (*TIMED, *_UNTIMED)
_MEMORY: Final = ("GgufFileMmap", "ModelWeights", "HostMemory", "ForwardStep", "TensorMemory")
_BREAKDOWNS: Final = ("breakdown", "forward_pass_breakdown")

Data = Mapping[str, Any]


def others(raw: Raw) -> pl.DataFrame:
    """Return type, time and data of the events without a duration."""
    types = pl.Series([key.type for key in raw.keys], dtype=pl.String).cast(pl.Categorical())
    rows = raw.rows.lazy().filter(pl.col("rest").is_not_null()).select("key", "stamp", "rest").collect()
    return pl.DataFrame(
        {
            "type": types.gather(rows["key"]),
            "stamp": rows["stamp"],
            "rest": raw.rests.gather(rows["rest"]),
        }
    )


def of_type(rows: pl.DataFrame, *types: str) -> list[tuple[str, int | None, dict[str, Any]]]:
    """Return type, time and data of the events of some types, in line order."""
    chosen = rows.filter(pl.col("type").is_in(list(types)))
    chosen = chosen.select(pl.col("type").cast(pl.String), "stamp", "rest")
    return [(kind, stamp, _data(rest)) for kind, stamp, rest in chosen.iter_rows()]


def _data(text: str) -> dict[str, Any]:
    """Return the data of an event, with integers of any size."""
    try:
        value = msgspec.json.decode(text)
    except msgspec.MsgspecError:
        value = value_of(text)
    return value if isinstance(value, dict) else {}


def memory(rows: pl.DataFrame) -> pl.DataFrame:
    """Return sizes as memory rows and totals as counters.

    Breakdowns by their leaves, from their first statement.
    """
    stated = of_type(rows, *_MEMORY)
    seen: set[str] = set()
    out: list[dict[str, Any]] = []
    for kind, stamp, data in stated:
        out += _sizes(kind, stamp, data)
        if kind not in seen and any(b in data for b in _BREAKDOWNS):
            seen.add(kind)
            out += _parts(kind, stamp, data)
    return pl.DataFrame(out, schema=_MEMORY_SCHEMA)


_MEMORY_SCHEMA: Final = {
    "kind": pl.String, "name": pl.String, "t": pl.Int64, "path": pl.String, "layer": pl.Int32,
    "bytes": pl.Float64, "value": pl.Float64, "unit": pl.String,
}  # fmt: skip


def _sizes(kind: str, stamp: int | None, data: Data) -> Iterator[dict[str, Any]]:
    """Yield the numbers that stand directly in an event."""
    for key, value in sorted(data.items()):
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        value = as_float(value)
        if key == "size_bytes" or key.startswith(("tensor_pool", "kv_pool")):
            yield {
                "kind": "memory",
                "name": key.removesuffix("_bytes"),
                "t": stamp,
                "path": kind,
                "bytes": value,
            }
        else:
            unit = "bytes" if key.endswith("_bytes") else ""
            yield {"kind": "counter", "name": f"{kind} {key}", "t": stamp, "value": value, "unit": unit}


def _parts(kind: str, stamp: int | None, data: Data) -> Iterator[dict[str, Any]]:
    """Yield the leaves of a breakdown: its inner keys hold what their children hold already."""
    for name, size in sorted(leaves(data.get("breakdown")).items()):
        parts = (kind, *name.split("."))
        yield {"kind": "memory", "name": name, "t": stamp, "path": PATH_SEPARATOR.join(parts), "bytes": size}
    blocks = data.get("forward_pass_breakdown")
    for index, block in sorted(blocks.items()) if isinstance(blocks, dict) else ():
        if not (isinstance(block, list) and len(block) == 2 and isinstance(block[1], dict)):
            continue
        for name, size in sorted(_sized(block[1]).items()):
            path = PATH_SEPARATOR.join((kind, str(block[0]), name))
            layer = int(index) if index.isdecimal() and len(index) < 5 else None
            yield {"kind": "memory", "name": name, "t": stamp, "path": path, "layer": layer, "bytes": size}


def leaves(breakdown: Any) -> dict[str, float]:
    """Return the keys of a dotted hierarchy that have no children."""
    sizes = _sized(breakdown)
    inner = {".".join(parts[:i]) for key in sizes for parts in [key.split(".")] for i in range(1, len(parts))}
    return {key: size for key, size in sizes.items() if key not in inner}


def _sized(sizes: Any) -> dict[str, float]:
    if not isinstance(sizes, dict):
        return {}
    numbers = {k: v for k, v in sizes.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    return {k: as_float(v) for k, v in numbers.items()}


def tables(rows: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return what is counted or stated, not timed; a table only where the file has its events."""
    types = set(rows["type"].unique().cast(pl.String))
    there = {name: made for name, made in _TABLES.items() if made[0] in types}
    filled = {name: fill(rows.filter(pl.col("type") == kind)) for name, (kind, fill) in there.items()}
    return {name: table for name, table in filled.items() if table.height}


def event_types(raw: Raw) -> pl.DataFrame:
    """Return how many events there are of each type, in the order of their first ones."""
    numbers = raw.rows["key"]
    seen, counts = numbers.gather(numbers.arg_unique()), numbers.unique_counts()
    types = pl.Series([raw.keys[number].type for number in seen], dtype=pl.String)
    counted = pl.DataFrame({"type": types, "count": counts.cast(pl.Int64)})
    return counted.group_by("type", maintain_order=True).agg(pl.col("count").sum())


def _counted(*keys: str) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Return a table of how often each combination of some of an event's fields occurs."""

    def table(rows: pl.DataFrame) -> pl.DataFrame:
        counts = rows.group_by("rest", maintain_order=True).agg(count=pl.len().cast(pl.Int64))
        decoded = [_data(text) for text in counts["rest"]]
        columns = {k: pl.Series([_text(d.get(k)) for d in decoded], dtype=pl.String) for k in keys}
        frame = pl.DataFrame(columns).with_columns(counts["count"])
        return frame.group_by(*keys, maintain_order=True).agg(pl.col("count").sum())

    return table


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) or value is None else msgspec.json.encode(value).decode()


def _last(*keys: str) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Return a table of cumulative statistics: the last ones stated, a row for each key."""

    def table(rows: pl.DataFrame) -> pl.DataFrame:
        last = {tuple(str(data.get(k)) for k in keys): data for data in map(_data, rows["rest"])}
        order = [*keys, *sorted({k for data in last.values() for k in data} - {*keys})]
        flat = [{k: d[k] for k in order if not isinstance(d.get(k, {}), dict | list)} for d in last.values()]
        return pl.DataFrame(flat, infer_schema_length=None, strict=False)

    return table


def _launches(rows: pl.DataFrame) -> pl.DataFrame:
    """Return kernel launches that have no duration, by kernel and layer."""
    rest = pl.col("rest")
    fields = rows.lazy().select(
        kernel=rest.str.extract(r'"kernel_name":"((?:[^"\\]|\\.)*)"'),
        op=rest.str.extract(r'"op_name":"((?:[^"\\]|\\.)*)"')
        .str.replace(r"_step_\d+", "")
        .str.replace(r"_layer_\d+$", ""),
        layer=rest.str.extract(r'_layer_([0-9]{1,4})"').cast(pl.Int32),
    )
    counts = fields.group_by("kernel", "op", "layer", maintain_order=True)
    return counts.agg(count=pl.len().cast(pl.Int64)).collect()


# Each with the type of its events.
_TABLES: Final[Mapping[str, tuple[str, Callable[[pl.DataFrame], pl.DataFrame]]]] = {
    "backends": ("KernelBackendSelected", _counted("op_name", "backend", "reason")),
    "launches": ("GpuKernelDispatched", _launches),
    "cache_accesses": ("ResourceCacheAccess", _counted("cache_key", "hit")),
    "caches": ("ResourceCacheSummary", _last("cache")),
    "tensor_preparation": ("TensorPreparationStats", _last()),
    "evictions": ("CacheEviction", _counted("cache", "strategy", "reason")),
}


def marks(tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Return backend choices and cache evictions as lines of the log, one for each kind with its count."""
    lines = [
        ("selection", f"{r['op_name']} → {r['backend']} ({r['reason']})", r["count"])
        for r in tables.get("backends", pl.DataFrame()).iter_rows(named=True)
    ] + [
        ("note", f"{r['cache']} evicted by {r['strategy']} ({r['reason']})", r["count"])
        for r in tables.get("evictions", pl.DataFrame()).iter_rows(named=True)
    ]
    return pl.DataFrame(
        [{"kind": "mark", "name": name, "path": path, "count": count} for path, name, count in lines],
        schema={"kind": pl.String, "name": pl.String, "path": pl.String, "count": pl.Int64},
    )


def note_unknown(types: pl.DataFrame, log: Log) -> None:
    """Note the event types that this reader does not know, with their counts."""
    for kind, count in types.iter_rows():
        if kind not in VARIANTS:
            log.note(
                "unknown_event", f"events of an unknown type are counted only, such as {kind}", count=count
            )
