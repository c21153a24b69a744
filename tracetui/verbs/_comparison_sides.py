"""The two sides of a comparison: files named on the command line, or two commands recorded in turn."""

import math
import shlex
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from capture.clean_text import clean
from capture.errors import EngineError, UsageError
from capture.load_runs import expand_inputs, format_run_names, load_all, resolve_run_index
from capture.run import Run
from tracetui import units
from tracetui.analysis.frames.selection import compute_total_ns
from tracetui.compare.run_sides import (
    Sides,
    add_identical_runs,
    find_distinct,
    is_among,
    read_file_name,
)
from tracetui.process import UserProgram
from tracetui.verbs import _engine_options, _options, _recording, record

if TYPE_CHECKING:
    from tracetui.compare.diff import Diff

SIDE_NAMES: Final = "ab"
PROGRAM_POLL_S: Final = 0.1  # between two checks whether a program still runs

# Compares the files of both sides with this share of alpha; returns the result and whether it is decided.
CompareSoFar = Callable[[Sequence[Path], Sequence[Path], float], tuple["Diff", bool]]
NamedSides = tuple[list[Run], list[int], list[int], list[str]]  # all runs, places of a and of b, notes


class PlacedSides(NamedTuple):
    """The sides, and where the two runs that represent them are among all loaded runs."""

    sides: Sides
    a: int
    b: int


def read_sides(args: Namespace) -> PlacedSides:
    """Load what is compared, each recording once, and the identical runs of --aa.

    The middle run of a side represents it. Raise UsageError if a side has no run, or a run is on both sides.
    """
    runs, named_a, named_b, notes = _read_named_sides(args)
    a, b = (_list_distinct(runs, side) for side in (named_a, named_b))
    on_a, on_b = ([runs[i] for i in side] for side in (a, b))
    for run in on_a if len(on_a) + len(on_b) > 2 else ():
        if is_among(run, on_b):
            raise UsageError(f"{read_file_name(run)} is on both sides", todo="name it on one of them")
    again = (runs[i] for i in (*named_a, *named_b) if i not in (*a, *b))
    notes += [f"{read_file_name(run)} is named twice: counted once" for run in again]
    sides = Sides((on_a[0], on_b[0]), more_a=tuple(on_a[1:]), more_b=tuple(on_b[1:]), notes=tuple(notes))
    identical = [loaded[0] for loaded in _iter_inputs(args, args.aa)]
    return PlacedSides(add_identical_runs(sides, identical), a[0], b[0])


def _list_distinct(runs: Sequence[Run], places: Sequence[int]) -> list[int]:
    """Return the places without duplicate recordings, that of the middle run first."""
    distinct = [places[i] for i in find_distinct([runs[p] for p in places])]
    if len(distinct) == 1:
        return distinct
    from tracetui.compare.evidence.repeat_test import find_median_run

    middle = find_median_run([compute_total_ns(runs[i]) or 0 for i in distinct])
    return [distinct[middle], *distinct[:middle], *distinct[middle + 1 :]]


def _read_named_sides(args: Namespace) -> NamedSides:
    """Load a file or folder and its --a against another and its --b; or two runs of the only file."""
    if len(args.files) > 2:
        todo = "tracetui compare FILE… puts many side by side; --a FILE… and --b FILE… take repeats of a side"
        raise UsageError("diff takes two inputs", todo=todo)
    first, second = [*args.files[:1], *args.a], [*args.files[1:], *args.b]
    if len(args.files) == 1 and not args.a and not args.b:
        return _split_one_file(args)
    if not first or not second:
        missing, option = ("second", "--b") if first else ("first", "--a")
        raise UsageError(f"the {missing} side has no file", todo=f"name one, or several after {option}")
    runs: list[Run] = []
    places: tuple[list[int], list[int]] = ([], [])
    several: list[str] = []
    for side, files, which in (("a", first, args.run_a), ("b", second, args.run_b)):
        for loaded in _iter_inputs(args, files):
            places["ab".index(side)].append(len(runs) + resolve_run_index(loaded, which))
            runs += loaded
            if len(loaded) > 1 and which is None:
                has = f"{read_file_name(loaded[0])} has {len(loaded)} runs ({format_run_names(loaded)})"
                several.append(f"{has}: comparing the first; --run-{side} selects another")
    return runs, *places, several


def _iter_inputs(args: Namespace, files: Sequence[str]) -> Iterator[list[Run]]:
    """Yield the runs of each file; the files of a folder are repeats, unless they are ranks of one launch."""
    options = _options.build_read_options(args)
    folders = [] if args.merge else [file for file in files if Path(file).is_dir()]
    for folder in folders:
        runs, inputs = load_all([folder], **options), expand_inputs([folder])
        is_split = len(runs) not in (1, len(inputs))  # files of several runs
        yield from (load_all([file], **options) for file in inputs) if is_split else ([run] for run in runs)
    others = [file for file in files if file not in folders]
    for file in others if args.merge else expand_inputs(others):
        yield load_all([file], **options)


def _split_one_file(args: Namespace) -> NamedSides:
    runs = load_all(args.files, **_options.build_read_options(args))
    if len(runs) < 2:
        raise UsageError(f"{args.files[0]} has only one run", todo="name a second file: tracetui diff A B")
    places = [resolve_run_index(runs, which) for which in (args.run_a or "1", args.run_b or "2")]
    return runs, places[:1], places[1:], []


def parse_budget(text: str) -> float:
    """Parse a time into seconds; raise ArgumentTypeError for anything else."""
    try:
        return _engine_options.parse_duration(text.strip())
    except ValueError:
        raise ArgumentTypeError(f"invalid time {text!r}: use 90s, 5m or 1h") from None


@dataclass
class PairRecordings:
    """The recordings of the two commands."""

    files: tuple[list[Path], list[Path]] = field(default_factory=lambda: ([], []))
    alpha_share: float = 1.0  # of the last comparison

    def describe(self) -> str:
        """Return the first file and the number of others, for a message."""
        files = [file for side in self.files for file in side]
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        return f"{files[0]}{more} (tracetui recordings lists them)"


def record_until_decided(commands: Sequence[str], seconds: float, ask: CompareSoFar) -> PairRecordings:
    """Record two commands alternately until their comparison is decided or no further pair fits.

    The order a b, b a, a b … spreads a drift of the machine evenly; `ask` compares after each pair. Finished
    recordings are kept and named, also after an error. Raise UsageError for an invalid command, EngineError
    for one that fails.
    """
    sides = [_parse_command(text) for text in commands]
    made = PairRecordings()
    try:
        _record_pairs(sides, seconds, ask, made)
    finally:
        if any(made.files):
            _options.print_status(f"recordings kept: {made.describe()}")
    return made


def _record_pairs(
    sides: Sequence[Namespace], seconds: float, ask: CompareSoFar, made: PairRecordings
) -> None:
    from tracetui.compare.evidence.sample_size import AlphaSpending, format_wait
    from tracetui.compare.params import MIN_RUNS_PER_SIDE

    began, looks = time.monotonic(), AlphaSpending()
    for number, order in enumerate(cycle(((0, 1), (1, 0))), 1):
        before = time.monotonic()
        for side in order:
            made.files[side].append(_record_side(sides[side], SIDE_NAMES[side], number))
        now = time.monotonic()
        pair, passed = now - before, now - began
        last = passed + pair > seconds
        more = f"about {format_wait(pair)} per further pair, {format_wait(seconds - passed)} left"
        if number < MIN_RUNS_PER_SIDE and not last:
            _options.print_status(f"after {number} per side: {more}")
            continue
        made.alpha_share = looks.spend(1.0 if last else passed / seconds)
        compared, decided = ask(*made.files, made.alpha_share)
        left = (
            "" if decided else f"; no further pair fits into {format_wait(seconds)}" if last else f"; {more}"
        )
        _options.print_status(f"after {number} per side: {_describe_verdict(compared)}{left}")
        if decided or last:
            return


def _describe_verdict(compared: "Diff") -> str:
    """Return the verdict of the longest phase."""
    from tracetui.compare.words.decision import select_main_phase

    row = select_main_phase(compared)
    if row is None:
        return "undecided: no phase is timed on both sides"
    word = "undecided" if row["verdict"] == "~" else row["verdict"]
    change = f" ({100 * (row['b_ns'] / row['a_ns'] - 1):+.1f}%)" if row["a_ns"] else ""
    what = " ".join(filter(None, (row["phase"], row["what"])))
    before, after = (units.format_duration(row[c]) for c in ("a_ns", "b_ns"))
    return f"{word}: {what} {before} → {after}{change}"


def _parse_command(text: str) -> Namespace:
    """Parse a command line, which is split as a shell would, but never passed to a shell."""
    try:
        words = shlex.split(text)
    except ValueError as e:
        raise UsageError(f"invalid command {clean(text)!r}", why=str(e).lower()) from None
    if not words:
        raise UsageError("empty command", todo="diff --record 'CMD A' 'CMD B'")
    return parse_recording(words, "diff --record")


def parse_recording(words: Sequence[str], verb: str) -> Namespace:
    """Parse a program, or options of the bundled engine if they start with one; `verb` is for messages."""
    parser = ArgumentParser(f"tracetui {verb}", add_help=False)
    record.options(parser)
    args = parser.parse_args(words if words[0].startswith("-") else ["--", *words])
    if args.output is not None or args.repeat > 1:
        raise UsageError(f"{verb} chooses files and repeats itself", todo="leave out -o and --repeat")
    if args.steps is None:
        args.steps = record.DEFAULT_STEPS[args.mode]
    args.quiet = True
    return args


def _record_side(args: Namespace, side: str, number: int) -> Path:
    """Record one side; raise EngineError if that fails, and leave no file then."""
    out = _engine_options.create_output_file(args, f"-{side}-{number}")
    try:
        if not args.command:
            record.record_once(args, out)
        elif why := record_program_quietly(args.command, out):
            command = clean(shlex.join(args.command), 60)
            raise EngineError(f"the command of {side} ({command}): {why}")
    except BaseException:
        out.unlink(missing_ok=True)
        raise
    return out


def record_program_quietly(command: Sequence[str], out: Path, seconds: float = math.inf) -> str:
    """Record a program to its end, without its output; return why that failed, else an empty text.

    Raise TimeoutError if it does not end within so many seconds.
    """
    program, deadline = UserProgram(command, out), time.monotonic() + seconds
    try:
        program.start_sampler(out)
        while program.is_running:
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(PROGRAM_POLL_S)
        nothing = "" if _recording.count_steps_and_rows(out)[1] else program.explain_empty_recording()
    finally:
        program.stop()
    return program.explain_failure() or nothing or program.gap_warning
