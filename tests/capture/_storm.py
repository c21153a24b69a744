"""Forks writers and kills them at random moments; run by test_emit in a process without threads."""

import os
import random
import signal
import struct
import sys
import time
from pathlib import Path

from capture.native.emit import Emitter, now

OPS = 20
ACK = struct.Struct("qq")


def starts(step: int) -> list[int]:
    return [step * 1_000_000 + 700 * i for i in range(OPS)]


def durations(step: int) -> list[int]:
    return [step * 1000 + i for i in range(OPS)]


def write_for_ever(path: Path) -> None:
    """A step every few milliseconds; each is acknowledged, with the time before the emitter has it."""
    acks = os.open(f"{path}.acks", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    emitter = Emitter(path)
    emitter.run("storm", {"model": "tiny"})
    emitter.plan({"id": i, "name": f"op {i}", "layer": i} for i in range(OPS))
    step = 0
    while True:
        at = now()
        emitter.columns(range(OPS), starts(step), durations(step), step=step)
        os.write(acks, ACK.pack(step, at))
        step += 1
        time.sleep(0.004)


def main(folder: Path, storms: int) -> None:
    rng = random.Random(5)
    for first in range(0, storms, 50):
        doomed = {}
        for n in range(first, first + 50):
            pid = os.fork()
            if pid == 0:
                write_for_ever(folder / f"{n}.jsonl")
            doomed[pid] = n
        began = {pid: begun(folder / f"{n}.jsonl.acks") for pid, n in doomed.items()}
        ends = {pid: at + rng.uniform(0.0, 0.6) for pid, at in began.items()}
        for pid, when in sorted(ends.items(), key=lambda item: item[1]):
            time.sleep(max(0, when - time.monotonic()))
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def begun(acks: Path) -> float:
    """When a writer's first step was acknowledged."""
    while not acks.exists() or acks.stat().st_size < ACK.size:
        time.sleep(0.004)
    return time.monotonic()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
