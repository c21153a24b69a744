"""Note long garbage collections of each process of a server: COLLECTIONS=FILE, this folder in PYTHONPATH.

FILE.PID gets the time (of the monotonic clock) at which one began, its seconds and the objects that it freed.
With FREEZE_AFTER_S=SECONDS the objects of then are left out of all later ones, as vLLM does on a GPU.
"""

import gc
import os
import threading
import time
from pathlib import Path

NOTED_S = 0.03


def note_collections(path: str) -> None:
    """Write down each collection that takes NOTED_S or more."""
    start = 0.0

    def note(phase: str, info: dict[str, int]) -> None:
        nonlocal start
        if phase == "start":
            start = time.monotonic()
        elif (seconds := time.monotonic() - start) >= NOTED_S:
            with Path(f"{path}.{os.getpid()}").open("a") as file:
                file.write(f"{start:.3f} {seconds:.3f} {info['collected']}\n")

    gc.callbacks.append(note)


def freeze(after_s: float) -> None:
    """Leave all objects out of later collections, after a while."""
    time.sleep(after_s)
    gc.collect()
    gc.freeze()


if "COLLECTIONS" in os.environ:
    note_collections(os.environ["COLLECTIONS"])
if "FREEZE_AFTER_S" in os.environ:
    threading.Thread(target=freeze, args=(float(os.environ["FREEZE_AFTER_S"]),), daemon=True).start()
