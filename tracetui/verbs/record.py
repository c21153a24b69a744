"""`tracetui record`: live without a screen; progress on stderr, the summary on stdout."""

import math
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from capture.errors import EngineError, UnreadableError
from capture.load_runs import load
from capture.native.tail import FileTail
from capture.run import Run
from tracetui.process import EngineProcess, WatchProcess
from tracetui.verbs import _engine_options, _options, _recording, log

DEFAULT_STEPS = {"decode": 64, "prefill": 10, "train": 10}  # without --steps and without a screen
PROGRESS_INTERVAL_S = 0.5  # between two lines of progress


def options(parser: ArgumentParser) -> None:
    _engine_options.add_engine_options(parser)
    add, about = parser.add_argument, "stop after this time: 30s, 5m, 1h"
    add("--for", dest="seconds", type=_engine_options.parse_duration, metavar="TIME", help=about)
    add("--quiet", action="store_true", help="print no progress and no summary")
    about = "record N times into numbered files, and report the run-to-run spread"
    add("--repeat", type=_recording.parse_repeat_count, default=1, metavar="N", help=about)


def run(args: Namespace) -> int:
    """Record until the engine ends, print the summary and return the exit code; raise EngineError for a
    failure.
    """
    _engine_options.set_recorder_options(args)
    if not args.command and args.steps is None and not (_engine_options.name_watch_target(args) or args.pid):
        args.steps = DEFAULT_STEPS[args.mode]
        _options.print_status(f"recording {args.steps} steps of {args.mode} (--steps changes that)")
    if args.repeat > 1:
        outs = _engine_options.create_output_files(args, args.repeat)
        return _recording.record_repeats(args, outs, record_once) or log.keep_recordings(args, outs)
    out = _engine_options.create_output_file(args)
    return record_once(args, out) or log.keep_recordings(args, [out])


def record_once(args: Namespace, out: Path) -> int:
    """Record into an existing empty file, as `run` does; without a summary for one of several."""
    if args.pid is not None:
        return _recording.record_process(args, out)
    if args.command and not _engine_options.name_watch_target(args):
        return _recording.record_program(args, out)
    running = _engine_options.start_engine(args, out)
    running.start_sampler(out)
    try:
        runs = _follow_engine(running, out, args.quiet, args.seconds)
    finally:
        running.stop()
    if fault := _recording.explain_lost_file(out):
        raise EngineError(fault)
    if running.explain_failure():
        raise running.build_error(todo=_suggest_opening(out, runs))
    if running.gap_warning:
        raise EngineError(running.gap_warning, todo=_suggest_opening(out, runs))
    if _engine_options.name_watch_target(args) and not keep_if_timed(out, _load_if_readable(out)):
        raise EngineError("nothing was recorded", why="no trace and no metric arrived")
    _options.print_status(f"recorded {out}")
    if not args.quiet and runs and args.repeat == 1:
        sys.stdout.write(_recording.format_summary(out))
    return 0


def _load_if_readable(out: Path) -> list[Run]:
    try:
        return load(out)
    except UnreadableError:
        return []


def _suggest_opening(out: Path, runs: Sequence[Run]) -> str:
    """Suggest how to open the recording of a failed engine; empty if nothing was recorded."""
    return f"open the recording: tracetui open {out}" if keep_if_timed(out, runs) else ""


def keep_if_timed(out: Path, runs: Sequence[Run]) -> bool:
    """Whether there is a recording; remove a file without any timed row."""
    if any(run.has("dur") or (run.meta.get("watched") and run.has("value")) for run in runs):
        return True
    out.unlink(missing_ok=True)
    return False


def _follow_engine(running: EngineProcess, out: Path, quiet: bool, seconds: float | None) -> Sequence[Run]:
    """Follow the file until the engine or the time limit ends, printing progress; return its runs.

    Ctrl+C ends a watcher normally.
    """
    follow = FileTail(out)
    try:
        _print_progress_until(running, follow, quiet, time.monotonic() + (seconds or math.inf))
    except KeyboardInterrupt:
        if not isinstance(running, WatchProcess):
            raise
    follow.poll()
    return follow.build_runs(is_final=True)


def _print_progress_until(running: EngineProcess, follow: FileTail, quiet: bool, deadline: float) -> None:
    printed, is_silent = "", False
    while running.is_running and time.monotonic() < deadline:
        time.sleep(PROGRESS_INTERVAL_S)
        if follow.poll() and not quiet:
            printed = _print_progress(follow.build_runs(), printed)
        silence = running.gap_warning or follow.silence_warning
        if bool(silence) != is_silent:
            is_silent = not is_silent
            _options.print_status(f"{silence}: Ctrl+C ends it" if silence else "the engine responds again")


def _print_progress(runs: Sequence[Run], printed: str) -> str:
    """Print the number of steps, or the engine's status, when it changed; return the last message."""
    if not runs:
        return printed
    events = runs[-1].events
    ended = events.filter(pl.col("kind") == "step")
    # every rank reports each step
    steps = ended["step"].n_unique() if "step" in ended.columns else ended.height
    status = events.filter(pl.col("path") == "status") if runs[-1].has("path") else events.clear()
    word = f"{steps} steps" if steps else str(status["name"][-1]) if status.height else ""
    if word and word != printed:
        _options.print_status(word)
    return word
