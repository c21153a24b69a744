"""Where one forward pass ends and the next begins in a long sequence of kernels."""

from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Signs = npt.NDArray[np.uint8]

_MARKS: Final = (ord("E"), ord("Z"))
_ANCHORS: Final = np.array([ord(sign) for sign in "CSVs"], dtype=np.uint8)


def find_passes(ids: npt.NDArray[np.integer], signs: Signs, steps: npt.NDArray[np.integer] | None) -> Ints:
    """Return the places at which passes begin, with the end appended.

    A pass begins where a stated step begins, and between sampling and the next embedding. `ids` are
    the codes of the names, `signs` one letter for each kernel.
    """
    anchors = np.cumsum(np.isin(signs, _ANCHORS), dtype=np.int64)
    seams = np.array(_seams(ids, signs, anchors), dtype=np.int64)
    stated = np.zeros(0, dtype=np.int64) if steps is None else np.flatnonzero(np.diff(steps)) + 1
    stated = np.unique(np.concatenate([[0], stated, [len(ids)]]))
    if len(seams) and len(stated) > 2:
        seams = seams[_divides(seams, stated, anchors)]
    return np.unique(np.concatenate([stated, seams]))


def _divides(seams: Ints, stated: Ints, anchors: Ints) -> npt.NDArray[np.bool]:
    """Tell which seams have mixers on both sides within their stated step; others only trim it."""
    counts = np.concatenate([[0], anchors])
    after = np.searchsorted(stated, seams, side="left").clip(1, len(stated) - 1)
    left = counts[seams] - counts[stated[after - 1]]
    right = counts[stated[after]] - counts[seams]
    return np.asarray((left >= 2) & (right >= 2))


def _seams(ids: npt.NDArray[np.integer], signs: Signs, anchors: Ints) -> list[int]:
    """Return the cuts between a group of sampling kernels and the embeddings that follow it."""
    if not len(anchors) or anchors[-1] < 4:
        return []
    marks = np.flatnonzero(np.isin(signs, _MARKS))
    marks = marks[_gaps_of(ids[marks], anchors[marks]) <= anchors[-1] / 2]
    if not len(marks):
        return []
    breaks = np.flatnonzero(np.diff(anchors[marks]) >= 2) + 1
    groups = np.split(marks, breaks)
    return [
        _cut(group, signs) for group in groups if anchors[group[0]] > 0 and anchors[group[-1]] < anchors[-1]
    ]


def _gaps_of(names: npt.NDArray[np.integer], gaps: Ints) -> Ints:
    """Return for each mark in how many gaps between mixers its name stands: within layers it is in most."""
    if not len(names):
        return np.empty(0, dtype=np.int64)
    pairs = np.unique(np.stack([names, gaps]), axis=1)
    return np.asarray(np.bincount(pairs[0])[names], dtype=np.int64)


def _cut(marks: Ints, signs: Signs) -> int:
    """Return where the next pass begins: at the first embedding after the last sampling, or after that."""
    sampled = marks[signs[marks] == _MARKS[1]]
    last = int(sampled[-1]) + 1 if len(sampled) else 0
    embedded = marks[(signs[marks] == _MARKS[0]) & (marks >= last)]
    return int(embedded[0]) if len(embedded) else last
