"""What the columns of a plain table are: guessed from their headings, the units with them."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

_NS: Final = {
    "ns": 1, "nsec": 1, "nanoseconds": 1,
    "us": 1_000, "µs": 1_000, "μs": 1_000, "usec": 1_000, "microseconds": 1_000,
    "ms": 1_000_000, "msec": 1_000_000, "millis": 1_000_000, "milliseconds": 1_000_000,
    "s": 1_000_000_000, "sec": 1_000_000_000, "secs": 1_000_000_000, "seconds": 1_000_000_000,
}  # fmt: skip
_UNIT: Final = re.compile(rf"^(?P<base>.*?)[\s_.\-]*[(\[]?\b(?P<unit>{'|'.join(_NS)})[)\]]?$")
MICROSECOND: Final = 1_000

# column of the event ← headings that mean it, the likelier first
_HEADINGS: Final = {
    "name": (
        "name", "kernel name", "kernel", "op name", "operation", "operator", "event name", "function",
        "function name", "event", "label", "region", "task", "op",
    ),
    "dur": (
        "duration", "dur", "total duration", "elapsed", "elapsed time", "latency", "total time", "gpu time",
        "cuda time", "kernel time", "device time", "run time", "runtime", "time", "wall time", "wall",
        "total", "",
    ),
    "t": ("start", "start time", "start timestamp", "ts", "begin", "timestamp", "t"),
    "count": ("count", "calls", "instances", "invocations", "launches", "num calls"),
    "step": ("step", "iteration", "iter", "cycle", "decode step"),
    "layer": ("layer", "layer id", "layer index", "block"),
    "phase": ("phase", "stage"),
    "op": ("op", "role", "op type"),
    "shape": ("shape", "shapes", "input shapes"),
    "bytes": ("bytes", "size bytes", "bytes moved"),
    "flops": ("flops", "flop"),
    "min": ("min", "min time", "min duration"),
    "max": ("max", "max time", "max duration", "peak", "peak time"),
    "p50": ("p50", "median", "med"),
    "p95": ("p95",),
    "p99": ("p99",),
    "std": ("std", "stddev", "std dev"),
}  # fmt: skip
TRACKS: Final = ("rank", "device", "gpu", "stream", "thread", "tid", "process", "pid", "queue")
TIMES: Final = ("dur", "t", "min", "max", "p50", "p95", "p99", "std")


class Found(NamedTuple):
    """A heading that was understood: where it stands, how it reads, and its unit in ns."""

    at: int
    heading: str
    unit: int | None


def understood(headings: Sequence[str]) -> dict[str, Found] | None:
    """Return event column → heading; None unless there is a name and a duration."""
    plain = [_plain(h) for h in headings]
    columns: dict[str, Found] = {}
    for column, words in _HEADINGS.items():
        at = _first(column, words, plain, {f.at for f in columns.values()})
        if at is not None:
            columns[column] = Found(at, headings[at].strip(), plain[at][1])
    for track in TRACKS:
        at = next((i for i, (base, _) in enumerate(plain) if base in (track, f"{track} id")), None)
        if at is not None:
            columns[track] = Found(at, headings[at].strip(), None)
    return columns if "name" in columns and "dur" in columns else None


def _first(
    column: str, words: Sequence[str], plain: Sequence[tuple[str, int | None]], taken: set[int]
) -> int | None:
    """Return where the likeliest heading of a column stands.

    One that is a bare unit counts for a duration only.
    """
    for word in words:
        for i, (base, unit) in enumerate(plain):
            fits = base == word and (bool(word) or unit is not None)
            if fits and i not in taken and (unit is None or column in TIMES):
                return i
    return None


def _plain(heading: str) -> tuple[str, int | None]:
    """Return a heading in plain words, and the unit it names in ns: `Time (ms)` → time, a million."""
    words = re.sub(r"[\s_.\-]+", " ", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", heading.strip())).lower().strip()
    unit = _UNIT.match(words)
    if unit is None:
        return words, None
    return unit["base"].strip(), _NS[unit["unit"]]


def guesses(columns: dict[str, Found]) -> list[str]:
    """Return sentences that say which heading was taken for which column."""
    stated = [f"{column} is the column {f.heading!r}" for column, f in columns.items()]
    lacking = [columns[c].heading for c in TIMES if c in columns and columns[c].unit is None]
    if lacking:
        duration_has_unit = columns["dur"].unit is not None
        how = "the duration's" if duration_has_unit else "microseconds"
        stated.append(f"the unit of {', '.join(map(repr, lacking))} is not told: taken as {how}")
    return stated
