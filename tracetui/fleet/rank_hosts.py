"""Find the host and the switch of each rank: from a table of the user, else from file names."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from capture.clean_text import clean
from capture.errors import UsageError
from capture.merge_ranks import parse_ranks_from_names
from capture.source import Source

Hosts = Mapping[str, tuple[str, str]]  # rank, or name of a file → host, switch

# torch names a trace HOST_PID.TIME.pt.trace.json; other paths may contain a word like node07 or host-3
_TORCH_NAME: Final = re.compile(r"^(.+)_\d+\.\d+\.pt\.trace\.json")
_HOST_WORD: Final = re.compile(
    r"(?<![A-Za-z0-9])((?:host|node|nid|worker)[-_]?\d+)(?![A-Za-z0-9])", re.IGNORECASE
)


def read_host_table(path: str) -> Hosts:
    """Read a line per rank: its number or file, its host and optionally its switch, by spaces or commas.

    Raise UsageError for any other line.
    """
    hosts: dict[str, tuple[str, str]] = {}
    for number, line in enumerate(Source.from_path(path).read_text().splitlines(), 1):
        words = re.split(r"[\s,]+", line.partition("#")[0].strip())
        if words == [""]:
            continue
        if len(words) not in (2, 3):
            todo = "write a line for each rank: its number or file, its host, perhaps its switch"
            raise UsageError(f"line {number} names no host", where=clean(path, 4096), todo=todo)
        hosts[clean(words[0], 200)] = (clean(words[1], 200), clean((*words, "")[2], 200))
    return hosts


def with_hosts(members: pl.DataFrame, hosts: Hosts) -> pl.DataFrame:
    """Add `host` and `switch` to the members; null if unknown."""
    sources = members["source"].to_list()
    names = [source.rstrip("/").rpartition("/")[2] for source in sources]
    numbers: Sequence[int | None] = parse_ranks_from_names(names) or [None] * len(names)
    places = []
    for source, name, rank, number in zip(sources, names, members["rank"], numbers, strict=True):
        keys = (name, name.partition(".")[0], str(number if rank is None else rank))
        place = next((hosts[key] for key in keys if key in hosts), None)
        places.append(place or (_infer_host(source, name), ""))
    return members.with_columns(
        pl.Series(column, [place[i] or None for place in places], dtype=pl.String)
        for i, column in enumerate(("host", "switch"))
    )


def _infer_host(source: str, name: str) -> str:
    """Infer the host from the name of a file or of its folders; empty if they contain none."""
    torch, word = _TORCH_NAME.match(name), _HOST_WORD.search(source)
    return torch[1] if torch else word[1] if word else ""
