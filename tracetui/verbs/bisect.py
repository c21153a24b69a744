"""`tracetui bisect GOOD BAD -- CMD`: the commit, or version, since which a row or step takes another time."""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from capture.clean_text import clean
from capture.errors import EngineError, UsageError
from tracetui import units
from tracetui.glyphs import clip_cells
from tracetui.history import git, version_search
from tracetui.history.version_search import SearchResult, VersionChange, VersionSearch
from tracetui.verbs import _comparison_sides, _options
from tracetui.verbs._version_runs import (
    PLACE,
    RunBudget,
    VersionQuestion,
    VersionRun,
    VersionRuns,
    format_command,
)

if TYPE_CHECKING:
    from tracetui.compare.diff import Diff

NOT_DECIDED: Final = 4
DEFAULT_BUDGET: Final = "30m"
_RUN_COUNT: Final = re.compile(r"(\d{1,6}) ?runs?")
_END_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


def options(parser: ArgumentParser) -> None:
    about = "two commits: the time changed between them"
    parser.add_argument("ends", nargs="*", metavar="GOOD BAD", help=about)
    about = f"instead of commits: versions in order, each put into CMD in place of {PLACE}"
    parser.add_argument("--over", metavar="NAME,NAME…", help=about)
    about = "program that records at least one step; for commits it runs in a worktree of each"
    parser.add_argument("command", nargs="*", metavar="-- CMD", help=about)
    add = _options.find_group(parser, "what is measured").add_argument
    add(
        "--row",
        default="",
        metavar="NAME",
        help="time of this row, or of those that match (default: the step)",
    )
    add("--phase", metavar="PHASE", help="in this phase (default: the longest)")
    add = _options.find_group(parser, "verdict").add_argument
    add("--threshold", default="1%", metavar="PERCENT", help="smallest relevant change")
    about = (
        f"limit of the measured time, as 90s, 10m, 2h, or of the runs, as 40runs (default: {DEFAULT_BUDGET})"
    )
    add("--budget", type=parse_run_budget, default=DEFAULT_BUDGET, metavar="TIME|RUNS", help=about)
    add("--restart", action="store_true", help="forget what an earlier call has measured")
    about = "format of the answer (default: table)"
    _options.find_group(parser, "output").add_argument(
        "--format", choices=("table", "json"), default="table", help=about
    )


def run(args: Namespace) -> int:
    """Print the version at which the time changed, or that there is none; return 0, or 4 if undecided."""
    question, threshold = _build_question(args), _options.parse_percent(args.threshold)
    with _raise_on_signals():
        runs = VersionRuns.open(question, restart=args.restart)
        search = VersionSearch(len(question.versions), threshold)
        for measurement in runs.build_measurements(args.budget):
            search.add(measurement)
        if runs.done:
            _options.print_status(f"{len(runs.done)} runs were measured before (--restart forgets them)")
        if search.result is None:
            _measure_until_decided(args, runs, search)
    assert search.result is not None  # noqa: S101
    if search.result.word == version_search.BROKEN:
        raise _explain_broken(runs, search.result)
    answer = BisectAnswer(args, runs, search)
    sys.stdout.write(json.dumps(answer.as_dict()) + "\n" if args.format == "json" else answer.format_text())
    return NOT_DECIDED if search.result.word == version_search.UNDECIDED else 0


def parse_run_budget(text: str) -> RunBudget:
    """Parse 90s, 10m, 2h or 40runs; raise ArgumentTypeError for anything else."""
    match = _RUN_COUNT.fullmatch(text.strip())
    if match is None:
        try:
            return RunBudget(seconds=_comparison_sides.parse_budget(text))
        except argparse.ArgumentTypeError:
            pass
    elif int(match[1]):
        return RunBudget(runs=int(match[1]))
    raise argparse.ArgumentTypeError(f"invalid budget {clean(text, 40)!r}: use 90s, 10m, 2h or 40runs")


def _build_question(args: Namespace) -> VersionQuestion:
    """Build the question of a command line; raise UsageError for an impossible one."""
    here = Path.cwd()
    command, measured = args.command, {"row": args.row, "phase": args.phase}
    if not command:
        todo = "tracetui bisect GOOD BAD -- python bench.py"
        raise UsageError("no command to measure", todo=todo)
    _comparison_sides.parse_recording(command, "bisect")
    if args.over is not None:
        return VersionQuestion(_parse_names(args), tuple(command), str(here), **measured)
    if len(args.ends) != 2:
        todo = "name two: tracetui bisect GOOD BAD -- CMD, or --over NAME,NAME…"
        raise UsageError(f"bisect takes two commits, not {len(args.ends)}", todo=todo)
    versions = git.list_commits(here, *args.ends)
    root = git.find_root(here)
    return VersionQuestion(
        tuple(versions), tuple(command), str(here.resolve()), str(root.resolve()), **measured
    )


def _parse_names(args: Namespace) -> tuple[git.Version, ...]:
    names = [name.strip() for name in args.over.split(",")]
    if args.ends:
        raise UsageError("--over excludes commits", todo="leave one of them out")
    if len(names) < 2 or not all(names) or len({*names}) < len(names):
        raise UsageError("--over takes two or more different names", todo="--over 4.40,4.41,4.42")
    if not any(PLACE in word for word in args.command):
        raise UsageError(
            f"the command has no {PLACE}", todo=f"write {PLACE} where the name of a version goes"
        )
    return tuple(git.Version(name) for name in names)


@contextlib.contextmanager
def _raise_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the program in order, as Ctrl+C does, so that worktrees are removed."""

    def stop(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    previous = {number: signal.signal(number, stop) for number in _END_SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _measure_until_decided(args: Namespace, runs: VersionRuns, search: VersionSearch) -> None:
    """Measure what the search asks for; its worktrees are removed, however it ends."""
    question = runs.question
    trees = git.Worktrees.open(Path(question.root)) if question.root else None
    table = ProgressTable(runs, search)
    try:
        while (version := search.choose_next()) is not None:
            table.begin_run(version)
            try:
                run = runs.measure(version, trees, args.budget.compute_left(runs.done))
            except TimeoutError:
                _options.print_status(f"{table.name(version)} was stopped: the budget is spent")
                search.give_up()
                break
            search.add(runs.build_measurements(args.budget)[-1])
            runs.remove_recordings(search.compared_since)
            table.end_run(run)
    except (KeyboardInterrupt, SystemExit):
        _options.print_status(f"{len(runs.done)} runs are kept: the same command continues")
        raise
    finally:
        ignored = [signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, *_END_SIGNALS)]
        if trees is not None:
            trees.remove()
        for number, handler in zip((signal.SIGINT, *_END_SIGNALS), ignored, strict=True):
            signal.signal(number, handler)


def _explain_broken(runs: VersionRuns, result: SearchResult) -> EngineError:
    """Return the error for an end that cannot be measured."""
    name = runs.question.versions[result.first_after].name
    why = runs.describe_failure(result.first_after)
    todo = (
        "name ends that run; files that are not committed need absolute paths" if runs.question.root else ""
    )
    return EngineError(f"{name} cannot be measured", why=why, todo=todo)


class ProgressTable:
    """The versions measured so far, on stderr: a table that is drawn again, or a line per run."""

    def __init__(self, runs: VersionRuns, search: VersionSearch) -> None:
        """Show nothing yet."""
        self._runs, self._search = runs, search
        self._is_terminal = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._lines, self._changes = 0, search.machine_changes

    def begin_run(self, version: int) -> None:
        """Show which version is being measured."""
        if self._is_terminal:
            self._draw(f"measuring {self.name(version)} …")

    def end_run(self, run: VersionRun) -> None:
        """Show a run that ended."""
        if self._is_terminal:
            self._draw("")
            return
        outcome = units.format_duration(run.time_ns) if run.time_ns else f"broken: {clean(run.why, 200)}"
        changed = (
            "; the machine changed: measuring again" if self._search.machine_changes > self._changes else ""
        )
        self._changes = self._search.machine_changes
        _options.print_status(f"{self.name(run.version)}: {outcome}; {self._describe_stage()}{changed}")

    def name(self, version: int) -> str:
        """Return the name of a version."""
        return self._runs.question.versions[version].name

    def _describe_stage(self) -> str:
        search = self._search
        if search.result is not None:
            return search.result.word
        low, high = self.name(search.low), self.name(search.high)
        if search.stage == "middle":
            return f"{search.high - search.low} left, after {low} up to {high}"
        return f"comparing {'the ends' if search.stage == 'ends' else 'the neighbours'} {low} and {high}"

    def _draw(self, note: str) -> None:
        width, height = shutil.get_terminal_size()
        measured = sorted({run.version for run in self._runs.done})
        middle = (self._search.low + self._search.high) / 2
        nearest = sorted(sorted(measured, key=lambda v: abs(v - middle))[: max(2, height - 4)])
        rows = [*map(self._format_version, nearest), f"{self._describe_stage()}{'; ' if note else ''}{note}"]
        up = f"\x1b[{self._lines}F" if self._lines else ""
        sys.stderr.write(up + "".join(f"{clip_cells(row, width - 1)}\x1b[K\n" for row in rows) + "\x1b[J")
        sys.stderr.flush()
        self._lines = len(rows)

    def _format_version(self, version: int) -> str:
        times = [run.time_ns for run in self._runs.done if run.version == version and run.time_ns]
        search, about = self._search, self._runs.question.versions[version].about
        side = "good" if version <= search.low else "bad" if version >= search.high else "?"
        if version in search.broken:
            side = "broken"
        median = units.format_duration(statistics.median(times)) if times else "–"
        runs = f"{len(times)} run{'s' * (len(times) != 1)}"
        return f"{self.name(version):<12} {side:<6} {median:>10} {runs:>8}  {about}"


class BisectAnswer:
    """The result of a search in words."""

    def __init__(self, args: Namespace, runs: VersionRuns, search: VersionSearch) -> None:
        """Describe the result of `search`, which has one."""
        assert search.result is not None  # noqa: S101
        self._args, self._runs, self._search, self._result = args, runs, search, search.result
        self._versions = runs.question.versions

    def format_text(self) -> str:
        """Format it as lines for a person."""
        lines = [self._format_verdict()]
        if self._result.word == version_search.CHANGED:
            last, each = self._versions[self._result.last_before], self._result.change
            pairs = f"{each.runs} fresh runs each" if each else ""
            lines.append(f"  compared with {last.name}, {pairs}; {self._count_runs()}")
            lines += self._find_carriers()
            if command := self._build_diff_command():
                lines.append(f"  kernel by kernel: {command}")
        else:
            lines.append(f"  {self._count_runs()}")
            lines += self._find_hidden_rows()
        lines.append(f"  again: {self._build_own_command()}")
        return "\n".join(lines) + "\n"

    def as_dict(self) -> dict[str, Any]:
        """Return it as a JSON object; times are whole nanoseconds."""
        result = self._result
        candidates = self._list_candidates() if result.word == version_search.CHANGED else []
        return {
            "schema": 1,
            "verdict": result.word,
            "versions": [self._describe_version(v) for v in candidates],
            "between": [self._versions[v].name for v in (result.last_before, result.first_after)],
            "row": self._args.row or None,
            **self._describe_size(),
            "threshold": self._search.threshold,
            "more_runs": result.more_runs,
            "runs": [self._describe_run(run) for run in self._runs.done],
            "diff": self._build_diff_command() or None,
            "again": self._build_own_command(),
        }

    def _describe_size(self) -> dict[str, Any]:
        change, first = self._result.change, next((run for run in self._runs.done if run.time_ns), None)
        facts = {name: getattr(first, name, None) for name in ("phase", "what", "per")}
        times = (change.a_ns, change.b_ns, change.low_ns, change.high_ns) if change else (None,) * 4
        for name, ns in zip(("before_ns", "after_ns", "low_ns", "high_ns"), times, strict=True):
            facts[name] = None if ns is None else round(ns)
        return facts | {"change": change.share if change else None}

    def _describe_run(self, run: VersionRun) -> dict[str, Any]:
        time_ns = None if run.time_ns is None else round(run.time_ns)
        return {"version": self._versions[run.version].name, "time_ns": time_ns, "failed": run.why or None}

    def _describe_version(self, version: int) -> dict[str, Any]:
        each = self._versions[version]
        why = self._runs.describe_failure(version) if version in self._search.broken else None
        return {"name": each.name, "commit": each.commit or None, "about": each.about or None, "broken": why}

    def _list_candidates(self) -> list[int]:
        return list(range(self._result.last_before + 1, self._result.first_after + 1))

    def _format_verdict(self) -> str:
        result, change = self._result, self._result.change
        size = f": {self._format_change(change)}" if change else ""
        ends = " and ".join(self._versions[v].name for v in (0, -1))
        if result.word == version_search.CHANGED:
            word = "slower" if change and change.share > 0 else "faster"
            return f"{word} since {self._format_candidates()}{size}"
        if result.word == version_search.SAME:
            return f"no change between {ends}{size}; that is within {self._args.threshold}"
        if result.word == version_search.UNSEEN and change:
            largest = max(map(abs, change.interval))
            least = f"a change of {100 * largest:.2g}% or more would have been found"
            return f"no change found between {ends}{size}; {least}{self._format_requirement()}"
        left = [self._versions[v].name for v in (result.last_before, result.first_after)]
        where = f"after {left[0]} up to {left[1]}" if left[0] != self._versions[0].name else f"between {ends}"
        more = self._format_requirement() or "; a larger --budget continues"
        return f"cannot tell {where}{size}{more}"

    def _format_candidates(self) -> str:
        candidates = self._list_candidates()
        named = [f"{self._versions[v].name} {self._versions[v].about}".strip() for v in candidates]
        if len(candidates) == 1:
            return named[0]
        broken = ", ".join(self._versions[v].name for v in candidates[:-1])
        return f"one of {len(candidates)} versions up to {named[-1]} ({broken}: broken)"

    def _format_change(self, change: VersionChange) -> str:
        first = next(run for run in self._runs.done if run.time_ns)
        low, high = (100 * end for end in change.interval)
        a, b = (units.format_duration(ns) for ns in (change.a_ns, change.b_ns))
        what = " ".join(filter(None, (first.phase, first.what)))
        interval = f"95% likely {low:+.1f}% to {high:+.1f}%"
        return f"{what} {a} → {b} per {first.per}, {100 * change.share:+.1f}% ({interval})"

    def _format_requirement(self) -> str:
        from tracetui.compare.evidence.sample_size import format_requirement

        if self._search.stage != "ends":
            return ""
        seconds = statistics.mean(run.seconds for run in self._runs.done)
        return f"; {format_requirement(self._result.more_runs, seconds)}"

    def _count_runs(self) -> str:
        broken = sorted(self._search.broken)
        names = ", ".join(self._versions[v].name for v in broken)
        changed = "; the machine changed meanwhile" if self._search.machine_changes else ""
        return f"{len(self._runs.done)} runs in all{f'; broken: {names}' if broken else ''}{changed}"

    def _list_recordings(self) -> list[list[str]]:
        """Return the recordings of the versions compared last; an empty list if those of one are gone."""
        ends = (self._result.last_before, self._result.first_after)
        sides = [self._runs.find_recordings(v, self._search.compared_since) for v in ends]
        is_complete = self._search.stage != "middle" and all(sides)
        return [[str(file) for file in side] for side in sides] if is_complete else []

    def _compare_recordings(self) -> "Diff | None":
        """Compare all rows of the versions whose step was compared last; None without recordings."""
        sides = self._list_recordings()
        if self._args.row or not sides:
            return None
        from capture.load_runs import load
        from tracetui.compare.diff import compare_runs
        from tracetui.compare.run_sides import Sides
        from tracetui.look import Look, Terms

        (a, *more_a), (b, *more_b) = ([load(file, cache=False)[0] for file in side] for side in sides)
        compared_sides = Sides((a, b), more_a=tuple(more_a), more_b=tuple(more_b))
        terms = Terms(threshold=self._search.threshold)
        return compare_runs(compared_sides, Look(phase=self._describe_size()["phase"], terms=terms))

    def _find_carriers(self) -> list[str]:
        """Return the line of the comparison that says which rows carry the change of a step."""
        if (compared := self._compare_recordings()) is None:
            return []
        from tracetui.compare.words.decision import describe_decision
        from tracetui.look import Terms

        lines = describe_decision(compared, Terms(threshold=self._search.threshold))
        return [line for line in lines if line.startswith("  carried by ")][:1]

    def _find_hidden_rows(self) -> list[str]:
        """Return a line that names the rows that changed within a step that did not; empty without one."""
        if (compared := self._compare_recordings()) is None:
            return []
        import polars as pl

        from tracetui.compare.params import MAX_NAMED
        from tracetui.compare.words.decision import select_decided_rows

        changed = select_decided_rows(compared).filter(pl.col("median_a_ns") > 0)
        rows = changed.head(MAX_NAMED).iter_rows(named=True)
        named = [f"{row['name']} {row['median_delta_ns'] / row['median_a_ns']:+.1%}" for row in rows]
        return [f"  rows that changed: {', '.join(named)}; --row NAME finds the version"] if named else []

    def _build_diff_command(self) -> str:
        """Return the command that compares the recordings of the neighbours; empty without them."""
        sides = self._list_recordings()
        if not sides:
            return ""
        a, b = sides
        more = ["--phase", self._args.phase] if self._args.phase else []
        words = ["tracetui", "diff", "--a", *a, "--b", *b, "--threshold", self._args.threshold, *more]
        return format_command(words)

    def _build_own_command(self) -> str:
        """Return the command line that asks the same, with all options."""
        args, budget = self._args, self._args.budget
        words = ["tracetui", "bisect", *args.ends]
        words += ["--over", args.over] if args.over is not None else []
        words += [
            word
            for name in ("row", "phase")
            if getattr(args, name)
            for word in (f"--{name}", getattr(args, name))
        ]
        words += ["--threshold", args.threshold, "--budget", format_run_budget(budget)]
        words += ["--format", args.format] if args.format != "table" else []
        return format_command([*words, "--", *args.command])


def format_run_budget(budget: RunBudget) -> str:
    """Format a budget as `parse_run_budget` reads it."""
    return f"{budget.runs:.0f}runs" if budget.runs != float("inf") else f"{budget.seconds:g}s"
