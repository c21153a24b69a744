"""Names an input that is no profile for what it is, and says what to do about it."""

from capture.errors import UnreadableError
from capture.source import Source


def explain(source: Source) -> UnreadableError:
    """The sentence for an input that no loader claims."""
    if not source.head.raw:
        return UnreadableError("is empty", where=source.label)
    return UnreadableError(
        "is no profile that is known",
        where=source.label,
        todo="`tracetui formats` lists what is read and how each is made",
    )
