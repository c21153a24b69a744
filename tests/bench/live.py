"""A screen that follows gemma-3-1b at ten steps a second: what it takes, and how soon a step is seen.

    python -m tests.bench.live [--seconds S] [--views kernels,summary] [--lengths 100,36000]

Recordings of different lengths are written ahead, then go on at ten steps a second while the screen is
measured: what grows with the length would show between the rows. `storm` is 0.3 M events a second.
"""

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

from capture.native.emit import now
from tests.bench._live_maker import Maker
from tests.bench._screen import Screen

STORM = 300_000  # events a second
ROWS = 396  # of a step


class Writer(threading.Thread):
    """Goes on writing steps at a pace, and notes when each of them stood in the file."""

    def __init__(self, maker: Maker, per_second: float) -> None:
        super().__init__(daemon=True)
        self.written: dict[int, float] = {}
        self._maker, self._pace = maker, 1 / per_second
        self._over = threading.Event()

    def run(self) -> None:
        due = time.monotonic()
        while not self._over.is_set():
            self._maker.write(now())
            self._maker.flush()
            self.written[self._maker.step] = time.monotonic()
            due += self._pace
            self._over.wait(max(0, due - time.monotonic()))

    def stop(self) -> None:
        self._over.set()
        self.join()


def watched(view: str, length: int, seconds: float, per_second: float = 10.0) -> dict[str, float]:
    """The figures of one screen over a recording that has so many steps already."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prof.jsonl"
        maker = Maker(path)
        for _ in range(length):
            maker.write()
        maker.flush()
        screen = Screen("open", "--follow", str(path), "--view", view)
        try:
            caught_up = screen.wait(lambda _: screen.steps >= length)
            writer = Writer(maker, per_second)
            writer.start()
            time.sleep(3)
            before, at = screen.seconds_of_cpu, time.monotonic()
            time.sleep(seconds)
            spent, took = screen.seconds_of_cpu - before, time.monotonic() - at
            memory, steps = screen.megabytes, len(writer.written)
            writer.stop()
            time.sleep(2)
            delays = screen.delays(writer.written)
        finally:
            screen.close()
    return {
        "caught up": caught_up, "cpu": 100 * spent / took, "mb": memory,
        "seen": median(delays), "late": delays[len(delays) * 95 // 100],
        "events": steps * len(maker.rows) / (took + 3),
    }  # fmt: skip


def told(what: str, found: dict[str, float], base: dict[str, float]) -> None:
    print(
        f"{what:24}{found['cpu']:6.1f} % {found['cpu'] / base['cpu']:5.2f}× {found['mb']:6.0f} MB "
        f"{found['mb'] / base['mb']:5.2f}× {1e3 * found['seen']:7.0f} ms {1e3 * found['late']:7.0f} ms "
        f"{found['caught up']:8.1f} s {found['events'] / 1e3:8.1f} k/s",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--views", default="kernels,summary")
    parser.add_argument("--lengths", default="100,36000")
    args = parser.parse_args()
    print(
        f"{'view, steps before':24}{'of a core':>15}{'memory':>16}{'seen':>11}{'95 %':>11}{'caught up':>11}"
    )
    for view in args.views.split(","):
        lengths = [int(n) for n in args.lengths.split(",")]
        found = [watched(view, n, args.seconds) for n in lengths]
        for length, figures in zip(lengths, found, strict=True):
            told(f"{view}, {length:,}", figures, found[0])
    told("storm", watched("kernels", 100, args.seconds, STORM / ROWS), found[0])


if __name__ == "__main__":
    sys.exit(main())
