"""Repetition without any meaning: the period of a sequence of kernels, where no mixer is recognised."""

import itertools
from difflib import SequenceMatcher
from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

_LONGEST: Final = 1200  # kernels of a layer at most
_LOOKED_AT: Final = 1 << 14  # kernels of a pass that the period is found in
_ALIKE: Final = 0.8
_NEARLY: Final = 0.8  # of the best agreement is enough for a shorter distance
_ENOUGH: Final = 0.6  # of all kernels must stand in complete repetitions


def find_period(ids: Ints) -> int:
    """Return the smallest distance at which the sequence agrees with itself best; 0 when it does not."""
    ids = ids[:_LOOKED_AT]
    most = min(_LONGEST, len(ids) // 2)
    shares = np.array([np.mean(ids[lag:] == ids[:-lag]) for lag in range(1, most + 1)])
    chance = float(np.sum((np.unique(ids, return_counts=True)[1] / max(1, len(ids))) ** 2))
    if not len(shares) or shares.max() < max(_ENOUGH, 2 * chance):
        return 0
    period = int(np.flatnonzero(shares >= _NEARLY * shares.max())[0]) + 1
    return period if period >= 3 else 0


def find_repeats(ids: Ints) -> list[list[Ints]]:
    """Return runs of repetitions, each repetition as the places of its kernels; strays are left out.

    A run ends where something else than a few strays follows. No runs: nothing repeats enough.
    """
    period = find_period(ids)
    if not period:
        return []
    same = np.concatenate([ids[period:] == ids[:-period], np.zeros(period, dtype=bool)])
    sums = np.concatenate([[0], np.cumsum(same)])
    agreeing = sums[period:] - sums[:-period]
    starts = np.flatnonzero((agreeing >= min(agreeing.max(), 0.97 * period)) & same[: len(agreeing)])
    starts = starts[agreeing[starts] == agreeing[starts].max(initial=0)]
    if not len(starts):
        return []
    canon = ids[starts[0] : starts[0] + period].tolist()
    offset, parts = split_block(canon)
    runs = _walk(ids, np.array(canon[offset:] + canon[:offset]), int(starts[0]) + offset)
    bounds = [0, *parts, period]
    cuts = [slice(a, b) for a, b in itertools.pairwise(bounds)]
    runs = [[block[cut] for block in run for cut in cuts] for run in runs if len(run) >= 2]
    covered = sum(len(block) for run in runs for block in run)
    return runs if covered >= _ENOUGH * len(ids) else []


def _walk(ids: Ints, canon: Ints, at: int) -> list[list[Ints]]:
    """Return the runs of repetitions from `at` on: those that follow each other exactly at once."""
    runs: list[list[Ints]] = []
    end, tokens, sought = at, ids.tolist(), canon.tolist()
    while at < len(ids):
        whole = _exact(ids, canon, at)
        places = list(whole) if len(whole) else _match(tokens, sought, at)
        if places is None:
            at += 1
            continue
        if not runs or at - end > max(3, len(canon) // 6):
            runs.append([])
        runs[-1] += places
        at = end = int(places[-1][-1]) + 1
    return runs


def _exact(ids: Ints, canon: Ints, at: int) -> npt.NDArray[np.int64]:
    """Return the places of the exact repetitions from `at` on, a row each; looks twice as far as they go."""
    size, count, ahead = len(canon), 0, 1
    while True:
        begin = at + count * size
        ahead = min(ahead, (len(ids) - begin) // size)
        alike = (ids[begin : begin + ahead * size].reshape(ahead, size) == canon).all(axis=1)
        more = ahead if alike.all() else int(alike.argmin())
        count += more
        if more < ahead or not ahead:
            return np.arange(at, at + count * size).reshape(count, size)
        ahead *= 2


def _match(ids: list[int], canon: list[int], at: int) -> list[Ints] | None:
    """Return the places of one repetition from `at` on, a few strays skipped; None when it is not there."""
    if ids[at] != canon[0]:
        return None
    allowed = max(2, len(canon) // 6)
    places: list[int] = []
    for token in canon:
        while at < len(ids) and ids[at] != token:
            at, allowed = at + 1, allowed - 1
            if allowed < 0:
                return None
        if at >= len(ids):
            return None
        places.append(at)
        at += 1
    return [np.array(places, dtype=np.int64)]


def split_block(canon: list[int]) -> tuple[int, list[int]]:
    """Return how a repetition falls into several layers that are alike but not equal.

    The first number is how far to turn the repetition, the list where to cut it then; (0, []) when
    it is one layer.
    """
    best: tuple[int, list[int]] = (0, [])
    for token in dict.fromkeys(canon):
        places = [at for at, other in enumerate(canon) if other == token]
        if len(places) < len(best[1]) + 2:
            continue
        first = places[0]
        turned = canon[first:] + canon[:first]
        cuts = [*(at - first for at in places), len(canon)]
        parts = [turned[a:b] for a, b in itertools.pairwise(cuts)]
        if all(_alike(parts[0], part) for part in parts[1:]):
            best = (first, cuts[1:-1])
    return best


def _alike(one: list[int], other: list[int]) -> bool:
    return SequenceMatcher(None, one, other, autojunk=False).ratio() >= _ALIKE
