"""Every format that is read, one module each: `sniff(head)` says whose it is, `load(source)` reads it."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol, cast

from capture.errors import UnreadableError
from capture.run import Run
from capture.source import Head, Source

# A format is one module here and one line in this tuple; the order decides nothing.
LOADERS: Final[tuple[str, ...]] = ()


class Loader(Protocol):
    """What a loader module offers."""

    FORMAT: str  # short name, shown to people
    PRODUCER: str  # what writes such files
    HOWTO: str  # the command that makes one

    def sniff(self, head: Head) -> bool: ...

    def load(self, source: Source) -> list[Run]: ...


def loaders() -> list[Loader]:
    return [cast(Loader, import_module(f"capture.loaders.{name}")) for name in LOADERS]


def recognise(head: Head) -> list[Loader]:
    """The loaders that claim an input; exactly one for anything that is read."""
    return [loader for loader in loaders() if loader.sniff(head)]


def load(path: str | Path) -> list[Run]:
    """All runs of one file."""
    source = Source.of(path)
    claims = recognise(source.head)
    if not claims:
        from capture.strangers import explain

        raise explain(source)
    source.log.format = claims[0].FORMAT
    runs = claims[0].load(source)
    if not any(run.events.height or run.tables for run in runs):
        raise UnreadableError(f"holds no event that could be read as {claims[0].FORMAT}", where=source.label)
    return runs


def load_all(paths: Sequence[str | Path]) -> list[Run]:
    return [run for path in paths for run in load(path)]
