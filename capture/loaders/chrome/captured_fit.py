"""Which captured graph a replay is of, and which launch each of its kernels comes from."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import Final

from capture.classify.base_name import dtype_of, parse
from capture.classify.graph_align import Alignment, align, likeness
from capture.classify.names import role_of
from capture.loaders.chrome.captured import CapturedGraph

LEAST: Final = 0.9  # share of kernels and of launches that must be aligned, or the graph is not the one
_OPEN: Final = "other"  # the category of a name that says nothing
_COPIES: Final = {
    "Memcpy": "Memcpy",
    "Memset": "Memset",
    "__amd_rocclr_copy": "Memcpy",
    "__amd_rocclr_fill": "Memset",
}


@dataclass(frozen=True)
class Kernel:
    """One kernel of a replay: its name, its grid where it is stated, the stream that it ran on."""

    name: str
    grid: str | None
    stream: int


@dataclass(frozen=True)
class Need:
    """What a graph must have been captured for; None for what the step does not say."""

    requests: int | None = None
    tokens: int | None = None
    padded: int | None = None

    @property
    def told(self) -> bool:
        """Return whether anything is said."""
        return (self.requests, self.tokens, self.padded) != (None, None, None)

    def served_by(self, graph: CapturedGraph) -> bool:
        """Return whether a graph can be the one: large enough, or of the very batch where that is stated."""
        if self.padded is not None:
            return self.padded in (graph.batch, graph.rows)
        enough = (graph.batch or graph.size) >= (self.requests or 0)
        return enough and graph.size >= (self.tokens or 0)


@dataclass(frozen=True, eq=False)
class Fit:
    """A graph held against a replay: for each kernel its launch among all of the graph, None for no launch.

    `first` and `last` differ where order alone does not tell which launch it is. `sized` is False where
    graphs of other batches fit as well, and nothing says which one was replayed.
    """

    graph: CapturedGraph
    first: list[int | None]
    last: list[int | None]
    quality: float
    named: bool = True  # by the names of kernels, else by position
    sized: bool = True


def choose(graphs: Iterable[CapturedGraph], need: Need, pieces: Sequence[Sequence[Kernel]]) -> Fit | None:
    """Return the graph that a replay is of: the smallest that serves its step and whose launches align.

    `graphs` come by rising size. Where none aligns well enough, the best of them is returned, None where
    none could be held against it.
    """
    fits: list[Fit] = []
    serving = (graph for graph in graphs if need.served_by(graph))
    for _, same in groupby(serving, key=lambda graph: graph.size):
        mine = [fit for graph in same if (fit := _fit(graph, pieces))]
        best = max(mine, key=_quality, default=None)
        if best and best.quality >= LEAST and need.told:
            return best
        fits += mine
    if not fits:
        return None
    best = max(fits, key=_quality)
    sizes = {fit.graph.size for fit in fits if fit.quality == best.quality}
    return replace(best, sized=len(sizes) == 1)


def _quality(fit: Fit) -> float:
    return fit.quality


def _fit(graph: CapturedGraph, pieces: Sequence[Sequence[Kernel]]) -> Fit | None:
    """Return a graph held against the kernels of a replay, piece by piece where both have as many.

    Where some pieces are not shown they are held against each other as one; one graph is no part of several.
    """
    captured = [list(zip(p["kernel"], p["grid"], p["operator"], strict=True)) for p in graph.pieces]
    replayed = [list(piece) for piece in pieces]
    if len(captured) != len(replayed):
        if 1 in (len(captured), len(replayed)):
            return None
        captured, replayed = [list(chain(*captured))], [list(chain(*replayed))]
    parts = [_fit_piece(*both) for both in zip(captured, replayed, strict=True)]
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        return None
    first: list[int | None] = []
    last: list[int | None] = []
    behind = 0
    for launches, part in zip(captured, found, strict=True):
        first += _shifted(part.first, behind)
        last += _shifted(part.last, behind)
        behind += len(launches)
    quality = sum(part.score for part in found) / max(behind, len(first), 1)
    return Fit(graph, first, last, quality, all(part.named for part in found))


def _shifted(places: Sequence[int | None], by: int) -> list[int | None]:
    return [None if place is None else by + place for place in places]


@dataclass(frozen=True)
class _Piece:
    first: list[int | None]
    last: list[int | None]
    score: float  # kernels that are aligned, or as many as agree
    named: bool = True


_Launch = tuple[str | None, str | None, str | None]  # kernel, grid, operator


def _fit_piece(launches: Sequence[_Launch], kernels: Sequence[Kernel]) -> _Piece | None:
    """Return the alignment of one piece, None where there is none worth trying."""
    if any(kernel is None for kernel, _, _ in launches):
        return _by_position(launches, kernels)
    captured = _looks((name, grid) for name, grid, _ in launches)
    replayed = _looks((kernel.name, kernel.grid) for kernel in kernels)
    stated = None not in (*captured[1], *replayed[1])  # all grids
    sorts = [_sorts(captured, replayed, name_of, stated) for name_of in (_whole, _readable)]
    ours, theirs = max(sorts, key=lambda both: likeness(*both))
    return _aligned(ours, theirs, kernels) if likeness(ours, theirs) >= LEAST / 2 else None


_Looks = tuple[list[str], list[str | None]]


def _looks(sides: Iterable[tuple[str | None, str | None]]) -> _Looks:
    """Return names and grids; a copy has no grid to be stated."""
    pairs = [(str(name), grid) for name, grid in sides]
    return [name for name, _ in pairs], ["" if _is_copy(name) else grid for name, grid in pairs]


def _sorts(
    captured: _Looks, replayed: _Looks, name_of: Callable[[str], Hashable], grids: bool
) -> tuple[list[int], list[int]]:
    """Return launches and kernels as numbers: the same for the same name, and the same grid where asked."""
    numbers: dict[Hashable, int] = {}
    sides = (
        [(name_of(name), grid if grids else None) for name, grid in zip(*side, strict=True)]
        for side in (captured, replayed)
    )
    ours, theirs = ([numbers.setdefault(sort, len(numbers)) for sort in side] for side in sides)
    return ours, theirs


def _aligned(ours: Sequence[int], theirs: Sequence[int], kernels: Sequence[Kernel]) -> _Piece | None:
    """Return the alignment of sorts of launches to sorts of kernels, stream by stream."""
    streams = sorted({kernel.stream for kernel in kernels})
    at = [[i for i, kernel in enumerate(kernels) if kernel.stream == stream] for stream in streams]
    found = align(ours, [[theirs[i] for i in where] for where in at])
    return _in_order(found, at, len(kernels)) if found else None


def _in_order(found: Alignment, at: Sequence[Sequence[int]], count: int) -> _Piece:
    """Return an alignment of streams as one of kernels in their order."""
    sides: list[list[int | None]] = []
    for pairs in (found.first, found.last):
        side: list[int | None] = [None] * count
        for where, launches in zip(at, pairs, strict=True):
            for i, launch in zip(where, launches, strict=True):
                side[i] = launch
        sides.append(side)
    return _Piece(sides[0], sides[1], found.aligned)


def _by_position(launches: Sequence[_Launch], kernels: Sequence[Kernel]) -> _Piece | None:
    """Return the k-th launch for the k-th kernel, where a capture names no kernels: on one stream, as many on
    both sides, and what the operators say agrees with what the kernels' names say.
    """
    if len(launches) != len(kernels) or len({kernel.stream for kernel in kernels}) != 1:
        return None
    said = [
        (role_of(operator or "")[1], role_of(kernel.name)[1])
        for (_, _, operator), kernel in zip(launches, kernels, strict=True)
    ]
    told = [one == other for one, other in said if _OPEN not in (one, other)]
    if not told:
        return None
    every: list[int | None] = [*range(len(kernels))]
    return _Piece(every, every, len(kernels) * sum(told) / len(told), named=False)


def _is_copy(name: str) -> bool:
    return name.startswith(tuple(_COPIES))


def _whole(name: str) -> Hashable:
    """Return a kernel's name as it is; copies and sets by what they do."""
    return next((sort for start, sort in _COPIES.items() if name.startswith(start)), name)


def _readable(name: str) -> Hashable:
    """Return what a kernel's name says, whether it is mangled or not."""
    if _is_copy(name):
        return _whole(name)
    parsed = parse(name)
    return parsed.base, tuple(dtype_of(argument) or argument for argument in parsed.arguments)
