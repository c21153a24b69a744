"""Contrast of a row within its step: its log time less that of the other rows of the same step and run.

What happens to a machine happens to all rows of a step, so a contrast shows a change of one row below those
of whole runs. A load moves contrasts, too, each row its own way. So each row has a spread of its own, and a
response of its own to the pace of its step, both estimated from all equal runs. The guide `evidence` has the
formulas.
"""

from dataclasses import dataclass

import numpy as np

from tracetui.analysis.frames.ragged import Ints
from tracetui.analysis.frames.statistics import Floats
from tracetui.compare import params


@dataclass(frozen=True, eq=False)
class Contrasts:
    """One value per row and run, in log time: medians over the steps; NaN if a run lacks the row."""

    contrast: Floats  # of the row, relative to the other rows of its step
    pace: Floats  # of these others, relative to the mean of all runs


@dataclass(frozen=True, eq=False)
class RowShifts:
    """Shift of each row from side a to side b, in log time."""

    shift: Floats
    error: Floats  # standard error of the shift
    df: Floats  # degrees of freedom of the error
    spread: Floats  # SD between runs of one side


def compute_contrasts(offset: Floats, weight: Floats) -> Contrasts:
    """Compute the contrasts of rows × runs × steps of log times relative to the mean of the runs.

    The others of a row are represented by their median, weighted by `weight`: their share of the time, 0 for
    rows that are not to count.
    """
    pace = compute_medians_of_others(offset.reshape(len(offset), -1), weight).reshape(offset.shape)
    return Contrasts(compute_known_medians(offset - pace), compute_known_medians(pace))


def compute_known_medians(values: Floats) -> Floats:
    """Compute medians over the last axis without NaN; the plain median is far faster if there is none."""
    is_missing = np.isnan(values)
    if not is_missing.any():
        return np.asarray(np.median(values, axis=-1))
    out, has_value = np.full(values.shape[:-1], np.nan), ~is_missing.all(axis=-1)
    out[has_value] = np.nanmedian(values[has_value], axis=-1)
    return out


def compute_medians_of_others(values: Floats, weight: Floats) -> Floats:
    """Compute for each row of rows × columns the weighted median of the other rows; NaN without others.

    The weighted median is the smallest value up to which at least half of the weight lies.
    """
    order = np.argsort(values, axis=0)
    ordered = np.take_along_axis(values, order, axis=0)
    ranks = np.argsort(order, axis=0)
    weights = np.where(np.isnan(values), 0.0, weight[:, None])
    cumulative = np.cumsum(np.take_along_axis(weights, order, axis=0), axis=0)
    out = np.full(values.shape, np.nan)
    for column in range(values.shape[1]):
        row_weight, below = weights[:, column], cumulative[:, column]
        half = (below[-1] - row_weight) / 2
        has_others = half > params.FLOAT_NOISE
        index = np.searchsorted(below, half)
        index = np.where(index < ranks[:, column], index, np.searchsorted(below, half + row_weight))
        index = np.minimum(index, len(below) - 1)
        out[has_others, column] = ordered[index[has_others], column]
    return out


def estimate_row_shifts(level: Floats, pace: Floats, groups: Ints) -> RowShifts:
    """Estimate the shift of each row of rows × runs from the runs of group 0 to those of group 1.

    Within groups, where the code is the same, a level is a + β · pace + noise, with β from N(0, τ²): ridge
    regression. The shift is what the difference of the paces does not explain; the uncertainty of β counts
    as much as the paces of the sides differ.
    """
    groups_of_runs = [groups == group for group in np.unique(groups)]
    df = len(groups) - len(groups_of_runs)
    centered, common = level.copy(), pace.copy()
    for members in groups_of_runs:
        centered[:, members] -= level[:, members].mean(axis=1, keepdims=True)
        common[:, members] -= pace[:, members].mean(axis=1, keepdims=True)
    pace_squares, products = (common**2).sum(axis=1), (common * centered).sum(axis=1)
    variance, total_df = shrink_variances((centered**2).sum(axis=1) / df, np.full(len(level), float(df)))
    certainty, response = np.zeros(len(level)), np.zeros(len(level))
    for _ in range(params.VARIANCE_PASSES if df > 1 else 0):  # one degree of freedom tells no response
        ridge = variance / params.RESPONSE_SD**2
        # share of a response that the paces tell: the rest is the prior's, 1 for paces that never differ
        certainty = np.divide(
            pace_squares, pace_squares + ridge, out=np.zeros(len(level)), where=pace_squares > 0
        )
        response = certainty * np.divide(
            products, pace_squares, out=np.zeros(len(level)), where=pace_squares > 0
        )
        squares = ((centered - response[:, None] * common) ** 2).sum(axis=1) + ridge * response**2
        free = np.maximum(df - certainty, params.FLOAT_NOISE)
        variance, total_df = shrink_variances(squares / free, free)
    response_variance = params.RESPONSE_SD**2 * (1 - certainty)
    left, right = (groups == group for group in (0, 1))
    change, pace_change = (x[:, right].mean(axis=1) - x[:, left].mean(axis=1) for x in (level, pace))
    between = variance * (1 / left.sum() + 1 / right.sum())
    error = np.sqrt(between + pace_change**2 * response_variance)
    return RowShifts(change - response * pace_change, error, total_df, np.sqrt(variance))


def shrink_variances(variance: Floats, df: Floats) -> tuple[Floats, Floats]:
    """Shrink the rows' variances towards their geometric mean; also return the degrees of freedom.

    Few runs estimate a variance badly, and of many rows one has hardly any by chance. Exactly 0 stays 0.
    """
    is_positive = variance > 0
    if is_positive.sum() < params.MIN_ROWS:
        return variance, df
    bias = 1 / df[is_positive].max()  # of the log of a variance, about
    prior_df, prior = params.POOLED_SD_PRIOR_DF, np.exp(np.log(variance[is_positive]).mean() + bias)
    shrunk = (prior_df * prior + df * variance) / (prior_df + df)
    return np.where(is_positive, shrunk, variance), np.where(df > 0, df + prior_df, 0)
