"""Ask one question about many files: choice of the files, progress on stderr."""

import sys
import time
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from capture import tasks
from capture.errors import PartialError, UsageError
from capture.files.addresses import find_list_path, is_pattern, is_url, mask_credentials
from tracetui import units
from tracetui.verbs import _options

if TYPE_CHECKING:
    from tracetui.fleet.ask_files import FleetAnswer
    from tracetui.fleet.file_job import FileJob, JobResult
    from tracetui.fleet.rank_hosts import Hosts
    from tracetui.look import Look
    from tracetui.views import View

MANY_FILES: Final = 16  # from this number on files are asked together by default
_TERMINAL_INTERVAL_S: Final = 0.2  # between two lines of progress on a terminal
_LOG_INTERVAL_S: Final = 10.0  # and elsewhere


def read_hosts(args: Namespace) -> "Hosts":
    """Read the hosts of the ranks from the file of --hosts; empty without one."""
    named = getattr(args, "hosts", None)
    if not named:
        return {}
    from tracetui.fleet.rank_hosts import read_host_table

    return read_host_table(named)


def build_jobs_if_many(args: Namespace, view: "View", look: "Look") -> "list[FileJob] | None":
    """Return a job per file if one answer about all files is requested, else None.

    That is the case with --on, and for many files of which none is selected.
    """
    from tracetui.fleet.ask_files import make_jobs

    if view.run_count > 1 and args.on:
        todo = "tracetui diff A B --on WHERE compares groups of files"
        raise UsageError(f"the {view.name} view compares runs", todo=todo)
    if args.on is None and (view.run_count > 1 or view.merging is None or _should_open_each(args)):
        return None
    _refuse_options_of_single_files(args)
    look = replace(look, merged=getattr(args, "merge", False))
    jobs = make_jobs(view, args.files, look, cache=not args.no_cache, capture=args.capture)
    is_about_ranks = "several:ranks" in view.needs  # which often have a file each
    return jobs if len(jobs) >= (2 if args.on or is_about_ranks else MANY_FILES) else None


def _refuse_options_of_single_files(args: Namespace) -> None:
    """Raise UsageError for an option that one answer about all files cannot have."""
    options = (
        ("only_device", "--device"),
        ("roof", "--roof"),
        ("config", "--config"),
        ("client_log", "--client-log"),
    )
    for option, name in options:
        if getattr(args, option, None):
            raise UsageError(f"{name} works with single files only", todo="leave out --on")
    if getattr(args, "which", None):
        raise UsageError("--on asks all files, --run selects one", todo="leave one of them out")


def _should_open_each(args: Namespace) -> bool:
    """Whether each file is opened by itself: few files, or options that need it."""
    single_file_options = ("which", "merge", "only_device", "roof", "config", "client_log", "follow")
    return any(getattr(args, option, None) for option in single_file_options) or not _can_be_many(args.files)


def choose_executor(args: Namespace) -> str | None:
    """Return the executor on which a screen asks its files one question; None to open each file."""
    from capture.load_runs import expand_inputs

    if args.on or _should_open_each(args):
        return None if args.follow else args.on
    return "local" if len(expand_inputs(args.files)) >= MANY_FILES else None


def select_chosen_file(args: Namespace) -> None:
    """If one of many files is selected by --run, keep only that one, so that the others are not read.

    Raise UsageError if the selection matches none or several.
    """
    if not args.which or args.on or getattr(args, "merge", False) or not _can_be_many(args.files):
        return
    from capture.load_runs import expand_inputs

    files = [str(f) for f in expand_inputs(args.files)]
    if len(files) < MANY_FILES:
        return
    fitting = _match_files(files, args.which)
    if len(fitting) != 1:
        what = f"{len(fitting)} files are" if fitting else "no file is"
        raise UsageError(f"{what} called {args.which!r}", todo=f"choose 1 to {len(files)}, or a whole name")
    number = files.index(fitting[0]) + 1
    _options.print_status(f"{mask_credentials(fitting[0])}, file {number} of {len(files)}")
    args.files, args.which = fitting, None


def _match_files(files: list[str], which: str) -> list[str]:
    """Return the file of a number from one, of a name up to its first dot, else all that contain the word."""
    if which.isdecimal() and 1 <= int(which) <= len(files):
        return [files[int(which) - 1]]
    names = {file: file.rstrip("/").rpartition("/")[2].lower() for file in files}
    exact = [file for file, name in names.items() if name.partition(".")[0] == which.lower()]
    return exact or [file for file, name in names.items() if which.lower() in name]


def _can_be_many(files: list[str]) -> bool:
    """Whether the words may stand for many files."""
    return len(files) >= MANY_FILES or any(
        find_list_path(f) or is_pattern(f) or (f.endswith("/") if is_url(f) else Path(f).is_dir())
        for f in files
    )


def ask_many_files(args: Namespace, view: "View", jobs: "list[FileJob]") -> "FleetAnswer":
    """Ask all files, with progress on stderr; raise PartialError for a loss under --strict."""
    from tracetui.fleet.ask_files import ask_files

    progress = ProgressLine(len(jobs))
    tasks.add_listener(progress.announce)
    try:
        fleet = ask_files(view, jobs, args.on or "local", progress.count_files, read_hosts(args))
    finally:
        progress.clear()
    if args.strict and (fleet.faults or fleet.run.log.lost_data):
        raise PartialError("a part of the input could not be read", why="--strict was given")
    return fleet


class ProgressLine:
    """Progress on stderr: one changing line on a terminal, else a line now and then."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._failed, self._bytes = total, 0, 0, 0
        self._began = self._told = time.monotonic()
        self._changes = sys.stderr.isatty()

    def count_files(self, done: "JobResult") -> None:
        """Count files; print progress if the last line is old enough; report a failed file."""
        self._done += done.count
        self._bytes += done.size
        if done.fault:
            self._failed += 1
            self.clear()
            _options.print_status(done.fault)
        now = time.monotonic()
        if now - self._told >= (_TERMINAL_INTERVAL_S if self._changes else _LOG_INTERVAL_S):
            self._told = now
            self.clear()
            end = "" if self._changes else "\n"
            print(f"tracetui: {self.format_progress(now)}", end=end, file=sys.stderr, flush=True)

    def announce(self, text: str) -> None:
        """Print a line about what is going on."""
        self.clear()
        _options.print_status(text)

    def format_progress(self, now: float) -> str:
        """Format the number of files, the rate, and the time left."""
        took = max(now - self._began, 1e-9)
        rate = self._done / took
        failed = f", {self._failed:,} failed" if self._failed else ""
        left = units.format_duration((self._total - self._done) / rate * 1e9) if self._done else "?"
        speed = f", {self._bytes / took / 1e6:,.0f} MB/s" if self._bytes else ""
        return f"{self._done:,} of {self._total:,} files{failed}, {rate:,.1f} files/s{speed}, {left} left"

    def clear(self) -> None:
        """Leave no partial line on the terminal."""
        if self._changes:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
