"""A day of `live` in fast motion: a million steps through a file, its follower and the screen; memory stays.

    python -m tests.bench.soak [--steps N] [--view kernels]

A writer keeps at most some steps ahead of what the screen shows. The memory of the explorer is told as it
goes on; it passes where it takes at most a tenth more later than after the first fifth.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Final

from capture.native.emit import Emitter
from tests.bench._screen import Screen

OPS: Final = 8
AT_ONCE: Final = 500  # steps of one write
AHEAD: Final = 40_000  # steps that the writer may be before the screen
PERIOD_NS: Final = 100_000_000
MOST: Final = 1.1  # of the memory at a fifth of the way
PARTS: Final = 20


class Day:
    """Writes step after step of a small decode, as fast as it is asked."""

    def __init__(self, path: Path) -> None:
        self.step = 0
        self._emitter = Emitter(path)
        self._emitter.run("soak", {"model": "made up"})
        self._emitter.plan(
            {"id": i, "name": f"kernel_{i}", "layer": i // 2, "lens": "gpu", "op": "mlp.up"}
            for i in range(OPS)
        )

    def write(self, steps: int) -> None:
        for step in range(self.step, self.step + steps):
            begin = step * PERIOD_NS
            durations = [10**6 + (step * (i + 3)) % 1000 * 1000 for i in range(OPS)]
            starts = [begin + i * 10**7 for i in range(OPS)]
            self._emitter.columns(range(OPS), starts, durations, step=step, phase="decode", context=step + 1)
            self._emitter.step(step, begin, PERIOD_NS * 9 // 10, tokens=1, context=step + 1, batch=1)
            if step % 10 == 0:
                self._emitter.counter("power", 300.0 + step % 50, "W")
        self.step += steps
        self._emitter.flush()


def soak(steps: int, view: str) -> list[float]:
    """Return the megabytes of the explorer after each part of the way."""
    found: list[float] = []
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        path = Path(folder) / "prof.jsonl"
        day = Day(path)
        day.write(AT_ONCE)
        screen = Screen("open", "--follow", str(path), "--view", view)
        try:
            while day.step < steps:
                day.write(min(AT_ONCE, steps - day.step))
                screen.wait(lambda _: screen.steps >= day.step - AHEAD, 3600)
                if day.step >= steps * (len(found) + 1) // PARTS:
                    screen.wait(lambda _: screen.steps >= day.step, 3600)
                    found.append(screen.megabytes)
                    print(f"{day.step:12,} steps {found[-1]:8.0f} MB", flush=True)
        finally:
            screen.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--view", default="summary")
    args = parser.parse_args()
    found = soak(args.steps, args.view)
    grown = max(found[PARTS // 5 :]) / found[PARTS // 5 - 1]
    print(f"{grown:.2f}× the memory at a fifth of the way: {'held' if grown <= MOST else 'missed'}")
    return 0 if grown <= MOST else 1


if __name__ == "__main__":
    raise SystemExit(main())
