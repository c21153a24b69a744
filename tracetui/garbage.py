"""When memory is looked through for garbage: not while a command starts, whose objects all stay."""

import gc
from typing import Any, Final

STARTING: Final = 600_000  # objects: more than a start makes with its libraries
USUAL: Final = (50_000, 20, 100)


def put_off() -> None:
    """Have nothing looked through while a command starts: until `take_up`, or until there is more than any
    start makes.
    """
    gc.set_threshold(STARTING, *USUAL[1:])
    if _as_usual not in gc.callbacks:
        gc.callbacks.append(_as_usual)


def take_up() -> None:
    """Look for garbage as usual from now on, and never again at what a start has left."""
    if _as_usual in gc.callbacks:
        gc.freeze()
        _as_usual("stop", {})


def _as_usual(phase: str, told: dict[str, Any]) -> None:
    """Return to the usual after the first look, which the collector tells of here."""
    if phase == "stop":
        gc.callbacks.remove(_as_usual)
        gc.set_threshold(*USUAL)
