"""Regions inside kernels: the lanes of what a kernel records of itself (Proton, flashinfer, mirage)."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from capture.importlog import Log
from capture.loaders.chrome.incomplete import Names
from capture.loaders.chrome.tables import PLACE

# what the writers call a process and a thread: the multiprocessor or block, and the warps within
_PROTON: Final = (re.compile(r"(.+) Core(\d+) CTA(\d+)$"), re.compile(r"warp (\d+)(?: \(line \d+\))?$"))
_FLASHINFER: Final = (re.compile(r"SM_(\d+)$"), re.compile(r"blk(\d+)_g(\d+)$"))
_BLOCKS: Final = (re.compile(r"block_(\d+)$"), re.compile(r"group_(\d+)(?:/.*)?$"))  # flashinfer once, mirage


class Lane(NamedTuple):
    """Where a region ran: its track, and the kernel that it is a part of where the writer says."""

    track: str
    kernel: str | None = None


def with_regions(names: Names, places: Iterable[str], log: Log) -> Names:
    """Return names that know which places stand for warps of a multiprocessor, and say so where any does."""
    found = {place: lane for place in places if (lane := _lane(place, names))}
    if not found:
        return names
    log.note(
        "regions",
        f"regions inside a kernel, on {len(set(found.values()))} lanes of warps that run side by side: times "
        "add up over the lanes; where regions nest, the innermost are the rows of the tables",
    )
    lanes = {**names.lanes, **{place: lane.track for place, lane in found.items()}}
    return replace(names, lanes=lanes, regions={place: lane.kernel for place, lane in found.items()})


def _lane(place: str, names: Names) -> Lane | None:
    pid, _, tid = place.partition(PLACE)
    process, thread = names.processes.get(pid, pid), names.threads.get(place, tid)
    if pair := _both(_PROTON, process, thread):
        kernel, sm, cta = pair[0].groups()
        return Lane(f"sm{sm}/cta{cta} warp{pair[1][1]}", kernel)
    if pair := _both(_FLASHINFER, process, thread):
        return Lane(f"sm{int(pair[0][1])}/block{pair[1][1]} group{pair[1][2]}")
    if pair := _both(_BLOCKS, process, thread):
        return Lane(f"block{pair[0][1]}/group{pair[1][1]}")
    return None


def _both(
    patterns: tuple[re.Pattern[str], re.Pattern[str]], process: str, thread: str
) -> tuple[re.Match[str], re.Match[str]] | None:
    outer, inner = patterns[0].match(process), patterns[1].match(thread)
    return (outer, inner) if outer and inner else None
