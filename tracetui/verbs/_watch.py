"""Options of what is watched from beside, and its start: a folder of traces, or a server by its address."""

import math
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from capture.errors import UsageError
from tracetui.process import Watcher

WINDOW_S: Final = 0.5
EVERY_S: Final = 30.0
_UNITS: Final = {"s": 1, "m": 60, "h": 3600}
_SCHEMES: Final = ("http://", "https://")


def options(parser: ArgumentParser) -> None:
    """Declare what may be watched instead of an engine."""
    about = "instead of an engine: --watch DIR, or the address of a vLLM or SGLang server"
    add = parser.add_argument_group(about).add_argument
    add("--watch", metavar="DIR", help="follow a folder into which a profiler drops traces, of any kind")
    add("--traces", metavar="DIR", help="the folder that the server's profiler writes to")
    about = f"how long the server profiles at once ({WINDOW_S:g}s); 0: figures only"
    add("--windows", type=window, metavar="TIME", help=about)
    about = f"from the beginning of one window to that of the next ({EVERY_S:g}s)"
    add("--every", type=duration, metavar="TIME", help=about)


def asked(args: Namespace) -> str:
    """Return a short name of what shall be watched; empty where it is an engine or a program."""
    if args.watch is not None:
        return Path(args.watch).absolute().name or "folder"
    return urlsplit(_url(args)).netloc.rpartition("@")[2]


def started(args: Namespace, out: Path) -> Watcher:
    """Start watching what was asked for."""
    if args.watch is not None:
        return Watcher(["--folder", str(Path(args.watch).absolute())], out)
    seconds = WINDOW_S if args.windows is None else args.windows
    timing = ["--windows", str(seconds), "--every", str(args.every or max(EVERY_S, 2 * seconds))]
    traces = ["--traces", str(Path(args.traces).absolute())] if args.traces is not None else []
    return Watcher(["--url", _url(args), *timing, *traces], out)


def check(args: Namespace) -> None:
    """Raise UsageError where what is asked cannot be watched."""
    if args.watch is not None:
        _check_folder(args)
    elif _url(args):
        from capture.watch.http import Address, headers_of_environment

        Address.of(_url(args))
        headers_of_environment()
        seconds = WINDOW_S if args.windows is None else args.windows
        if args.every is not None and args.every < seconds:
            todo = "--every is from the beginning of one window to that of the next"
            raise UsageError(f"windows of {seconds:g} s do not fit into {args.every:g} s", todo=todo)
    else:
        given = [f"--{name}" for name in ("traces", "windows", "every") if getattr(args, name) is not None]
        if given:
            raise UsageError(f"{given[0]} is for a server", todo="write its address, as in http://HOST:PORT")


def duration(text: str) -> float:
    """Return the seconds that a word such as 30s, 5m or 1h means; raise ValueError for no such word."""
    seconds = window(text)
    if not seconds:
        raise ValueError(text)
    return seconds


def window(text: str) -> float:
    """Return the seconds that a word means, 0 and `off` for none; raise ValueError for no such word."""
    if text == "off":
        return 0.0
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "s")
    seconds = float(number) * _UNITS[unit]
    if not 0 <= seconds < math.inf:
        raise ValueError(text)
    return seconds


def _url(args: Namespace) -> str:
    """Return the address of a server that stands in the place of a command; empty where none does."""
    alone = len(args.command) == 1 and args.command[0].lower().startswith(_SCHEMES)
    return args.command[0] if alone else ""


def _check_folder(args: Namespace) -> None:
    if args.command:
        todo = "leave out --watch, or the other"
        raise UsageError("a folder and another thing are watched one at a time", todo=todo)
    if Path(args.watch).exists() and not Path(args.watch).is_dir():
        todo = "--watch takes a folder; tracetui open reads a file"
        raise UsageError(f"{args.watch} is no folder", todo=todo)
