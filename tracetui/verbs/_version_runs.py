"""Measure the versions of a bisect, and keep what was measured in a file that outlives a kill."""

import contextlib
import fcntl
import hashlib
import io
import json
import os
import shlex
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from capture.clean_text import clean
from capture.errors import CaptureError, UsageError
from capture.files.user_dirs import create_private_file, find_state_folder, make_private
from tracetui.history.git import Version, Worktrees
from tracetui.history.version_search import Measurement
from tracetui.verbs import _comparison_sides, record

if TYPE_CHECKING:
    import polars as pl

RUNS_FILE: Final = "runs.jsonl"
PLACE: Final = "{}"  # in a command: where the name of a version goes


@dataclass(frozen=True)
class VersionQuestion:
    """The versions, in order, and what is measured of each: a row, or the step of a phase."""

    versions: tuple[Version, ...]
    command: tuple[str, ...]
    folder: str  # in which the command runs: below `root`, if the versions are commits
    root: str = ""  # of the repository
    row: str = ""
    phase: str | None = None

    @property
    def key(self) -> str:
        """A digest of it."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


@dataclass(frozen=True)
class VersionRun:
    """A line of the file: one run of a version."""

    version: int
    time_ns: float | None  # None: it failed
    seconds: float  # that it took, with what was before it
    why: str = ""  # it failed
    phase: str | None = None
    what: str = ""  # as measured: step, kernels, or the names of the rows
    per: str = ""
    file: str = ""  # the recording, if it is still there


@dataclass(frozen=True)
class RunBudget:
    """A limit of the measured time, or of the number of runs."""

    seconds: float = float("inf")
    runs: float = float("inf")

    def compute_spent(self, done: Sequence[VersionRun]) -> float:
        """Return the share that is spent; 1 and more: all."""
        return max(sum(run.seconds for run in done) / self.seconds, len(done) / self.runs)

    def compute_left(self, done: Sequence[VersionRun]) -> float:
        """Return the seconds that are left."""
        return self.seconds - sum(run.seconds for run in done)


@dataclass
class VersionRuns:
    """The runs of a question, those of earlier calls first. One process at a time may add to them."""

    question: VersionQuestion
    folder: Path
    done: list[VersionRun]
    _file: IO[bytes] = field(repr=False)

    @classmethod
    def open(cls, question: VersionQuestion, *, restart: bool) -> "VersionRuns":
        """Read what was measured, or forget it; raise UsageError while another process measures it."""
        state = find_state_folder()
        parent = make_private(state / "bisect") if state else None
        folder = make_private(parent / question.key) if parent else None
        if folder is None:
            raise CaptureError("there is no private folder for the measured runs", todo="set XDG_STATE_HOME")
        path = folder / RUNS_FILE
        create_private_file(path)
        file = path.open("r+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise UsageError("the same bisect is running", todo="wait for its end, or stop it") from None
        runs = cls(question, folder, [], file)
        if restart:
            file.truncate(0)
        runs._read()
        runs._remove_unlisted_recordings()
        return runs

    def build_measurements(self, budget: RunBudget) -> list[Measurement]:
        """Return the runs as measurements of a search with a budget."""
        runs = enumerate(self.done, 1)
        return [Measurement(run.version, run.time_ns, budget.compute_spent(self.done[:n])) for n, run in runs]

    def measure(self, version: int, worktrees: Worktrees | None, seconds: float) -> VersionRun:
        """Record one run of a version, and keep it; a version that fails is no error.

        Raise TimeoutError, and keep nothing, if its program does not end within so many seconds.
        """
        name = f"{version}-{len(self.done) + 1}.jsonl"
        out, began = self.folder / name, time.monotonic()
        out.unlink(missing_ok=True)
        create_private_file(out)
        facts: dict[str, Any] = {}
        try:
            why = self._record(self.question.versions[version], out, worktrees, seconds)
            if not why:
                facts, why = self._read_time(out)
        except BaseException:
            out.unlink(missing_ok=True)
            raise
        if why:
            out.unlink(missing_ok=True)
        outcome = facts or {"time_ns": None, "why": why}
        run = VersionRun(version, seconds=time.monotonic() - began, file="" if why else name, **outcome)
        self._append(run)
        return run

    def find_recordings(self, version: int, since: int) -> list[Path]:
        """Return the recordings of a version since a place among the runs, as far as they are there."""
        files = [self.folder / run.file for run in self.done[since:] if run.version == version and run.file]
        return [file for file in files if file.exists()]

    def remove_recordings(self, until: int) -> None:
        """Remove the recordings before a place among the runs: their times are kept."""
        for run in self.done[:until]:
            if run.file:
                (self.folder / run.file).unlink(missing_ok=True)

    def describe_failure(self, version: int) -> str:
        """Return why the last run of a version failed; empty if it did not."""
        runs = [run for run in self.done if run.version == version]
        return runs[-1].why if runs else ""

    def _remove_unlisted_recordings(self) -> None:
        """Remove recordings that a killed call was making."""
        names = {RUNS_FILE, *(run.file for run in self.done)}
        for path in self.folder.glob("*.jsonl"):
            if path.name not in names:
                path.unlink(missing_ok=True)

    def _read(self) -> None:
        """Read the file up to the line that a kill has torn, and cut it there."""
        good = 0
        self._file.seek(0)
        for line in self._file:
            try:
                self.done.append(VersionRun(**json.loads(line)))
            except (ValueError, TypeError):
                break
            good += len(line)
        self._file.truncate(good)
        self._file.seek(good)

    def _append(self, run: VersionRun) -> None:
        self._file.write(json.dumps(asdict(run)).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.done.append(run)

    def _record(self, version: Version, out: Path, worktrees: Worktrees | None, seconds: float) -> str:
        """Record a version into `out`; return why that failed, else an empty text."""
        folder, words = Path(self.question.folder), list(self.question.command)
        if worktrees is not None:
            below = folder.relative_to(self.question.root)
            folder = worktrees.check_out(version) / below
            if not folder.is_dir():
                return f"the commit has no folder {clean(str(below), 200)}"
        else:
            words = [word.replace(PLACE, version.name) for word in words]
        args = _comparison_sides.parse_recording(words, "bisect")
        try:
            with contextlib.chdir(folder):
                if args.command:
                    return _comparison_sides.record_program_quietly(args.command, out, seconds)
                with contextlib.redirect_stderr(io.StringIO()):
                    record.record_once(args, out)
        except CaptureError as error:
            return str(error)
        return ""

    def _read_time(self, out: Path) -> tuple[dict[str, Any], str]:
        """Return the time of the row or step with its labels; else why there is none."""
        from capture.load_runs import load
        from tracetui.history.part import build_part

        try:
            part = build_part(load(out, cache=False)[0])
        except CaptureError as error:
            return {}, str(error)
        phase = self.question.phase or next((run.phase for run in self.done if run.phase), None)
        return find_time(part, self.question.row, phase)


def find_time(part: "pl.DataFrame", row: str, phase: str | None) -> tuple[dict[str, Any], str]:
    """Return the time of a step in a phase, by default the longest, or of the rows that match; else why not.

    A row that has exactly this name is the only one that matches.
    """
    import polars as pl

    from tracetui.analysis.frames.name_filter import match_names

    phases = part.filter((pl.col("kind") == "phase") & pl.col("median_ns").is_not_null())
    if phase is not None:
        phases = phases.filter(pl.col("phase") == phase)
    size = pl.col("median_ns") * pl.col("steps")
    phases = phases.sort(pl.col("name") == "step", size, descending=True)
    lines = phases.head(1)
    if row:
        where = pl.lit(phase if phase is not None else lines["phase"].first(), pl.String)
        rows = part.filter((pl.col("kind") == "row") & pl.col("median_ns").is_not_null())
        rows = rows.filter(pl.col("phase").eq_missing(where))
        exact = rows.filter(pl.col("name") == row)
        lines = exact if exact.height else rows.filter(match_names(rows["name"], row))
    if not lines.height:
        in_phase = f" in {clean(phase, 40)}" if phase else ""
        return (
            {},
            f"no row matches {clean(row, 60)!r}{in_phase}" if row else f"no step was recorded{in_phase}",
        )
    what = ", ".join(lines["name"].head(3)) + (" …" if lines.height > 3 else "")
    facts = {"phase": lines["phase"][0], "what": what, "per": lines["per"][0]}
    return {"time_ns": float(lines["median_ns"].sum()), **facts}, ""


def format_command(words: Sequence[str]) -> str:
    """Format words as a shell would take them."""
    return " ".join(word if word == PLACE else shlex.quote(word) for word in words)
