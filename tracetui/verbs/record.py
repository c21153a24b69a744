"""`tracetui record`: live without a screen; progress on stderr, the summary on stdout."""

import math
import shutil
import sys
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

import polars as pl

from capture.errors import EngineError, UnreadableError
from capture.native.follow import Follow
from capture.open import load
from capture.run import Run
from tracetui.process import Engine, Watcher
from tracetui.verbs import _engine, _program, _repeats, _running, _shared, _watch

STEPS = {"decode": 64, "prefill": 10, "train": 10}  # when nobody says how many and nobody watches
EVERY = 0.5  # seconds between two words of progress


def options(parser: ArgumentParser) -> None:
    """Declare the options of the command."""
    _engine.options(parser)
    about = "end after so long, as in 30s, 5m or 1h"
    parser.add_argument("--for", dest="seconds", type=_watch.duration, metavar="TIME", help=about)
    parser.add_argument("--quiet", action="store_true", help="no progress, no summary")
    about = "record so often, into numbered files, and say how far the recordings lie apart"
    parser.add_argument("--repeat", type=_repeats.count, default=1, metavar="N", help=about)


def run(args: Namespace) -> int:
    """Record until the engine ends, print the summary and return the exit code; raise EngineError for a
    failure.
    """
    _engine.divide(args)
    if not args.command and args.steps is None and not (_watch.asked(args) or args.pid):
        args.steps = STEPS[args.mode]
        _shared.say(f"recording {args.steps} steps of {args.mode} (--steps changes that)")
    if args.repeat > 1:
        return _repeats.record(args, _engine.places(args, args.repeat), once)
    return once(args, _engine.place(args))


def once(args: Namespace, out: Path) -> int:
    """Record into this file, which is there and empty; as `run`, with no summary of one of several."""
    if args.pid is not None:
        return _running.record(args, out)
    if args.command and not _watch.asked(args):
        return _program.record(args, out)
    running = _engine.started(args, out)
    running.sample_into(out)
    try:
        runs = _follow(running, out, args.quiet, args.seconds)
    finally:
        running.stop()
    if running.failure_reason():
        raise running.failure(todo=_rest(out, runs))
    if running.gap_warning:
        raise EngineError(running.gap_warning, todo=_rest(out, runs))
    if _watch.asked(args) and not kept(out, _readable(out)):
        raise EngineError("nothing was watched", why="no trace and no figure came")
    _shared.say(f"recorded {out}")
    if not args.quiet and runs and args.repeat == 1:
        _summarise(out)
    return 0


def _summarise(out: Path) -> None:
    from tracetui.look import Look
    from tracetui.report import report
    from tracetui.views import view

    width = shutil.get_terminal_size((120, 40)).columns
    sys.stdout.write(report(view("summary"), load(out), Look(), "table", width=width))


def _readable(out: Path) -> list[Run]:
    try:
        return load(out)
    except UnreadableError:
        return []


def _rest(out: Path, runs: list[Run]) -> str:
    """Return what to do with what a failed engine left; empty where that is nothing."""
    return f"what was recorded opens: tracetui open {out}" if kept(out, runs) else ""


def kept(out: Path, runs: list[Run]) -> bool:
    """Tell whether there is a recording; a file without a single timed row is removed."""
    if any(run.has("dur") or (run.meta.get("watched") and run.has("value")) for run in runs):
        return True
    out.unlink(missing_ok=True)
    return False


def _follow(running: Engine, out: Path, quiet: bool, seconds: float | None = None) -> list[Run]:
    """Follow the file until the engine ends, or for as long as was asked, printing its progress; return its
    runs. Ctrl+C ends what is watched from beside as it should end.
    """
    follow = Follow(out)
    try:
        _tell_progress(running, follow, quiet, time.monotonic() + (seconds or math.inf))
    except KeyboardInterrupt:
        if not isinstance(running, Watcher):
            raise
    follow.poll()
    return follow.runs(final=True)


def _tell_progress(running: Engine, follow: Follow, quiet: bool, deadline: float) -> None:
    printed = reported = ""
    while running.running and time.monotonic() < deadline:
        time.sleep(EVERY)
        if follow.poll() and not quiet:
            printed = _progress(follow.runs(), printed)
        reported = _report_silence(running.gap_warning or follow.silence, reported)


def _report_silence(silence: str, printed: str) -> str:
    """Print once that an engine hangs, and once that it goes on again; return what was printed last."""
    if bool(silence) != bool(printed):
        _shared.say(f"{silence}: Ctrl+C ends it" if silence else "the engine is heard again")
    return silence


def _progress(runs: list[Run], printed: str) -> str:
    """Print the steps so far, else the engine's status, when it changed; return what was printed last."""
    if not runs:
        return printed
    events = runs[-1].events
    ended = events.filter(pl.col("kind") == "step")
    steps = ended["step"].n_unique() if "step" in ended.columns else ended.height  # ranks each tell theirs
    status = events.filter(pl.col("path") == "status") if runs[-1].has("path") else events.clear()
    word = f"{steps} steps" if steps else str(status["name"][-1]) if status.height else ""
    if word and word != printed:
        _shared.say(word)
    return word
