"""A host and a device, simulated: runs whose kernels, launches, waits and streams are known, and so is what
each step would have taken with an op slowed down.

The host calls one after the other. A kernel starts when its launch has reached the device, its stream is
free, and what its stream was told to wait for has ended. Nothing here is shared with the code that is tested.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from capture.run import Run
from tests.tracetui.runs import made

REACH = 4_000  # ns from a launch to the device
NEXT = 1_000  # ns from the end of a kernel to the start of the next one of its stream
CALL = 2_000  # ns that a call takes
JITTER = 0.02  # of a duration, one sigma

# 1 byte a ns: a kernel of so many bytes takes as many ns at best, and never less than 2 µs
ROOF = {"device": "paper", "source": "measured", "read_bytes_per_s": 1e9, "flop_per_s": {"fp32": 1e9},
        "floor_ns": 2_000.0}  # fmt: skip


class Kernel(NamedTuple):
    """A launch: how long the kernel takes, and how long the host works before it."""

    op: str
    ns: int
    host: int = 0
    stream: int = 7
    roof: float = 1.0  # what part of the time its bytes take at best


class Join(NamedTuple):
    """The host tells a stream to wait for all that it launched into another one so far."""

    stream: int
    on: int


class Wait(NamedTuple):
    """The host waits until the device has nothing left to do."""


Call = Kernel | Join | Wait


@dataclass
class Machine:
    """The state of host and device, and what a profiler writes down of them."""

    rng: random.Random
    now: int = 0
    free: dict[int, int] = field(default_factory=dict)  # stream → when its last kernel ends
    held: dict[int, int] = field(default_factory=dict)  # stream → what its next kernel waits for
    rows: list[dict[str, Any]] = field(default_factory=list)

    def launch(self, kernel: Kernel, factor: float, about: Mapping[str, Any]) -> tuple[int, int]:
        """Launch a kernel; return its start and end."""
        self.now += kernel.host
        dur = round(kernel.ns * factor * max(0.5, self.rng.gauss(1, JITTER)))
        ready = self.now + REACH + round(abs(self.rng.gauss(0, 100)))
        free = self.free.get(kernel.stream)
        start = max(ready, free + NEXT if free is not None else 0, self.held.pop(kernel.stream, 0) + NEXT)
        self.free[kernel.stream] = start + dur
        what = {"kind": "kernel", "name": f"{kernel.op}_kernel", "op": kernel.op, "lens": "gpu",
                "track": f"gpu0/stream{kernel.stream}", "bytes": float(kernel.ns * kernel.roof)}  # fmt: skip
        called = {"launch": self.now, "launch_dur": CALL, "launcher": "thread 1"}
        self.rows.append({**what, "t": start, "dur": dur, **called, **about})
        self.now += CALL
        return start, start + dur

    def join(self, join: Join) -> None:
        self._called("cudaStreamWaitEvent", CALL)
        self.held[join.stream] = max(self.held.get(join.stream, 0), self.free.get(join.on, 0))

    def wait(self) -> None:
        self._called("cudaDeviceSynchronize", max(self.now, *self.free.values()) + 3_000 - self.now)

    def _called(self, name: str, dur: int) -> None:
        self.rows.append({"kind": "span", "name": name, "t": self.now, "dur": dur, "lens": "host",
                          "track": "thread 1"})  # fmt: skip
        self.now += dur


def simulated(
    plan: Sequence[Call], steps: int = 24, seed: int = 0, slow: Mapping[str, float] | None = None
) -> tuple[Run, float]:
    """Return a run of so many steps of the plan, and what a step took from the first start of its kernels to
    the last end, in ns at the mean; `slow` multiplies what an op takes.
    """
    machine, spans = Machine(random.Random(seed)), []
    for step in range(1, steps + 1):
        began, times = machine.now, list[tuple[int, int]]()
        about = {"step": step, "phase": "decode"}
        for call in plan:
            if isinstance(call, Kernel):
                times.append(machine.launch(call, (slow or {}).get(call.op, 1.0), about))
            elif isinstance(call, Join):
                machine.join(call)
            else:
                machine.wait()
        spans.append(max(end for _, end in times) - min(start for start, _ in times))
        wall = {"kind": "step", "name": "step", "lens": "wall", "t": began, "dur": machine.now - began}
        machine.rows.append({**wall, "tokens": 8, "context": 100 + step, "batch": 8, **about})
    return made(machine.rows, roof=ROOF, dtype="fp32", device="paper"), sum(spans) / steps
