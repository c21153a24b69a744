"""rocprofv3 JSON: one element a process, with its dispatches, copies and API calls.

Read: kernel dispatches, memory copies, HIP, HSA, RCCL and marker calls; a run a process. Not read: counters,
code objects, scratch memory.
rocprofv3: https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocprofv3.html
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import polars as pl

from capture.errors import UnreadableError
from capture.importlog import Log
from capture.inference import with_inferred
from capture.loaders._json_document import dict_in, dicts_in, document, list_in, whole
from capture.loaders._rows import frame_of
from capture.run import Run, build
from capture.source import Head, Source

FORMAT: Final = "rocprofv3-json"
PRODUCER: Final = "AMD rocprofv3"
HOWTO: Final = "rocprofv3 --sys-trace --output-format json -- python run.py"

_KEY: Final = "rocprofiler-sdk-tool"
_GPU: Final = 2
_NAMES: Final = ("formatted_kernel_name", "demangled_kernel_name", "truncated_kernel_name", "kernel_name")
_APIS: Final = ("hip_api", "hsa_api", "rccl_api", "marker_api")
_ROW: Final = {
    "kind": pl.String, "name": pl.String, "t": pl.Int64, "dur": pl.Int64, "lens": pl.String,
    "track": pl.String, "category": pl.String,
}  # fmt: skip


def sniff(head: Head) -> bool:
    return head.start.startswith("{") and f'"{_KEY}"' in head.start[:4096]


def load(source: Source) -> list[Run]:
    parsed = document(source)
    processes = parsed.get(_KEY) if isinstance(parsed, dict) else None
    processes = [p for p in processes if isinstance(p, dict)] if isinstance(processes, list) else []
    if not processes:
        raise UnreadableError("names no process that was profiled", where=source.label)
    return [_run(process, len(processes) > 1, source) for process in processes]


def _run(process: Mapping[str, Any], several: bool, source: Source) -> Run:
    about = dict_in(process, "metadata")
    agents = _agents(process)
    records = dict_in(process, "buffer_records")
    rows = [*_kernels(process, records, agents), *_copies(process, records, agents)]
    rows += [row for api in _APIS for row in _calls(process, records, api)]
    name = Path(source.label).name + (f" pid {about.get('pid')}" if several else "")
    gpus = sorted({str(a["name"]) for a in agents.values() if a["gpu"]})
    command = about.get("command")
    meta = {
        "producer": "rocprofv3",
        "device": ", ".join(gpus),
        "argv": command if isinstance(command, list) else None,
        "profiled": True,
    }
    events = _timed(frame_of(rows, {**_ROW, "end": pl.Int64}, source.log), source.log)
    return with_inferred(build(name, {k: v for k, v in meta.items() if v}, events, source.log), source.log)


def _timed(rows: pl.DataFrame, log: Log) -> pl.DataFrame:
    log.read += rows.height
    kept = rows.filter(pl.col("t").is_not_null() & pl.col("end").is_not_null())
    log.drop("bad_time", "records without a start and an end", count=rows.height - kept.height)
    return kept.with_columns(dur=pl.col("end") - pl.col("t")).drop("end")


def _agents(process: Mapping[str, Any]) -> dict[Any, dict[str, Any]]:
    """Return handle → name and place; GPUs are numbered from 0 in the order in which they are listed."""
    agents: dict[Any, dict[str, Any]] = {}
    gpus = 0
    for agent in dicts_in(process, "agents"):
        gpu = agent.get("type") == _GPU
        agents[_handle(agent, "id")] = {
            "gpu": gpu,
            "name": agent.get("product_name") or agent.get("name") or "?",
            "track": f"gpu{gpus}" if gpu else "cpu",
        }
        gpus += gpu
    return agents


def _kernels(
    process: Mapping[str, Any], records: Mapping[str, Any], agents: Mapping[Any, dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    names = {
        _id(symbol.get("kernel_id")): next((symbol[k] for k in _NAMES if symbol.get(k)), None)
        for symbol in dicts_in(process, "kernel_symbols")
    }
    for record in dicts_in(records, "kernel_dispatch"):
        info = dict_in(record, "dispatch_info")
        device = agents.get(_handle(info, "agent_id"), {"track": "gpu?"})["track"]
        stream, queue = _handle(record, "stream_id"), _handle(info, "queue_id")
        lane = f"queue{queue}" if stream is None else f"stream{stream}"
        id = _id(info.get("kernel_id"))
        yield _row(record, "kernel", str(names.get(id) or f"kernel {id}"), "gpu", f"{device}/{lane}", None)


def _copies(
    process: Mapping[str, Any], records: Mapping[str, Any], agents: Mapping[Any, dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    operations = _operations(process)
    for record in dicts_in(records, "memory_copy"):
        ends = [
            agents.get(_handle(record, key), {"track": "?"})["track"]
            for key in ("src_agent_id", "dst_agent_id")
        ]
        name = operations.get((_id(record.get("kind")), _id(record.get("operation"))), "memory copy")
        device = next((end for end in ends if end.startswith("gpu")), "gpu?")
        yield _row(record, "kernel", name, "gpu", f"{device}/copy", "copy")


def _calls(process: Mapping[str, Any], records: Mapping[str, Any], api: str) -> Iterator[dict[str, Any]]:
    operations = _operations(process)
    for record in dicts_in(records, api):
        name = operations.get((_id(record.get("kind")), _id(record.get("operation"))), api)
        yield _row(record, "span", name, "host", f"thread {record.get('thread_id')}", "host")


def _row(
    record: Mapping[str, Any], kind: str, name: str, lens: str, track: str, category: str | None
) -> dict[str, Any]:
    times = {"t": whole(record.get("start_timestamp")), "end": whole(record.get("end_timestamp"))}
    return {"kind": kind, "name": name, "lens": lens, "track": track, "category": category, **times}


def _operations(process: Mapping[str, Any]) -> dict[tuple[Any, Any], str]:
    """(kind, operation) → its name, from the tables of strings."""
    kinds = dicts_in(dict_in(process, "strings"), "buffer_records")
    return {
        (kind, operation): str(name)
        for kind, entry in enumerate(kinds)
        for operation, name in enumerate(list_in(entry, "operations"))
    }


def _handle(holder: Mapping[str, Any], key: str) -> Any:
    return _id(dict_in(holder, key).get("handle"))


def _id(value: Any) -> Any:
    """Return what may be an id; None for a list or an object, which is none."""
    return None if isinstance(value, dict | list) else value
