"""Alignment of captured launches to replayed kernels: by hand, and against every alignment there is."""

import random
from collections.abc import Sequence

import pytest

from capture.graphs.launch_alignment import Pairs, align_launches, compute_similarity

BLOCK = tuple(range(10, 25))
GRAPH = (0, 1, *BLOCK * 36, 2, 3)  # a model of 36 layers between a head and a tail


def pairs(launches: Sequence[int], *streams: Sequence[int]) -> tuple[Pairs, Pairs]:
    found = align_launches(launches, streams)
    assert found is not None
    return found.first, found.last


def test_the_same_on_both_sides_is_aligned_one_by_one() -> None:
    first, last = pairs(GRAPH, GRAPH)
    assert first == last == [list(range(len(GRAPH)))]


def test_a_kernel_that_is_missing_shifts_no_other() -> None:
    kernels = [*GRAPH[:100], *GRAPH[101:]]
    first, last = pairs(GRAPH, kernels)
    assert first == last == [[*range(100), *range(101, len(GRAPH))]]


def test_kernels_that_were_not_launched_there_stay_alone() -> None:
    kernels = [*GRAPH[:40], 99, *GRAPH[40:300], 98, *GRAPH[300:]]
    (first,), last = pairs(GRAPH, kernels)
    assert [k for k, launch in enumerate(first) if launch is None] == [40, 301] and last == [first]
    assert [launch for launch in first if launch is not None] == list(range(len(GRAPH)))


def test_order_holds_within_a_stream_and_not_over_all() -> None:
    """Every fifth kernel of a layer runs on a second stream; kernels are told by stream, not by time."""
    side = [i for i in range(len(GRAPH)) if i % 5 == 3]
    main = [i for i in range(len(GRAPH)) if i % 5 != 3]
    first, last = pairs(GRAPH, [GRAPH[i] for i in main], [GRAPH[i] for i in side])
    assert first == last == [main, side]


def test_which_of_two_alike_is_missing_is_not_told() -> None:
    """Of two copies beside each other one did not run: either may have."""
    first, last = pairs((1, 7, 7, 2), (1, 7, 2))
    assert [first, last] == [[[0, 1, 3]], [[0, 2, 3]]]


def test_alike_on_two_streams_at_once_are_not_told_apart() -> None:
    first, last = pairs((1, 5, 5, 2), (1, 5, 2), (5,))
    assert {first[0][1], last[0][1]} == {first[1][0], last[1][0]} == {1, 2}


def test_kernels_that_changed_their_place_are_found() -> None:
    """A runtime that puts two branches on one stream may run them in another order than the launches."""
    launches, kernels = (1, 2, 3, 4, 5, 6), (1, 4, 2, 3, 5, 6)
    first, _ = pairs(launches, kernels)
    assert first == [[0, 3, 1, 2, 4, 5]]


def test_what_does_not_belong_together_is_given_up() -> None:
    draw = random.Random(3)
    launches, kernels = ([draw.randrange(12) for _ in range(900)] for _ in range(2))
    assert align_launches(launches, [kernels]) is None


def test_likeness_is_the_share_that_can_have_a_partner() -> None:
    assert compute_similarity((1, 1, 2, 3), (1, 3, 3)) == 0.5
    assert compute_similarity((), ()) == 0


def most_in_order(launches: Sequence[int], kernels: Sequence[int]) -> int:
    """Return the length of the longest common subsequence, by the table of the textbook."""
    above = [0] * (len(kernels) + 1)
    for launch in launches:
        row = [0]
        for k, kernel in enumerate(kernels):
            row.append(above[k] + 1 if kernel == launch else max(row[-1], above[k + 1]))
        above = row
    return above[-1]


@pytest.mark.parametrize("seed", range(60))
def test_of_one_stream_no_alignment_has_more_pairs(seed: int) -> None:
    """What has changed its place may come on top."""
    draw = random.Random(seed)
    launches = [draw.randrange(4) for _ in range(draw.randrange(1, 40))]
    kernels = [draw.randrange(4) for _ in range(draw.randrange(1, 40))]
    actual = align_launches(launches, [kernels])
    assert actual is not None and actual.paired_count >= most_in_order(launches, kernels)
    for side in (actual.first, actual.last):
        taken = [launch for launch in side[0] if launch is not None]
        assert len(set(taken)) == len(taken)
        assert all(a is None or launches[a] == k for a, k in zip(side[0], kernels, strict=True))


@pytest.mark.parametrize("seed", range(60))
def test_of_two_streams_that_ran_whole_everything_is_aligned(seed: int) -> None:
    draw = random.Random(seed)
    launches = [draw.randrange(6) for _ in range(40)]
    streams: tuple[list[int], list[int]] = ([], [])
    for sort in launches:
        streams[draw.random() < 0.3].append(sort)
    actual = align_launches(launches, streams)
    assert actual is not None and actual.paired_count == 40
