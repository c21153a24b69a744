"""The explorer: opens, watches and compares kernel profiles in a terminal.

A program that records a loop of its own takes `Recorder` or `Emitter` from here.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from capture.native.emit import Emitter as Emitter
    from capture.record.spans import Recorder as Recorder

__all__ = ["Emitter", "Recorder"]

_PLACES = {"Emitter": "native.emit", "Recorder": "record.spans"}


def __getattr__(name: str) -> Any:
    """Import `Recorder` and `Emitter` when they are asked for, under a name that cannot meet the user's."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tracetui import rooms

    value = getattr(rooms.import_privately(_PLACES[name]), name)
    globals()[name] = value
    return value
