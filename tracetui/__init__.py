"""The explorer: opens, watches and compares kernel profiles in a terminal.

A program that records a loop of its own takes `Recorder` or `Emitter` from here, one that reads profiles
`load`: `tracetui.load("prof.jsonl").kernels()` is a polars frame.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from capture.native.emit import Emitter as Emitter
    from capture.record.spans import Recorder as Recorder

__all__ = ["Emitter", "Recorder", "load"]

_PLACES = {"Emitter": "native.emit", "Recorder": "record.spans"}


def __getattr__(name: str) -> Any:
    """Import what is asked for; `Recorder` and `Emitter` under a name that cannot meet the user's."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tracetui import rooms

    place = _PLACES.get(name)
    value = getattr(rooms.import_privately(place) if place else rooms.import_reader(), name)
    globals()[name] = value
    return value
