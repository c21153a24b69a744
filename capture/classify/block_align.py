"""Alignment of two sign strings from one end: how well each prefix explains the other string."""

from functools import lru_cache
from typing import Final

from capture.classify.block_signs import HEAVY

_LONGEST: Final = 400  # units of either side that are looked at
_LIGHT: Final = 0.4
_WEIGHTS: Final = dict.fromkeys(HEAVY, 2.0) | {"R": 1.0, "K": 1.0, "A": 1.5}


def weight(sign: str) -> float:
    """Return how much a sign counts in an alignment."""
    return _WEIGHTS.get(sign, _LIGHT)


@lru_cache(maxsize=1 << 12)
def extend(text: str, reference: str) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Align the starts of two strings.

    For each j ≤ len(text) return the best score of text[:j] against any start of the reference, and
    the length of that start. Only the first units of long strings are aligned; the scores of the
    rest fall with what stays unexplained.
    """
    reference = reference[:_LONGEST]
    costs = [0.6 * weight(sign) for sign in reference]
    row = [0.0]
    for cost in costs:
        row.append(row[-1] - cost)
    best, where = [0.0], [0]
    for at, sign in enumerate(text):
        own = weight(sign)
        if at >= _LONGEST:
            best.append(best[-1] - 0.6 * own)
            where.append(where[-1])
            continue
        row = _next_row(row, sign, own, reference, costs)
        top = max(row)
        best.append(top)
        where.append(row.index(top))
    return tuple(best), tuple(where)


def _next_row(row: list[float], sign: str, own: float, reference: str, costs: list[float]) -> list[float]:
    drop = 0.6 * own
    following = [row[0] - drop]
    for at, other in enumerate(reference):
        same = row[at] + own if other == sign else row[at] - 0.5 * own - costs[at]
        following.append(max(same, row[at + 1] - drop, following[at] - costs[at]))
    return following
