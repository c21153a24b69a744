"""Every format that is read, one loader each: `sniff(head)` says whether it is its own, `load` reads it.

How to add a format:

1. Write a module here (`collapsed.py`), or a folder where it needs several. Open its docstring with what is
   read, what is not, and where the format is described. It offers what `Loader` below lists.
2. `sniff` looks at the first bytes only (`head.text`, `head.lines`, `head.start`; gzip is undone). It must be
   true for its own inputs and false for those of every other loader: the order of `LOADERS` decides nothing,
   and the name of the file does not count.
3. `load` reads `source.text()`, `source.lines()` or `source.chunks()` and ends with
   `build(name, meta, events, source.log)`. `events` is a frame with some of the columns of
   `capture.native.schema`: `kind` and `name` at least; times are whole nanoseconds. What the source does not
   say is left out, never guessed in silence: a guess stands as a sentence in `meta["guess"]`.
4. Keep the account in `source.log`. `read` counts every record that was seen; `drop(id, message, count=…)`
   counts those that could not be kept; `kept` follows as read - dropped. `repair` counts records that were
   kept after a mend, `note` says what a reader of the numbers should know. One id a kind of thing, so that
   a thousand bad lines are one notice with a count.
5. Raise `UnreadableError` (what, where, why, what to do) where nothing can be read; raise nothing else. Text
   from the file needs no cleaning, `build` does that.
6. Where a recording is several files, write a module as `Bundler` below lists it instead: `find` says which
   files belong together. Its name goes to `BUNDLERS`.
7. Add the module's name to `LOADERS`, and drop small files into `tests/fixtures/<name>/`: all checks run on
   them. Figures of its own are proved in `tests/capture/loaders/test_<name>.py`.
"""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol, cast

from capture.run import Run
from capture.source import Head, Source

# The order decides nothing: exactly one of them claims an input.
LOADERS: Final[tuple[str, ...]] = (
    "chrome.jsonl",
    "chrome.trace",
    "cs336",
    "doppler.log",
    "doppler.json_report",
    "latencyprism.comparison",
    "latencyprism.processed",
    "metallic.recording",
    "metallic.report",
    "mlc.profile",
    "native",
    "ncu",
    "nsys.report",
    "nsys.sqlite",
    "nsys.stats",
    "parquet",
    "perfetto.trace",
    "plain.table",
    "proton",
    "rocprof.csv_tables",
    "rocprof.rocpd",
    "rocprof.sdk_json",
    "vllm_layerwise",
    "xplane.profile",
)


# What is read from several files as one recording.
BUNDLERS: Final[tuple[str, ...]] = ("nsys.parquetdir", "rocprof.job")


class Format(Protocol):
    """What a module says of the format that it reads."""

    FORMAT: str  # short name, shown to people
    PRODUCER: str  # what writes such files
    HOWTO: str  # the command that makes one


class Bundler(Format, Protocol):
    """What a module offers that reads several files as one recording."""

    def find(self, files: Sequence[Path]) -> list[tuple[Path, ...]]:
        """Return those of the files that belong together, group by group."""
        ...

    def load(self, files: Sequence[Path]) -> list[Run]:
        """Return the runs of one group; raise UnreadableError where there are none."""
        ...


class Loader(Format, Protocol):
    """What a loader module offers."""

    def sniff(self, head: Head) -> bool:
        """Return whether an input is of this format, judged by its first bytes."""
        ...

    def load(self, source: Source) -> list[Run]:
        """Return the runs of an input; raise UnreadableError where there are none."""
        ...


def loaders() -> list[Loader]:
    """Return all loader modules, imported."""
    return [cast(Loader, import_module(f"capture.loaders.{name}")) for name in LOADERS]


def bundlers() -> list[Bundler]:
    """Return all modules that read several files as one recording, imported."""
    return [cast(Bundler, import_module(f"capture.loaders.{name}")) for name in BUNDLERS]


def formats() -> list[Format]:
    """Return every format that is read, by its name."""
    known: dict[str, Format] = {format.FORMAT: format for format in (*bundlers(), *loaders())}
    return sorted(known.values(), key=lambda format: format.FORMAT.lower())


def recognise(head: Head, suffix: str = "") -> list[Loader]:
    """Return the loaders that claim an input: one, or none for what is not read.

    Content decides; the name does only for a format that has no lasting mark (`SUFFIXES`), and only where no
    loader knows the content, which must be no text.
    """
    claims = [loader for loader in loaders() if loader.sniff(head)]
    if claims or b"\0" not in head.raw:
        return claims
    return [loader for loader in loaders() if suffix in getattr(loader, "SUFFIXES", ())]
