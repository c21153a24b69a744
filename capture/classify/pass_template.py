"""Infer layers, kinds of layers and roles of one forward pass from its kernels' names and symbols.

The layers of one kind (mixer and feed-forward) share a template, the commonest of them: each kernel gets its
position in the template and the role of that position. Kernels that only a few layers have are unmatched.
"""

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from capture.classify.kernel_symbols import (
    ACTIVATIONS,
    MIXERS,
    SymbolUnits,
    collapse_units,
)
from capture.classify.layer_boundaries import (
    LayerLayout,
    LearnedCuts,
    Span,
    find_layer_layout,
    find_repeats,
    find_seam,
)
from capture.classify.layer_roles import assign_outside_roles, assign_roles, count_feed_forwards

T = TypeVar("T")
Ints = npt.NDArray[np.int64]
NameIds = tuple[int, ...]
RoleNames = tuple[str | None, ...]

_MIXER_NAMES: Final = {"C": "attention", "S": "state space", "V": "convolution", "": ""}
_MAX_VARIANTS: Final = 4  # of one mixer by launch; more are noise, and launches are ignored
_MIN_LAYERS_FOR_UNMATCHED: Final = 5  # of one kind, before a kernel of few of them is unmatched
_MIN_LIKENESS: Final = 0.7
_MIN_PRODUCTIVE_SHARE: Final = 0.7
_MIN_LAYERS_BEFORE_POOLING: Final = 5
_MIXED_FEEDS: Final = "some mixers have a feed-forward and some have none: layers cannot be numbered"
_TWO_FEEDS: Final = "a layer would have two feed-forwards: some mixers are not recognised"
# batched products between the products after a norm and the output, without a softmax
_LINEAR_ATTENTION: Final = re.compile(
    r"(NM+A?[xagdjceorp]*)(b(?:[xagdjceorp]*b)+)(?=[xagdjceorp]*(?:N[xceo]*)?M)"
)
_CONVOLUTIONS: Final = re.compile("[^S]*V[^VSC]*[NAB][^VSC]*V[^S]*")
_NO_MIXER: Final = "convolutions with a norm or an activation between them are no mixers of layers"
_SEAM: Final = "other work stands between two of the layers alone: those behind it may be numbered anew"
_FIRST_BLOCK: Final = "a feed-forward runs before the first of the layers: it may be in a layer, too"
_FEED_FORWARD: Final = re.compile("[Mv][xcdoN]*[AB][xcdoN]*[Mv][xcdo]*a")  # with the sum that ends a block
_NO_REPEAT: Final = "no attention or state-space kernel repeats, and no other sequence of kernels does"


@dataclass(frozen=True)
class PassTemplate:
    """What was inferred for one sequence of kernels: columns over its kernels, and the evidence.

    Outside of layers `layer` and `position` are −1 and `kind` is None; prologue and epilogue have roles.
    """

    layer: Ints
    position: Ints
    role: RoleNames
    kind: RoleNames
    layers: int = 0
    period: int = 0  # kernels of a typical layer
    unmatched: int = 0
    likeness: float = 0.0  # mean similarity of the layers to their templates, 0 to 1
    method: str = "none"  # mixer, period or none
    reason: str | None = None  # why nothing was inferred
    doubt: str | None = None  # why some layers have no number
    learned_cuts: LearnedCuts = ()


@dataclass(frozen=True)
class LayerKernels:
    """One layer of a pass: its kernels by name code, symbol and role."""

    ids: NameIds
    symbols: str
    launch: NameIds  # launch code of the mixer; empty if unknown
    roles: RoleNames
    feed_forwards: int


Layers = tuple[list[LayerKernels], list[Span], str | None]  # with their kernels, or why there are none


@dataclass(frozen=True)
class TemplateAlignment:
    """The kernels of a layer, by position in the template of its kind (−1: not in it)."""

    positions: NameIds
    is_unmatched: tuple[bool, ...]
    likeness: float


def build_template(
    ids: Ints,
    symbols: str,
    launch: Ints | None,
    learned_cuts: LearnedCuts = (),
    biased: frozenset[int] = frozenset(),
) -> PassTemplate:
    """Infer the layers of one pass; the template has a reason if the structure is not convincing.

    `learned_cuts` come from a complete pass of the same trace; `biased` are the names of biased products.
    """
    units = collapse_units(symbols)
    template = _build_from_units(ids, symbols, launch, units, learned_cuts)
    if template.reason is None and _has_open_first_norms(ids, units, template, biased):
        return _open_first_norms(units, template)
    if template.reason != _TWO_FEEDS:
        return template
    linear = replace(
        units, symbols=_LINEAR_ATTENTION.sub(lambda match: match[1] + "S" * len(match[2]), units.symbols)
    )
    retried = _build_from_units(ids, symbols, launch, linear, learned_cuts)
    return template if retried.reason else retried


def _build_from_units(
    ids: Ints, symbols: str, launch: Ints | None, units: SymbolUnits, learned_cuts: LearnedCuts
) -> PassTemplate:
    layout = find_layer_layout(units.symbols, learned_cuts)
    if layout is None:
        return _build_from_period(ids)
    if any(_CONVOLUTIONS.fullmatch(units.symbols, *mixer) for mixer in layout.mixers):
        return _build_refusal(len(ids), _NO_MIXER)
    parts, spans = _split_at_mixers(ids, symbols, launch, units, layout)
    if _is_pooling(parts):
        parts, spans, layout = parts[:-1], spans[:-1], replace(layout, cuts=layout.cuts[:-1])
    layers, spans, reason = group_parts(parts, spans)
    kinds = label_layer_kinds(layers)
    alignments = align_layers_to_templates(layers, kinds)
    likeness = float(np.mean([alignment.likeness for alignment in alignments]))
    reason = reason or _find_refusal_reason(layers, likeness)
    if reason:
        return _build_refusal(len(ids), reason)
    return _open_odd_numbers(
        _assemble_template(units, layout, layers, kinds, alignments, spans), units, layout
    )


def _open_odd_numbers(template: PassTemplate, units: SymbolUnits, layout: LayerLayout) -> PassTemplate:
    """Return the template without the numbers of layers that other work precedes."""
    if _FEED_FORWARD.search(units.symbols, 0, layout.cuts[0]):
        return _open_numbers(template, 0, units.starts[layout.cuts[0]], _FIRST_BLOCK)
    if seam := find_seam(units.symbols, layout):
        is_rerun = set(units.symbols[slice(*seam)]) <= set("Na")  # of layers that ran before
        if is_rerun or any(units.symbols[start] == "V" for start, _ in layout.mixers):  # patches, or a mixer
            return _build_refusal(len(template.layer), _SEAM)
        return _open_numbers(template, units.starts[seam[0]], units.starts[seam[1]], _SEAM)
    return template


def _build_refusal(size: int, reason: str) -> PassTemplate:
    nothing = np.full(size, -1, dtype=np.int64)
    return PassTemplate(nothing, nothing, (None,) * size, (None,) * size, reason=reason)


def _split_at_mixers(
    ids: Ints, symbols: str, launch: Ints | None, units: SymbolUnits, layout: LayerLayout
) -> tuple[list[LayerKernels], list[Span]]:
    """Split the kernels into parts with a mixer each; also return the (start, end) of each."""
    layers, spans = [], []
    for start, end, mixer in zip(layout.cuts, layout.cuts[1:], layout.mixers, strict=False):
        unit_symbols = units.symbols[start:end]
        unit_roles = assign_roles(unit_symbols, (mixer[0] - start, mixer[1] - start), layout.has_post_norm)
        a, b = units.starts[start], units.starts[end]
        m, n = units.starts[mixer[0]], units.starts[mixer[1]]
        mixer_symbols = _repeat_per_kernel(units.symbols[slice(*mixer)], units.starts[mixer[0] :])
        layer = LayerKernels(
            ids=tuple(ids[a:b].tolist()),
            symbols=symbols[a:m] + "".join(mixer_symbols) + symbols[n:b],
            launch=() if launch is None else (int(launch[m]),),
            roles=_repeat_per_kernel(unit_roles, units.starts[start:]),
            feed_forwards=count_feed_forwards(unit_symbols, unit_roles),
        )
        layers.append(layer)
        spans.append((a, b))
    return layers, spans


def _is_pooling(parts: list[LayerKernels]) -> bool:
    """Whether the last part is attention that pools the last layer: alone it adds nothing to its input."""
    adds = ["residual" in part.roles[: _find_feed(part)] for part in parts]
    return len(parts) >= _MIN_LAYERS_BEFORE_POOLING and all(adds[:-1]) and not adds[-1]


def group_parts(parts: list[LayerKernels], spans: list[Span]) -> Layers:
    """Group parts with a mixer each into layers; also return why they cannot be numbered, if so.

    Usually a part is a layer. The decoder of an encoder-decoder attends twice in a layer. A shared block of
    attention, without a residual sum before its feed-forward, is part of the state-space layer that follows.
    Where only some state spaces are followed by a feed-forward, each mixer and each feed-forward is a layer.
    """
    code = "".join(map(_encode_part, parts))
    if re.fullmatch("(cC){2,}", code):
        return _join_parts(parts, spans, [at % 2 == 0 for at in range(len(parts))])
    if re.fullmatch("(s|Cs)*Cs(s|Cs)*", code) and _are_shared_blocks(parts, code):
        return _join_parts(parts, spans, [code[at - 1 : at] != "C" for at in range(len(parts))])
    if "S" in code and "s" in code[:-1] and not any(_has_other_products(part) for part in parts):
        return _split_feed_forwards(parts, spans)
    complete = code[1:-1] or code  # a trace may begin or end within a layer
    is_mixed = 0.15 < sum(map(str.isupper, complete)) / len(complete) < 0.85
    return parts, spans, _MIXED_FEEDS if is_mixed else None


def _encode_part(part: LayerKernels) -> str:
    """Encode a part as C if it attends, else S; in lower case without a feed-forward."""
    letter = "c" if "C" in part.symbols else "s"
    return letter.upper() if part.feed_forwards else letter


def _are_shared_blocks(parts: list[LayerKernels], code: str) -> bool:
    """Whether attention has no residual sum before its feed-forward, and all state spaces have one."""
    adds = ["residual" in part.roles[: _find_feed(part)] for part in parts]
    return adds == [letter == "s" for letter in code]


def _has_other_products(part: LayerKernels) -> bool:
    """Whether a part without a feed-forward has products after that of the mixer's output."""
    last = max((at for at, role in enumerate(part.roles) if role in ("attn.out", "ssm.out")), default=-1)
    return not part.feed_forwards and bool(set(part.symbols[last + 1 :]) & set("MXb"))


def _find_feed(part: LayerKernels) -> int:
    """Find where the feed-forward of a part begins: at the norm before it; its end without one."""
    return part.roles.index("mlp.norm") if "mlp.norm" in part.roles else len(part.roles)


def _join_parts(parts: list[LayerKernels], spans: list[Span], begins_layer: list[bool]) -> Layers:
    layers: list[LayerKernels] = []
    joined: list[Span] = []
    for part, span, begins in zip(parts, spans, begins_layer, strict=True):
        if begins or not layers:
            layers.append(part)
            joined.append(span)
            continue
        one = layers[-1]
        layers[-1] = LayerKernels(
            one.ids + part.ids,
            one.symbols + part.symbols,
            one.launch + part.launch,
            one.roles + part.roles,
            one.feed_forwards + part.feed_forwards,
        )
        joined[-1] = (joined[-1][0], span[1])
    return layers, joined, None


def _split_feed_forwards(parts: list[LayerKernels], spans: list[Span]) -> Layers:
    """Split each part with a feed-forward before the norm of that."""
    layers: list[LayerKernels] = []
    split: list[Span] = []
    for part, (start, end) in zip(parts, spans, strict=True):
        at = _find_feed(part) if part.feed_forwards else len(part.roles)
        mixer, feed = slice(0, at), slice(at, None)
        layers.append(LayerKernels(part.ids[mixer], part.symbols[mixer], part.launch, part.roles[mixer], 0))
        split.append((start, start + at))
        if at < len(part.roles):
            symbols, roles = part.symbols[feed], part.roles[feed]
            layers.append(LayerKernels(part.ids[feed], symbols, (), roles, part.feed_forwards))
            split.append((start + at, end))
    return layers, split, None


def _repeat_per_kernel(values: Sequence[T], starts: tuple[int, ...]) -> tuple[T, ...]:
    """Repeat the value of each unit once per kernel of the unit."""
    return tuple(value for value, a, b in zip(values, starts, starts[1:], strict=False) for _ in range(b - a))


def _find_refusal_reason(layers: list[LayerKernels], likeness: float) -> str | None:
    """Find why these are not the layers of a transformer; None if they are."""
    productive = np.mean([sum(symbol in "MXb" for symbol in layer.symbols) >= 2 for layer in layers])
    if productive < _MIN_PRODUCTIVE_SHARE:
        return "the parts between mixers have no matrix products: this is no stack of transformer layers"
    marked = np.mean([bool(set(layer.symbols) & {"N", "n", *ACTIVATIONS}) for layer in layers])
    if marked < _MIN_PRODUCTIVE_SHARE:
        return "the parts between mixers have neither norm nor activation"
    if np.mean([layer.feed_forwards > 1 for layer in layers]) > 0.1:
        return _TWO_FEEDS
    if likeness < _MIN_LIKENESS:
        return f"the parts between mixers are too different from each other ({likeness:.0%} alike)"
    return None


def _open_numbers(template: PassTemplate, start: int, end: int, doubt: str) -> PassTemplate:
    """Return the template without layers from one kernel on, and without roles up to another."""
    layer, position = template.layer.copy(), template.position.copy()
    layer[start:] = position[start:end] = -1
    gone = (None,) * (end - start)
    role, kind = ((*words[:start], *gone, *words[end:]) for words in (template.role, template.kind))
    return replace(template, layer=layer, position=position, role=role, kind=kind, doubt=doubt)


def label_layer_kinds(layers: Sequence[LayerKernels]) -> list[str]:
    """Label each layer by mixer and feed-forward, with a letter if several mixers differ."""
    words = [_find_kind_words(layer.symbols, layer.roles) for layer in layers]
    keys = [(_list_mixer_ids(layer), layer.launch) for layer in layers]
    variants: dict[str, set[tuple[NameIds, NameIds]]] = defaultdict(set)
    for (mixer, _), key in zip(words, keys, strict=True):
        variants[mixer].add(key)
    letters: dict[str, dict[tuple[NameIds, ...], str]] = defaultdict(dict)
    labels = []
    for (mixer, feed), key in zip(words, keys, strict=True):
        variant = key[:1] if len(variants[mixer]) > _MAX_VARIANTS else key
        letter = letters[mixer].setdefault(variant, chr(ord("a") + len(letters[mixer]) % 26))
        labels.append((mixer, letter, feed))
    mixers = [f"{mixer} {letter}" if len(letters[mixer]) > 1 else mixer for mixer, letter, _ in labels]
    return [
        " + ".join(filter(None, (mixer, feed))) for mixer, (_, _, feed) in zip(mixers, labels, strict=True)
    ]


@lru_cache(maxsize=1 << 11)
def _find_kind_words(symbols: str, roles: RoleNames) -> tuple[str, str]:
    """Find the words for a layer's mixer and its feed-forward (empty if it has none)."""
    at = next((at for at, symbol in enumerate(symbols) if symbol in MIXERS), None)
    first = "" if at is None else "S" if symbols[at] == "V" and "S" in symbols[at:] else symbols[at]
    mixer = _MIXER_NAMES[first]
    families = {role.partition(".")[0] for role in roles if role and not role.endswith("norm")}
    return mixer, "experts" if "moe" in families else "mlp" if "mlp" in families else ""


def _list_mixer_ids(layer: LayerKernels) -> NameIds:
    """List the distinct name codes of the mixer's kernels in order."""
    return tuple(dict.fromkeys(i for i, s in zip(layer.ids, layer.symbols, strict=True) if s in MIXERS))


def align_layers_to_templates(
    layers: Sequence[LayerKernels], kinds: Sequence[str]
) -> list[TemplateAlignment]:
    """Align each layer to the commonest layer of its kind."""
    sequences: dict[str, list[NameIds]] = defaultdict(list)
    for layer, kind in zip(layers, kinds, strict=True):
        sequences[kind].append(layer.ids)
    templates = {kind: Counter(group).most_common(1)[0][0] for kind, group in sequences.items()}
    # kind → name code → layers that have it
    counts = {kind: Counter(i for ids in group for i in set(ids)) for kind, group in sequences.items()}
    alignments = []
    for layer, kind in zip(layers, kinds, strict=True):
        positions, likeness = _align_to_template(layer.ids, templates[kind])
        size = len(sequences[kind])
        rare = max(1, size // 10) if size >= _MIN_LAYERS_FOR_UNMATCHED else 0
        is_unmatched = tuple(
            position < 0 and counts[kind][name_id] <= rare and symbol not in "MNCXSG"
            for position, name_id, symbol in zip(positions, layer.ids, layer.symbols, strict=True)
        )
        alignments.append(TemplateAlignment(positions, is_unmatched, likeness))
    return alignments


@lru_cache(maxsize=1 << 11)
def _align_to_template(ids: NameIds, template: NameIds) -> tuple[NameIds, float]:
    """Align names to a template: the position of each (−1: none), and the similarity, 0 to 1."""
    if ids == template:
        return tuple(range(len(ids))), 1.0
    matcher = SequenceMatcher(None, ids, template, autojunk=False)
    positions = [-1] * len(ids)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal" or (tag == "replace" and b - a == d - c):
            positions[a:b] = range(c, d)
    return tuple(positions), matcher.ratio()


def _assemble_template(
    units: SymbolUnits,
    layout: LayerLayout,
    layers: list[LayerKernels],
    kinds: list[str],
    alignments: list[TemplateAlignment],
    spans: list[Span],
) -> PassTemplate:
    size = units.starts[-1]
    layer_column, position_column = np.full(size, -1, dtype=np.int64), np.full(size, -1, dtype=np.int64)
    role_column: list[str | None] = [None] * size
    kind_column: list[str | None] = [None] * size
    roles = [layer.roles for layer in layers]
    template_roles = _find_template_roles(kinds, alignments, roles)
    for number, ((start, _), alignment, kind) in enumerate(zip(spans, alignments, kinds, strict=True)):
        for at, position in enumerate(alignment.positions):
            if alignment.is_unmatched[at]:
                continue
            kernel = start + at
            layer_column[kernel], position_column[kernel], kind_column[kernel] = number, position, kind
            role_column[kernel] = template_roles[kind][position] if position >= 0 else roles[number][at]
    _assign_outside_roles(units, layout, role_column)
    if _has_open_norms(units, layout, layers):
        for start, _ in spans:  # a norm of either of two layers
            end = units.starts[units.starts.index(start) + 1]
            layer_column[start:end] = position_column[start:end] = -1
    return PassTemplate(
        layer_column,
        position_column,
        tuple(role_column),
        tuple(kind_column),
        layers=len(spans),
        period=int(np.median([end - start for start, end in spans])),
        unmatched=sum(sum(alignment.is_unmatched) for alignment in alignments),
        likeness=float(np.mean([alignment.likeness for alignment in alignments])),
        method="mixer",
        learned_cuts=layout.learned_cuts,
    )


def _has_open_norms(units: SymbolUnits, layout: LayerLayout, layers: list[LayerKernels]) -> bool:
    """Whether nothing tells if the norms between layers that attend twice end or begin a layer.

    Norm and body take turns in Whisper, whose layers begin with a norm, as in BART, whose end with one.
    """
    head = units.symbols[: layout.mixers[0][0]]
    if layout.has_post_norm or head.count("N") != 1 or any("n" in layer.symbols for layer in layers):
        return False  # norms of several kernels are those of root mean squares, which begin a layer
    return all(len(re.findall("C+", layer.symbols)) == 2 and layer.symbols[0] == "N" for layer in layers)


def _has_open_first_norms(
    ids: Ints, units: SymbolUnits, template: PassTemplate, biased: frozenset[int]
) -> bool:
    """Whether nothing tells if the norm of two embeddings is theirs, and each later one ends a layer.

    So it is in decoders made of BERT, whose heads have a bias (in GPT-2 and OPT: none), and without a head.
    """
    heads = [at for at, role in enumerate(template.role) if role == "lm_head"]
    is_unbiased = bool(heads) and not any(map(biased.__contains__, ids[heads]))
    if "n" in units.symbols or 0 not in template.layer or is_unbiased:
        return False
    head = units.symbols[: _find_first_unit(units, template, 0) + 1]
    return re.search(r"E[cx]*E[Eacx]*aN$", head) is not None and head.count("N") == 1


def _find_first_unit(units: SymbolUnits, template: PassTemplate, number: int) -> int:
    """Find the unit of a layer's first kernel; kernels that it alone has may precede that in the unit."""
    return bisect_right(units.starts, template.layer.tolist().index(number)) - 1


def _open_first_norms(units: SymbolUnits, template: PassTemplate) -> PassTemplate:
    """Return the template without the layers of the norms that begin them, and of masks behind those."""
    layer, position = template.layer.copy(), template.position.copy()
    for number in sorted({*template.layer.tolist()} - {-1}):
        first = _find_first_unit(units, template, number)
        products = (at for at in range(first + 1, len(units.symbols)) if units.symbols[at] not in "cx")
        start, end = units.starts[first], units.starts[next(products, first + 1)]
        layer[start:end] = position[start:end] = -1
    return replace(template, layer=layer, position=position)


def _find_template_roles(
    kinds: list[str], alignments: list[TemplateAlignment], roles: list[RoleNames]
) -> dict[str, RoleNames]:
    """Find for each kind the commonest roles of the layers that equal its template."""
    counts: dict[str, Counter[RoleNames]] = defaultdict(Counter)
    for names, alignment, kind in zip(roles, alignments, kinds, strict=True):
        if alignment.likeness == 1.0:
            counts[kind][names] += 1
    return {kind: equal.most_common(1)[0][0] for kind, equal in counts.items()}


def _assign_outside_roles(units: SymbolUnits, layout: LayerLayout, roles: list[str | None]) -> None:
    """Assign the roles before and after the layers to the kernels there."""
    has_pooling = len(layout.cuts) == len(layout.mixers)
    unit_roles = assign_outside_roles(units.symbols, layout.cuts[0], layout.cuts[-1], has_pooling=has_pooling)
    for at, role in unit_roles.items():
        for kernel in range(units.starts[at], units.starts[at + 1]):
            roles[kernel] = role


def _build_from_period(ids: Ints) -> PassTemplate:
    """Infer layers by repetition alone: numbers and positions, no roles."""
    runs = find_repeats(ids)
    if not runs:
        return _build_refusal(len(ids), _NO_REPEAT)
    layer, position = np.full(len(ids), -1, dtype=np.int64), np.full(len(ids), -1, dtype=np.int64)
    for run in runs:
        sizes = np.array([len(repetition) for repetition in run])
        kernels, starts = np.concatenate(run), np.cumsum(sizes) - sizes
        layer[kernels] = np.repeat(np.arange(len(run)), sizes)
        position[kernels] = np.arange(len(kernels)) - np.repeat(starts, sizes)
    is_inside = layer >= 0
    span = max(1, sum(int(run[-1][-1] - run[0][0]) + 1 for run in runs))
    return PassTemplate(
        layer,
        position,
        role=(None,) * len(ids),
        kind=tuple(np.array([None, "repetition"])[is_inside.astype(int)].tolist()),
        layers=Counter(len(run) for run in runs).most_common(1)[0][0],
        period=int(np.median([len(repetition) for run in runs for repetition in run])),
        unmatched=span - int(is_inside.sum()),
        likeness=float(is_inside.sum() / span),
        method="period",
    )
