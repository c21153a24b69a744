"""On which host and behind which switch the rank of a file ran: as a table says, else as names tell."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from capture.errors import UsageError
from capture.ranks import ranks_in_names
from capture.source import Source
from capture.text import clean

Hosts = Mapping[str, tuple[str, str]]  # rank, or name of a file → host, switch

# torch names a trace HOST_PID.TIME.pt.trace.json; else a word like node07 or host-3 stands in the path
_TORCH: Final = re.compile(r"^(.+)_\d+\.\d+\.pt\.trace\.json")
_WORD: Final = re.compile(r"(?<![A-Za-z0-9])((?:host|node|nid|worker)[-_]?\d+)(?![A-Za-z0-9])", re.IGNORECASE)


def read(path: str) -> Hosts:
    """Return a table of hosts: a line for each rank, with its number or the name of its file, the host and
    perhaps the switch, by spaces or commas. Raise UsageError for a line that is none.
    """
    hosts: dict[str, tuple[str, str]] = {}
    for number, line in enumerate(Source.of(path).text().splitlines(), 1):
        words = re.split(r"[\s,]+", line.partition("#")[0].strip())
        if words == [""]:
            continue
        if len(words) not in (2, 3):
            todo = "write a line for each rank: its number or file, its host, perhaps its switch"
            raise UsageError(f"line {number} names no host", where=clean(path, 4096), todo=todo)
        hosts[clean(words[0], 200)] = (clean(words[1], 200), clean((*words, "")[2], 200))
    return hosts


def placed(members: pl.DataFrame, hosts: Hosts) -> pl.DataFrame:
    """Return the runs that take part with their `host` and `switch`; null where nobody tells."""
    sources = members["source"].to_list()
    names = [source.rstrip("/").rpartition("/")[2] for source in sources]
    numbers: Sequence[int | None] = ranks_in_names(names) or [None] * len(names)
    found = []
    for source, name, stated, number in zip(sources, names, members["rank"], numbers, strict=True):
        rank = stated if stated is not None else number
        keys = (name, name.partition(".")[0], str(rank))
        host = next((hosts[key] for key in keys if key in hosts), None)
        found.append(host or (_told(source, name), ""))
    return members.with_columns(
        pl.Series(column, [each[i] or None for each in found], dtype=pl.String)
        for i, column in enumerate(("host", "switch"))
    )


def _told(source: str, name: str) -> str:
    """Return the host that the name of a file, or of a folder around it, tells; empty where none does."""
    torch, word = _TORCH.match(name), _WORD.search(source)
    return torch[1] if torch else word[1] if word else ""
