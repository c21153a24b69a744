"""A recording of what others tell of a program: windows of its kernels, figures and words, on one clock."""

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import polars as pl

from capture.importlog import Log
from capture.native.emit import Emitter, clock_pair
from capture.native.recognise import FORMAT
from capture.native.schema import SCHEMA, TIMES, seal
from capture.native.write import event_lines, log_line
from capture.ranks import on_rank_tracks, to_epoch
from capture.run import Run

_OF_ONE_WINDOW: Final = ("clock", "clock_base_ns", "rank", "truncated", "folded")  # of a run's meta
_PLAUSIBLE_NS: Final = 366 * 86_400 * 10**9  # a start so near to its file's date is on the clock of the epoch


class Recording:
    """Appends to a file what a run is made of; threads may share it."""

    def __init__(self, out: Path, name: str, meta: Mapping[str, Any]) -> None:
        """Begin a run in a file."""
        self.out = out
        self._emitter = Emitter(out, tells_cost=False)
        self._id, self._name = secrets.token_hex(8), name
        self._emitter.run(name, meta, id=self._id)
        self._last_step: dict[int | None, int] = {}  # by rank
        self._next_op = 0
        self._log = Log(name, FORMAT)
        self._has_device = False
        self.windows = 0

    def add(self, meta: Mapping[str, Any]) -> None:
        """Add to what the run tells of itself; what was told of it before stands."""
        head = {"kind": "run", "schema": SCHEMA, "id": self._id, "name": self._name}
        self._emitter.line(seal({**head, "meta": dict(meta)}), 0)

    def counter(self, name: str, value: float, unit: str = "", track: str | None = None) -> None:
        """Write a figure of this moment."""
        self._emitter.counter(name, value, unit, track=track)

    def mark(self, text: str, path: str) -> None:
        """Write words of this moment; `path` is their class."""
        self._emitter.mark(text, path)

    def flush(self) -> None:
        """Write what waits."""
        self._emitter.flush()

    @property
    def unwritten(self) -> str:
        """What could not be written, as a sentence; empty where all was."""
        return self._emitter.unwritten

    def window(self, runs: Sequence[Run], written_ns: int) -> int:
        """Write the events of runs that one file held as the next window, and return how many those are.

        A file that does not tell its clock is put so that its last event ends when it was written, in Unix
        time. Steps are counted on. Once a device was seen, what a file without one shows is no work of one.
        """
        rows = 0
        for run in runs:
            self.add({key: value for key, value in run.meta.items() if key not in _OF_ONE_WINDOW})
            events = self._on_device(self._placed(run, written_ns))
            for line, count in event_lines(events, self._next_op):
                self._emitter.line(line, count)
            self._next_op += events.height
            rows += events.height
            self._account(run)
        self.windows += 1
        self._emitter.line(log_line(self._log.freeze()), 0)
        self.flush()
        return rows

    def end(self) -> None:
        """Write what waits, and the end."""
        self._emitter.end()

    def _placed(self, run: Run, written_ns: int) -> pl.DataFrame:
        """Return the events on our clock, with steps behind those of the windows before."""
        rank = run.meta.get("rank") if (run.meta.get("world_size") or 1) != 1 else None
        mono, unix = clock_pair()
        shift = self._to_unix(run, written_ns) + mono - unix
        events = on_rank_tracks(run, rank, shift) if rank is not None else _shifted(run, shift)
        steps = events["step"].drop_nulls() if run.has("step") else pl.Series([], dtype=pl.Int64)
        if steps.len():
            lowest, highest = steps.sort()[[0, -1]]
            on = self._last_step.get(rank, -1) + 1 - lowest
            self._last_step[rank] = highest + on
            events = events.with_columns(pl.col("step") + on)
        return events

    def _to_unix(self, run: Run, written_ns: int) -> int:
        """Return what to add to the times of a run for Unix time."""
        stated = to_epoch(run)
        if stated is not None or not run.has("t"):
            return stated or 0
        first = int(run.events["t"].min() or 0)  # type: ignore[arg-type]
        if abs(first - written_ns) < _PLAUSIBLE_NS:
            return 0
        last = run.events.select((pl.col("t") + (pl.col("dur").fill_null(0) if run.has("dur") else 0)).max())
        self._log.note("clock_untold", "windows whose clock is not told end when their file was written")
        return written_ns - int(last.item() or 0)

    def _on_device(self, events: pl.DataFrame) -> pl.DataFrame:
        """Return the events; host operations that stand for a device are none where there is one."""
        if not {"kind", "lens"} <= set(events.columns):
            return events
        leaf = (pl.col("kind") == "kernel") & (pl.col("lens") != "gpu")
        here = events.select(((pl.col("kind") == "kernel") & (pl.col("lens") == "gpu")).any()).item()
        self._has_device = self._has_device or here
        if here or not self._has_device:
            return events
        span = pl.lit(pl.Series(["span"], dtype=pl.Categorical()))
        return events.with_columns(kind=pl.when(leaf).then(span).otherwise("kind"))

    def _account(self, run: Run) -> None:
        self._log.read += run.log.read
        self._log.repaired += run.log.repaired
        self._log.dropped += run.log.dropped
        for n in run.log.notices:
            self._log.note(n.id, n.message, count=n.count, severity=n.severity)


def _shifted(run: Run, shift: int) -> pl.DataFrame:
    return run.events.with_columns(pl.col(c) + shift for c in TIMES if run.has(c))
