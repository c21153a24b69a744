"""Steps of a growing run that it has folded since, brought back while somebody looks at them."""

from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Final

import polars as pl
from msgspec import Struct

from capture.errors import CaptureError
from capture.run import Run
from tracetui.analysis import facts, select

AROUND: Final = 256  # steps before and behind those asked for, so that the next ones are at hand


class _Piece(Struct, frozen=True, eq=False):
    """Some steps of a file: from the first up to, but without, the end."""

    whose: tuple[str, str]
    first: int
    end: int
    rows: pl.DataFrame


EVERY: Final = (0, 1 << 62)  # steps

_known: list[_Piece] = []  # the newest alone
_reading: Final = Lock()


def with_whole_steps(run: Run, window: tuple[int, int] | None) -> Run:
    """Return a run that holds every event of the steps in a window, folded ones from the shelf, else from the
    file; the run as it is where none is asked for, none was folded, or the file is gone.
    """
    folded = run.meta.get("folded")
    before = folded.get("before") if isinstance(folded, dict) else None
    if window is None or not isinstance(before, int) or window[0] >= before:
        return run
    first, end = window[0], min(window[1] + 1, before)
    old = run.shelf.steps(first, end - 1) if run.shelf is not None else None
    old = _from_file(run, first, end, before) if old is None else old
    if old is None:
        return run
    step = pl.col("step")
    rest = run.events.filter(step.is_null() | (step >= before))
    meta = {key: value for key, value in run.meta.items() if key != "folded"}
    return replace(run, meta=meta, events=pl.concat([old, rest], how="diagonal_relaxed"))


def whole(run: Run) -> Run:
    """Return a run with every event of all its steps, as its file has them: no sums are compared."""
    return (_unfolded(run) or run) if select.folded(run) else run


@facts.once
def _unfolded(run: Run) -> Run | None:
    """Return the same of a run that has folded steps; None where its file is gone."""
    found = with_whole_steps(run, EVERY)
    return None if found is run else found


def _from_file(run: Run, first: int, end: int, before: int) -> pl.DataFrame | None:
    """Return the rows of these steps; None where the file is gone."""
    with _reading:
        piece = next((p for p in _known if _holds(p, run, first, end)), None) or _read(
            run, first, end, before
        )
        if piece is None:
            return None
        _known[:] = [piece]
    return piece.rows.filter(pl.col("step").is_between(first, end - 1))


def _holds(piece: _Piece, run: Run, first: int, end: int) -> bool:
    return piece.whose == _whose(run) and piece.first <= first and end <= piece.end


def _whose(run: Run) -> tuple[str, str]:
    return str(run.log.source), f"{run.name} {run.meta.get('clock')}"


def _read(run: Run, first: int, end: int, before: int) -> _Piece | None:
    """Return the steps around those asked for, of which the file has had all that were folded."""
    from capture.open import load

    try:
        runs = load(Path(run.log.source), cache=False)
    except (CaptureError, OSError):
        return None
    same = [r for r in runs if r.name == run.name and r.meta.get("clock") == run.meta.get("clock")]
    if not same or not same[-1].has("step"):
        return None
    low, high = max(0, first - AROUND), min(end + AROUND, before)
    rows = same[-1].events.filter(pl.col("step").is_between(low, high - 1))
    return _Piece(_whose(run), low, high, rows)
