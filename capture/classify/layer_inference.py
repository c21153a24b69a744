"""Infer layers and roles of kernels from the order in which they run, if their names tell neither.

Passes begin at reported steps, between sampling and the next embedding, and where the ends of all kernels run
again. The result is marked with its evidence, and never overrides what a source reports.
"""

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from capture.classify.kernel_symbols import (
    MIXERS,
    find_symbols,
    mark_expert_choices,
    mark_front_ends,
)
from capture.classify.layer_boundaries import LearnedCuts
from capture.classify.pass_template import PassTemplate, build_template

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.integer]
SymbolCodes = npt.NDArray[np.uint8]

_MIN_MIXER_SHARE: Final = 0.25  # of the busiest stream's mixers, for a stream that runs layers
MAX_STREAMS: Final = 256  # the busiest; one takes 0.2 ms, and 60,000 lanes of one kernel 10 s
_MIXER_CODES: Final = [ord(symbol) for symbol in MIXERS]
_MIN_SIDE_FREQUENCY: Final = 0.2  # occurrences per layer of a name on a side stream, to belong to layers
_BIASED_PRODUCT: Final = "aten::addmm"  # of a processor; kernels of a device do not tell
_NO_ENDS: Final = "nothing stands before the layers or behind them: passes cannot be told apart"
_SIDE_STREAM_ROLES: Final = {
    "m": "comm", "K": "attn.kv", "R": "attn.rope", "C": "attn.core", "q": "quantize",
}  # fmt: skip


@dataclass(frozen=True)
class InferenceEvidence:
    """How much repeats, and how surely."""

    method: str = "none"  # mixer, period or none
    period: int = 0  # kernels of a typical layer
    layers: int = 0  # of a typical pass
    passes: int = 0
    refused: int = 0  # passes for which nothing was inferred
    kinds: tuple[str, ...] = ()
    launch_share: float = 0.0  # of all launches, those in layers
    time_share: float = 0.0  # the same of their time
    unmatched: int = 0  # kernels within the layers that belong to none
    confidence: float = 0.0  # 0 to 1
    reason: str | None = None  # why nothing was inferred, for all kernels or for those of refused passes
    doubt: str | None = None  # why some layers have no number
    streams: int = 1  # that may run layers; they are looked for on the first MAX_STREAMS


@dataclass(frozen=True)
class InferredLayers:
    """Columns over the kernels; −1 for a kernel without layer, position, role or kind."""

    layer: Ints
    position: Ints
    role: Ints  # index into `roles`
    kind: Ints  # index into `kinds`
    pass_index: Ints
    roles: tuple[str, ...]
    kinds: tuple[str, ...]
    evidence: InferenceEvidence


@dataclass(frozen=True)
class KernelSequence:
    """Kernels (or working CPU ops) sorted by start; optional columns may be missing."""

    name: Codes  # index into `names`
    names: Sequence[str]
    start: Ints
    duration: Ints
    categories: Sequence[str | None] | None = None  # by name, for each of `names`
    stream: Codes | None = None
    step: Codes | None = None  # as reported
    launch: Codes | None = None  # code of grid or input dims


def infer_layers(kernels: KernelSequence) -> InferredLayers:
    """Infer layer, position, role and kind of each kernel; all −1 if nothing convincing repeats.

    Each distinct pass is processed once. Kernels on streams without attention get the layer that was running
    when they started.
    """
    codes = np.array([ord(s) for s in find_symbols(kernels.names, kernels.categories)], dtype=np.uint8)
    symbols = codes[kernels.name] if len(kernels.name) else np.empty(0, dtype=np.uint8)
    symbols = mark_expert_choices(mark_front_ends(symbols))
    writer = _ColumnWriter(len(kernels.name))
    busy_streams = _find_layer_streams(kernels, symbols)
    streams = busy_streams[:MAX_STREAMS]
    for stream in streams:
        _infer_stream(kernels, symbols, stream, writer)
    is_side = np.ones(len(symbols), dtype=bool)
    for stream in streams:
        is_side[stream] = False
    if is_side.any() and streams:
        _attach_side_streams(kernels, symbols, streams[0], np.flatnonzero(is_side), writer)
    inferred = writer.build_result(kernels.duration)
    return replace(inferred, evidence=replace(inferred.evidence, streams=len(busy_streams)))


def _find_layer_streams(kernels: KernelSequence, symbols: npt.NDArray[np.uint8]) -> list[Ints]:
    """Find the kernels of each stream that runs layers, busiest first."""
    if kernels.stream is None or not len(symbols):
        return [np.arange(len(symbols))]
    streams, codes = _compact_codes(kernels.stream)
    is_mixer = np.isin(symbols, [ord(symbol) for symbol in MIXERS + "s"])
    counts = np.bincount(codes[is_mixer], minlength=len(streams))
    if not counts.any():
        counts = np.bincount(codes, minlength=len(streams))
    order = np.argsort(-counts, kind="stable")
    rows_by_code = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
    chosen = order[counts[order] > _MIN_MIXER_SHARE * counts.max()]
    return [rows_by_code[code] for code in chosen.tolist()]


def _infer_stream(
    kernels: KernelSequence, symbols: npt.NDArray[np.uint8], stream: Ints, writer: "_ColumnWriter"
) -> None:
    """Infer the passes of one stream, each distinct one once."""
    ids = np.ascontiguousarray(kernels.name[stream], dtype=np.int64)
    symbols = np.ascontiguousarray(symbols[stream])
    launch = None
    if kernels.launch is not None:
        launch = np.ascontiguousarray(kernels.launch[stream], dtype=np.int64)
    steps = None if kernels.step is None else kernels.step[stream]
    spans = list(itertools.pairwise(find_pass_bounds(ids, symbols, steps).tolist()))
    keys = [ids[a:b].tobytes() + _encode_mixer_launches(symbols, launch, slice(a, b)) for a, b in spans]
    span_of_key, counts = dict(zip(keys, spans, strict=True)), Counter(keys)
    templates: dict[bytes, PassTemplate] = {}
    learned_cuts: LearnedCuts = ()
    biased = frozenset(code for code, name in enumerate(kernels.names) if name == _BIASED_PRODUCT)
    for key in sorted(counts, key=lambda key: -counts[key] * len(key)):  # what covers most kernels first
        start, end = span_of_key[key]
        text = symbols[start:end].tobytes().decode("ascii")
        pass_launch = None if launch is None else launch[start:end]
        templates[key] = build_template(ids[start:end], text, pass_launch, learned_cuts, biased)
        learned_cuts = learned_cuts or templates[key].learned_cuts
    passes = [(templates[key], stream[a:b]) for key, (a, b) in zip(keys, spans, strict=True)]
    for index, (template, indices) in enumerate(_open_bare_layers(passes, steps)):
        writer.add_pass(template, indices, _count_missing_layers(passes) if index == 0 else 0)


def _open_bare_layers(
    passes: list[tuple[PassTemplate, Ints]], steps: Codes | None
) -> list[tuple[PassTemplate, Ints]]:
    """Return a single pass without its layers if there are only layers: they may be of several passes."""
    if len(passes) != 1 or (steps is not None and (steps >= 0).any()):
        return passes
    template, indices = passes[0]
    is_bare = template.layers > 0 and template.layer[0] >= 0 and not {"lm_head", "sample"} & {*template.role}
    if not is_bare:
        return passes
    return [(replace(template, layer=np.full_like(template.layer, -1), doubt=_NO_ENDS), indices)]


def _count_missing_layers(passes: list[tuple[PassTemplate, Ints]]) -> int:
    """Count the layers that ran before the first kernel, if the trace begins within a pass.

    The first pass then has fewer layers than a typical one, of the kinds at the end of that one.
    """
    first = passes[0][0]
    counts = Counter(id(template) for template, _ in passes[1:] if template.reason is None)
    if not counts or first.reason is not None or "embed" in first.role:
        return 0
    typical_id = counts.most_common(1)[0][0]
    typical = next(template for template, _ in passes if id(template) == typical_id)
    missing = typical.layers - first.layers
    is_end = missing > 0 and _list_layer_kinds(typical)[missing:] == _list_layer_kinds(first)
    return missing if is_end else 0


def _list_layer_kinds(template: PassTemplate) -> list[str]:
    """List the kind of each layer, without the letter that distinguishes mixers."""
    kinds = dict(zip(template.layer.tolist(), template.kind, strict=True))
    kinds = {layer: kind for layer, kind in kinds.items() if layer >= 0 and kind}
    return [re.sub(r" [a-z]\b", "", kinds[layer]) for layer in sorted(kinds)]


def _encode_mixer_launches(symbols: npt.NDArray[np.uint8], launch: Ints | None, span: slice) -> bytes:
    """Encode which mixers of a pass have equal launches; the kinds depend on no other launches."""
    if launch is None:
        return b""
    codes: dict[int, int] = {}
    mixers = launch[span][np.isin(symbols[span], _MIXER_CODES)].tolist()
    return np.array([codes.setdefault(code, len(codes)) for code in mixers], dtype=np.int64).tobytes()


def _attach_side_streams(
    kernels: KernelSequence, symbols: npt.NDArray[np.uint8], main: Ints, side: Ints, writer: "_ColumnWriter"
) -> None:
    """Give kernels of side streams the layer and pass that ran on the main stream when they started.

    Only names as frequent as layers belong to layers; the others are unmatched.
    """
    writer.write_templates()
    before = np.searchsorted(kernels.start[main], kernels.start[side], side="right") - 1
    source = main[np.maximum(before, 0)]
    is_inside = (before >= 0) & (writer.layer[source] >= 0)
    if kernels.step is not None:
        is_inside &= kernels.step[side] == kernels.step[source]
    counts = np.bincount(kernels.name[side[is_inside]], minlength=len(kernels.names))
    is_frequent = counts[kernels.name[side]] >= _MIN_SIDE_FREQUENCY * max(1, writer.layers)
    writer.unmatched_on_side = int((is_inside & ~is_frequent).sum())
    is_inside &= is_frequent
    for column in (writer.layer, writer.pass_index, writer.kind):
        column[side[is_inside]] = column[source[is_inside]]
    for symbol, role in _SIDE_STREAM_ROLES.items():
        writer.role[side[symbols[side] == ord(symbol)]] = writer.encode_role(role)


# passes

_EMBEDDINGS, _SAMPLING = (ord("E"), ord("v")), ord("Z")
_ATTENTION_CODES: Final = [ord(symbol) for symbol in "CSs"]
_MIN_MIXERS_OF_PASS: Final = 3
_MIN_CYCLES: Final = 4  # that repeat, to be more than the layers of one pass
_MIN_BLOCK: Final = 3  # kernels: fewer, as of three projections, are no layer
_COMPARED_END: Final = 64  # kernels at the end that are compared before all
_PASS_MIXER_CODES: Final = np.array([ord(symbol) for symbol in "CSVs"], dtype=np.uint8)


def find_pass_bounds(
    ids: npt.NDArray[np.integer], symbols: SymbolCodes, steps: npt.NDArray[np.integer] | None
) -> Ints:
    """Find where passes begin, with the end appended.

    `ids` are the codes of the names, `symbols` the symbol of each kernel, `steps` the reported step of each.
    """
    mixer_counts = np.cumsum(np.isin(symbols, _PASS_MIXER_CODES), dtype=np.int64)
    seams = _prefer_repeated_ends(_find_seams(ids, symbols, mixer_counts), ids, symbols)
    step_starts = np.zeros(0, dtype=np.int64) if steps is None else np.flatnonzero(np.diff(steps)) + 1
    bounds = np.unique(np.concatenate([[0], step_starts, [len(ids)]]))
    if len(seams) and len(bounds) > 2:
        seams = seams[_has_mixers_on_both_sides(seams, bounds, mixer_counts)]
    return np.unique(np.concatenate([bounds, seams]))


def _prefer_repeated_ends(seams: list[int], ids: npt.NDArray[np.integer], symbols: SymbolCodes) -> Ints:
    """Move seams to where the last kernels of all, and the first ones behind them, run between two mixers.

    There one pass ends and the next begins, also of a model that embeds nothing. Other seams stay, and
    all of them if tokens are sampled: a trace may begin and end within a layer.
    """
    mixers = np.flatnonzero(np.isin(symbols, _ATTENTION_CODES))  # convolutions may be of an end
    if (
        len(mixers) < 2 * _MIN_MIXERS_OF_PASS
        or (np.delete(symbols, np.s_[mixers[0] : mixers[-1]]) == _SAMPLING).any()
    ):
        return np.array(seams, dtype=np.int64)
    head, tail = ids[: mixers[0]], ids[mixers[-1] + 1 :]
    ends = np.concatenate([tail, head])
    gaps = np.flatnonzero(np.diff(mixers) == len(ends) + 1)
    inside = ids[mixers[gaps][:, None] + 1 + np.arange(len(ends))]
    gaps = gaps[(inside == ends).all(axis=1)]
    if not len(gaps) or np.diff([-1, *gaps, len(mixers) - 1]).min() < _MIN_MIXERS_OF_PASS:
        return np.array(seams or _find_seams_of_rare_gaps(ids, mixers, len(tail)), dtype=np.int64)
    others = [seam for seam in seams if np.searchsorted(mixers, seam) - 1 not in gaps]
    return np.union1d(mixers[gaps] + 1 + len(tail), np.array(others, dtype=np.int64))


def _find_seams_of_rare_gaps(ids: npt.NDArray[np.integer], mixers: Ints, tail_size: int) -> list[int]:
    """Find the seams between equal passes where what runs once before all of them hides their beginning.

    They are the kernels between two mixers that are others than between most, in equal numbers of mixers: the
    end of a pass, with which the trace ends, and the beginning of the next, with which the first one begins.
    """
    gaps = [ids[a + 1 : b].tobytes() for a, b in itertools.pairwise(mixers.tolist())]
    counts = Counter(gaps).most_common()
    if len(counts) != 2:
        return []
    places = [at for at, gap in enumerate(gaps) if gap == counts[1][0]]
    sizes = {*np.diff([-1, *places, len(mixers) - 1]).tolist()}
    first = mixers[places[0]] + 1
    rare, tail = ids[first : mixers[places[0] + 1]], ids[mixers[-1] + 1 :]
    begin = rare[tail_size:]
    is_end = np.array_equal(rare[:tail_size], tail) and len(begin) > 0
    is_begin = np.array_equal(ids[mixers[0] - len(begin) : mixers[0]], begin)
    if len(sizes) != 1 or min(sizes) < _MIN_MIXERS_OF_PASS or not (is_end and is_begin):
        return []
    return [int(mixers[at]) + 1 + tail_size for at in places]


def _has_mixers_on_both_sides(seams: Ints, bounds: Ints, mixer_counts: Ints) -> npt.NDArray[np.bool]:
    """Whether each seam has mixers on both sides within its reported step; others only trim the step."""
    counts = np.concatenate([[0], mixer_counts])
    following = np.searchsorted(bounds, seams, side="left").clip(1, len(bounds) - 1)
    left = counts[seams] - counts[bounds[following - 1]]
    right = counts[bounds[following]] - counts[seams]
    return np.asarray((left >= 2) & (right >= 2))


def _find_seams(ids: npt.NDArray[np.integer], symbols: SymbolCodes, mixer_counts: Ints) -> list[int]:
    """Find the seams between groups of sampling kernels and the embeddings that follow them."""
    if not len(mixer_counts) or mixer_counts[-1] < 4:
        return []
    marks = np.flatnonzero(np.isin(symbols, (*_EMBEDDINGS, _SAMPLING)))
    marks = marks[_count_gaps_per_name(ids[marks], mixer_counts[marks]) <= mixer_counts[-1] / 2]
    if not len(marks):
        return []
    breaks = np.flatnonzero(np.diff(mixer_counts[marks]) >= 2) + 1
    groups = np.split(marks, breaks)
    heads = [groups[0]] if mixer_counts[groups[0][-1]] == 0 else []  # without the end of a pass
    most = sum(int(np.isin(symbols[head], _EMBEDDINGS).sum()) for head in heads)
    return [
        _find_pass_start(group, symbols, most)
        for group in groups
        if mixer_counts[group[0]] > 0 and mixer_counts[group[-1]] < mixer_counts[-1]
    ]


def _count_gaps_per_name(names: npt.NDArray[np.integer], gaps: Ints) -> Ints:
    """Count, for each kernel, the gaps between mixers that contain its name: part of a layer is in most."""
    if not len(names):
        return np.empty(0, dtype=np.int64)
    pairs = np.unique(np.stack([names, gaps]), axis=1)
    return np.asarray(np.bincount(pairs[0])[names], dtype=np.int64)


def _find_pass_start(marks: Ints, symbols: SymbolCodes, most: int) -> int:
    """Find the first embedding after the last sampling; without one, the kernel after the sampling.

    Of convolutions, the last `most`, if known: the others merge what the pass before returned.
    """
    sampled = marks[symbols[marks] == _SAMPLING]
    after_sampling = int(sampled[-1]) + 1 if len(sampled) else 0
    embedded = marks[np.isin(symbols[marks], _EMBEDDINGS) & (marks >= after_sampling)]
    if (symbols[embedded[:1]] == ord("v")).any():
        embedded = embedded[-most:]
    return int(embedded[0]) if len(embedded) else after_sampling


def find_last_cycles(values: Codes) -> tuple[int, int]:
    """Find the length of the cycles with which a sequence ends, and their number; zeros without any.

    They are most of it and begin with the value with which it begins, or behind one pass of another length:
    else they may be parts of a longer one, as layers are of a pass.
    """
    size, least = len(values), 2
    periods = size - 1 - np.flatnonzero(values[:-1] == values[-1:])[::-1]
    for period in periods[periods <= size // _MIN_CYCLES].tolist():
        end = values[-min(period, _COMPARED_END) :]
        if period < least or not np.array_equal(end, values[-len(end) - period : -period]):
            continue
        length = _measure_repeat(values, period)
        count = length // period
        before, cycle = np.split(values, [size - count * period])
        is_most = 2 * length >= size and cycle[:1] == values[0]
        if count >= _MIN_CYCLES and np.ptp(cycle) and (is_most or _is_one_pass(before, cycle[:period])):
            return period, count
        least = length - period + 1  # a shorter one would repeat no further
    return 0, 0


def _measure_repeat(values: Codes, period: int) -> int:
    """Return the length of the end of a sequence that repeats with a period, comparing a short one first."""
    compared, most = _COMPARED_END, len(values) - period
    while (compared := min(4 * compared, most)) > 0:
        others = np.flatnonzero(values[-compared:] != values[-compared - period : -period])
        if len(others) or compared == most:
            return period + compared - (int(others[-1]) + 1 if len(others) else 0)
    return len(values)


def _is_one_pass(before: Codes, cycle: Codes) -> bool:
    """Whether all values of a cycle are before the cycles, too, and one of them once in both."""
    names, counts = np.unique(cycle, return_counts=True)
    counts_before = np.array([np.count_nonzero(before == name) for name in names])
    return bool(counts_before.all() and ((counts == 1) & (counts_before == 1)).any())


def has_repeated_block(values: Codes) -> bool:
    """Whether some values that follow each other follow once more, as layers do: three or more."""
    places = (np.flatnonzero(values == value) for value in np.unique(values))
    distances = {gap for each in places for gap in np.diff(each).tolist() if gap >= _MIN_BLOCK}
    return any(_has_run(values[:-gap] == values[gap:], gap) for gap in distances)


def _has_run(is_equal: npt.NDArray[np.bool], length: int) -> bool:
    """Whether so many values that follow each other are true."""
    breaks = np.flatnonzero(~np.concatenate([[False], is_equal, [False]]))
    return bool((np.diff(breaks) > length).any())


# columns


class _ColumnWriter:
    """Columns into which templates are written, and the counts for the evidence."""

    def __init__(self, size: int) -> None:
        columns = (np.full(size, -1, dtype=np.int64) for _ in range(5))
        self.layer, self.position, self.role, self.kind, self.pass_index = columns
        self._roles: dict[str, int] = {}
        self._kinds: dict[str, int] = {}
        self._uses: dict[int, tuple[PassTemplate, list[Ints]]] = {}
        self._passes = 0
        self.layers = 0
        self.unmatched_on_side = 0

    def encode_role(self, role: str) -> int:
        return self._roles.setdefault(role, len(self._roles))

    def add_pass(self, template: PassTemplate, indices: Ints, missing: int = 0) -> None:
        """Add kernels as one pass of a template whose first `missing` layers are not in the trace."""
        if missing:
            layer = np.where(template.layer < 0, -1, template.layer + missing)
            template = replace(template, layer=layer)
        self._uses.setdefault(id(template), (template, []))[1].append(indices)
        if template.reason is None:
            self.pass_index[indices] = self._passes
            self._passes += 1
            self.layers += template.layers

    def write_templates(self) -> None:
        """Write the templates of all added passes into the columns."""
        for template, uses in self._uses.values():
            if template.reason is not None:
                continue
            rows = np.stack(uses)
            self.layer[rows] = template.layer
            self.position[rows] = template.position
            self.role[rows] = _encode_strings(template.role, self._roles)
            self.kind[rows] = _encode_strings(template.kind, self._kinds)

    def build_result(self, duration: Ints) -> InferredLayers:
        self.write_templates()
        evidence = self._build_evidence(duration)
        return InferredLayers(
            self.layer, self.position, self.role, self.kind, self.pass_index,
            tuple(self._roles), tuple(self._kinds), evidence,
        )  # fmt: skip

    def _build_evidence(self, duration: Ints) -> InferenceEvidence:
        uses = [(template, len(indices)) for template, indices in self._uses.values()]
        accepted = [(template, count) for template, count in uses if template.reason is None]
        refused = [(template, count) for template, count in uses if template.reason is not None]
        reason = _find_main_reason(refused) if uses else "there are no kernels"
        refused_passes = sum(count for _, count in refused)
        if not accepted:
            return InferenceEvidence(refused=refused_passes, reason=reason)
        main = max(accepted, key=lambda use: use[0].layers * use[1])[0]
        passes = sum(count for _, count in accepted)
        is_inside = self.kind >= 0
        unmatched = sum(template.unmatched * count for template, count in accepted)
        return InferenceEvidence(
            method=main.method,
            period=main.period,
            layers=main.layers,
            passes=passes,
            refused=refused_passes,
            kinds=tuple(self._kinds),
            launch_share=float(is_inside.mean()),
            time_share=float(duration[is_inside].sum() / max(1, duration.sum())),
            unmatched=self.unmatched_on_side + unmatched,
            confidence=sum(_compute_confidence(template) * count for template, count in accepted) / passes,
            reason=reason,
            doubt=main.doubt,
        )


def _find_main_reason(refused: list[tuple[PassTemplate, int]]) -> str | None:
    """Find why the refused passes with most kernels were refused; None if there are none."""
    return max(refused, key=lambda use: len(use[0].layer) * use[1])[0].reason if refused else None


def _compute_confidence(template: PassTemplate) -> float:
    """Compute the confidence in a template: layers that are similar, many of them, and recognised mixers."""
    quantity = 1.0 - 0.5 ** (template.layers - 1)
    return template.likeness * quantity * (1.0 if template.method == "mixer" else 0.5)


def _compact_codes(codes: Codes) -> tuple[Codes, Codes]:
    """Find the distinct codes in order, and the index of each code among them."""
    is_dense = codes.dtype.kind in "iu" and codes.min() >= 0 and codes.max() < len(codes)
    if not is_dense:
        return np.unique(codes, return_inverse=True)
    is_present = np.bincount(codes) > 0
    return np.flatnonzero(is_present), (np.cumsum(is_present) - 1)[codes]


def _encode_strings(words: Sequence[str | None], codes: dict[str, int]) -> Ints | int:
    """Encode words, None as −1, adding new ones to `codes`; one code for all if the words are equal."""
    is_constant = len(words) > 0 and words.count(words[0]) == len(words)  # faster than finding distinct words
    distinct = dict.fromkeys(words[:1] if is_constant else words)
    code_of = {word: -1 if word is None else codes.setdefault(word, len(codes)) for word in distinct}
    if len(code_of) == 1:
        return next(iter(code_of.values()))
    return np.fromiter(map(code_of.__getitem__, words), dtype=np.int64, count=len(words))
