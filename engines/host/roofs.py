"""Measure what this machine can do at best: memory, arithmetic, and the least time of a launch."""

import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import torch

from capture import nvidia
from capture.errors import UsageError
from capture.native.emit import Emitter
from capture.roofs import AT_START, MEASURED, Roof, from_table, kept, key
from engines.host import memory
from engines.host.heartbeat import Heartbeat
from engines.host.memory import Memory, kept_up
from engines.weights.storage import fast_bf16

COPY_BYTES: Final = 1 << 28  # on a processor: more than any cache holds
GPU_COPY_BYTES: Final = 2 << 30
SIDE: Final = 2048  # of the square matrices that are multiplied
QUICK_SIDE: Final = 1024
GPU_SIDE: Final = 8192
QUICK_GPU_SIDE: Final = 4096
LAUNCHES: Final = 1000
ROUNDS: Final = 5
QUICK_ROUNDS: Final = 3
LONG_S: Final = 0.5  # of tries, so that a busy neighbour is outlasted

Clock = Callable[[Callable[[], object]], float]


def write_roofs(device: torch.device, emitter: Emitter, id: str, heartbeat: Heartbeat) -> None:
    """Measure the roofs, and write them into the meta of a run without steps."""
    roof = measure(device, heartbeat.status)
    emitter.run(roof.device, {"roof": roof.as_meta()}, id=id)


def roof_of(device: torch.device) -> Roof | None:
    """Return the roof of a device at the start of a run: measured before, else quickly, else stated.

    A part of a GPU and one that is in no table are measured, too: a name does not tell what they can do.
    """
    name = device_name(device)
    stored = kept().get(key(name, *_identity(device)))
    if stored:
        return stored
    if device.type == "cpu":
        return _at_start(name)
    return (_gpu_at_start(device) if device.type == "cuda" else None) or from_table(name)


def measure(device: torch.device, say: Callable[[str], None]) -> Roof:
    """Measure every roof of a device, each as the best of several tries."""
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"the roofs of a {device.type} device are not measured", todo="cpu and cuda are")
    with torch.inference_mode():
        if device.type == "cpu":
            return _processor(device, say)
        return _gpu(device, say, GPU_SIDE, MEASURED)


def _processor(device: torch.device, say: Callable[[str], None]) -> Roof:
    uuid, driver, version = _identity(device)
    say("measuring how fast memory is read and copied")
    passes = Memory(large=True).passes(memory.LONG_S)
    copy = _copy_rate(device, COPY_BYTES, _best_of_long)
    say("measuring how fast matrices are multiplied")
    rates = {n: _matmul_rate(device, dtype, SIDE, _best_of_long) for n, dtype in _dtypes().items()}
    floor = _launch_ns(device)
    name, when = device_name(device), _today()
    roof = Roof(name, MEASURED, 0.0, copy, rates, floor, "cache", when, uuid, driver, version)
    return _read_at(roof, passes)


def _read_at(roof: Roof, passes: Sequence[float]) -> Roof:
    """Return the roof with the rate that is kept up, and with those of the slowest and the fastest pass."""
    return replace(roof, read_bytes_per_s=kept_up(passes), read_low=min(passes), read_high=max(passes))


def _gpu(device: torch.device, say: Callable[[str], None], side: int, source: str) -> Roof:
    uuid, driver, version = _identity(device)
    say("measuring how fast memory is copied")
    free, _ = torch.cuda.mem_get_info()
    copy = _copy_rate(device, min(GPU_COPY_BYTES, free // 4), _best_on_gpu)
    say("measuring how fast matrices are multiplied")
    rates = _rates_on_gpu(device, side)
    floor = _graph_launch_ns(device)
    name, when = device_name(device), _today()
    return Roof(name, source, 0.0, copy, rates, floor, "L2", when, uuid, driver, version)


def _gpu_at_start(device: torch.device) -> Roof | None:
    """Measure a GPU in some tenths of a second; None where it has no room for that."""
    try:
        return _gpu(device, lambda _: None, QUICK_GPU_SIDE, AT_START)
    except RuntimeError:
        return None


def _rates_on_gpu(device: torch.device, side: int) -> dict[str, float]:
    """Return the rates of products on a GPU: in bf16, in fp32, and in tf32 as training has it."""
    rates = {
        name: _matmul_rate(device, dtype, side, _best_on_gpu)
        for name, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32))
    }
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        rates["tf32"] = _matmul_rate(device, torch.float32, side, _best_on_gpu)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    return rates


def _at_start(name: str) -> Roof:
    """Measure in some tenths of a second: products of smaller matrices, and no copy."""
    device = torch.device("cpu")
    rates = {n: _matmul_rate(device, dtype, QUICK_SIDE, _best) for n, dtype in _dtypes().items()}
    roof = Roof(name, AT_START, 0.0, 0.0, rates, _launch_ns(device), "cache", _today())
    return _read_at(roof, Memory(large=False).passes(memory.QUICK_S))


def _dtypes() -> dict[str, torch.dtype]:
    """Return the dtypes in which a processor multiplies at a speed of its own."""
    return {"fp32": torch.float32, **({"bf16": torch.bfloat16} if fast_bf16() else {})}


def _copy_rate(device: torch.device, size: int, best: Clock) -> float:
    """Return the bytes a second that a copy reads and writes."""
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / best(lambda: target.copy_(source))


def _matmul_rate(device: torch.device, dtype: torch.dtype, side: int, best: Clock) -> float:
    """Return the operations a second in a product of two square matrices."""
    a = torch.full((side, side), 0.5, dtype=dtype, device=device)
    out = torch.empty_like(a)
    return 2 * side**3 / best(lambda: torch.mm(a, a, out=out))


def _launch_ns(device: torch.device) -> float:
    """Return the time of an op that has nothing to do."""
    work = _tiny(device)
    return 1e9 * _best(lambda: [work() for _ in range(LAUNCHES)]) / LAUNCHES


def _graph_launch_ns(device: torch.device) -> float:
    """Return the time from one kernel to the next in a graph, where the host is not in the way."""
    work = _tiny(device)
    work()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            work()
    return 1e9 * _best_on_gpu(graph.replay) / LAUNCHES


def _tiny(device: torch.device) -> Callable[[], object]:
    a = torch.ones(64, device=device)
    out = torch.empty_like(a)
    return lambda: torch.add(a, a, out=out)


def _best(work: Callable[[], object]) -> float:
    """Return the seconds of the fastest of several tries, after one that only warms up."""
    work()
    return min(_timed(work) for _ in range(QUICK_ROUNDS))


def _best_of_long(work: Callable[[], object]) -> float:
    """Return the same of as many tries as fit a while, two at least."""
    work()
    tries, until = [_timed(work), _timed(work)], time.monotonic() + LONG_S
    while time.monotonic() < until:
        tries.append(_timed(work))
    return min(tries)


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _best_on_gpu(work: Callable[[], object]) -> float:
    """Return the same by the device's own clock."""
    tries: list[float] = []
    for _ in range(ROUNDS + 1):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        tries.append(begin.elapsed_time(end) / 1e3)
    return min(tries[1:])


def _identity(device: torch.device) -> tuple[str, str, str]:
    """Return uuid, driver and torch version: what a measurement depends on beside the device's name."""
    if device.type != "cuda":
        return "", "", str(torch.__version__)
    uuid = str(getattr(torch.cuda.get_device_properties(device), "uuid", ""))
    return uuid, nvidia.driver() or str(torch.version.hip or ""), str(torch.__version__)


def _today() -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return str(torch.cuda.get_device_name())
    if device.type != "cpu":
        return device.type
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as f:
            name = next(line.split(":", 1)[1].strip() for line in f if line.startswith("model name"))
    except (OSError, StopIteration, UnicodeDecodeError):
        name = platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores"
