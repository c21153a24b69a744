"""Write windows, metrics and messages about a watched program into one recording, on one clock."""

import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import polars as pl

from capture.import_log import Log
from capture.merge_ranks import find_epoch_offset, move_to_rank_tracks
from capture.native.emit import Emitter, read_clock_pair
from capture.native.line_types import FORMAT
from capture.native.schema import PROFILE_MARK, SCHEMA_VERSION, TIME_COLUMNS, seal_record
from capture.native.write import build_table_record, encode_events, encode_log
from capture.run import Run

HEARTBEAT_S: Final = 3.0  # between two heartbeats
_PLAUSIBLE_NS: Final = 366 * 86_400 * 10**9  # starts this close to the date of their file are Unix times
# keys of a run's meta that hold for one window only
_OF_ONE_WINDOW: Final = ("clock", "clock_base_ns", "rank", "truncated", "folded")


class WatchRecording(Emitter):
    """The recording of a watched program; threads may share it."""

    def __init__(self, out: Path, name: str, meta: Mapping[str, Any]) -> None:
        """Start a run in a file."""
        super().__init__(out, reports_cost=False)
        self.out = out
        self._id, self._name = secrets.token_hex(8), name
        self.run(name, meta, id=self._id)
        self._heartbeat_at = 0.0
        self._last_step: dict[int | None, int] = {}  # by rank
        self._next_op = 0
        self._log = Log(name, FORMAT)
        self._has_device = False
        self.windows = 0

    def add_meta(self, meta: Mapping[str, Any]) -> None:
        """Add metadata to the run; existing keys stay."""
        fields = {"kind": "run", "schema": SCHEMA_VERSION, "id": self._id, "name": self._name}
        self._queue_lines([(seal_record({**fields, "meta": dict(meta)}), 0)])

    def keep_alive(self) -> None:
        """Write a heartbeat if one is due, and all waiting lines; print why the recording has gaps."""
        at = time.monotonic()
        if at - self._heartbeat_at > HEARTBEAT_S:
            self.mark("watching", "heartbeat")
            self._heartbeat_at = at
        self.flush()
        if why := self.unwritten:
            print(f"tracetui: the recording has gaps: {why}", file=sys.stderr, flush=True)

    def write_window(self, runs: Sequence[Run], written_ns: int, *, joins: bool = False) -> int:
        """Write the events of the runs in one file as the next window, and return their number.

        A file that joins belongs to the window before.

        If a file has no known clock, its last event is set to end when the file was written. Step numbers
        continue. After a device was seen, files without one contain no device work.
        """
        rows = 0
        for run in runs:
            self.add_meta({key: value for key, value in run.meta.items() if key not in _OF_ONE_WINDOW})
            events = self._demote_host_kernels(self._place_on_clock(run, written_ns))
            for line, count in encode_events(events, self._next_op):
                self._queue_lines([(line, count)])
            self._next_op += events.height
            rows += events.height
            self._log.add(run.log)
        self.windows += not joins
        self._queue_lines([(encode_log(self._log.freeze()), 0)])
        self.flush()
        return rows

    def write_table(self, name: str, table: pl.DataFrame) -> None:
        """Write rows of a table, which add to those of earlier calls."""
        record, _ = build_table_record(name, table)
        self._queue_lines([(seal_record({"kind": "table", **record}), None)])

    def mark_profile(self, *, is_begin: bool) -> None:
        """Write that a profile of the server begins or has ended: tokens meanwhile are late because of it."""
        self.mark("begin" if is_begin else "end", PROFILE_MARK)

    def _place_on_clock(self, run: Run, written_ns: int) -> pl.DataFrame:
        """Return the events on our clock, with steps after those of earlier windows."""
        rank = run.meta.get("rank") if (run.meta.get("world_size") or 1) != 1 else None
        mono, unix = read_clock_pair()
        offset = self._find_unix_offset(run, written_ns) + mono - unix
        events = move_to_rank_tracks(run, rank, offset) if rank is not None else _shift_times(run, offset)
        steps = events["step"].drop_nulls() if run.has("step") else pl.Series([], dtype=pl.Int64)
        if steps.len():
            lowest, highest = steps.sort()[[0, -1]]
            first_step = self._last_step.get(rank, -1) + 1 - lowest
            self._last_step[rank] = highest + first_step
            events = events.with_columns(pl.col("step") + first_step)
        return events

    def _find_unix_offset(self, run: Run, written_ns: int) -> int:
        """Return the offset from the times of a run to Unix time."""
        known_offset = find_epoch_offset(run)
        if known_offset is not None or not run.has("t"):
            return known_offset or 0
        first = int(run.events["t"].min() or 0)  # type: ignore[arg-type]
        if abs(first - written_ns) < _PLAUSIBLE_NS:
            return 0
        last = run.events.select((pl.col("t") + (pl.col("dur").fill_null(0) if run.has("dur") else 0)).max())
        message = "windows without a known clock are set to end when their file was written"
        self._log.note("clock_untold", message)
        return written_ns - int(last.item() or 0)

    def _demote_host_kernels(self, events: pl.DataFrame) -> pl.DataFrame:
        """Return the events; host ops stand in for a device only until a device was seen."""
        if not {"kind", "lens"} <= set(events.columns):
            return events
        is_kernel, is_gpu = pl.col("kind") == "kernel", pl.col("lens") == "gpu"
        has_device = events.select((is_kernel & is_gpu).any()).item()
        self._has_device = self._has_device or has_device
        if has_device or not self._has_device:
            return events
        span = pl.lit(pl.Series(["span"], dtype=pl.Categorical()))
        return events.with_columns(kind=pl.when(is_kernel & ~is_gpu).then(span).otherwise("kind"))


def _shift_times(run: Run, offset: int) -> pl.DataFrame:
    return run.events.with_columns(pl.col(c) + offset for c in TIME_COLUMNS if run.has(c))
