"""Watchdog process that ends a program and its children when their starter is gone.

    python -m capture.record.watchdog GROUP [PROCESS…]
    python -m capture.record.watchdog NAME=VALUE

The starter holds the other end of stdin. If it closes while processes of the group, or the other named ones,
are left, the starter is gone: they are terminated, then killed. With NAME=VALUE the watchdog starts before
the program, whose group is then the first line of stdin; if that never comes, the processes with this
variable are meant. The program is not a child of the watchdog, so that its streams, exit code and signals
stay its own. Standard library only.
"""

import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

POLL_S: Final = 1.0  # short enough that the system does not reuse the group id meanwhile
KILL_AFTER_S: Final = 3.0
SEARCH_S: Final = 3.0  # for a program whose group was never told


def watch(targets: Sequence[int], pipe: int) -> None:
    """Wait until no target is left; end them if the pipe is closed. Groups are negative numbers."""
    while any(map(is_alive, targets)):
        if select.select([pipe], [], [], POLL_S)[0] and not os.read(pipe, 1):
            end_targets(targets)
            return


def read_group(pipe: int, variable: str) -> list[int]:
    """Return the group in the first line of the pipe; if it ends before, those with the variable.

    A program that was being started then may need a moment to have it.
    """
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(pipe, 1)):
        line += byte
    if line.endswith(b"\n"):
        return [-int(line)]
    deadline, groups = time.monotonic() + SEARCH_S, list[int]()
    while not groups and time.monotonic() < deadline:
        groups = find_groups(variable)
        time.sleep(0.05)
    return groups


def find_groups(variable: str) -> list[int]:
    """Return the process groups of the processes with this variable, as negative numbers (Linux)."""
    groups = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if variable.encode() in path.read_bytes().split(b"\0"):
                groups.add(-os.getpgid(int(path.parent.name)))
    return sorted(groups - {-os.getpgid(0)})


def end_targets(targets: Sequence[int]) -> None:
    """Terminate the targets, and kill those left after KILL_AFTER_S."""
    for target in targets:
        send_signal(target, signal.SIGTERM)
    deadline = time.monotonic() + KILL_AFTER_S
    while any(map(is_alive, targets)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for target in targets:
        send_signal(target, signal.SIGKILL)


def is_alive(target: int) -> bool:
    """Return whether a process, or any process of a group, is left."""
    return send_signal(target, 0)


def send_signal(target: int, number: int) -> bool:
    """Send a signal (0 sends none) and return whether there is a process to receive it."""
    try:
        os.kill(target, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # ends with the watched group, never before it
    if "=" in sys.argv[1]:
        watch(read_group(sys.stdin.fileno(), sys.argv[1]), sys.stdin.fileno())
    else:
        group, *others = map(int, sys.argv[1:])
        watch((-group, *others), sys.stdin.fileno())
