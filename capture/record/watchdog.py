"""The watchdog: a process of its own that ends a program and its children when their starter is gone.

    python -m capture.record.watchdog GROUP [PROCESS…]

Its stdin is a pipe that the starter holds open. When that closes while processes of the group, or the others
that are named, are left, the starter is gone: they are asked to end, then killed. The program is no child of
the watchdog, so that its streams, its exit code and its signals stay its own. Standard library only.
"""

import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from typing import Final

EVERY_S: Final = 1.0  # how soon it ends after the program; the number of a group is not used again that soon
PATIENCE_S: Final = 3.0


def watch(targets: Sequence[int], pipe: int) -> None:
    """Return when nothing is left of the targets; end them when the pipe is closed. A group is below zero."""
    while any(map(exists, targets)):
        if select.select([pipe], [], [], EVERY_S)[0] and not os.read(pipe, 1):
            end(targets)
            return


def end(targets: Sequence[int]) -> None:
    """Ask the targets to end, and kill those that have not after PATIENCE_S."""
    for target in targets:
        send_signal(target, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE_S
    while any(map(exists, targets)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for target in targets:
        send_signal(target, signal.SIGKILL)


def exists(target: int) -> bool:
    """Return whether a process, or any of a group, is left."""
    return send_signal(target, 0)


def send_signal(target: int, number: int) -> bool:
    """Send a signal and return whether there is anyone to get it; 0 sends nothing."""
    try:
        os.kill(target, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends with the group that it watches, never before
    group, *others = map(int, sys.argv[1:])
    watch((-group, *others), sys.stdin.fileno())
