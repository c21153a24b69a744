"""Restore steps that a growing run has compacted, while the user looks at them."""

from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Final

import polars as pl
from msgspec import Struct

from capture.errors import CaptureError
from capture.run import LiveRun, Run
from tracetui.analysis.frames import run_memo, selection

EXTRA_STEPS: Final = 256  # on both sides, so that the next steps are read already
ALL_STEPS: Final = (0, 1 << 62)
_reading: Final = Lock()


class _StepRange(Struct, frozen=True, eq=False):
    """Rows of a file, from step `first` to before step `end`."""

    run_key: tuple[str, str]
    first: int
    end: int
    rows: pl.DataFrame


_cached_ranges: list[_StepRange] = []  # at most the newest


def restore_range(run: Run, window: tuple[int, int] | None) -> Run:
    """Return a run with every event of a range of steps, from the launch archive, else from its file.

    Without a range, without compacted steps in it, or without the file, the run is returned unchanged.
    """
    folded = run.meta.get("folded")
    before = folded.get("before") if isinstance(folded, dict) else None
    if window is None or not isinstance(before, int) or window[0] >= before:
        return run
    first, end = window[0], min(window[1] + 1, before)
    restored = run.archive.read_steps(first, end - 1) if isinstance(run, LiveRun) else None
    restored = _read_cached_steps(run, first, end, before) if restored is None else restored
    if restored is None:
        return run
    step = pl.col("step")
    rest = run.events.filter(step.is_null() | (step >= before))
    meta = {key: value for key, value in run.meta.items() if key != "folded"}
    return replace(run.with_events(pl.concat([restored, rest], how="diagonal_relaxed")), meta=meta)


def restore_all_steps(run: Run) -> Run:
    """Return a run with every event of all its steps, for comparisons, which need no sums."""
    return (_restore_cached(run) or run) if selection.is_folded(run) else run


@run_memo.cache_per_run
def _restore_cached(run: Run) -> Run | None:
    """Return the run with all steps restored, or None if its file is gone."""
    restored = restore_range(run, ALL_STEPS)
    return None if restored is run else restored


def _read_cached_steps(run: Run, first: int, end: int, before: int) -> pl.DataFrame | None:
    """Return the rows of some steps, or None if the file is gone."""
    key = str(run.log.source), f"{run.name} {run.meta.get('clock')}"
    with _reading:
        cached = (p for p in _cached_ranges if p.run_key == key and p.first <= first and end <= p.end)
        piece = next(cached, None) or _read_steps(run, key, first, end, before)
        if piece is None:
            return None
        _cached_ranges[:] = [piece]
    return piece.rows.filter(pl.col("step").is_between(first, end - 1))


def _read_steps(run: Run, key: tuple[str, str], first: int, end: int, before: int) -> _StepRange | None:
    """Read the requested steps, and some on both sides, from the file."""
    from capture.load_runs import load

    try:
        runs = load(Path(run.log.source), cache=False)
    except (CaptureError, OSError):
        return None
    same = [r for r in runs if r.name == run.name and r.meta.get("clock") == run.meta.get("clock")]
    if not same or not same[-1].has("step"):
        return None
    low, high = max(0, first - EXTRA_STEPS), min(end + EXTRA_STEPS, before)
    rows = same[-1].events.filter(pl.col("step").is_between(low, high - 1))
    return _StepRange(key, low, high, rows)
