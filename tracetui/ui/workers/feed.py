"""What feeds the screen with runs: files that are read once or asked in place, or a file that grows."""

from collections.abc import Callable
from typing import Final, Protocol

from msgspec import Struct
from textual.message import Message

Post = Callable[[Message], object]
LIVE_BADGE: Final = "live"  # badge of a growing file


class LoadProgress(Struct, frozen=True):
    """Progress of a feed before it has runs to show."""

    seconds: float
    activity: str  # `reading`, a step before it, or what the engine is doing
    names: tuple[str, ...] = ()  # of the files
    read_bytes: int = 0
    total_bytes: int | None = None  # None: unknown
    alarm: str = ""  # of the engine


class Feed(Protocol):
    """Posts runs as `RunsChanged` whenever there are more, or `LoadFailed` if there are none."""

    def start(self, post: Post) -> None:
        """Start a thread that posts."""

    def describe_progress(self) -> LoadProgress:
        """Return the progress so far."""
