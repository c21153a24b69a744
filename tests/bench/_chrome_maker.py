"""A synthetic trace of a GPU decode loop in the layout that torch 2.13 prints, of any size."""

import random
from collections.abc import Iterator
from pathlib import Path

HEAD = b""" {
    "schemaVersion": 1,
    "deviceProperties": [
    {
      "id": 0, "name": "Synthetic GPU", "totalGlobalMem": 85899345920, "numSms": 108
    }
  ],
      "record_shapes": 1,
    "displayTimeUnit": "ms",
    "baseTimeNanoseconds": 1790857026000000000,
    "traceEvents": [
"""
TAIL = b"""
  ],"traceName": "synthetic.json" }"""

COMPLETE = """  {
    "ph": "X",
    "cat": "%s",
    "name": "%s",
    "pid": %d,
    "tid": %d,
    "ts": %d.%03d,
    "dur": %d.%03d
    ,
    "args": {
      %s
    }
  }"""
FLOW = """  {
    "ph": "%s",
    "id": %d,
    "pid": %d,
    "tid": %d,
    "ts": %d.%03d,
    "cat": "ac2g",
    "name": "ac2g"%s
  }"""
SHAPES = (
    '"External id": %d,"Record function id": 0, "Concrete Inputs": ["", "", ""], '
    '"Input type": ["c10::BFloat16", "c10::BFloat16", ""], "Input Strides": [[1152, 1], [1, 1152], []], '
    '"Input Dims": [[1, 1152], [1152, 6912], []], "Ev Idx": %d'
)
LAUNCH = '"External id": %d, "cbid": 211, "correlation": %d'
RESOURCES = (
    '"External id": %d, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": %d, '
    '"registers per thread": 32, "shared memory": 0, "blocks per SM": 1.090909, "warps per SM": 4.363636, '
    '"grid": [144, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %%": 9'
)
KERNEL = (
    "void at::native::%s_kernel<4, at::native::CUDAFunctor, at::detail::Array<char*, 3>>"
    "(int, at::native::CUDAFunctor, at::detail::Array<char*, 3>)"
)
OPS = (
    ("aten::linear", ("aten::t", "aten::transpose", "aten::as_strided", "aten::mm")),
    ("aten::rms_norm", ("aten::pow", "aten::mean", "aten::rsqrt", "aten::mul")),
    ("aten::scaled_dot_product_attention", ("aten::view", "aten::empty_like", "aten::bmm", "aten::_softmax")),
    ("aten::silu", ("aten::sigmoid", "aten::mul")),
)
LAUNCHING = {"aten::mm", "aten::pow", "aten::mean", "aten::rsqrt", "aten::mul", "aten::bmm", "aten::_softmax"}
HOST, DEVICE, STREAM, LAYERS = 1234, 0, 7, 26


class Clock:
    """Nanoseconds since the base, and the identifiers that grow with it."""

    def __init__(self) -> None:
        self.now = 4_366_130_346_967_857
        self.ids = 1_000_000
        self.random = random.Random(0)

    def pass_by(self, nanoseconds: int) -> int:
        self.now += nanoseconds
        return self.now

    def next_id(self) -> int:
        self.ids += 1
        return self.ids


def complete(cat: str, name: str, pid: int, tid: int, t: int, dur: int, args: str) -> str:
    return COMPLETE % (cat, name, pid, tid, t // 1000, t % 1000, dur // 1000, dur % 1000, args)


def launched(clock: Clock, op: str, external: int) -> Iterator[str]:
    """The runtime call, the kernel and the two ends of the arrow between them."""
    t, correlation = clock.pass_by(700), clock.next_id()
    yield complete("cuda_runtime", "cudaLaunchKernel", HOST, HOST, t, 3500, LAUNCH % (external, correlation))
    yield FLOW % ("s", correlation, HOST, HOST, t // 1000, t % 1000, "\n    ")
    start, dur = t + 8000, clock.random.randrange(2_000, 42_000)
    args = RESOURCES % (external, correlation)
    yield complete("kernel", KERNEL % op.removeprefix("aten::"), DEVICE, STREAM, start, dur, args)
    yield FLOW % ("f", correlation, DEVICE, STREAM, start // 1000, start % 1000, ',\n    "bp": "e"')
    clock.pass_by(3_600)


def operator(clock: Clock, name: str, children: tuple[str, ...]) -> list[str]:
    """An op with its children inside it, as torch nests them."""
    start, events = clock.pass_by(900), [""]
    for child in children:
        external, began = clock.next_id(), clock.pass_by(600)
        at = len(events)
        events.append("")
        if child in LAUNCHING:
            events.extend(launched(clock, child, external))
        span = clock.pass_by(clock.random.randrange(300, 900)) - began
        events[at] = complete("cpu_op", child, HOST, HOST, began, span, SHAPES % (external, external))
    external = clock.next_id()
    span = clock.pass_by(400) - start
    events[0] = complete("cpu_op", name, HOST, HOST, start, span, SHAPES % (external, external))
    return events


def step(clock: Clock, number: int) -> Iterator[str]:
    """One decode step: a profiler step with a layer annotation around each layer's ops."""
    start, events = clock.now, []
    for layer in range(LAYERS):
        began, inner = clock.pass_by(500), []
        for _ in range(2):
            for name, children in OPS:
                inner += operator(clock, name, children)
        span = clock.pass_by(500) - began
        args = f'"External id": {clock.next_id()},"Record function id": 0, "Ev Idx": 1'
        events += [complete("user_annotation", f"layers.{layer}", HOST, HOST, began, span, args), *inner]
    span = clock.pass_by(2_000) - start
    args = f'"External id": {clock.next_id()},"Record function id": 0, "Ev Idx": 0'
    yield complete("user_annotation", f"ProfilerStep#{number}", HOST, HOST, start, span, args)
    yield from events


def write(path: Path, megabytes: float) -> int:
    """A trace of about that size; returns its number of complete events."""
    clock, size, complete_events, number = Clock(), 0, 0, 1
    with path.open("wb", buffering=1 << 22) as out:
        out.write(HEAD)
        while size < megabytes * 1e6:
            events = list(step(clock, number))
            text = (",\n" if size else "") + ",\n".join(events)
            out.write(text.encode())
            size, number = size + len(text), number + 1
            complete_events += sum('"ph": "X"' in event for event in events)
        out.write(TAIL)
    return complete_events
