"""Options and steps of answers about many files at once."""

import sys
import time
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from capture.addresses import is_pattern, is_url, list_file, masked
from capture.errors import PartialError, UsageError
from tracetui import units
from tracetui.verbs import _shared

if TYPE_CHECKING:
    from tracetui.fleet.ask import Fleet
    from tracetui.fleet.hosts import Hosts
    from tracetui.fleet.job import Done, Job
    from tracetui.look import Look
    from tracetui.views import View

MANY: Final = 16  # files from which on they are asked together, where nobody says how
_OFTEN: Final = 0.2  # seconds between two lines of progress on a terminal
_SELDOM: Final = 10.0  # and elsewhere


def on_option(parser: ArgumentParser) -> None:
    """Declare --on."""
    about = (
        "one answer about all files, computed on local:N processes, dask://HOST:PORT or ray://HOST:PORT|auto"
    )
    parser.add_argument("--on", metavar="WHERE", help=about)


def hosts_option(parser: ArgumentParser) -> None:
    """Declare --hosts."""
    about = "of many files: a line for each rank, with its number or file, its host and perhaps its switch"
    parser.add_argument("--hosts", metavar="FILE", help=about)


def hosts(args: Namespace) -> "Hosts":
    """Return where ranks ran, as a file says; empty where none is named."""
    named = getattr(args, "hosts", None)
    if not named:
        return {}
    from tracetui.fleet.hosts import read

    return read(named)


def jobs_where_many(args: Namespace, asked: "View", look: "Look") -> "list[Job] | None":
    """Return a job for each file where one answer about all is asked for: by --on, or by many files of which
    none is chosen. None where each is to be looked at by itself, as the only one of all is.
    """
    from tracetui.fleet.ask import jobs_of

    chosen = getattr(args, "which", None)
    if asked.runs > 1 and args.on:
        raise UsageError(
            f"the {asked.name} view compares", todo="tracetui diff A B --on WHERE asks many files"
        )
    if args.on is None and (asked.runs > 1 or asked.merging is None or _one_by_one(args)):
        return None
    if getattr(args, "only_device", None):
        raise UsageError("--device is of files that are looked at one by one", todo="leave out --on")
    if chosen:
        raise UsageError("--on asks all files, --run chooses one", todo="leave one of them out")
    look = replace(look, merged=getattr(args, "merge", False))
    jobs = jobs_of(asked, args.files, look, cache=not args.no_cache, capture=args.capture)
    return jobs if len(jobs) >= (2 if args.on else MANY) else None


def _one_by_one(args: Namespace) -> bool:
    """Tell whether files are looked at each by itself: few of them, or what only that can answer."""
    alone = any(getattr(args, option, None) for option in ("which", "merge", "only_device", "follow"))
    return alone or not _may_be_many(args.files)


def where(args: Namespace) -> str | None:
    """Return where a screen asks its files one question: as --on says, here where they are many; None where
    each is looked at by itself.
    """
    from capture.open import gather

    if args.on or _one_by_one(args):
        return None if args.follow else args.on
    return "local" if len(gather(args.files)) >= MANY else None


def choose_file(args: Namespace) -> None:
    """Where one of many files is chosen, leave that one alone on the command line: the others are not read.
    Raise UsageError where the choice is none or several of them.
    """
    if not args.which or args.on or getattr(args, "merge", False) or not _may_be_many(args.files):
        return
    from capture.open import gather

    files = [str(f) for f in gather(args.files)]
    if len(files) < MANY:
        return
    fitting = _called(files, args.which)
    if len(fitting) != 1:
        what = f"{len(fitting)} files are" if fitting else "no file is"
        raise UsageError(f"{what} called {args.which!r}", todo=f"choose 1 to {len(files)}, or a whole name")
    _shared.say(f"{masked(fitting[0])}, file {files.index(fitting[0]) + 1} of {len(files)}")
    args.files, args.which = fitting, None


def _called(files: list[str], which: str) -> list[str]:
    """Return the file of a number from one, that of a name up to its first dot, else all with such a part."""
    if which.isdecimal() and 1 <= int(which) <= len(files):
        return [files[int(which) - 1]]
    names = {file: file.rstrip("/").rpartition("/")[2].lower() for file in files}
    exact = [file for file, name in names.items() if name.partition(".")[0] == which.lower()]
    return exact or [file for file, name in names.items() if which.lower() in name]


def _may_be_many(files: list[str]) -> bool:
    """Tell whether words may stand for many files."""
    return len(files) >= MANY or any(
        list_file(f)
        or is_pattern(f)
        or (is_url(f) and f.endswith("/"))
        or (not is_url(f) and Path(f).is_dir())
        for f in files
    )


def answered(args: Namespace, asked: "View", jobs: "list[Job]") -> "Fleet":
    """Return the answer of all files, progress on stderr; raise PartialError for a loss under --strict."""
    from tracetui.fleet.ask import ask_fleet

    progress = Progress(len(jobs))
    try:
        fleet = ask_fleet(asked, jobs, args.on or "local", progress.tell, hosts(args))
    finally:
        progress.end()
    if args.strict and (fleet.faults or fleet.run.log.lost_data):
        raise PartialError("a part of the input could not be read", why="--strict was given")
    return fleet


class Progress:
    """How far it is, on stderr: one line that changes on a terminal, else a line now and then."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._failed, self._bytes = total, 0, 0, 0
        self._began = self._told = time.monotonic()
        self._changes = sys.stderr.isatty()

    def tell(self, done: "Done") -> None:
        """Count a file, and say so where the last time is long enough ago; name one that failed."""
        self._done += 1
        self._bytes += done.size
        if done.fault:
            self._failed += 1
            self._clear()
            _shared.say(done.fault)
        now = time.monotonic()
        if now - self._told >= (_OFTEN if self._changes else _SELDOM):
            self._told = now
            self._clear()
            end = "" if self._changes else "\n"
            print(f"tracetui: {self.words(now)}", end=end, file=sys.stderr, flush=True)

    def words(self, now: float) -> str:
        """Return how many files are done, how fast, and how long the rest will take."""
        took = max(now - self._began, 1e-9)
        rate = self._done / took
        failed = f", {self._failed:,} failed" if self._failed else ""
        left = units.duration((self._total - self._done) / rate * 1e9) if self._done else "?"
        speed = f", {self._bytes / took / 1e6:,.0f} MB/s" if self._bytes else ""
        return f"{self._done:,} of {self._total:,} files{failed}, {rate:,.1f} files/s{speed}, {left} left"

    def end(self) -> None:
        """Leave no half line behind."""
        self._clear()

    def _clear(self) -> None:
        if self._changes:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
