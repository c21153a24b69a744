"""Bytes sent to a terminal of 120×40: for a cursor move, a page, a view, a filter, and when nothing happens.

python -m tests.bench.bytes [FILE]
"""

import statistics
import sys
import tempfile
from pathlib import Path

from tests.tracetui.ui.pty import Terminal
from tests.tracetui.ui.test_terminal import capture

BUDGET = {
    "cursor move": 4_000,
    "view switch": 10_000,
    "largest view switch": 20_000,
    "filter": 20_000,
    "idle second": 1_000,
}
REPEATS = 8
VIEWS = 9  # with a tab each: every tab once


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        names = [f"gemm_kernel_{i:04d}_bf16_128x256x64" for i in range(1000)]
        path = Path(sys.argv[1]) if len(sys.argv) > 1 else capture(Path(folder), names)
        with Terminal("open", str(path), "--view", "kernels", size=(120, 40)) as terminal:
            terminal.wait(lambda text: "quit" in text and "/" in text.splitlines()[-2])
            first = len(terminal.sent) + len(terminal.quiet())
            report = {
                "first screen": first,
                "idle second": len(terminal.quiet(1.0)),
                "cursor move": median(terminal, "j"),
                "cursor move over the edge": most(terminal, "j", 40),
                "page": median(terminal, "\x06"),
                "sort": median(terminal, "s"),
                "view switch": median(terminal, "\t", VIEWS),
                "largest view switch": most(terminal, "\t", VIEWS),
                "filter": most(terminal, "/gemm\r", 1),
                "help": cost(terminal, "?"),
            }
            terminal.keys("\x1bq")
    for name, size in report.items():
        budget = BUDGET.get(name)
        verdict = "" if budget is None else f"  of {budget:,}" + ("" if size <= budget else "  OVER")
        print(f"{name:28}{size:>8,} bytes{verdict}")


def cost(terminal: Terminal, keys: str) -> int:
    terminal.quiet()
    terminal.keys(keys)
    return len(terminal.quiet(0.4))


def median(terminal: Terminal, keys: str, repeats: int = REPEATS) -> int:
    return round(statistics.median(cost(terminal, keys) for _ in range(repeats)))


def most(terminal: Terminal, keys: str, repeats: int = REPEATS) -> int:
    return max(cost(terminal, keys) for _ in range(repeats))


if __name__ == "__main__":
    main()
