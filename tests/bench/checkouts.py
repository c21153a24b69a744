"""This checkout against another one on a terminal of 120×40: start, bytes a key, memory; all in turn.

    python -m tests.bench.checkouts OTHER [ROUNDS]

OTHER is the root of the other checkout; both run with the Python that runs this.
"""

import os
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import psutil

from tests.bench.startup import seconds
from tests.tracetui.ui.pty import ROOT, Terminal
from tests.tracetui.ui.test_terminal import capture

KEYS: Final = {"cursor move": "j", "page": "\x06", "sort": "s", "view switch": "\t", "filter": "/gemm\r"}
SIZE: Final = (120, 40)


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    roots = {"other": Path(sys.argv[1]).resolve(), "this": ROOT}
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    figures: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = str(capture(Path(folder), [f"gemm_kernel_{i:04d}_bf16" for i in range(1000)]))
        for _ in range(rounds):
            for name, root in roots.items():
                for what, value in measure(root, path).items():
                    figures.setdefault(what, {}).setdefault(name, []).append(value)
    print(f"{'':16}{'other':>12}{'this':>12}{'this / other':>14}   medians of {rounds}, load {load()}")
    for what, values in figures.items():
        other, this = (statistics.median(values[name]) for name in ("other", "this"))
        print(f"{what:16}{other:12.4g}{this:12.4g}{this / other if other else 1.0:14.3f}")
    return 0


def measure(root: Path, path: str) -> Mapping[str, float]:
    """Return seconds to the first frame and rows, bytes a key, and resident megabytes of one checkout."""
    argv = ["-m", "tracetui", "open", path, "--view", "kernels"]
    figures = {
        "first frame, s": seconds(argv, "tracetui", root),
        "first rows, s": seconds(argv, "gemm_kernel_0001", root),
    }
    with Terminal("open", path, "--view", "kernels", size=SIZE, root=root) as terminal:
        terminal.wait(lambda text: "gemm_kernel_0001" in text)
        terminal.quiet()
        for what, keys in KEYS.items():
            terminal.keys(keys)
            figures[f"{what}, bytes"] = len(terminal.quiet(0.4))
        figures["memory, MB"] = psutil.Process(terminal.child.pid).memory_info().rss / 1e6
        terminal.keys("\x1bq")
    return figures


def load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


if __name__ == "__main__":
    sys.exit(main())
