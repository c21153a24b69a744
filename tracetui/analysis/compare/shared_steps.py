"""What the rows of one pair share from step to step, taken out of their steps.

A machine slows some rows for a while: by a lower clock, by a full memory bus. Over few steps such a while
looks like a change of each row that took part. Which rows move together, and by how much, shows from one step
to the next in both runs; what the others of its kind did is then taken out of a row, step by step.
"""

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tracetui.analysis.compare.cells import Cells
from tracetui.analysis.compare.shared_moments import LEAST_STEPS, SPIKE, TO_SIGMA, fit, unchanged
from tracetui.analysis.ragged import Ints
from tracetui.analysis.statistics import FEWEST, Evidence, Floats

BIG: Final = 0.001  # share of the time, from which a row takes part
ENOUGH: Final = 8  # rows, from which ways to move together are looked for
MOST_WAYS: Final = 4
TURNS: Final = 19  # times that luck is tried: it does better once in twenty
EDGE: Final = 1.1  # by how much the main way must do better than the best luck
MANY: Final = 64  # steps, of which those of a row say enough by themselves
MOST: Final = 2.0  # of its whole change: what a row may have done by itself and be told by that


def freed(cells: Cells) -> tuple[Ints, Cells] | None:
    """Return the rows that stand in every step on both sides, and their cells without what they share.

    None where they share nothing that is to be told from luck.
    """
    if not FEWEST <= cells.steps <= MANY:
        return None
    rows, a, b = _whole(cells)
    if len(rows) < ENOUGH:
        return None
    moves = np.diff(np.stack([a, b], axis=1), axis=2)
    scale = np.fmax(TO_SIGMA * np.median(np.abs(moves), axis=(1, 2)), LEAST_STEPS)
    ways = _ways(np.clip(moves / scale[:, None, None], -SPIKE, SPIKE)) * scale[:, None]
    if not ways.shape[1]:
        return None
    ratio, middle = b - a, (a + b) / 2
    change = np.median(ratio, axis=1)
    beside = change - fit(ways, scale**2, change)[0]
    usual = max(TO_SIGMA * float(np.median(np.abs(beside) / scale)), LEAST_STEPS)
    variance = (usual * scale) ** 2
    own = ratio - fit(ways, variance, ratio, unchanged(change, ways, variance))[0]
    row, step = (index.ravel() for index in np.indices(own.shape))
    size = np.full(len(rows), cells.steps)
    left, right = (np.exp(middle + part * own).ravel() for part in (-0.5, 0.5))
    return rows, Cells(row, step, left, right, cells.steps, size)


def surer(whole: Evidence, rows: Ints, own: Evidence) -> tuple[Evidence, NDArray[np.bool_]]:
    """Return the evidence in which some rows are told by what they did by themselves, and which these are.

    Each of the two tests of a row has half of the level. What a row did by itself tells it only where it
    changed as a whole, too: one that keeps its time while all others change did not. Medians and difference
    stay as measured; the interval is that of the own change, and reaches to the difference.
    """
    delta, p = whole.delta[rows], whole.p[rows]
    alike = np.sign(own.delta) == np.sign(delta)
    tells = alike & (np.abs(own.delta) <= MOST * np.abs(delta)) & (own.p < p)
    low, high, judged, told = (
        whole.low.copy(),
        whole.high.copy(),
        whole.p.copy(),
        np.zeros(len(whole.p), bool),
    )
    told[rows[tells]] = True
    low[told], high[told] = np.minimum(own.low, delta)[tells], np.maximum(own.high, delta)[tells]
    judged[rows] = np.minimum(1.0, 2 * np.where(tells, own.p, p))
    return replace(whole, low=low, high=high, p=judged), told


def words(told: NDArray[np.bool_]) -> str:
    """Return how many rows are told by what they did by themselves; empty where none is."""
    rows = int(told.sum())
    return f"; {rows} row{'s' * (rows > 1)} read beside those that slow down with them" if rows else ""


def _whole(cells: Cells) -> tuple[Ints, Floats, Floats]:
    """Return the rows that matter and have time in every step on both sides, and the logarithms of it."""
    both = np.asarray((cells.a > 0) & (cells.b > 0))
    time = np.bincount(cells.row, np.nan_to_num(cells.a + cells.b), cells.rows)
    complete = np.bincount(cells.row[both], minlength=cells.rows) == cells.steps
    kept = complete & (time >= BIG * time.sum())
    stand = kept[cells.row]
    shape = int(kept.sum()), cells.steps
    a, b = (np.log(side[stand]).reshape(shape) for side in (cells.a, cells.b))
    return np.flatnonzero(kept), a, b


def _ways(moves: Floats) -> Floats:
    """Return rows × ways: those in which rows move together by more than rows do by luck, by Horn's parallel
    analysis: luck is what the same moves show when those of each row begin at another step.

    `moves` is rows × sides × steps, in deviations.
    """
    size = np.sqrt((moves**2).mean(axis=(1, 2)))
    alike = np.divide(moves, size[:, None, None], out=np.zeros_like(moves), where=size[:, None, None] > 0)
    rng, (rows, _, steps) = np.random.default_rng(len(moves)), moves.shape
    turn = rng.integers(0, steps, (TURNS, rows, 1, 1))
    luck = np.array([_powers(np.take_along_axis(alike, (np.arange(steps) + t) % steps, 2)) for t in turn])
    seen = _powers(alike)
    if seen[0] <= EDGE * luck[:, 0].max():
        return np.zeros((rows, 0))
    number = int(np.cumprod(seen[:MOST_WAYS] > luck[:, :MOST_WAYS].mean(axis=0)).sum())
    vectors = np.linalg.svd(alike.reshape(rows, -1), full_matrices=False)[0]
    return np.asarray(vectors[:, :number] * size[:, None])


def _powers(moves: Floats) -> Floats:
    """Return by how much rows move in each of their ways, the most first."""
    flat = moves.reshape(len(moves), -1)
    return np.asarray(np.linalg.eigvalsh(flat.T @ flat)[::-1])
