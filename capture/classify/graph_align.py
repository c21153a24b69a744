"""Alignment of what was launched into a graph to what ran when the graph was replayed.

A capture tells the launches in the order in which the host made them, a replay the kernels of each stream
in the order in which they ran. Either side may have kernels that the other lacks. An alignment keeps the
order within each stream, pairs only what is of the same sort, and leaves as few alone as it can. What
is left alone on both sides near each other has changed its place: a runtime may put two branches of a graph
on one stream.
"""

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

EFFORT: Final = 40  # places looked at for each launch and kernel; more: the two do not belong together
NEAR: Final = 32  # launches that a kernel may have changed its place by
_FLOOR: Final = 20_000  # places that are always looked at

Pairs = list[list[int | None]]  # per stream and kernel its launch, None for one that is left alone
_Place = tuple[int, ...]  # launches and kernels of each stream that are behind


@dataclass(frozen=True)
class Alignment:
    """Which launch each kernel of each stream comes from, taken as early and as late as may be.

    Where `first` and `last` differ, launches of the same sort could stand for each other: which of
    them it is, order does not tell.
    """

    first: Pairs
    last: Pairs

    @property
    def aligned(self) -> int:
        """Return how many kernels have a launch."""
        return sum(launch is not None for stream in self.first for launch in stream)


def align(launches: Sequence[int], streams: Sequence[Sequence[int]]) -> Alignment | None:
    """Return the alignment of launches to the kernels of some streams, each given by what sort it is.

    None where they differ so much that the search would not end soon.
    """
    first = _Search(launches, streams).pairs()
    if first is None:
        return None
    total = len(launches)
    backwards = _Search(launches[::-1], [stream[::-1] for stream in streams]).pairs()
    if backwards is None:
        return None
    last = [[None if i is None else total - 1 - i for i in stream[::-1]] for stream in backwards]
    return Alignment(*(_with_moved(launches, streams, pairs) for pairs in (first, last)))


def _with_moved(launches: Sequence[int], streams: Sequence[Sequence[int]], pairs: Pairs) -> Pairs:
    """Return the pairs with those that changed their place: of a sort of which as many launches as kernels
    were left alone, the first with the first, where they are near each other.
    """
    used = {launch for stream in pairs for launch in stream}
    alone: dict[int, list[int]] = {}
    for i, sort in enumerate(launches):
        if i not in used:
            alone.setdefault(sort, []).append(i)
    moved = [list(stream) for stream in pairs]
    for sort, kernels in _left_alone(streams, pairs).items():
        if len(kernels) == len(alone.get(sort, ())):
            for (around, s, k), launch in zip(sorted(kernels), alone[sort], strict=True):
                moved[s][k] = launch if abs(launch - around) <= NEAR else None
    return moved


def _left_alone(streams: Sequence[Sequence[int]], pairs: Pairs) -> dict[int, list[tuple[int, int, int]]]:
    """Return the kernels without a launch by their sort: the launch before them, their stream and place."""
    alone: dict[int, list[tuple[int, int, int]]] = {}
    for s, stream in enumerate(pairs):
        around = -1
        for k, launch in enumerate(stream):
            around = around if launch is None else launch
            if launch is None:
                alone.setdefault(streams[s][k], []).append((around, s, k))
    return alone


class _Search:
    """The cheapest way from the start of all sequences to their ends (A*): a pair is free, what is left
    alone costs one. What must be left alone in any case, by the counts of each sort, is known beforehand.
    """

    def __init__(self, launches: Sequence[int], streams: Sequence[Sequence[int]]) -> None:
        self._launches, self._streams = launches, streams
        self._end = (len(launches), *(len(stream) for stream in streams))
        self._places = [_places(sequence) for sequence in (launches, *streams)]

    def pairs(self) -> Pairs | None:
        """Return the pairs of the cheapest way; None where it was not found with the effort allowed."""
        start: _Place = (0,) * len(self._end)
        came: dict[_Place, tuple[_Place, int]] = {}
        queue: list[tuple[int, int, int, _Place, _Place | None, int]] = [(0, 0, 0, start, None, -1)]
        seen: set[_Place] = set()
        most = _FLOOR + EFFORT * sum(self._end)
        order = 0
        while queue:
            cost, _, _, place, before, stream = heapq.heappop(queue)
            if place in seen:
                continue
            seen.add(place)
            if before is not None:
                came[place] = (before, stream)
            if place == self._end:
                return self._walk_back(came)
            if len(seen) > most:
                return None
            for further, stream, more in self._steps(place):
                order -= 1  # among equals the furthest, then the one found last
                heapq.heappush(queue, (cost + more, -sum(further), order, further, place, stream))
        return None

    def _steps(self, place: _Place) -> list[tuple[_Place, int, int]]:
        """Return where it can go on from a place: the next place, the stream of a pair (-1: none), the cost
        above what is known beforehand.
        """
        at, heads = place[0], place[1:]
        launch = self._launches[at] if at < len(self._launches) else None
        waiting = [
            (s, stream[head])
            for s, (stream, head) in enumerate(zip(self._streams, heads, strict=True))
            if head < len(stream)
        ]
        partners = [s for s, sort in waiting if sort == launch]
        if partners:
            return [(_moved(place, 0, s + 1), s, 0) for s in reversed(partners)]
        steps = [
            (_moved(place, s + 1), -1, 0 if self._surplus(place, sort) < 0 else 2) for s, sort in waiting
        ]
        if launch is not None:
            steps.append((_moved(place, 0), -1, 0 if self._surplus(place, launch) > 0 else 2))
        return steps

    def _surplus(self, place: _Place, sort: int) -> int:
        """Return how many more launches than kernels of one sort lie ahead."""
        ahead = [
            len(where) - bisect_left(where, at)
            for at, places in zip(place, self._places, strict=True)
            for where in (places.get(sort, ()),)
        ]
        return ahead[0] - sum(ahead[1:])

    def _walk_back(self, came: dict[_Place, tuple[_Place, int]]) -> Pairs:
        pairs: Pairs = [[None] * len(stream) for stream in self._streams]
        place = self._end
        while place in came:
            before, stream = came[place]
            if stream >= 0:
                pairs[stream][before[stream + 1]] = before[0]
            place = before
        return pairs


def _moved(place: _Place, *which: int) -> _Place:
    return tuple(at + (i in which) for i, at in enumerate(place))


def _places(sequence: Sequence[int]) -> dict[int, list[int]]:
    """Return where each sort stands in a sequence."""
    places: dict[int, list[int]] = {}
    for i, sort in enumerate(sequence):
        places.setdefault(sort, []).append(i)
    return places


def likeness(launches: Sequence[int], kernels: Sequence[int]) -> float:
    """Return the share of launches and kernels that can have a partner at all, whatever the order."""
    pairs = (Counter(launches) & Counter(kernels)).total()
    longest = max(len(launches), len(kernels))
    return pairs / longest if longest else 0.0
