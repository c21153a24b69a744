"""Record a program of the user's: it runs as it would alone, and our words come after its end, on stderr."""

import secrets
import shutil
import sys
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from typing import Final

from capture.errors import EngineError
from capture.native.parts import earlier_parts, first_line
from tracetui import rooms
from tracetui.process import Account, Engine, Program, recorded_environment, sampler_command
from tracetui.verbs import _shared

EVERY: Final = 0.5  # seconds between two looks for processes that are not watched
_BESIDES: Final = tuple(b'{"kind":"%s"' % kind for kind in (b"run", b"plan", b"counter", b"mark", b"end"))
_STEP: Final = b'{"kind":"step"'


def record(args: Namespace, out: Path) -> int:
    """Run the command, recorded into `out`, and return its exit code; raise EngineError where nothing was
    watched or not all was written, though the program itself ended well.
    """
    account = Account(secrets.token_hex(8))
    try:
        code = _run(args.command, out, account)
        return conclude(args, out, account, code)
    finally:
        account.remove()


def conclude(args: Namespace, out: Path, account: Account, code: int = 0, nothing: str = "") -> int:
    """Say what was seen of a program that ended with this exit code, and return it; raise EngineError as
    `record` does. `nothing` is why nothing was seen, where the processes do not tell.
    """
    steps, rows = count(out)
    if not rows:
        out.unlink(missing_ok=True)
        return _told_or_raised(code, f"nothing was watched, because {nothing or account.nothing_reason()}")
    if not args.quiet:
        _tell(out, account.sentences(steps), with_summary=args.repeat == 1)
    if gaps := account.gaps():
        return _told_or_raised(code, f"the recording has gaps: {gaps}", f"tracetui open {out}")
    return code


def _run(command: list[str], out: Path, account: Account) -> int:
    try:
        program = Program(command, {**recorded_environment(out), **account.environment})
    except EngineError:
        out.unlink(missing_ok=True)
        raise
    sampler = Engine(sampler_command(out, program.pid), rooms.environment(), takes_orders=False)
    try:
        return program.wait(EVERY, lambda: account.look_for_silent(program.pid))
    finally:
        sampler.stop()


def count(out: Path) -> tuple[int, int]:
    """Return how many steps a recording has in all its parts, and how many lines of what was timed."""
    steps = rows = 0
    for part in map(Path, (*earlier_parts(out, first_line(out)), str(out))):
        with suppress(FileNotFoundError), part.open("rb") as file:
            for line in file:
                rows += not (line.isspace() or line.startswith(_BESIDES))
                steps += line.startswith(_STEP)
    return steps, rows


def _told_or_raised(code: int, what: str, todo: str = "") -> int:
    """Return the exit code of a program that failed by itself; raise EngineError for one that did not."""
    if not code:
        raise EngineError(what, todo=f"what was recorded opens: {todo}" if todo else "")
    _shared.say(what)
    return code


def _tell(out: Path, sentences: list[str], *, with_summary: bool) -> None:
    """Print on stderr what was seen, and the summary."""
    for sentence in sentences:
        _shared.say(sentence)
    _shared.say(f"recorded {out}")
    if not with_summary:
        return
    from capture.open import load
    from tracetui.look import Look
    from tracetui.report import report
    from tracetui.views import view

    width = shutil.get_terminal_size((120, 40)).columns
    sys.stderr.write(report(view("summary"), load(out), Look(), "table", width=width))
