"""The leash: a process of its own that ends a program and its children when whoever started them is killed.

    python -m capture.record.watchdog GROUP

Its stdin is a pipe that the starter holds open. Where that closes and the group of processes is still
there, the starter is gone: the group is asked to end, then ended. The program is started beside it as ever,
so that its streams, its exit code and its signals are its own. Stdlib only.
"""

import os
import select
import signal
import sys
import time
from typing import Final

EVERY_S: Final = 1.0  # how soon it ends when the program has; no number of a group comes again that soon
PATIENCE_S: Final = 3.0


def hold(group: int, pipe: int) -> None:
    """Until the group is gone; it is ended when the pipe is."""
    while there(group):
        if select.select([pipe], [], [], EVERY_S)[0] and not os.read(pipe, 1):
            end(group)
            return


def end(group: int) -> None:
    """Asks, waits, insists."""
    told(group, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE_S
    while there(group) and time.monotonic() < deadline:
        time.sleep(0.05)
    told(group, signal.SIGKILL)


def there(group: int) -> bool:
    """Whether any process of the group is left."""
    return told(group, 0)


def told(group: int, number: int) -> bool:
    """Whether there was somebody to send a signal to."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends with the group that it holds, never before
    hold(int(sys.argv[1]), sys.stdin.fileno())
