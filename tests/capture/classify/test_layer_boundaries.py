"""Repetitions found many at once, against the walk that looks at one kernel after another."""

import random

import numpy as np
import pytest

from capture.classify import layer_boundaries
from capture.classify.layer_boundaries import Ints, find_repeats


def sequence(dice: random.Random, strays: float) -> Ints:
    """Return repetitions of a block, some with strays, some cut short."""
    block = [dice.randrange(12) for _ in range(dice.choice([3, 7, 20, 40]))]
    block += block if dice.random() < 0.3 else []
    ids: list[int] = []
    for _ in range(dice.randint(3, 60)):
        shown = block if dice.random() > strays else block[: dice.randint(1, len(block))]
        ids += [
            kernel
            for kernel in shown
            for kernel in ([kernel, 99] if dice.random() < strays / 10 else [kernel])
        ]
    return np.array(ids, dtype=np.int64)


@pytest.mark.corpus
@pytest.mark.parametrize("strays", [0.0, 0.05, 0.3])
def test_exact_repetitions_at_once_are_those_of_the_walk(
    strays: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(strays)
    sequences = [sequence(dice, strays) for _ in range(150)]
    at_once = [find_repeats(ids) for ids in sequences]
    monkeypatch.setattr(
        layer_boundaries,
        "_match_exact_repetitions",
        lambda ids, canon, at: np.empty((0, len(canon)), dtype=np.int64),
    )
    walked = [find_repeats(ids) for ids in sequences]
    assert sum(map(bool, walked)) > 30
    for ids, actual, expected in zip(sequences, at_once, walked, strict=True):
        assert [[part.tolist() for part in run] for run in actual] == [
            [part.tolist() for part in run] for run in expected
        ], ids


def test_repetitions_are_the_places_of_a_block() -> None:
    ids = np.array([9, 9, *[1, 2, 3, 4] * 5, 8, *[1, 2, 3, 4] * 3])
    (run,) = find_repeats(ids)
    first = [list(range(at, at + 4)) for at in (2, 6, 10, 14, 18)]
    assert [part.tolist() for part in run] == first + [list(range(at, at + 4)) for at in (23, 27, 31)]
