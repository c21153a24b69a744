"""Options of what is watched from beside, and its start: a folder into which a profiler drops traces."""

import math
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Final

from capture.errors import UsageError
from tracetui.process import Watcher

_UNITS: Final = {"s": 1, "m": 60, "h": 3600}


def options(parser: ArgumentParser) -> None:
    """Declare what may be watched instead of an engine."""
    parser.add_argument(
        "--watch", metavar="DIR", help="follow a folder into which a profiler drops traces, of any kind"
    )


def asked(args: Namespace) -> str:
    """Return a short name of what shall be watched; empty where it is an engine or a program."""
    return Path(args.watch).absolute().name or "folder" if args.watch is not None else ""


def started(args: Namespace, out: Path) -> Watcher:
    """Start watching what was asked for."""
    return Watcher(["--folder", str(Path(args.watch).absolute())], out)


def check(args: Namespace) -> None:
    """Raise UsageError where what is asked cannot be watched."""
    if args.watch is None:
        return
    if args.command:
        raise UsageError(
            "a folder and a program are watched one at a time", todo="leave out --watch, or the program"
        )
    if Path(args.watch).exists() and not Path(args.watch).is_dir():
        raise UsageError(
            f"{args.watch} is no folder", todo="--watch takes a folder; tracetui open reads a file"
        )


def duration(text: str) -> float:
    """Return the seconds that a word such as 30s, 5m or 1h means; raise ValueError for no such word."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "s")
    seconds = float(number) * _UNITS[unit]
    if not 0 < seconds < math.inf:
        raise ValueError(text)
    return seconds
