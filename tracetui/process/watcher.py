"""What watches a folder of traces or a server from beside: a process of ours that writes the recording."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tracetui import rooms
from tracetui.process.commands import own_command
from tracetui.process.engine import Engine

_THREADS: Final = {"POLARS_MAX_THREADS": "2"}  # what is watched goes first


class Watcher(Engine):
    """Runs beside the screen, so that neither a slow server nor a large trace holds that up."""

    first_words = "starting to watch"
    patience = 20.0  # seconds: a server is left only once it has stopped to profile

    def __init__(self, arguments: Sequence[str], out: Path) -> None:
        """Start it, recording into `out`; raise EngineError where it cannot be started."""
        command = own_command("capture.watch", *arguments, "--out", str(out))
        super().__init__(command, {**rooms.environment(), **_THREADS})

    def sample_into(self, out: Path) -> None:
        """Sample nothing: the counters would be those of this process, and not of what is watched."""
