"""What happened: the event schema, how it is written and how it is read."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from capture.record.spans import Recorder as Recorder

__all__ = ["Recorder"]


def __getattr__(name: str) -> Any:
    """`from capture import Recorder`, without any other import paying for it."""
    if name == "Recorder":
        from capture.record.spans import Recorder

        return Recorder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
