"""What the header of a Chrome trace tells: producer, devices, driver, ranks, and its own words."""

from typing import Any, Final

import polars as pl

from capture.loaders._json_document import whole
from capture.loaders.chrome.incomplete import Names
from capture.loaders.chrome.tables import Trace
from capture.roofs import name_by_properties
from capture.text import clean

DEVICE: Final = "/device:"  # how JAX names the process that stands for a device


def meta_of(trace: Trace, names: Names, captured: str | None) -> dict[str, Any]:
    """Return what the trace says of its run; `captured` tells which captures its replays were told by."""
    header = trace.header
    ranks = header.get("distributedInfo")
    ranks = ranks if isinstance(ranks, dict) else {}
    device, guess = _device(header)
    meta = {
        "producer": _producer(trace, names),
        "device": device,
        "guess": guess,
        "driver": header.get("cuda_driver_version") or header.get("hip_driver_version"),
        "rank": ranks.get("rank"),
        "world_size": ranks.get("world_size"),
        "clock_base_ns": header.get("baseTimeNanoseconds"),
        "profiled": True,
        "captured": captured,
        "truncated": trace.truncated or None,
    }
    return {k: v for k, v in meta.items() if v is not None and v != "" and v != []}


def _device(header: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the names of the devices; where none has one, that of their properties, and what is guessed."""
    devices = devices_of(header)
    named = devices.get_column("name", default=pl.Series([], dtype=pl.String))
    names = sorted({name for name in named if name})
    if names or devices.is_empty():
        return ", ".join(names), []
    columns = ("sms", "memory_bytes", "major", "minor")
    told = {name_by_properties(s, m, (major, minor)) for s, m, major, minor in devices.select(columns).rows()}
    only = told.pop() if len(told) == 1 else None
    if only is None:
        return "", []
    sms, memory, major, minor = devices.select(columns).row(0)
    properties = f"{sms} processors, {round(memory / (1 << 30))} GiB and capability {major}.{minor}"
    return only, [f"device: the trace names none; {properties} are those of {only} alone"]


def _producer(trace: Trace, names: Names) -> str:
    if trace.producer:
        return trace.producer
    if any(name.startswith(DEVICE) for name in names.processes.values()):
        return "JAX profiler"
    cats = set(trace.complete.labels["cat"])
    torch = "schemaVersion" in trace.header or cats & {"cpu_op", "cuda_runtime", "user_annotation"}
    return "PyTorch profiler" if torch else "Chrome trace"


def devices_of(header: dict[str, Any]) -> pl.DataFrame:
    devices = header.get("deviceProperties")
    rows = [
        {
            "id": whole(d.get("id")),
            "name": clean(str(d.get("name"))),
            "memory_bytes": whole(d.get("totalGlobalMem")),
            "sms": whole(d.get("numSms")),
            "major": whole(d.get("computeMajor")),
            "minor": whole(d.get("computeMinor")),
        }
        for d in (devices if isinstance(devices, list) else ())
        if isinstance(d, dict)
    ]  # fmt: skip
    return pl.DataFrame(rows, strict=False)


def header_table(header: dict[str, Any], read: int) -> pl.DataFrame:
    """Return what the trace states about itself, word for word."""
    stated = {clean(k): clean(str(v)) for k, v in header.items() if isinstance(v, str | int | float)}
    stated["events"] = str(read)
    return pl.DataFrame({"key": list(stated), "value": list(stated.values())})
