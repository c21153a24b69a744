"""Protocols of what feeds the screen with runs: files that are read once, or a file that grows."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from msgspec import Struct
from textual.message import Message

from tracetui.process import EngineProcess

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

    @property
    def live(self) -> "LiveFeed | None":
        """The writer of the file; None if the files do not grow."""


class LiveFeed(Protocol):
    """A file that is being written, and the engine that writes it if we started it."""

    @property
    def badge(self) -> str:
        """State of the writer, for the header."""

    @property
    def model_text(self) -> str:
        """The last text of the model."""

    @property
    def alarm(self) -> str:
        """What is wrong with a running engine, or unusual now; empty if nothing is."""

    @property
    def engine(self) -> EngineProcess | None:
        """The engine if we started it."""

    @property
    def is_listening(self) -> bool:
        """Whether our engine runs and accepts orders."""

    def send_order(self, what: Mapping[str, Any]) -> bool:
        """Send an order to the engine; return whether it was sent."""

    def request_next_mode(self) -> str | None:
        """Ask the engine for the next capture mode; return its name, or None if nobody listens."""

    def stop(self) -> None:
        """Stop following the file."""

    def restart(self) -> None:
        """Start the engine again after its end. Raise EngineError if that fails."""
