"""The process of an engine: its settings before torch is imported, and its end with its parent."""

import gc
import os
import select
import signal
import sys
from typing import Final

COLLECT: Final = (50_000, 20, 100)


def tune() -> None:
    """Set what must stand before torch is imported; what a user has set in the environment stays.

    The garbage collector runs rarely: what an import makes stays, and looking through it took a fifth of
    the time of importing torch.

    Threads that wait at a barrier spin for some 150 µs, as long as what lies between two products, and then
    sleep. By default they spin for milliseconds, and where a neighbour has taken a core, perhaps on the very
    one that the awaited thread is to run on: beside one busy process on two cores a step of qwen2.5-0.5b,
    13 ms alone, took 90 to 150 ms with half a millisecond of spinning, and takes 40 to 75 ms like this. With
    50 µs it takes 20 to 32 ms, but small models lose a tenth where nobody disturbs them.
    """
    gc.set_threshold(*COLLECT)
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")


def die_with_parent() -> None:
    """Have this process ended with its parent, so that no engine stays on a device alone; Linux only."""
    if sys.platform != "linux":
        return
    import ctypes

    set_parent_death_signal = 1
    ctypes.CDLL(None, use_errno=True).prctl(set_parent_death_signal, signal.SIGTERM)
    stdin = select.poll()
    stdin.register(0, 0)  # a hang-up is reported unasked: nobody is at the other end any more
    if any(event & select.POLLHUP for _, event in stdin.poll(0)):
        sys.exit(128 + signal.SIGTERM)
