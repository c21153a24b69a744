"""Several recordings of the same, one after another, and how far they lie apart."""

from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tracetui.verbs import _shared

MOST: Final = 1000
SEVERAL: Final = 3  # recordings a side that usually tell a change


def count(text: str) -> int:
    """Return how many recordings are asked for; raise ArgumentTypeError where that is no such number."""
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise ArgumentTypeError(f"{text!r} is no number from 1 to {MOST:,}")
    return int(text)


def record(args: Namespace, outs: Sequence[Path], once: Callable[[Namespace, Path], int]) -> int:
    """Record once into each of the files, say how far they lie apart, and return the exit code: that of the
    first recording that failed, which ends the series. What was not begun leaves no file.
    """
    made: list[Path] = []
    try:
        for number, out in enumerate(outs, 1):
            _shared.say(f"recording {number} of {len(outs)}")
            if code := once(args, out):
                return code
            made.append(out)
    finally:
        for out in outs:
            if out not in made and out.exists() and not out.stat().st_size:
                out.unlink()
        if len(made) < len(outs):
            _shared.say(f"{len(made)} of {len(outs)} recordings were made{': ' * bool(made)}{_names(made)}")
    for line in sentences(made):
        _shared.say(line)
    return 0


def sentences(files: Sequence[Path]) -> list[str]:
    """Return how far recordings of the same lie apart, what that means, and how to keep them."""
    from capture.open import load
    from tracetui import units
    from tracetui.analysis.compare import machine
    from tracetui.analysis.compare.floor import measured
    from tracetui.analysis.compare.run_times import run_times, told_by

    runs = [load(file)[0] for file in files]
    took, floor = run_times(runs), measured(runs)
    line = f"{len(runs)} recordings"
    if took:
        low, high = (units.duration(time) for time in (min(took.times), max(took.times)))
        phase = f"{took.phase} " if took.phase else ""
        line += f": {phase}{low} to {high} a {took.per}"
    if floor is None:
        busy = any(machine.load_words(run) for run in runs)
        why = ": others had the processor in most of their steps" if busy else ""
        return [f"{line}; how far they lie apart cannot be told{why}"]
    one, several = (f"{told_by(floor.spread, floor.freedom, n):.1%}" for n in (1, SEVERAL))
    line += f", run-to-run floor {floor.percent}: one recording a side tells a change of about {one}"
    return [f"{line}, {SEVERAL} a side {several}", f"keep them: tracetui baseline NAME {_names(files)}"]


def _names(files: Sequence[Path]) -> str:
    return " ".join(map(str, files))
