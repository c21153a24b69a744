"""The watchdog: a process of its own that ends a program and its children when their starter is killed.

    python -m capture.record.watchdog GROUP

Its stdin is a pipe that the starter holds open. When that closes while processes of the group are left, the
starter is gone: the group is asked to end, then killed. The program is no child of the watchdog, so that its
streams, its exit code and its signals stay its own. Standard library only.
"""

import os
import select
import signal
import sys
import time
from typing import Final

EVERY_S: Final = 1.0  # how soon it ends after the program; the number of a group is not used again that soon
PATIENCE_S: Final = 3.0


def watch(group: int, pipe: int) -> None:
    """Return when no process of the group is left; end the group when the pipe is closed."""
    while exists(group):
        if select.select([pipe], [], [], EVERY_S)[0] and not os.read(pipe, 1):
            end(group)
            return


def end(group: int) -> None:
    """Ask the processes of a group to end, and kill those that have not after PATIENCE_S."""
    send_signal(group, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE_S
    while exists(group) and time.monotonic() < deadline:
        time.sleep(0.05)
    send_signal(group, signal.SIGKILL)


def exists(group: int) -> bool:
    """Return whether any process of the group is left."""
    return send_signal(group, 0)


def send_signal(group: int, number: int) -> bool:
    """Send a signal to a group and return whether it has a process; 0 sends nothing."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends with the group that it watches, never before
    watch(int(sys.argv[1]), sys.stdin.fileno())
