"""Every format that is read, one module each: `sniff(head)` says whose it is, `load(source)` reads it."""

from importlib import import_module
from typing import Final, Protocol, cast

from capture.run import Run
from capture.source import Head, Source

# A format is one module here and one line in this tuple; the order decides nothing.
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
    "nsys.sqlite",
    "nsys.stats",
    "parquet",
    "plain.table",
    "proton",
    "rocprof.csv_tables",
    "rocprof.sdk_json",
    "vllm_layerwise",
)


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
