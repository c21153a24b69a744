"""Seconds from the start of a process to what stands on a terminal of 120×40, beside a bare app.

    python -m tests.bench.startup [ROUNDS]

The peers are taken in turn: a bare Textual app that imports polars, our first frame, our first rows.
Each has been started before, with its modules compiled, as an installation leaves them.
"""

import contextlib
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import pexpect
import pyte

from tests.tracetui.ui.pty import ROOT
from tests.tracetui.ui.test_terminal import capture

BARE = """
import polars
from textual.app import App
from textual.widgets import Static
class Bare(App):
    def compose(self):
        yield Static("kernel_00")
Bare().run()
"""


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    with tempfile.TemporaryDirectory() as folder:
        path = str(capture(Path(folder), [f"kernel_{i:02d}" for i in range(50)]))
        ours = ["-m", "tracetui", "open", path, "--view", "kernels"]
        peers = {
            "bare app + polars": (["-c", BARE], "kernel_00"),
            "first frame": (ours, "q quit"),
            "first rows": (ours, "kernel_00"),
        }
        took: dict[str, list[float]] = {name: [] for name in peers}
        for turn in range(rounds + 1):
            for name, (argv, mark) in peers.items():
                spent = seconds(argv, mark, compiled=Path(folder))
                took[name] += [spent] if turn else []  # the first one compiles
    bare = statistics.median(took["bare app + polars"])
    for name, all_of_them in took.items():
        median = statistics.median(all_of_them)
        print(f"{name:20}{median:7.3f} s   {median / bare:5.2f}× the bare app")


def seconds(argv: list[str], mark: str, root: Path = ROOT, compiled: Path | None = None) -> float:
    """Return the seconds from the start of a process to a text on its terminal; what it compiles of its
    modules is kept in a folder, where one is given.
    """
    env = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    if compiled is not None:
        env |= {"PYTHONPYCACHEPREFIX": str(compiled), "PYTHONDONTWRITEBYTECODE": ""}
    began = time.monotonic()
    child = pexpect.spawn(sys.executable, argv, cwd=str(root), env=env, dimensions=(40, 120))
    screen = pyte.Screen(120, 40)
    stream = pyte.ByteStream(screen)
    while not any(mark in line for line in screen.display):  # it may come in pieces
        stream.feed(child.read_nonblocking(1 << 16, timeout=30))
    took = time.monotonic() - began
    with contextlib.suppress(pexpect.ExceptionPexpect):  # a loaded machine takes long to end it
        child.close(force=True)
    return took


if __name__ == "__main__":
    main()
