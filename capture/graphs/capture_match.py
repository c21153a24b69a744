"""Find the captured graph of a replay, and the launch of each of its kernels."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from operator import attrgetter
from typing import Final

from capture.classify.kernel_name_parts import parse_dtype, parse_kernel_name
from capture.classify.name_rules import infer_op_and_category
from capture.graphs.capture_reader import CapturedGraph
from capture.graphs.launch_alignment import align_launches, compute_similarity

MIN_QUALITY: Final = 0.9  # share of kernels and of launches that must be paired
_UNKNOWN_CATEGORY: Final = "other"
_COPIES: Final = {
    "Memcpy": "Memcpy", "Memset": "Memset", "__amd_rocclr_copy": "Memcpy", "__amd_rocclr_fill": "Memset",
}  # fmt: skip

LaunchIndices = list[int | None]  # of each kernel of a replay; None for no launch


@dataclass(frozen=True)
class ReplayedKernel:
    """One kernel of a replay; the grid may be unknown."""

    name: str
    grid: str | None
    stream: int


@dataclass(frozen=True)
class GraphRequirement:
    """What a step requires of its graph; None for what the step's annotation does not report."""

    requests: int | None = None
    tokens: int | None = None
    padded: int | None = None  # batch size of the graph

    @property
    def is_known(self) -> bool:
        """Whether anything is required."""
        return (self.requests, self.tokens, self.padded) != (None, None, None)

    def is_met_by(self, graph: CapturedGraph) -> bool:
        """Whether a graph is large enough, or has the exact batch size if that is required."""
        if self.padded is not None:
            return self.padded in (graph.batch, graph.rows)
        is_large_enough = (graph.batch or graph.size) >= (self.requests or 0)
        return is_large_enough and graph.size >= (self.tokens or 0)


@dataclass(frozen=True, eq=False)
class GraphMatch:
    """A graph compared with a replay: the launch of each kernel, counted over all pieces of the graph.

    `first` and `last` differ where order alone does not tell which launch it is.
    """

    graph: CapturedGraph
    first: LaunchIndices
    last: LaunchIndices
    quality: float
    is_by_name: bool = True  # else by position
    is_unique_size: bool = True  # False if graphs of other batch sizes match, too


def find_best_match(
    graphs: Iterable[CapturedGraph], requirement: GraphRequirement, pieces: Sequence[Sequence[ReplayedKernel]]
) -> GraphMatch | None:
    """Find the graph of a replay: the smallest that meets the requirement and whose launches align.

    `graphs` are sorted by size. If none aligns well enough, the best match is returned; None if no graph
    could be compared.
    """
    matches: list[GraphMatch] = []
    candidates = (graph for graph in graphs if requirement.is_met_by(graph))
    for _, same_size in groupby(candidates, key=attrgetter("size")):
        size_matches = [match for graph in same_size if (match := _match_graph(graph, pieces))]
        best = max(size_matches, key=attrgetter("quality"), default=None)
        if best and best.quality >= MIN_QUALITY and requirement.is_known:
            return best
        matches += size_matches
    if not matches:
        return None
    best = max(matches, key=attrgetter("quality"))
    sizes = {match.graph.size for match in matches if match.quality == best.quality}
    return replace(best, is_unique_size=len(sizes) == 1)


def _match_graph(graph: CapturedGraph, pieces: Sequence[Sequence[ReplayedKernel]]) -> GraphMatch | None:
    """Match a graph to a replay, piece by piece if both have as many.

    If some pieces are missing, each side is compared as one piece; a single graph is not part of several.
    """
    captured = [list(zip(p["kernel"], p["grid"], p["operator"], strict=True)) for p in graph.pieces]
    replayed = [list(piece) for piece in pieces]
    if len(captured) != len(replayed):
        if 1 in (len(captured), len(replayed)):
            return None
        captured, replayed = [list(chain(*captured))], [list(chain(*replayed))]
    first: LaunchIndices = []
    last: LaunchIndices = []
    score, offset, is_by_name = 0.0, 0, True
    for launches, kernels in zip(captured, replayed, strict=True):
        match = _match_piece(launches, kernels)
        if match is None:
            return None
        first += [None if index is None else offset + index for index in match.first]
        last += [None if index is None else offset + index for index in match.last]
        score, offset = score + match.score, offset + len(launches)
        is_by_name &= match.is_by_name
    return GraphMatch(graph, first, last, score / max(offset, len(first), 1), is_by_name)


@dataclass(frozen=True)
class _PieceMatch:
    first: LaunchIndices
    last: LaunchIndices
    score: float  # number of paired kernels
    is_by_name: bool = True


_Launch = tuple[str | None, str | None, str | None]  # kernel, grid, operator


def _match_piece(launches: Sequence[_Launch], kernels: Sequence[ReplayedKernel]) -> _PieceMatch | None:
    """Match the launches of one piece to kernels; None if they are too different to try."""
    if any(kernel is None for kernel, _, _ in launches):
        return _match_by_position(launches, kernels)
    captured = [(str(name), "" if _is_copy(str(name)) else grid) for name, grid, _ in launches]
    replayed = [(kernel.name, "" if _is_copy(kernel.name) else kernel.grid) for kernel in kernels]
    has_grids = all(grid is not None for _, grid in (*captured, *replayed))
    codes = [
        _encode_kinds(captured, replayed, name_of, has_grids)
        for name_of in (_normalise_copy_name, _parse_comparable_name)
    ]
    launch_codes, kernel_codes = max(codes, key=lambda both: compute_similarity(*both))
    is_similar = compute_similarity(launch_codes, kernel_codes) >= MIN_QUALITY / 2
    return _align_streams(launch_codes, kernel_codes, kernels) if is_similar else None


_Kind = tuple[str, str | None]  # name and grid, empty for a copy


def _encode_kinds(
    captured: Sequence[_Kind], replayed: Sequence[_Kind], name_of: Callable[[str], Hashable], with_grids: bool
) -> tuple[list[int], list[int]]:
    """Encode launches and kernels: equal codes for equal names, and for equal grids if requested."""
    codes: dict[Hashable, int] = {}
    launch_codes, kernel_codes = (
        [codes.setdefault((name_of(name), grid if with_grids else None), len(codes)) for name, grid in side]
        for side in (captured, replayed)
    )
    return launch_codes, kernel_codes


def _align_streams(
    launch_codes: Sequence[int], kernel_codes: Sequence[int], kernels: Sequence[ReplayedKernel]
) -> _PieceMatch | None:
    """Align launches to kernels, stream by stream; the result is in the order of the kernels."""
    streams = sorted({kernel.stream for kernel in kernels})
    indices = [[i for i, kernel in enumerate(kernels) if kernel.stream == stream] for stream in streams]
    alignment = align_launches(launch_codes, [[kernel_codes[i] for i in of_stream] for of_stream in indices])
    if alignment is None:
        return None
    first, last = (
        dict(zip(chain(*indices), chain(*pairs), strict=True)) for pairs in (alignment.first, alignment.last)
    )
    order = range(len(kernels))
    return _PieceMatch([first[i] for i in order], [last[i] for i in order], alignment.paired_count)


def _match_by_position(launches: Sequence[_Launch], kernels: Sequence[ReplayedKernel]) -> _PieceMatch | None:
    """Match the k-th launch to the k-th kernel, if a capture does not name its kernels.

    Needs one stream, as many launches as kernels, and operators whose categories agree with the kernels'.
    """
    if len(launches) != len(kernels) or len({kernel.stream for kernel in kernels}) != 1:
        return None
    categories = [
        (infer_op_and_category(operator or "")[1], infer_op_and_category(kernel.name)[1])
        for (_, _, operator), kernel in zip(launches, kernels, strict=True)
    ]
    agreements = [one == other for one, other in categories if _UNKNOWN_CATEGORY not in (one, other)]
    if not agreements:
        return None
    indices: LaunchIndices = [*range(len(kernels))]
    score = len(kernels) * sum(agreements) / len(agreements)
    return _PieceMatch(indices, indices, score, is_by_name=False)


def _is_copy(name: str) -> bool:
    return name.startswith(tuple(_COPIES))


def _normalise_copy_name(name: str) -> Hashable:
    """Give all copies, and all memsets, one name; other names stay."""
    return next((kind for prefix, kind in _COPIES.items() if name.startswith(prefix)), name)


def _parse_comparable_name(name: str) -> Hashable:
    """Parse a name so that its mangled and its readable form are equal."""
    if _is_copy(name):
        return _normalise_copy_name(name)
    parsed = parse_kernel_name(name)
    return parsed.base, tuple(parse_dtype(argument) or argument for argument in parsed.arguments)
