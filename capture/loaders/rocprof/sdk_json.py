"""rocprofv3 JSON: one element per process, with its dispatches, copies and API calls.

Read: kernel dispatches, memory copies, HIP, HSA, RCCL and marker calls; one run per process. Not read:
counters, code objects, scratch memory.
rocprofv3: https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocprofv3.html
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import polars as pl

from capture.errors import UnreadableError
from capture.infer_structure import add_inferred_structure
from capture.loaders._json_document import parse_document, read_dict, read_dicts, read_list, to_integer
from capture.loaders._typed_cells import build_frame
from capture.run import Run, build_run, list_column_types
from capture.source import Head, Source

FORMAT: Final = "rocprofv3-json"
PRODUCER: Final = "AMD rocprofv3"
HOWTO: Final = "rocprofv3 --sys-trace --output-format json -- python run.py"

Json = dict[str, Any]

_KEY: Final = "rocprofiler-sdk-tool"
_GPU: Final = 2
_NAMES: Final = ("formatted_kernel_name", "demangled_kernel_name", "truncated_kernel_name", "kernel_name")
_APIS: Final = ("hip_api", "hsa_api", "rccl_api", "marker_api")
_ROW_SCHEMA: Final = list_column_types("kind", "name", "t", "lens", "track", "category") | {"end": pl.Int64}


def sniff(head: Head) -> bool:
    return head.stripped_text.startswith("{") and f'"{_KEY}"' in head.stripped_text[:4096]


def load(source: Source) -> list[Run]:
    parsed = parse_document(source)
    processes = read_dicts(parsed, _KEY)
    if not processes:
        raise UnreadableError("contains no profiled process", where=source.label)
    return [_build_run(process, len(processes) > 1, source) for process in processes]


def _build_run(process: Json, has_several: bool, source: Source) -> Run:
    metadata = read_dict(process, "metadata")
    agents, operations = _read_agents(process), _map_operation_names(process)
    records = read_dict(process, "buffer_records")
    rows = [*_iter_kernels(process, records, agents), *_iter_copies(records, agents, operations)]
    rows += [row for api in _APIS for row in _iter_calls(records, api, operations)]
    name = Path(source.label).name + (f" pid {metadata.get('pid')}" if has_several else "")
    gpus = sorted({str(agent["name"]) for agent in agents.values() if agent["gpu"]})
    meta = {
        "producer": "rocprofv3",
        "device": ", ".join(gpus),
        "argv": read_list(metadata, "command"),
        "profiled": True,
    }
    source.log.read += len(rows)
    frame = build_frame(rows, _ROW_SCHEMA, source.log)
    valid = frame.drop_nulls(["t", "end"])
    source.log.drop("bad_time", "records without a start and an end", count=len(rows) - valid.height)
    events = valid.with_columns(dur=pl.col("end") - pl.col("t")).drop("end")
    meta = {key: value for key, value in meta.items() if value}
    return add_inferred_structure(build_run(name, meta, events, source.log), source.log)


def _read_agents(process: Json) -> dict[Any, Json]:
    """Map each handle to name and track; GPUs are numbered from 0 in listed order."""
    agents: dict[Any, Json] = {}
    gpu_count = 0
    for agent in read_dicts(process, "agents"):
        is_gpu = agent.get("type") == _GPU
        agents[_read_handle(agent, "id")] = {
            "gpu": is_gpu,
            "name": agent.get("product_name") or agent.get("name") or "?",
            "track": f"gpu{gpu_count}" if is_gpu else "cpu",
        }
        gpu_count += is_gpu
    return agents


def _iter_kernels(process: Json, records: Json, agents: dict[Any, Json]) -> Iterator[Json]:
    names = {
        _to_id(symbol.get("kernel_id")): next((symbol[key] for key in _NAMES if symbol.get(key)), None)
        for symbol in read_dicts(process, "kernel_symbols")
    }
    for record in read_dicts(records, "kernel_dispatch"):
        info = read_dict(record, "dispatch_info")
        device = agents.get(_read_handle(info, "agent_id"), {"track": "gpu?"})["track"]
        stream, queue = _read_handle(record, "stream_id"), _read_handle(info, "queue_id")
        lane = f"queue{queue}" if stream is None else f"stream{stream}"
        kernel_id = _to_id(info.get("kernel_id"))
        name = str(names.get(kernel_id) or f"kernel {kernel_id}")
        yield _build_row(record, "kernel", name, "gpu", f"{device}/{lane}", None)


def _iter_copies(records: Json, agents: dict[Any, Json], operations: dict[Any, str]) -> Iterator[Json]:
    for record in read_dicts(records, "memory_copy"):
        handles = (_read_handle(record, key) for key in ("src_agent_id", "dst_agent_id"))
        tracks = [agents.get(handle, {"track": "?"})["track"] for handle in handles]
        name = operations.get((_to_id(record.get("kind")), _to_id(record.get("operation"))), "memory copy")
        device = next((track for track in tracks if track.startswith("gpu")), "gpu?")
        yield _build_row(record, "kernel", name, "gpu", f"{device}/copy", "copy")


def _iter_calls(records: Json, api: str, operations: dict[Any, str]) -> Iterator[Json]:
    for record in read_dicts(records, api):
        name = operations.get((_to_id(record.get("kind")), _to_id(record.get("operation"))), api)
        yield _build_row(record, "span", name, "host", f"thread {record.get('thread_id')}", "host")


def _build_row(record: Json, kind: str, name: str, lens: str, track: str, category: str | None) -> Json:
    times = {"t": to_integer(record.get("start_timestamp")), "end": to_integer(record.get("end_timestamp"))}
    return {"kind": kind, "name": name, "lens": lens, "track": track, "category": category, **times}


def _map_operation_names(process: Json) -> dict[Any, str]:
    """Map (kind, operation) to its name, from the tables of strings."""
    kinds = read_dicts(read_dict(process, "strings"), "buffer_records")
    return {
        (kind, operation): str(name)
        for kind, entry in enumerate(kinds)
        for operation, name in enumerate(read_list(entry, "operations"))
    }


def _read_handle(holder: Json, key: str) -> Any:
    return _to_id(read_dict(holder, key).get("handle"))


def _to_id(value: Any) -> Any:
    """Return a value that can be an id; None for a list or an object."""
    return None if isinstance(value, dict | list) else value
