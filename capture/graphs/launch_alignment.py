"""Align the launches of a captured graph to the kernels of its replay (A* search).

A capture shows the launches in the order of the host, a replay the kernels of each stream in the order in
which they ran. Either side may have kernels that the other lacks. An alignment preserves the order within
each stream, pairs only equal kinds, and leaves as few unpaired as possible. Kernels that stay unpaired on
both sides near each other have moved: the runtime may put two branches of a graph on one stream.
"""

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MAX_STATES_PER_ITEM: Final = 40  # visited per launch and kernel; a graph that needs more is another one
MAX_MOVE: Final = 32  # launches by which a kernel may have moved
_MIN_STATE_LIMIT: Final = 20_000  # states that are always allowed

Pairs = list[list[int | None]]  # per stream and kernel its launch, None if unpaired
_State = tuple[int, ...]  # launches consumed, then kernels consumed of each stream


@dataclass(frozen=True)
class LaunchAlignment:
    """The launch of each kernel of each stream, the earliest and the latest possible.

    Where `first` and `last` differ, launches of the same kind could stand for each other, and order does not
    tell which it is.
    """

    first: Pairs
    last: Pairs

    @property
    def paired_count(self) -> int:
        """Number of kernels with a launch."""
        return sum(launch is not None for stream in self.first for launch in stream)


def align_launches(launches: Sequence[int], streams: Sequence[Sequence[int]]) -> LaunchAlignment | None:
    """Align launches to kernels of streams by their kinds; None if the search would not end soon."""
    first = _AlignmentSearch(launches, streams).find_pairs()
    if first is None:
        return None
    total = len(launches)
    backwards = _AlignmentSearch(launches[::-1], [stream[::-1] for stream in streams]).find_pairs()
    if backwards is None:
        return None
    last = [[None if i is None else total - 1 - i for i in stream[::-1]] for stream in backwards]
    return LaunchAlignment(*(_pair_moved_kernels(launches, streams, pairs) for pairs in (first, last)))


def compute_similarity(launches: Sequence[int], kernels: Sequence[int]) -> float:
    """Compute the share of launches and kernels that can be paired at all, in whatever order."""
    pairs = (Counter(launches) & Counter(kernels)).total()
    longest = max(len(launches), len(kernels))
    return pairs / longest if longest else 0.0


def _pair_moved_kernels(launches: Sequence[int], streams: Sequence[Sequence[int]], pairs: Pairs) -> Pairs:
    """Pair kernels that moved: of kinds with as many unpaired launches as kernels, in order, if near."""
    paired = {launch for stream in pairs for launch in stream}
    unpaired_launches: dict[int, list[int]] = {}
    for i, kind in enumerate(launches):
        if i not in paired:
            unpaired_launches.setdefault(kind, []).append(i)
    result = [list(stream) for stream in pairs]
    for kind, kernels in _group_unpaired_kernels(streams, pairs).items():
        candidates = unpaired_launches.get(kind, [])
        if len(kernels) == len(candidates):
            for (previous, s, k), launch in zip(sorted(kernels), candidates, strict=True):
                result[s][k] = launch if abs(launch - previous) <= MAX_MOVE else None
    return result


def _group_unpaired_kernels(
    streams: Sequence[Sequence[int]], pairs: Pairs
) -> dict[int, list[tuple[int, int, int]]]:
    """Group the unpaired kernels by kind: the launch paired before each, its stream and its position."""
    unpaired: dict[int, list[tuple[int, int, int]]] = {}
    for s, stream in enumerate(pairs):
        previous = -1
        for k, launch in enumerate(stream):
            previous = previous if launch is None else launch
            if launch is None:
                unpaired.setdefault(streams[s][k], []).append((previous, s, k))
    return unpaired


class _AlignmentSearch:
    """The cheapest path from the start to the end of all sequences: a pair is free, an unpaired item costs 1.

    The heuristic is what must stay unpaired in any case, by the counts of each kind.
    """

    def __init__(self, launches: Sequence[int], streams: Sequence[Sequence[int]]) -> None:
        self._launches, self._streams = launches, streams
        self._end = (len(launches), *(len(stream) for stream in streams))
        self._positions = [_index_positions(sequence) for sequence in (launches, *streams)]

    def find_pairs(self) -> Pairs | None:
        """Find the pairs of the cheapest path; None if the effort limit is reached."""
        start: _State = (0,) * len(self._end)
        came_from: dict[_State, tuple[_State, int]] = {}
        queue: list[tuple[int, int, int, _State, _State | None, int]] = [(0, 0, 0, start, None, -1)]
        visited: set[_State] = set()
        limit = _MIN_STATE_LIMIT + MAX_STATES_PER_ITEM * sum(self._end)
        order = 0
        while queue:
            cost, _, _, state, previous, stream = heapq.heappop(queue)
            if state in visited:
                continue
            visited.add(state)
            if previous is not None:
                came_from[state] = (previous, stream)
            if state == self._end:
                return self._trace_path(came_from)
            if len(visited) > limit:
                return None
            for following, stream, extra in self._list_moves(state):
                order -= 1  # among equals the furthest, then the one found last
                heapq.heappush(queue, (cost + extra, -sum(following), order, following, state, stream))
        return None

    def _list_moves(self, state: _State) -> list[tuple[_State, int, int]]:
        """List the next states, with the stream of the pair (−1: none) and the cost above the heuristic."""
        at, heads = state[0], state[1:]
        launch = self._launches[at] if at < len(self._launches) else None
        waiting = [
            (s, stream[head])
            for s, (stream, head) in enumerate(zip(self._streams, heads, strict=True))
            if head < len(stream)
        ]
        partners = [s for s, kind in waiting if kind == launch]
        if partners:
            return [(_advance(state, 0, s + 1), s, 0) for s in reversed(partners)]
        moves = [
            (_advance(state, s + 1), -1, 0 if self._count_surplus(state, kind) < 0 else 2)
            for s, kind in waiting
        ]
        if launch is not None:
            moves.append((_advance(state, 0), -1, 0 if self._count_surplus(state, launch) > 0 else 2))
        return moves

    def _count_surplus(self, state: _State, kind: int) -> int:
        """Count how many more launches than kernels of a kind are ahead."""
        ahead = [
            len(indices) - bisect_left(indices, at)
            for at, positions in zip(state, self._positions, strict=True)
            for indices in (positions.get(kind, ()),)
        ]
        return ahead[0] - sum(ahead[1:])

    def _trace_path(self, came_from: dict[_State, tuple[_State, int]]) -> Pairs:
        pairs: Pairs = [[None] * len(stream) for stream in self._streams]
        state = self._end
        while state in came_from:
            previous, stream = came_from[state]
            if stream >= 0:
                pairs[stream][previous[stream + 1]] = previous[0]
            state = previous
        return pairs


def _advance(state: _State, *sequences: int) -> _State:
    return tuple(at + (i in sequences) for i, at in enumerate(state))


def _index_positions(sequence: Sequence[int]) -> dict[int, list[int]]:
    positions: dict[int, list[int]] = {}
    for i, kind in enumerate(sequence):
        positions.setdefault(kind, []).append(i)
    return positions
