"""Estimate and remove the common mode of the steps of a pair: what its rows share from step to step.

A machine has states that slow some rows more than others: a lower clock, a full memory bus, a cold cache.
Which rows react together, and how strongly, shows in step-to-step differences. These factors (principal
components) are fitted to the changes between the sides, and a row is judged by its residual. Rows that
evidently changed are left out of the fit.
"""

from dataclasses import replace

import numpy as np

from tracetui.analysis.frames.line_fit import MAD_TO_SD
from tracetui.analysis.frames.ragged import Bools, Ints
from tracetui.analysis.frames.statistics import MIN_SAMPLES, Floats, RowEvidence
from tracetui.compare import params
from tracetui.compare.pairing.step_times import SparseTimes


def fit_common_mode(
    factors: Floats, variance: Floats, changes: Floats, used: Bools | None = None
) -> tuple[Floats, Floats]:
    """Fit the factors to each column of changes by weighted least squares; return the fit and the leverages.

    Rows that are not used do not influence the fit. Their leverage is negative: minus the variance of their
    fitted value, in units of their own variance.
    """
    weighted = factors * ((1.0 if used is None else used) / variance)[:, None]
    inverse = np.linalg.pinv(weighted.T @ factors)
    leverage = ((factors @ inverse) * factors).sum(axis=1) / variance
    fitted = factors @ (inverse @ (weighted.T @ changes))
    return fitted, leverage if used is None else np.where(used, leverage, -leverage)


def select_unchanged(change: Floats, factors: Floats, variance: Floats) -> Bools:
    """Select the rows that did not evidently change on their own, dropping the largest residual in turn."""
    used = np.ones(len(change), dtype=bool)
    for _ in range(len(change) // params.ROWS_PER_CHANGED_ROW):
        common, leverage = fit_common_mode(factors, variance, change, used)
        sd = np.sqrt(variance * (1 - np.minimum(leverage, params.MAX_LEVERAGE)))
        z = np.where(used, np.abs(change - common) / sd, 0.0)
        if z.max() < params.CHANGED_ROW_Z:
            break
        used[z.argmax()] = False
    return used


def remove_common_mode(cells: SparseTimes) -> tuple[Ints, SparseTimes] | None:
    """Remove from the steps of a pair what rows share; return the rows that took part and their cells.

    Only rows with time in every step of both sides take part. None if their common mode is no stronger than
    by chance, or if there are too few rows or steps, or so many steps that those of a row suffice.
    """
    if not MIN_SAMPLES <= cells.step_count <= params.STEP_FACTORS_MAX_STEPS:
        return None
    rows, a, b = _select_complete_rows(cells)
    if len(rows) < params.STEP_FACTORS_MIN_ROWS:
        return None
    moves = np.diff(np.stack([a, b], axis=1), axis=2)
    scale = np.fmax(MAD_TO_SD * np.median(np.abs(moves), axis=(1, 2)), params.MIN_STEP_SD)
    clipped = np.clip(moves / scale[:, None, None], -params.CLIP_SD, params.CLIP_SD)
    factors = _find_step_factors(clipped) * scale[:, None]
    if not factors.shape[1]:
        return None
    log_ratio, log_mean = b - a, (a + b) / 2
    change = np.median(log_ratio, axis=1)
    residual = change - fit_common_mode(factors, scale**2, change)[0]
    typical = max(MAD_TO_SD * float(np.median(np.abs(residual) / scale)), params.MIN_STEP_SD)
    variance = (typical * scale) ** 2
    used = select_unchanged(change, factors, variance)
    log_ratio = log_ratio - fit_common_mode(factors, variance, log_ratio, used)[0]
    row, step = (index.ravel() for index in np.indices(log_ratio.shape))
    valid_steps = np.full(len(rows), cells.step_count)
    left, right = (np.exp(log_mean + sign * log_ratio).ravel() for sign in (-0.5, 0.5))
    return rows, SparseTimes(row, step, left, right, cells.step_count, valid_steps)


def take_stronger_test(
    unadjusted: RowEvidence, rows: Ints, residual: RowEvidence
) -> tuple[RowEvidence, Bools]:
    """Take for each of `rows` the smaller p of its whole and its residual change, doubled for two tests.

    The residual counts only if the row changed as a whole, too, in the same direction: a row that keeps its
    time while all others change did not change. Medians and difference stay as measured; the interval is that
    of the residual, extended to the difference. Also return which rows the residual decides.
    """
    delta, p = unadjusted.delta[rows], unadjusted.p[rows]
    has_same_sign = np.sign(residual.delta) == np.sign(delta)
    is_small = np.abs(residual.delta) <= params.MAX_RESIDUAL_RATIO * np.abs(delta)
    decides = has_same_sign & is_small & (residual.p < p)
    is_relative = np.zeros(len(unadjusted.p), bool)
    is_relative[rows[decides]] = True
    low, high, p_values = unadjusted.low.copy(), unadjusted.high.copy(), unadjusted.p.copy()
    low[is_relative] = np.minimum(residual.low, delta)[decides]
    high[is_relative] = np.maximum(residual.high, delta)[decides]
    p_values[rows] = np.minimum(1.0, 2 * np.where(decides, residual.p, p))
    return replace(unadjusted, low=low, high=high, p=p_values), is_relative


def describe_relative_rows(is_relative: Bools) -> str:
    """Describe how many rows were judged by their residual; empty if none was."""
    rows = int(is_relative.sum())
    text = f"; {rows} row{'s' * (rows > 1)} judged relative to rows that slowed down with them"
    return text if rows else ""


def _select_complete_rows(cells: SparseTimes) -> tuple[Ints, Floats, Floats]:
    """Select rows that matter and have time in every step of both sides, with their log times."""
    has_both = np.asarray((cells.a > 0) & (cells.b > 0))
    time = np.bincount(cells.row, np.nan_to_num(cells.a + cells.b), cells.row_count)
    is_complete = np.bincount(cells.row[has_both], minlength=cells.row_count) == cells.step_count
    selected = is_complete & (time >= params.STEP_FACTORS_MIN_SHARE * time.sum())
    in_rows = selected[cells.row]
    shape = int(selected.sum()), cells.step_count
    a, b = (np.log(side[in_rows]).reshape(shape) for side in (cells.a, cells.b))
    return np.flatnonzero(selected), a, b


def _find_step_factors(moves: Floats) -> Floats:
    """Find rows × factors whose eigenvalues exceed those by chance, by Horn's parallel analysis.

    Chance is what the same moves show after each row is shifted circularly by its own number of steps.
    `moves` is rows × sides × steps, in SDs.
    """
    size = np.sqrt((moves**2).mean(axis=(1, 2)))
    scaled = np.divide(moves, size[:, None, None], out=np.zeros_like(moves), where=size[:, None, None] > 0)
    rng, (rows, _, steps) = np.random.default_rng(len(moves)), moves.shape
    shifts = rng.integers(0, steps, (params.PARALLEL_ANALYSIS_SHIFTS, rows, 1, 1))
    shifted = (np.take_along_axis(scaled, (np.arange(steps) + shift) % steps, 2) for shift in shifts)
    by_chance = np.array([_compute_eigenvalues(each) for each in shifted])
    eigenvalues = _compute_eigenvalues(scaled)
    if eigenvalues[0] <= params.PARALLEL_ANALYSIS_MARGIN * by_chance[:, 0].max():
        return np.zeros((rows, 0))
    top = slice(params.MAX_STEP_FACTORS)
    count = int(np.cumprod(eigenvalues[top] > by_chance[:, top].mean(axis=0)).sum())
    vectors = np.linalg.svd(scaled.reshape(rows, -1), full_matrices=False)[0]
    return np.asarray(vectors[:, :count] * size[:, None])


def _compute_eigenvalues(moves: Floats) -> Floats:
    """Compute the eigenvalues of the covariance of the rows, largest first."""
    flat = moves.reshape(len(moves), -1)
    return np.asarray(np.linalg.eigvalsh(flat.T @ flat)[::-1])
