"""Convert metallic events without a duration: memory, backends, caches, launches, unknown types."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
import polars as pl

from capture.import_log import Log
from capture.loaders._json_document import parse_object, to_float
from capture.loaders.metallic.line_reader import TIMED, RawEvents
from capture.native.schema import PATH_SEPARATOR
from capture.run import list_column_types

_UNTIMED: Final = (
    "GpuKernelDispatched", "KernelBackendSelected", "ResourceCacheAccess", "ResourceCacheSummary",
    "CacheEviction", "GgufFileMmap", "ModelWeights", "HostMemory", "ForwardStep", "TensorMemory",
    "TensorPreparationStats",
)  # fmt: skip
VARIANTS: Final = (*TIMED, *_UNTIMED)
_MEMORY: Final = ("GgufFileMmap", "ModelWeights", "HostMemory", "ForwardStep", "TensorMemory")
_BREAKDOWNS: Final = ("breakdown", "forward_pass_breakdown")
_MEMORY_SCHEMA: Final = list_column_types("kind", "name", "t", "path", "layer", "bytes", "value", "unit")

Data = Mapping[str, Any]


def select_untimed(raw: RawEvents) -> pl.DataFrame:
    """Select type, timestamp and payload of the events without a duration."""
    types = pl.Series([key.type for key in raw.keys], dtype=pl.String).cast(pl.Categorical())
    has_payload = pl.col("payload").is_not_null()
    rows = raw.rows.lazy().filter(has_payload).select("key", "timestamp_ns", "payload").collect()
    payloads = raw.payloads.gather(rows["payload"])
    return rows.select(types.gather(rows["key"]).alias("type"), "timestamp_ns", payloads.alias("payload"))


def decode_events(rows: pl.DataFrame, *types: str) -> list[tuple[str, int | None, dict[str, Any]]]:
    """Decode the events of some types, in line order: type, timestamp, data."""
    selected = rows.filter(pl.col("type").is_in(list(types)))
    selected = selected.select(pl.col("type").cast(pl.String), "timestamp_ns", "payload")
    return [(kind, timestamp_ns, parse_object(rest)) for kind, timestamp_ns, rest in selected.iter_rows()]


def build_memory_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Convert sizes to memory rows, totals to counters; of each type the first breakdown, by its leaves."""
    events = decode_events(rows, *_MEMORY)
    types_with_breakdown: set[str] = set()
    memory_rows: list[dict[str, Any]] = []
    for kind, timestamp_ns, data in events:
        memory_rows += _iter_sizes(kind, timestamp_ns, data)
        if kind not in types_with_breakdown and any(b in data for b in _BREAKDOWNS):
            types_with_breakdown.add(kind)
            memory_rows += _iter_breakdown(kind, timestamp_ns, data)
    return pl.DataFrame(memory_rows, schema=_MEMORY_SCHEMA)


def _iter_sizes(kind: str, timestamp_ns: int | None, data: Data) -> Iterator[dict[str, Any]]:
    """Yield the numbers directly in an event."""
    for key, value in sorted(_select_numbers(data).items()):
        if key == "size_bytes" or key.startswith(("tensor_pool", "kv_pool")):
            name = key.removesuffix("_bytes")
            yield {"kind": "memory", "name": name, "t": timestamp_ns, "path": kind, "bytes": value}
        else:
            unit = "bytes" if key.endswith("_bytes") else ""
            name = f"{kind} {key}"
            yield {"kind": "counter", "name": name, "t": timestamp_ns, "value": value, "unit": unit}


def _iter_breakdown(kind: str, timestamp_ns: int | None, data: Data) -> Iterator[dict[str, Any]]:
    """Yield the leaves of a breakdown: inner keys contain the sums of their children."""
    for name, size in sorted(select_leaves(data.get("breakdown")).items()):
        path = PATH_SEPARATOR.join((kind, *name.split(".")))
        yield {"kind": "memory", "name": name, "t": timestamp_ns, "path": path, "bytes": size}
    blocks = data.get("forward_pass_breakdown")
    for index, block in sorted(blocks.items()) if isinstance(blocks, dict) else ():
        if not (isinstance(block, list) and len(block) == 2 and isinstance(block[1], dict)):
            continue
        for name, size in sorted(_select_numbers(block[1]).items()):
            path = PATH_SEPARATOR.join((kind, str(block[0]), name))
            layer = int(index) if index.isdecimal() and len(index) < 5 else None
            row = {"kind": "memory", "name": name, "t": timestamp_ns, "path": path}
            yield {**row, "layer": layer, "bytes": size}


def select_leaves(breakdown: Any) -> dict[str, float]:
    """Select the keys of a dotted hierarchy that have no children."""
    sizes = _select_numbers(breakdown)
    paths = [key.split(".") for key in sizes]
    inner_keys = {".".join(path[:depth]) for path in paths for depth in range(1, len(path))}
    return {key: size for key, size in sizes.items() if key not in inner_keys}


def _select_numbers(sizes: Any) -> dict[str, float]:
    members = sizes.items() if isinstance(sizes, dict) else ()
    return {key: to_float(size) for key, size in members if type(size) in (int, float)}


def build_tables(rows: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Build the tables of what is counted or reported, not timed; only those with events."""
    types = set(rows["type"].unique().cast(pl.String))
    builders = {name: entry for name, entry in _TABLE_BUILDERS.items() if entry[0] in types}
    tables = {name: fill(rows.filter(pl.col("type") == kind)) for name, (kind, fill) in builders.items()}
    return {name: table for name, table in tables.items() if table.height}


def count_event_types(raw: RawEvents) -> pl.DataFrame:
    """Count the events of each type, in order of first appearance."""
    key_ids = raw.rows["key"]
    distinct_ids, counts = key_ids.gather(key_ids.arg_unique()), key_ids.unique_counts()
    types = pl.Series([raw.keys[number].type for number in distinct_ids], dtype=pl.String)
    counts_by_key = pl.DataFrame({"type": types, "count": counts.cast(pl.Int64)})
    return counts_by_key.group_by("type", maintain_order=True).agg(pl.col("count").sum())


def _build_counter(*fields: str) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Make a function that counts each combination of some fields of an event."""

    def count(rows: pl.DataFrame) -> pl.DataFrame:
        counts = rows.group_by("payload", maintain_order=True).agg(count=pl.len().cast(pl.Int64))
        decoded = [parse_object(text) for text in counts["payload"]]
        columns = {k: pl.Series([_to_text(d.get(k)) for d in decoded], dtype=pl.String) for k in fields}
        frame = pl.DataFrame(columns).with_columns(counts["count"])
        return frame.group_by(*fields, maintain_order=True).agg(pl.col("count").sum())

    return count


def _to_text(value: Any) -> str | None:
    return value if isinstance(value, str) or value is None else msgspec.json.encode(value).decode()


def _build_last_values(*fields: str) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Make a function that keeps the last statistics reported per key."""

    def keep_last(rows: pl.DataFrame) -> pl.DataFrame:
        records = [parse_object(payload) for payload in rows["payload"]]
        last = {tuple(str(record.get(field)) for field in fields): record for record in records}
        order = [*fields, *sorted({k for data in last.values() for k in data} - {*fields})]
        flat = [{k: d[k] for k in order if not isinstance(d.get(k, {}), dict | list)} for d in last.values()]
        return pl.DataFrame(flat, infer_schema_length=None, strict=False)

    return keep_last


def _count_launches(rows: pl.DataFrame) -> pl.DataFrame:
    rest = pl.col("payload")
    fields = rows.lazy().select(
        kernel=rest.str.extract(r'"kernel_name":"((?:[^"\\]|\\.)*)"'),
        op=rest.str.extract(r'"op_name":"((?:[^"\\]|\\.)*)"')
        .str.replace(r"_step_\d+", "")
        .str.replace(r"_layer_\d+$", ""),
        layer=rest.str.extract(r'_layer_([0-9]{1,4})"').cast(pl.Int32),
    )
    counts = fields.group_by("kernel", "op", "layer", maintain_order=True)
    return counts.agg(count=pl.len().cast(pl.Int64)).collect()


# table → its event type, its builder
_TABLE_BUILDERS: Final[Mapping[str, tuple[str, Callable[[pl.DataFrame], pl.DataFrame]]]] = {
    "backends": ("KernelBackendSelected", _build_counter("op_name", "backend", "reason")),
    "launches": ("GpuKernelDispatched", _count_launches),
    "cache_accesses": ("ResourceCacheAccess", _build_counter("cache_key", "hit")),
    "caches": ("ResourceCacheSummary", _build_last_values("cache")),
    "tensor_preparation": ("TensorPreparationStats", _build_last_values()),
    "evictions": ("CacheEviction", _build_counter("cache", "strategy", "reason")),
}


def build_marks(tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Convert backend choices and cache evictions to log lines, one per kind with its count."""
    backends, evictions = (tables.get(name, pl.DataFrame()).rows() for name in ("backends", "evictions"))
    lines = [
        *(("mark", f"{op} → {backend} ({why})", "selection", n) for op, backend, why, n in backends),
        *(
            ("mark", f"{cache} evicted by {strategy} ({why})", "note", n)
            for cache, strategy, why, n in evictions
        ),
    ]
    return pl.DataFrame(lines, list_column_types("kind", "name", "path", "count"), orient="row")


def note_unknown_types(types: pl.DataFrame, log: Log) -> None:
    """Note the event types that are not known here, with their counts."""
    for kind, count in types.iter_rows():
        if kind not in VARIANTS:
            message = f"events of an unknown type are only counted, such as {kind}"
            log.note("unknown_event", message, count=count)
