"""Two commands recorded in turn until their comparison is decided, or the time that was given is spent."""

import shlex
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from capture.errors import EngineError, UsageError
from capture.text import clean
from tracetui.process import Foreign
from tracetui.verbs import _engine, _program, _shared, _watch, record

if TYPE_CHECKING:
    from tracetui.analysis.compare.diff import Diff

SIDES: Final = "ab"
EVERY: Final = 0.1  # seconds between two looks at a program that runs

# the comparison of the files of either side, in which this share of the chance of error may be used, and
# whether it is decided
Ask = Callable[[Sequence[Path], Sequence[Path], float], tuple["Diff", bool]]


def budget(text: str) -> float:
    """Return seconds; raise ArgumentTypeError for what is no time."""
    try:
        return _watch.duration(text.strip())
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no time: write it like 90s, 5m or 1h") from None


@dataclass
class Recordings:
    """What was recorded of the two commands."""

    files: tuple[list[Path], list[Path]] = field(default_factory=lambda: ([], []))
    share: float = 1.0  # of the chance of error, that the last look had

    def words(self) -> str:
        """Return where the recordings are."""
        every = [file for side in self.files for file in side]
        more = f" and {len(every) - 1} more" if len(every) > 1 else ""
        return f"{every[0]}{more} (tracetui recordings lists them)"


def record_until_decided(commands: Sequence[str], seconds: float, ask: Ask) -> Recordings:
    """Record the commands in the order a b, b a, a b … and ask after each pair, until it is decided or no
    further pair fits; return what was recorded. Raise UsageError for a command that cannot be read, and
    EngineError for one that fails. What is finished is kept and named, also then; what is not is removed.
    """
    sides = [_parsed(text) for text in commands]
    made = Recordings()
    try:
        _record_pairs(sides, seconds, ask, made)
    finally:
        if any(made.files):
            _shared.say(f"recordings kept: {made.words()}")
    return made


def _record_pairs(sides: Sequence[Namespace], seconds: float, ask: Ask, made: Recordings) -> None:
    from tracetui.analysis.compare.sequential import FEWEST_RUNS, Looks

    began, looks = time.monotonic(), Looks()
    for number, order in enumerate(_orders(), 1):
        before = time.monotonic()
        for side in order:
            made.files[side].append(_recorded(sides[side], SIDES[side], number))
        now = time.monotonic()
        pair, passed = now - before, now - began
        last = passed + pair > seconds
        more = f"about {_long(pair)} a pair more, {_long(seconds - passed)} left"
        if number < FEWEST_RUNS and not last:
            _shared.say(f"after {number} a side: {more}")
            continue
        made.share = looks.next(1.0 if last else passed / seconds)
        compared, decided = ask(*made.files, made.share)
        if decided:
            _shared.say(f"after {number} a side: {_verdict(compared)}")
            return
        left = f"no further pair fits into {_long(seconds)}" if last else more
        _shared.say(f"after {number} a side: {_verdict(compared)}; {left}")
        if last:
            return


def _orders() -> Iterator[tuple[int, int]]:
    """Yield a b, b a, a b …: over every two pairs a steady drift of the machine meets both alike."""
    while True:
        yield 0, 1
        yield 1, 0


def _verdict(compared: "Diff") -> str:
    """Return what is known of the phase that takes longest."""
    from tracetui import units
    from tracetui.analysis.compare.sequential import main_phase

    row = main_phase(compared)
    if row is None:
        return "undecided: no phase is timed on both sides"
    word = "undecided" if row["verdict"] == "~" else row["verdict"]
    change = f" ({100 * (row['b_ns'] / row['a_ns'] - 1):+.1f}%)" if row["a_ns"] else ""
    what = " ".join(filter(None, (row["phase"], row["what"])))
    return f"{word}: {what} {units.duration(row['a_ns'])} → {units.duration(row['b_ns'])}{change}"


def _long(seconds: float) -> str:
    from tracetui.analysis.compare.what_it_takes import long

    return long(seconds)


def _parsed(text: str) -> Namespace:
    """Return what a command asks for: a program, or options of the bundled engine where it begins with one.

    It is split into words as a shell would split it, and never given to one.
    """
    try:
        words = shlex.split(text)
    except ValueError as e:
        raise UsageError(f"{clean(text)!r} is no command", why=str(e).lower()) from None
    if not words:
        raise UsageError("a command is empty", todo="diff --record 'CMD A' 'CMD B'")
    parser = ArgumentParser("tracetui diff --record", add_help=False)
    record.options(parser)
    asked = parser.parse_args(words if words[0].startswith("-") else ["--", *words])
    if asked.output is not None or asked.repeat > 1:
        raise UsageError("diff --record itself chooses files and repeats", todo="leave out -o and --repeat")
    if asked.steps is None:
        asked.steps = record.STEPS[asked.mode]
    asked.quiet = True
    return asked


def _recorded(asked: Namespace, side: str, number: int) -> Path:
    """Return a new recording; raise EngineError where there is none, and leave no file then."""
    out = _engine.place(asked, f"-{side}-{number}")
    done = False
    try:
        if asked.command:
            _run_program(asked.command, out, side)
        else:
            record.once(asked, out)
        done = True
    finally:
        if not done:
            out.unlink(missing_ok=True)
    return out


def _run_program(command: Sequence[str], out: Path, side: str) -> None:
    """Record a program to its end; what it prints is shown only where it fails."""
    program = Foreign(command, out)
    try:
        program.sample_into(out)
        while program.running:
            time.sleep(EVERY)
        nothing = "" if _program.count(out)[1] else program.nothing_reason()
    finally:
        program.stop()
    if why := program.failure_reason() or nothing or program.gap_warning:
        raise EngineError(f"the command of {side} ({clean(shlex.join(command), 60)}): {why}")
