"""Interpret the header of a Chrome trace: producer, devices, driver, ranks, base of the clock."""

from typing import Any, Final

import polars as pl

from capture.clean_text import clean
from capture.device_roofs import find_gpu_name
from capture.loaders._json_document import read_dict, read_dicts, to_integer
from capture.loaders.chrome.trace_model import Trace
from capture.loaders.chrome.track_names import JAX_DEVICE_PREFIX, ProcessNames
from capture.native.schema import TIME_COLUMNS

_DEVICE_NUMBERS: Final = {
    "memory_bytes": "totalGlobalMem", "sms": "numSms", "major": "computeMajor", "minor": "computeMinor",
}  # fmt: skip


def build_meta(
    trace: Trace, names: ProcessNames, devices: pl.DataFrame, captured: str | None
) -> dict[str, Any]:
    """Build the metadata of a run; `captured` describes what its graph captures added."""
    header = trace.header
    ranks = read_dict(header, "distributedInfo")
    device, guesses = _find_device_names(devices)
    meta = {
        "producer": _find_producer(trace, names),
        "device": device,
        "guess": guesses,
        "driver": header.get("cuda_driver_version") or header.get("hip_driver_version"),
        "rank": ranks.get("rank"),
        "world_size": ranks.get("world_size"),
        "clock_base_ns": header.get("baseTimeNanoseconds"),
        "profiled": True,
        "captured": captured,
        "truncated": trace.truncated or None,
    }
    return {k: v for k, v in meta.items() if v is not None and v != "" and v != []}


def _find_device_names(devices: pl.DataFrame) -> tuple[str, list[str]]:
    """Find the names of the devices; without any, guess one by their properties, and describe the guess."""
    named = devices.get_column("name", default=pl.Series([], dtype=pl.String))
    names = sorted({name for name in named if name})
    if names or devices.is_empty():
        return ", ".join(names), []
    columns = ("sms", "memory_bytes", "major", "minor")
    matches = {find_gpu_name(s, m, (major, minor)) for s, m, major, minor in devices.select(columns).rows()}
    name = matches.pop() if len(matches) == 1 else None
    if name is None:
        return "", []
    sms, memory, major, minor = devices.select(columns).row(0)
    properties = f"{sms} multiprocessors, {round(memory / (1 << 30))} GiB and capability {major}.{minor}"
    return name, [f"device: not named in the trace; only {name} has {properties}"]


def _find_producer(trace: Trace, names: ProcessNames) -> str:
    if trace.producer:
        return trace.producer
    if any(name.startswith(JAX_DEVICE_PREFIX) for name in names.processes.values()):
        return "JAX profiler"
    cats = set(trace.complete.labels["cat"])
    torch = "schemaVersion" in trace.header or cats & {"cpu_op", "cuda_runtime", "user_annotation"}
    return "PyTorch profiler" if torch else "Chrome trace"


def build_device_table(header: dict[str, Any]) -> pl.DataFrame:
    """Build the table of the devices in the header; without columns if there are none."""
    rows = [
        {"id": to_integer(device.get("id")), "name": clean(str(device.get("name")))}
        | {column: to_integer(device.get(key)) for column, key in _DEVICE_NUMBERS.items()}
        for device in read_dicts(header, "deviceProperties")
    ]
    return pl.DataFrame(rows, strict=False)


def build_header_table(header: dict[str, Any], read: int) -> pl.DataFrame:
    """Build a table of the scalar keys of the header, and the number of events read."""
    values = {clean(k): clean(str(v)) for k, v in header.items() if isinstance(v, str | int | float)}
    values["events"] = str(read)
    return pl.DataFrame({"key": list(values), "value": list(values.values())})


def shift_to_epoch(rows: pl.DataFrame, header: dict[str, Any]) -> pl.DataFrame:
    """Shift times to the clock of the epoch, if the trace reports its base."""
    base = header.get("baseTimeNanoseconds")
    latest = rows["t"].max()
    if type(base) is not int or not isinstance(latest, int) or not 0 < base < (1 << 63) - 1 - max(latest, 0):
        return rows
    return rows.with_columns(pl.col(c) + base for c in TIME_COLUMNS if c in rows.columns)
