"""What the screen is fed from: files that are read once, or a file that grows."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from msgspec import Struct
from textual.message import Message

from tracetui.process import Engine

Post = Callable[[Message], object]
LIVE: Final = "live"  # the badge of a file that grows


class Progress(Struct, frozen=True):
    """How far a feed is before it has runs to show."""

    seconds: float
    doing: str  # `reading`, what stands before it, or what an engine is doing before its first step
    names: tuple[str, ...] = ()  # the files that are read
    read: int = 0  # bytes
    size: int | None = None  # bytes in all; None where nobody can know
    alarm: str = ""  # what is wrong with the engine


class Feed(Protocol):
    """Posts runs as they are read, each time as `RunsChanged`, or `LoadFailed` where there are none."""

    def start(self, post: Post) -> None:
        """Begin, in a thread of its own."""

    def progress(self) -> Progress:
        """Return how far it is."""

    @property
    def live(self) -> "LiveFeed | None":
        """What is known of a writer; None where nobody writes."""


class LiveFeed(Protocol):
    """A file that somebody writes at this moment, and the engine that does, where it is ours."""

    @property
    def badge(self) -> str:
        """What the head says of the writer."""

    @property
    def text(self) -> str:
        """The end of what the model wrote."""

    @property
    def alarm(self) -> str:
        """What is wrong with an engine that is alive, or unlike what was usual; empty where nothing is."""

    @property
    def engine(self) -> Engine | None:
        """The engine, where it was started from here."""

    @property
    def listens(self) -> bool:
        """Whether there is an engine of ours that runs."""

    def order(self, what: Mapping[str, Any]) -> bool:
        """Send an order to the engine; return whether it was taken."""

    def next_mode(self) -> str | None:
        """Ask the engine to capture in the next way; return its name, None where nobody listens."""

    def stop(self) -> None:
        """Follow the file no longer."""

    def start_anew(self) -> None:
        """Start the engine again after its end. Raises EngineError."""
