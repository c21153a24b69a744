"""What the header of a Chrome trace tells: producer, devices, driver, ranks, and its own words."""

from typing import Any, Final

import polars as pl

from capture.loaders.chrome.incomplete import Names
from capture.loaders.chrome.tables import Trace
from capture.text import clean

DEVICE: Final = "/device:"  # how JAX names the process that stands for a device


def meta_of(trace: Trace, names: Names) -> dict[str, Any]:
    """Return what the trace says of its run."""
    header = trace.header
    ranks = header.get("distributedInfo")
    ranks = ranks if isinstance(ranks, dict) else {}
    meta = {
        "producer": _producer(trace, names),
        "device": ", ".join(
            sorted(set(devices_of(header).get_column("name", default=pl.Series([], dtype=pl.String))))
        ),
        "driver": header.get("cuda_driver_version") or header.get("hip_driver_version"),
        "rank": ranks.get("rank"),
        "world_size": ranks.get("world_size"),
        "clock_base_ns": header.get("baseTimeNanoseconds"),
        "profiled": True,
        "truncated": trace.truncated or None,
    }
    return {k: v for k, v in meta.items() if v is not None and v != ""}


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
            "id": d.get("id"),
            "name": str(d.get("name")),
            "memory_bytes": d.get("totalGlobalMem"),
            "sms": d.get("numSms"),
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
