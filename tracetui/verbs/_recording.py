"""Record a program, a running process, or the same program several times."""

import os
import re
import secrets
import shutil
import signal
import sys
import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final

from capture.clean_text import clean
from capture.errors import EngineError, UsageError
from capture.native.parts import list_earlier_parts, read_first_line
from tracetui import package_paths
from tracetui.process import (
    AttachedProcess,
    AttachTarget,
    EngineProcess,
    ForegroundProgram,
    ReportFolder,
    build_recorded_environment,
    build_sampler_command,
)
from tracetui.verbs import _options

MAX_REPEATS: Final = 1000
TYPICAL_REPEATS: Final = 3  # recordings per side that usually suffice
SILENT_POLL_S: Final = 0.5  # between two searches for processes that record nothing
END_POLL_S: Final = 0.1  # between two checks whether the process still runs
_FIRST_SIGNAL_CODE: Final = 128  # exit codes from here on are those of signals
_END_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_UNTIMED_STARTS: Final = tuple(
    b'{"kind":"%s"' % kind for kind in (b"run", b"plan", b"counter", b"mark", b"end")
)
_NATIVE_START: Final = re.compile(rb'\{\s*"kind"')
_LOSS: Final = re.compile(rb'\{"kind":"end".*?"lost":(\d+),"reason":"([ -~]*?)"')
_END_BYTES: Final = 1 << 16  # of a recording in which its end lines are
_STEP_START: Final = b'{"kind":"step"'


def record_program(args: Namespace, out: Path) -> int:
    """Run a command, recorded into `out`, and return its exit code.

    Raise EngineError if nothing was recorded or the recording has gaps, although the program succeeded.
    """
    reports = ReportFolder(secrets.token_hex(8))
    try:
        code = _run_recorded(args.command, out, reports)
        return report_outcome(args, out, reports, code)
    finally:
        reports.remove()


def report_outcome(args: Namespace, out: Path, reports: ReportFolder, code: int = 0, reason: str = "") -> int:
    """Print what was recorded of a program that ended with `code`, and return `code`.

    Raise EngineError as `record_program` does. `reason` explains an empty recording; by default the
    reports of the processes do.
    """
    if fault := explain_lost_file(out):
        return _return_code_or_raise(code, fault)
    reports.add_last_steps(out)
    steps, rows = count_steps_and_rows(out)
    gaps = reports.find_gaps() or find_gaps(out)
    if not rows and (running := reports.describe_running()):  # a daemon, which may not have begun
        _options.print_status(f"nothing is recorded yet: {running}, recorded into {out}")
        return code
    if not rows:
        return _end_empty_recording(out, code, gaps or reason or reports.explain_empty_recording())
    if not args.quiet:
        for line in (*reports.describe_coverage(steps), f"recorded {out}"):
            _options.print_status(line)
        if args.repeat == 1:
            sys.stderr.write(format_summary(out))
    if gaps:
        return _return_code_or_raise(code, f"the recording has gaps: {gaps}", f"tracetui open {out}")
    return code


def _end_empty_recording(out: Path, code: int, reason: str) -> int:
    """Remove a recording without rows; return the program's exit code, or raise EngineError if that is 0."""
    out.unlink()
    reason += f"; the program ended with exit code {code}" if 0 < code < _FIRST_SIGNAL_CODE else ""
    return _return_code_or_raise(code, f"nothing was recorded, because {reason}")


def _run_recorded(command: list[str], out: Path, reports: ReportFolder) -> int:
    try:
        program = ForegroundProgram(command, {**build_recorded_environment(out), **reports.environment})
    except EngineError:
        out.unlink(missing_ok=True)
        raise
    command = build_sampler_command(out, program.pid)
    sampler = EngineProcess(command, package_paths.build_environment(), accepts_orders=False)
    try:
        return program.wait(SILENT_POLL_S, lambda: reports.check_for_silent(program.pid))
    finally:
        sampler.stop()


def count_steps_and_rows(out: Path) -> tuple[int, int]:
    """Return the number of steps and of timed lines in all parts of a recording."""
    steps = rows = 0
    for part in map(Path, (*list_earlier_parts(out, read_first_line(out)), str(out))):
        with suppress(FileNotFoundError), part.open("rb") as file:
            for line in file:
                rows += not (line.isspace() or line.startswith(_UNTIMED_STARTS))
                steps += line.startswith(_STEP_START)
    return steps, rows


def explain_lost_file(out: Path) -> str:
    """Explain where a recording is that is no longer at its path; empty if it is there."""
    if not out.exists():
        return f"the recording is lost: {out} was removed while it was written"
    start = read_first_line(out).lstrip()
    if start and not _NATIVE_START.match(start):
        return (
            f"{out} is another file than the one that was recorded into: it was moved or replaced meanwhile"
        )
    return ""


def find_gaps(out: Path) -> str:
    """Describe the events that a recording lacks, as far as the file and its disk show it; else empty."""
    with out.open("rb") as file:
        file.seek(max(0, out.stat().st_size - _END_BYTES))
        lines = file.read().split(b"\n")
    ends = [match for line in lines if (match := _LOSS.match(line))]
    if lost := sum(int(end[1]) for end in ends):
        return f"{lost:,} events could not be written: {clean(ends[0][2].decode(), 100)}"
    is_torn = bool(lines[-1].strip(b"\0 \t\r"))
    if (is_torn or lines == [b""]) and not os.statvfs(out).f_bavail:
        return f"no space is left for {out}"
    return "its last line is incomplete" if is_torn else ""


def _return_code_or_raise(code: int, fault: str, todo: str = "") -> int:
    """Print a fault of the recording and return the program's exit code; raise EngineError if that is 0."""
    if not code:
        raise EngineError(fault, todo=f"open the recording: {todo}" if todo else "")
    _options.print_status(fault)
    return code


def format_summary(out: Path, view: str = "summary") -> str:
    """Return the summary of a recording, or another view of it, as wide as the terminal."""
    from capture.load_runs import load
    from tracetui.look import Look
    from tracetui.report_formats import format_report
    from tracetui.views import load_view

    width = shutil.get_terminal_size((120, 40)).columns
    return format_report(load_view(view), load(out), Look(), "table", width=width)


def parse_repeat_count(text: str) -> int:
    """Parse the number of recordings; raise ArgumentTypeError for an invalid one."""
    if not text.isdecimal() or not 1 <= int(text) <= MAX_REPEATS:
        raise ArgumentTypeError(f"invalid count {text!r}: use 1 to {MAX_REPEATS:,}")
    return int(text)


def record_repeats(args: Namespace, outs: Sequence[Path], record: Callable[[Namespace, Path], int]) -> int:
    """Call `record` for each file, print the run-to-run spread, and return the exit code.

    The first failed recording ends the series and gives the code. Unused files are removed.
    """
    made: list[Path] = []
    try:
        for number, out in enumerate(outs, 1):
            _options.print_status(f"recording {number} of {len(outs)}")
            if code := record(args, out):
                return code
            made.append(out)
    finally:
        for out in outs:
            if out not in made and out.exists() and not out.stat().st_size:
                out.unlink()
        if len(made) < len(outs):
            paths = f": {_join_paths(made)}" if made else ""
            _options.print_status(f"{len(made)} of {len(outs)} recordings were made{paths}")
    for line in _describe_spread(made):
        _options.print_status(line)
    return 0


def _describe_spread(files: Sequence[Path]) -> list[str]:
    """Return sentences on the run-to-run spread, what it allows to detect, and how to save it."""
    from capture.load_runs import load
    from tracetui import units
    from tracetui.compare.evidence import cpu_contention
    from tracetui.compare.evidence.phase_totals import compute_run_times
    from tracetui.compare.evidence.repeat_test import measure_floor
    from tracetui.compare.evidence.sample_size import compute_detectable_change

    runs = [load(file)[0] for file in files]
    run_times, floor = compute_run_times(runs), measure_floor(runs)
    line = f"{len(runs)} recordings"
    if run_times:
        low, high = (units.format_duration(time) for time in (min(run_times.times), max(run_times.times)))
        phase = f"{run_times.phase} " if run_times.phase else ""
        line += f": {phase}{low} to {high} per {run_times.per}"
    if floor is None:
        busy = any(cpu_contention.is_mostly_contended(run) for run in runs)
        why = ": other programs used the CPU in most steps" if busy else ""
        return [f"{line}; the run-to-run spread cannot be estimated{why}"]
    single, several = (
        f"{compute_detectable_change(floor.spread, floor.freedom, n):.1%}" for n in (1, TYPICAL_REPEATS)
    )
    line += f", run-to-run floor {floor.percent}: one recording per side detects a change of about {single}"
    return [
        f"{line}, {TYPICAL_REPEATS} per side {several}",
        f"save them: tracetui baseline NAME {_join_paths(files)}",
    ]


def _join_paths(files: Sequence[Path]) -> str:
    return " ".join(map(str, files))


def check_process(args: Namespace) -> None:
    """Raise UsageError or EngineError if the process of --pid cannot be recorded."""
    if args.pid is None:
        return
    if args.command or args.watch is not None:
        other = "--watch" if args.watch is not None else "a program"
        raise UsageError(f"--pid excludes {other}", todo="leave one of them out")
    AttachTarget(args.pid).check()


def attach_to_process(args: Namespace, out: Path) -> AttachedProcess:
    """Attach the recorder to the process of --pid; if that fails, remove `out`."""
    try:
        return AttachedProcess(args.pid, out)
    except BaseException:
        out.unlink(missing_ok=True)
        raise


def record_process(args: Namespace, out: Path) -> int:
    """Record a running process, print what was recorded, and return the exit code.

    Raise EngineError if nothing was recorded. The process continues afterwards.
    """
    engine = attach_to_process(args, out)
    try:
        engine.start_sampler(out)
        if not args.quiet:
            until = f"for {args.seconds:g} s" if args.seconds else "until Ctrl+C"
            _options.print_status(f"recording process {args.pid} {until}")
        end_signal = _wait_for_end(engine, args.seconds)
    finally:
        engine.stop()
    report_outcome(args, out, engine.reports, reason=_explain_no_steps(args.pid, engine))
    return 0 if end_signal in (0, signal.SIGINT) else 128 + end_signal


def _wait_for_end(engine: AttachedProcess, seconds: float | None) -> int:
    """Wait for the time limit, the end of the process, or a signal; return the signal, else 0."""
    signals: list[int] = []

    def note_signal(number: int, frame: FrameType | None) -> None:
        signals.append(number)

    previous = {number: signal.signal(number, note_signal) for number in _END_SIGNALS}
    deadline = time.monotonic() + seconds if seconds else float("inf")
    try:
        while engine.is_running and not signals and time.monotonic() < deadline:
            time.sleep(min(END_POLL_S, max(0.0, deadline - time.monotonic())))
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return signals[0] if signals else 0


def _explain_no_steps(pid: int, engine: AttachedProcess) -> str:
    """Return why a process that was attached to has no recorded step."""
    idle = f"process {pid} completed no step in that time: it called no module, or stayed within one call"
    return engine.reports.explain_stop() or idle
