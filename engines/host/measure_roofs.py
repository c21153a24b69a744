"""Measure the peak performance of this machine: memory bandwidth, FLOP/s, and the shortest launch."""

import os
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Final

import torch

from capture import nvidia
from capture.device_roofs import MEASURED, MEASURED_AT_START, Roof, build_key, from_table, load_measured_roofs
from capture.errors import UsageError
from capture.record.profiler_windows import mute_kineto
from engines.host.op_runners import capture_graph
from engines.processor.huge_pages import gather_into_pages
from engines.processor.row_ops import sum_numbers
from engines.weights.matrix_storage import has_fast_bf16

COPY_BYTES: Final = 1 << 28  # on a processor: more than any cache holds
GPU_COPY_BYTES: Final = 2 << 30
# Sides of the square matrices that are multiplied. The fastest counts: large ones fill wide machines, and on
# a busy one only short products are undisturbed (load 28 on two cores: 431 GFLOP/s at 512, 63 at 2048).
MATMUL_SIDES: Final = (512, 1024, 2048)
QUICK_MATMUL_SIDES: Final = (512, 1024)
GPU_MATMUL_SIDE: Final = 8192
QUICK_GPU_MATMUL_SIDE: Final = 4096
LAUNCHES: Final = 1000
ROUNDS: Final = 5
QUICK_ROUNDS: Final = 3
PROFILER_TURNS: Final = 15
MIN_TRIES_S: Final = 0.5  # of tries, so that a busy neighbour is outlasted

READ_NUMBERS: Final = 1 << 26  # numbers that are read in one pass
TIMED_NUMBERS: Final = 1 << 22  # numbers that are timed by themselves
QUICK_READ_S: Final = 0.1  # of reading
FULL_READ_S: Final = 1.0  # the same where there is time for it: a shared host swings from second to second

CPU: Final = torch.device("cpu")
Timer = Callable[[Callable[[], object]], float]
ReportStatus = Callable[[str], None]


def find_roof(device: torch.device) -> Roof | None:
    """Return the roof of a device at the start of a run: saved, else measured quickly, else from the table.

    A partition of a GPU, or one that is in no table, is measured: its name does not say what it can do.
    """
    name = find_device_name(device)
    if saved := load_measured_roofs().get(build_key(name, *_read_identity(device))):
        return saved
    if device.type == "cpu":
        return _measure_cpu(lambda _: None, is_quick=True)
    if device.type == "cuda":
        with suppress(RuntimeError):  # it has no free memory for that
            return _measure_gpu(device, lambda _: None, QUICK_GPU_MATMUL_SIDE, MEASURED_AT_START)
    return from_table(name)


def measure_roof(device: torch.device, report_status: ReportStatus) -> Roof:
    """Measure every roof of a device, each as the best of several tries."""
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"roofs of {device.type} devices cannot be measured", todo="use cpu or cuda")
    with torch.inference_mode():
        if device.type == "cpu":
            return _measure_cpu(report_status)
        return _measure_gpu(device, report_status, GPU_MATMUL_SIDE, MEASURED)


def _measure_cpu(report_status: ReportStatus, *, is_quick: bool = False) -> Roof:
    """Measure the CPU; quickly: in some tenths of a second, with smaller matrices, and no copy."""
    timer = _time_best if is_quick else _time_best_of_many
    report_status("measuring memory bandwidth")
    passes = BandwidthProbe(huge_pages=not is_quick).measure_passes(QUICK_READ_S if is_quick else FULL_READ_S)
    copy = 0.0 if is_quick else _measure_copy_rate(CPU, COPY_BYTES, timer)
    report_status("measuring FLOP/s of matrix products")
    dtypes = {"fp32": torch.float32, **({"bf16": torch.bfloat16} if has_fast_bf16() else {})}
    sides = QUICK_MATMUL_SIDES if is_quick else MATMUL_SIDES
    rates = {n: max(_measure_matmul_rate(CPU, d, side, timer) for side in sides) for n, d in dtypes.items()}
    profiled_op_ns = 0.0
    if not is_quick:
        report_status("measuring what torch's profiler costs")
        profiled_op_ns = measure_profiler_cost_ns()
    return Roof(
        find_device_name(CPU),
        MEASURED_AT_START if is_quick else MEASURED,
        compute_sustained_rate(passes),
        copy,
        rates,
        _measure_launch_ns(),
        "cache",
        _format_now(),
        torch="" if is_quick else str(torch.__version__),
        read_low=min(passes),
        read_high=max(passes),
        profiled_op_ns=profiled_op_ns,
        host="" if is_quick else platform.node(),
    )


def _measure_gpu(device: torch.device, report_status: ReportStatus, side: int, source: str) -> Roof:
    uuid, driver, version = _read_identity(device)
    report_status("measuring memory bandwidth")
    free, _ = torch.cuda.mem_get_info()
    copy = _measure_copy_rate(device, min(GPU_COPY_BYTES, free // 4), _time_best_on_gpu)
    report_status("measuring FLOP/s of matrix products")
    rates = _measure_gpu_matmul_rates(device, side)
    floor = _measure_graph_launch_ns(device)
    name, when = find_device_name(device), _format_now()
    return Roof(name, source, 0.0, copy, rates, floor, "L2", when, uuid, driver, version)


def _measure_gpu_matmul_rates(device: torch.device, side: int) -> dict[str, float]:
    """Measure products on a GPU: in bf16, in fp32, and in tf32 as training uses it."""
    rates = {
        name: _measure_matmul_rate(device, dtype, side, _time_best_on_gpu)
        for name, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32))
    }
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        rates["tf32"] = _measure_matmul_rate(device, torch.float32, side, _time_best_on_gpu)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    return rates


def _measure_copy_rate(device: torch.device, size: int, timer: Timer) -> float:
    """Return the bytes per second that a copy reads and writes."""
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / timer(lambda: target.copy_(source))


def _measure_matmul_rate(device: torch.device, dtype: torch.dtype, side: int, timer: Timer) -> float:
    """Return the FLOP/s of a product of two square matrices."""
    a = torch.full((side, side), 0.5, dtype=dtype, device=device)
    out = torch.empty_like(a)
    return 2 * side**3 / timer(lambda: torch.mm(a, a, out=out))


def _measure_launch_ns() -> float:
    """Return the time of an op without work on the CPU."""
    work = _make_tiny_op(CPU)
    return 1e9 * _time_best(lambda: [work() for _ in range(LAUNCHES)]) / LAUNCHES


def measure_profiler_cost_ns() -> float:
    """Measure the CPU time that torch's profiler adds to an op without work.

    Loops without and with the profiler take turns, and of three of each the fastest counts: it was 283 to
    317 ns under loads of 8 to 21 on two cores.
    """
    from torch.autograd import profiler

    work = _make_tiny_op(CPU)

    def measure_loop_ns() -> int:
        start = time.thread_time_ns()
        for _ in range(LAUNCHES):
            work()
        return time.thread_time_ns() - start

    costs = []
    for _ in range(PROFILER_TURNS):
        plain = min(measure_loop_ns() for _ in range(QUICK_ROUNDS))
        with mute_kineto(), profiler.profile(use_kineto=True):
            costs.append(min(measure_loop_ns() for _ in range(QUICK_ROUNDS)) - plain)
    return max(0.0, median(costs) / LAUNCHES)


def _measure_graph_launch_ns(device: torch.device) -> float:
    """Return the time between two kernels of a graph, where the host is not involved."""
    work = _make_tiny_op(device)
    work()
    graph = capture_graph(lambda: [work() for _ in range(LAUNCHES)])
    return 1e9 * _time_best_on_gpu(graph.replay) / LAUNCHES


def _make_tiny_op(device: torch.device) -> Callable[[], object]:
    a = torch.ones(64, device=device)
    out = torch.empty_like(a)
    return lambda: torch.add(a, a, out=out)


def _time_best(work: Callable[[], object]) -> float:
    """Return the seconds of the fastest of several tries, after a warm-up."""
    work()
    return min(_time_once(work) for _ in range(QUICK_ROUNDS))


def _time_best_of_many(work: Callable[[], object]) -> float:
    """Return the same of as many tries as fit MIN_TRIES_S, at least two."""
    work()
    tries, end = [_time_once(work), _time_once(work)], time.monotonic() + MIN_TRIES_S
    while time.monotonic() < end:
        tries.append(_time_once(work))
    return min(tries)


def _time_once(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _time_best_on_gpu(work: Callable[[], object]) -> float:
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


def _read_identity(device: torch.device) -> tuple[str, str, str]:
    """Return uuid, driver and torch version: a measurement depends on them besides the device's name."""
    if device.type != "cuda":
        return "", "", str(torch.__version__)
    uuid = str(getattr(torch.cuda.get_device_properties(device), "uuid", ""))
    return uuid, nvidia.read_driver_version() or str(torch.version.hip or ""), str(torch.__version__)


def _format_now() -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())


def find_device_name(device: torch.device) -> str:
    """Return the name of a device; for a CPU also its number of cores."""
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


class BandwidthProbe:
    """Memory larger than any cache, which is read again and again."""

    def __init__(self, *, huge_pages: bool) -> None:
        """Allocate the memory, in huge pages if requested and supported: that takes half a second."""
        buffer = torch.ones(READ_NUMBERS)
        for _ in gather_into_pages([buffer]) if huge_pages else ():
            pass
        self._pieces = buffer.split(TIMED_NUMBERS)

    def measure_passes(self, seconds: float) -> list[float]:
        """Return the bytes per second of each pass within `seconds`, at least one.

        A pass counts with the median of its pieces, because others may use a core during some of them.
        """
        rates: list[float] = []
        end = time.perf_counter() + seconds
        while not rates or time.perf_counter() < end:
            rates.append(median(map(_measure_read_rate, self._pieces)))
        return rates


def compute_sustained_rate(passes: Sequence[float]) -> float:
    """Return the 75th percentile: other tenants lower bandwidth and never raise it."""
    return float(torch.tensor(passes, dtype=torch.float64).quantile(0.75))


def _measure_read_rate(piece: torch.Tensor) -> float:
    start = time.perf_counter()
    sum_numbers(piece)
    return piece.nbytes / (time.perf_counter() - start)
