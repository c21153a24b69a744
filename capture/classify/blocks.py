"""Layers and roles of kernels whose names tell neither, from the order in which they run.

What is found is an inference: it is marked with its evidence and never overrides what a source states.
"""

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from capture.classify.block_codes import coded, numbered
from capture.classify.block_cuts import Taught
from capture.classify.block_passes import find_passes
from capture.classify.block_signs import MIXERS, signs_of
from capture.classify.block_template import Template, build_template

Ints = npt.NDArray[np.int64]

_LANE: Final = 0.25  # of the busiest stream's mixers make a stream one that layers run on
_MIXERS: Final = [ord(sign) for sign in MIXERS]
_OFTEN: Final = 0.2  # times a layer that a name of a side stream must come about
_SIDE: Final = {"m": "comm", "K": "attn.kv", "R": "attn.rope", "C": "attn.core", "q": "quantize"}


@dataclass(frozen=True)
class Evidence:
    """What an inference rests on.

    `period` is the number of kernels of a typical layer, `layers` that of a typical pass; `launches`
    and `time` are the shares in layers; `confidence` goes from 0 to 1. `reason` says why nothing was
    inferred, for all kernels or for those of `refused` passes; it is None when all passes have layers.
    """

    method: str
    period: int
    layers: int
    passes: int
    refused: int
    kinds: tuple[str, ...]
    launches: float
    time: float
    strays: int
    confidence: float
    reason: str | None


@dataclass(frozen=True)
class Blocks:
    """Columns over the kernels given: −1 where a kernel has no layer, no place, no role or no kind.

    `role` and `kind` are places in `roles` and `kinds`; `number` counts the forward passes.
    """

    layer: Ints
    position: Ints
    role: Ints
    kind: Ints
    number: Ints
    roles: tuple[str, ...]
    kinds: tuple[str, ...]
    evidence: Evidence


@dataclass(frozen=True)
class Kernels:
    """Kernels (or working CPU ops) in order of start.

    `name` holds places in `names`; `categories`, one for each of `names`, is what a classifier by
    name says. `step` is a stated step, `launch` a code of grid or input dims; both may be absent.
    """

    name: npt.NDArray[np.integer]
    names: Sequence[str]
    start: Ints
    duration: Ints
    categories: Sequence[str | None] | None = None
    stream: npt.NDArray[np.integer] | None = None
    step: npt.NDArray[np.integer] | None = None
    launch: npt.NDArray[np.integer] | None = None


def infer_blocks(kernels: Kernels) -> Blocks:
    """Return layer, place, role and kind of each kernel, with the evidence; all −1 when there is none.

    Each distinct sequence of a pass is looked at once. Kernels on streams without attention take the
    layer that was running when they began.
    """
    letters = np.array([ord(sign) for sign in signs_of(kernels.names, kernels.categories)], dtype=np.uint8)
    signs = letters[kernels.name] if len(kernels.name) else np.empty(0, dtype=np.uint8)
    writer = _Writer(len(kernels.name))
    lanes = _lanes(kernels, signs)
    for lane in lanes:
        _infer_lane(kernels, signs, lane, writer)
    side = np.ones(len(signs), dtype=bool)
    for lane in lanes:
        side[lane] = False
    if side.any() and lanes:
        _attach(kernels, signs, lanes[0], np.flatnonzero(side), writer)
    return writer.finish(kernels.duration)


def _lanes(kernels: Kernels, signs: npt.NDArray[np.uint8]) -> list[Ints]:
    """Return the places of the kernels of each stream that layers run on, the busiest first."""
    if kernels.stream is None or not len(signs):
        return [np.arange(len(signs))]
    streams, codes = numbered(kernels.stream)
    mixes = np.isin(signs, [ord(sign) for sign in MIXERS + "s"])
    counts = np.bincount(codes[mixes], minlength=len(streams))
    if not counts.any():
        counts = np.bincount(codes, minlength=len(streams))
    order = np.argsort(-counts, kind="stable")
    return [np.flatnonzero(codes == code) for code in order.tolist() if counts[code] > _LANE * counts.max()]


def _infer_lane(kernels: Kernels, signs: npt.NDArray[np.uint8], lane: Ints, writer: "_Writer") -> None:
    """Infer the passes of one stream, each distinct sequence once."""
    ids = np.ascontiguousarray(kernels.name[lane], dtype=np.int64)
    own = np.ascontiguousarray(signs[lane])
    launch = None if kernels.launch is None else np.ascontiguousarray(kernels.launch[lane], dtype=np.int64)
    steps = None if kernels.step is None else kernels.step[lane]
    cuts = find_passes(ids, own, steps).tolist()
    keys = []
    for start, end in itertools.pairwise(cuts):
        key = ids[start:end].tobytes()
        keys.append(key if launch is None else key + _mixer_launches(own[start:end], launch[start:end]))
    spans = dict(zip(keys, itertools.pairwise(cuts), strict=True))
    known: dict[bytes, Template] = {}
    taught: Taught = ()
    for key in _by_frequency(keys):
        start, end = spans[key]
        text = own[start:end].tobytes().decode("ascii")
        known[key] = build_template(
            ids[start:end], text, None if launch is None else launch[start:end], taught
        )
        taught = taught or known[key].taught
    passes = [(known[key], lane[a:b]) for key, (a, b) in zip(keys, itertools.pairwise(cuts), strict=True)]
    for number, (template, places) in enumerate(passes):
        writer.add(template, places, _missing_layers(passes) if number == 0 else 0)


def _by_frequency(keys: list[bytes]) -> list[bytes]:
    """Return the distinct sequences, the one that covers most kernels first."""
    counts = Counter(keys)
    return sorted(counts, key=lambda key: -counts[key] * len(key))


def _missing_layers(passes: list[tuple[Template, Ints]]) -> int:
    """Return how many layers ran before the first kernel, where the trace begins within a pass.

    The first pass then has fewer layers than the usual one, of the kinds that stand at its end.
    """
    first = passes[0][0]
    counts = Counter(id(template) for template, _ in passes[1:] if template.reason is None)
    if not counts or first.reason is not None or "embed" in first.role:
        return 0
    usual_id = counts.most_common(1)[0][0]
    usual = next(template for template, _ in passes if id(template) == usual_id)
    missing = usual.layers - first.layers
    same = _sorts_of(usual)[missing:] == _sorts_of(first) if missing > 0 else False
    return missing if same else 0


def _sorts_of(template: Template) -> list[str]:
    """Return the kind of each layer, without the letter that tells mixers apart."""
    kinds = {layer: kind for layer, kind in zip(template.layer.tolist(), template.kind, strict=True) if kind}
    return [re.sub(r" [a-z]\b", "", kinds[layer]) for layer in sorted(kinds)]


def _mixer_launches(signs: npt.NDArray[np.uint8], launch: Ints) -> bytes:
    """Return which mixers of a pass were launched alike; kinds depend on nothing else of the launches."""
    seen: dict[int, int] = {}
    mixers = launch[np.isin(signs, _MIXERS)].tolist()
    return np.array([seen.setdefault(code, len(seen)) for code in mixers], dtype=np.int64).tobytes()


def _attach(
    kernels: Kernels, signs: npt.NDArray[np.uint8], lane: Ints, side: Ints, writer: "_Writer"
) -> None:
    """Give kernels of side streams the layer and pass that ran on the main stream when they began.

    Only names that come about as often as layers do belong to layers; the others are strays.
    """
    writer.settle()
    before = np.searchsorted(kernels.start[lane], kernels.start[side], side="right") - 1
    source = lane[np.maximum(before, 0)]
    held = (before >= 0) & (writer.layer[source] >= 0)
    if kernels.step is not None:
        held &= kernels.step[side] == kernels.step[source]
    counts = np.bincount(kernels.name[side[held]], minlength=len(kernels.names))
    often = counts[kernels.name[side]] >= _OFTEN * max(1, writer.layers)
    writer.side_strays = int((held & ~often).sum())
    held &= often
    for column in (writer.layer, writer.number, writer.kind):
        column[side[held]] = column[source[held]]
    for sign, role in _SIDE.items():
        writer.role[side[signs[side] == ord(sign)]] = writer.code_of(role)


class _Writer:
    """Columns that templates are written into, and what the evidence counts."""

    def __init__(self, size: int) -> None:
        """Make columns of −1 for a number of kernels."""
        self.layer, self.position, self.role, self.kind, self.number = (
            np.full(size, -1, dtype=np.int64) for _ in range(5)
        )
        self._roles: dict[str, int] = {}
        self._kinds: dict[str, int] = {}
        self._uses: dict[int, tuple[Template, list[Ints]]] = {}
        self._passes = 0
        self.layers = 0
        self.side_strays = 0

    def code_of(self, role: str | None) -> int:
        """Return the code of a role; −1 for None."""
        return -1 if role is None else self._roles.setdefault(role, len(self._roles))

    def add(self, template: Template, places: Ints, missing: int = 0) -> None:
        """Note that the kernels at some places are one pass of a template, without its first layers."""
        if missing:
            template = replace(template, layer=np.where(template.layer < 0, -1, template.layer + missing))
        self._uses.setdefault(id(template), (template, []))[1].append(places)
        if template.reason is None:
            self.number[places] = self._passes
            self._passes += 1
            self.layers += template.layers

    def settle(self) -> None:
        """Write what was noted into the columns."""
        for template, uses in self._uses.values():
            if template.reason is not None:
                continue
            rows = np.stack(uses)
            self.layer[rows] = template.layer
            self.position[rows] = template.position
            self.role[rows] = coded(template.role, self._roles)
            self.kind[rows] = coded(template.kind, self._kinds)

    def finish(self, duration: Ints) -> Blocks:
        """Return the columns with their evidence."""
        self.settle()
        evidence = self._evidence(duration)
        return Blocks(
            self.layer, self.position, self.role, self.kind, self.number,
            tuple(self._roles), tuple(self._kinds), evidence,
        )  # fmt: skip

    def _evidence(self, duration: Ints) -> Evidence:
        uses = [(template, len(places)) for template, places in self._uses.values()]
        good = [(template, count) for template, count in uses if template.reason is None]
        refused = [(template, count) for template, count in uses if template.reason is not None]
        reason = _main_reason(refused) if uses else "there are no kernels"
        bad = sum(count for _, count in refused)
        if not good:
            return Evidence("none", 0, 0, 0, bad, (), 0.0, 0.0, 0, 0.0, reason)
        main = max(good, key=lambda use: use[0].layers * use[1])[0]
        passes = sum(count for _, count in good)
        inside = self.layer >= 0
        return Evidence(
            method=main.method,
            period=main.period,
            layers=main.layers,
            passes=passes,
            refused=bad,
            kinds=tuple(self._kinds),
            launches=float(inside.mean()),
            time=float(duration[inside].sum() / max(1, duration.sum())),
            strays=self.side_strays + sum(template.strays * count for template, count in good),
            confidence=sum(_confidence(template) * count for template, count in good) / passes,
            reason=reason,
        )


def _main_reason(refused: list[tuple[Template, int]]) -> str | None:
    """Return why the refused passes with most kernels were refused; None when none were."""
    return max(refused, key=lambda use: len(use[0].layer) * use[1])[0].reason if refused else None


def _confidence(template: Template) -> float:
    """Return how sure a template is: alike layers, many of them, and recognised mixers."""
    many = 1.0 - 0.5 ** (template.layers - 1)
    return template.likeness * many * (1.0 if template.method == "mixer" else 0.5)
