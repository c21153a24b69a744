"""An export of a training step in the layouts of Nsight Systems, with torch's own NVTX ranges.

The ops, their nesting and their sequence numbers are those of a real step that torch ran on the processor;
what a GPU changes is put in: the backward pass goes to autograd's own thread, and ops launch kernels.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple

from capture.native.schema import PATH_SEPARATOR
from capture.record.profiler_windows import ANNOTATION_PREFIX, ProfilerEvent
from tests.capture.loaders._nsys_file import pid, tid

PROCESS: Final = 4711
AUTOGRAD: Final = 4790
MAIN: Final = PROCESS
GEMM: Final = "ampere_sgemm_128x64_tn"
LONG_NS: Final = 40_000
SHORT_NS: Final = 2_000
SCHEMAS: Final = ("3.25.0", "2.9.1")  # of nsys 2026.2 and of 2022.2

_ENGINE: Final = "autograd::engine::evaluate_function: "
_PRODUCTS: Final = ("aten::mm", "aten::bmm", "aten::addmm")
_WORDS: Final = (
    "mm bmm addmm mul mul_ add add_ sub sub_ div div_ copy_ fill_ sum pow square sqrt rsqrt mean exp max neg "
    "where cat silu silu_backward index _log_softmax _log_softmax_backward_data nll_loss_forward "
    "nll_loss_backward index_put_ _index_put_impl_ value_selecting_reduction_backward"
)
_COMPUTING: Final = frozenset(f"aten::{word}" for word in _WORDS.split())

_KERNEL: Final = (
    "aten::view", "aten::reshape", "aten::_reshape_alias", "aten::as_strided", "aten::t", "aten::transpose",
    "aten::expand", "aten::select", "aten::slice", "aten::unsqueeze", "aten::squeeze", "aten::empty",
    "aten::empty_like", "aten::empty_strided", "aten::_unsafe_view", "aten::detach", "detach",
    "aten::resolve_conj", "aten::_conj", "aten::permute", "aten::alias", "aten::lift_fresh", "aten::split",
)  # fmt: skip

_KERNEL: Final = (
    "start end deviceId contextId greenContextId streamId correlationId globalPid demangledName shortName "
    "mangledName launchType cacheConfig registersPerThread gridX gridY gridZ blockX blockY blockZ "
    "staticSharedMemory dynamicSharedMemory localMemoryPerThread localMemoryTotal gridId "
    "sharedMemoryExecuted graphNodeId sharedMemoryLimitConfig qmdBulkReleaseDone qmdPreexitDone "
    "qmdLastCtaDone graphId clusterX clusterY clusterZ clusterSchedulingPolicy maxPotentialClusterSize "
    "maxActiveClusters sharedMemoryRequestedPercentage tensorSizeMinusOneElements"
)
_NVTX: Final = (
    "start end eventType rangeId category color text globalTid endGlobalTid textId domainId uint64Value "
    "int64Value doubleValue uint32Value int32Value floatValue jsonTextId jsonText binaryData"
)
_RUNTIME: Final = "start end eventClass globalTid correlationId nameId returnValue callchainId"
_SMALL: Final = {"StringIds": "id value", "ThreadNames": "nameId priority globalTid"}
LAYOUTS: Final = {
    "3.25.0": {
        "CUPTI_ACTIVITY_KIND_KERNEL": _KERNEL, "CUPTI_ACTIVITY_KIND_RUNTIME": _RUNTIME,
        "NVTX_EVENTS": _NVTX, "META_DATA_EXPORT": "name value", **_SMALL,
    },
    "2.9.1": {
        "CUPTI_ACTIVITY_KIND_KERNEL": _KERNEL.partition(" qmd")[0].replace("greenContextId ", ""),
        "CUPTI_ACTIVITY_KIND_RUNTIME": f"{_RUNTIME} name",
        "NVTX_EVENTS": _NVTX.removesuffix(" binaryData"), "EXPORT_META_DATA": "name value", **_SMALL,
    },
}  # fmt: skip


class Launched(NamedTuple):
    """A kernel, and the op that launched it."""

    name: str
    op: ProfilerEvent
    correlation: int
    start: int
    duration: int


def split(seen: Iterable[ProfilerEvent]) -> list[ProfilerEvent]:
    """Ops as a GPU's run has them: whatever lies within a backward op is on autograd's thread."""
    events = [e._replace(thread=MAIN) for e in seen]
    nodes = [(e.start, e.end) for e in events if e.name.startswith(_ENGINE)]
    within = ((any(a <= e.start and e.end <= b for a, b in nodes), e) for e in events)
    return [e._replace(thread=AUTOGRAD) if moved else e for moved, e in within]


def kernels(seen: Iterable[ProfilerEvent]) -> list[Launched]:
    """A kernel for each innermost op that computes, one after the other; products take longer."""
    found: list[Launched] = []
    free = 0
    for number, op in enumerate(sorted(_computing(seen), key=lambda e: e.start), 1):
        product = op.name in _PRODUCTS
        start, took = max(free, op.start + 3000), LONG_NS if product else SHORT_NS
        name = GEMM if product else f"void at::native::elementwise_kernel<128, 2, {op.name}>(int)"
        found.append(Launched(name, op, number, start, took))
        free = start + took
    return found


def _computing(seen: Iterable[ProfilerEvent]) -> Iterator[ProfilerEvent]:
    """Ops that compute and hold none that does."""
    some = [e for e in seen if e.name in _COMPUTING]
    some.sort(key=lambda e: (e.thread, e.start, -e.end))
    for op, after in zip(some, [*some[1:], None], strict=True):
        if after is None or after.thread != op.thread or after.start >= op.end:
            yield op


def export(
    path: Path, seen: Iterable[ProfilerEvent], launched: Iterable[Launched], schema: str = SCHEMAS[0]
) -> Path:
    """The step as a file of that schema: annotations and ops as ranges, launches, and kernels."""
    texts: dict[str, int] = {}

    def text(value: str) -> int:
        return texts.setdefault(value, len(texts))

    export_table = "META_DATA_EXPORT" if schema.startswith("3") else "EXPORT_META_DATA"
    rows: dict[str, list[dict[str, Any]]] = {
        "NVTX_EVENTS": list(_ranges(seen)),
        "CUPTI_ACTIVITY_KIND_RUNTIME": [_call(k, text("cudaLaunchKernel_v7000")) for k in launched],
        "CUPTI_ACTIVITY_KIND_KERNEL": [_kernel(k, text(k.name)) for k in launched],
        "ThreadNames": [{"nameId": text("pt_autograd_0"), "globalTid": tid(PROCESS, AUTOGRAD)}],
        export_table: [
            {"name": "EXPORT_PRODUCT_NAME", "value": "NVIDIA Nsight Systems"},
            {"name": "EXPORT_SCHEMA_VERSION", "value": schema},
        ],
    }
    rows["StringIds"] = [{"id": number, "value": value} for value, number in texts.items()]
    with closing(sqlite3.connect(path)) as db:
        for table, columns in LAYOUTS[schema].items():
            _write(db, table, columns.split(), rows[table])
        db.commit()
    return path


def _write(db: sqlite3.Connection, table: str, columns: list[str], rows: Iterable[Mapping[str, Any]]) -> None:
    db.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
    places = ", ".join("?" * len(columns))
    db.executemany(f"INSERT INTO {table} VALUES ({places})", [[row.get(c) for c in columns] for row in rows])


def _ranges(seen: Iterable[ProfilerEvent]) -> Iterator[dict[str, Any]]:
    """A range for each op, named as torch's own observer names it, and for each scope of the annotations."""
    for number, e in enumerate(seen, 1):
        if not e.name.startswith(ANNOTATION_PREFIX):
            numbered = f", seq = {e.sequence}" if e.sequence >= 0 else ""
            yield _range(f"{e.name}{numbered}, op_id = {number}", e.start, e.end, e.thread)
    for name, start, end in _scopes(e for e in seen if e.name.startswith(ANNOTATION_PREFIX)):
        yield _range(name, start, end, MAIN)


def _scopes(notes: Iterable[ProfilerEvent]) -> Iterator[tuple[str, int, int]]:
    """What annotations have in common with those before them stays open; the step stands around all."""
    step, *others = sorted(notes, key=lambda e: (e.start, -e.end))
    yield step.name.removeprefix(ANNOTATION_PREFIX), step.start, step.end
    stack: list[tuple[str, int]] = []
    last = step.start
    for note in others:
        parts = note.name.removeprefix(ANNOTATION_PREFIX).split(PATH_SEPARATOR)
        pairs = zip(parts, stack, strict=False)
        same = len(list(takewhile(lambda pair: pair[0] == pair[1][0], pairs)))
        yield from ((name, start, last) for name, start in stack[same:])
        stack = [*stack[:same], *((part, note.start) for part in parts[same:])]
        last = note.end
    yield from ((name, start, last) for name, start in stack)


def _range(name: str, start: int, end: int, thread: int) -> dict[str, Any]:
    told = {"start": start, "end": end, "eventType": 59, "text": name, "domainId": 0}
    return {**told, "globalTid": tid(PROCESS, thread)}


def _call(k: Launched, name: int) -> dict[str, Any]:
    return {
        "start": k.op.start, "end": k.op.start + 1, "eventClass": 0, "globalTid": tid(PROCESS, k.op.thread),
        "correlationId": k.correlation, "nameId": name, "returnValue": 0,
    }  # fmt: skip


def _kernel(k: Launched, name: int) -> dict[str, Any]:
    shape = {f"{what}{axis}": 1 for what in ("grid", "block") for axis in "XYZ"}
    return {
        "start": k.start, "end": k.start + k.duration, "deviceId": 0, "contextId": 1, "streamId": 7,
        "correlationId": k.correlation, "globalPid": pid(PROCESS), "demangledName": name, "shortName": name,
        "registersPerThread": 32, **shape,
    }  # fmt: skip
