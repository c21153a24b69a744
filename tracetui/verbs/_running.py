"""Record a process that runs already: for a while, until Ctrl+C, or until its end; it goes on as it was."""

import signal
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from types import FrameType
from typing import Final

from capture.errors import UsageError
from tracetui.process import Attached, Target
from tracetui.verbs import _program, _shared

EVERY: Final = 0.1  # seconds between two looks whether it still runs
_ENDS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def option(parser: ArgumentParser) -> None:
    """Declare --pid."""
    parser.add_argument("--pid", type=int, metavar="N", help="a PyTorch process that runs already")


def check(args: Namespace) -> None:
    """Raise UsageError or EngineError where the process that is asked for cannot be watched."""
    if args.pid is None:
        return
    if args.command or args.watch is not None:
        what = "a folder" if args.watch is not None else "a program"
        raise UsageError(f"a process and {what} are watched one at a time", todo="leave one of them out")
    Target(args.pid).check()


def started(args: Namespace, out: Path) -> Attached:
    """Return the process, watched; where that cannot be, its file is removed."""
    try:
        return Attached(args.pid, out)
    except BaseException:
        out.unlink(missing_ok=True)
        raise


def record(args: Namespace, out: Path) -> int:
    """Record the process, say what was seen, and return the exit code; raise EngineError where that was
    nothing.
    """
    engine = started(args, out)
    try:
        engine.sample_into(out)
        if not args.quiet:
            until = f"for {args.seconds:g} s" if args.seconds else "until Ctrl+C"
            _shared.say(f"watching process {args.pid} {until}")
        number = _wait(engine, args.seconds)
    finally:
        engine.stop()
    _program.conclude(args, out, engine.account, nothing=_nothing(args.pid, engine))
    return 0 if number in (0, signal.SIGINT) else 128 + number


def _wait(engine: Attached, seconds: float | None) -> int:
    """Wait until the time is over, the process has ended or a signal comes; return the signal, else 0."""
    came: list[int] = []

    def take(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, take) for number in _ENDS}
    deadline = time.monotonic() + seconds if seconds else float("inf")
    try:
        while engine.running and not came and time.monotonic() < deadline:
            time.sleep(min(EVERY, max(0.0, deadline - time.monotonic())))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return came[0] if came else 0


def _nothing(pid: int, engine: Attached) -> str:
    """Return why a process that was watched shows nothing."""
    faults = [fault for told in engine.account.told().values() for fault in told.faults]
    if faults:
        return f"the recorder let go: {faults[0]}"
    return (
        f"process {pid} began and ended no step in that time: it called no module, or stayed within one call"
    )
