"""The layers and roles of one forward pass, from its kernels' names and signs."""

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from capture.classify.block_cuts import Layout, Taught, lay_out
from capture.classify.block_kinds import Member, Placed, label_kinds, place_members
from capture.classify.block_periods import find_repeats
from capture.classify.block_roles import count_feeds, name_block
from capture.classify.block_signs import ACTS, Units, fold, places_of

Ints = npt.NDArray[np.int64]

_LIKE_ENOUGH: Final = 0.7
_WITH_PRODUCTS: Final = 0.7
_NO_REPEAT: Final = "no attention or state-space kernel repeats, and no other sequence of kernels does"


@dataclass(frozen=True)
class Template:
    """What one sequence of kernels is: columns over its kernels, and the evidence.

    `layer`, `position` are −1 and `role`, `kind` None outside of layers; prologue and epilogue have
    roles only. `reason` says why nothing was inferred, and is None otherwise.
    """

    layer: Ints
    position: Ints
    role: tuple[str | None, ...]
    kind: tuple[str | None, ...]
    layers: int
    period: int
    strays: int
    likeness: float
    method: str
    reason: str | None
    taught: Taught = ()


def build_template(ids: Ints, signs: str, launch: Ints | None, taught: Taught = ()) -> Template:
    """Infer the layers of one pass; a template with a reason when there is no convincing structure.

    `taught` is what a template of a complete pass of the same trace has learned.
    """
    units = fold(signs)
    layout = lay_out(units.signs, taught)
    if layout is None:
        return _from_period(ids)
    members, spans = _members(ids, signs, launch, units, layout)
    labels = label_kinds(members)
    placed = place_members(members, labels)
    likeness = float(np.mean([place.likeness for place in placed]))
    reason = _refusal(members, likeness)
    if reason:
        return refuse(len(ids), reason)
    return _assemble(units, layout, members, labels, placed, spans)


def refuse(size: int, reason: str) -> Template:
    """Return the template of a sequence that nothing was inferred for."""
    nothing = np.full(size, -1, dtype=np.int64)
    return Template(nothing, nothing, (None,) * size, (None,) * size, 0, 0, 0, 0.0, "none", reason)


def _members(
    ids: Ints, signs: str, launch: Ints | None, units: Units, layout: Layout
) -> tuple[list[Member], list[tuple[int, int]]]:
    """Return the layers as members of kinds, and the kernels (start, end) of each."""
    members, spans = [], []
    for start, end, mixer in zip(layout.cuts, layout.cuts[1:], layout.mixers, strict=False):
        named = name_block(units.signs[start:end], (mixer[0] - start, mixer[1] - start), layout.post_norm)
        roles = tuple(_repeat(named, units.starts[start : end + 1]))
        a, b = units.starts[start], units.starts[end]
        m, n = units.starts[mixer[0]], units.starts[mixer[1]]
        feeds = count_feeds(units.signs[start:end], named)
        inner = _repeat(tuple(units.signs[slice(*mixer)]), units.starts[mixer[0] : mixer[1] + 1])
        letters = signs[a:m] + "".join(map(str, inner)) + signs[n:b]
        members.append(
            Member(
                tuple(ids[a:b].tolist()), letters, () if launch is None else (int(launch[m]),), roles, feeds
            )
        )
        spans.append((a, b))
    return members, spans


def _refusal(members: list[Member], likeness: float) -> str | None:
    """Return why these are no layers of a transformer; None when they are."""
    productive = np.mean([sum(sign in "MXb" for sign in member.signs) >= 2 for member in members])
    if productive < _WITH_PRODUCTS:
        return "the parts between mixers hold no matrix products: this is no stack of transformer layers"
    marked = np.mean([bool(set(member.signs) & {"N", "n", *ACTS}) for member in members])
    if marked < _WITH_PRODUCTS:
        return "the parts between mixers hold neither norm nor activation"
    if np.mean([member.feeds > 1 for member in members]) > 0.1:
        return "a layer would hold two feed-forwards: there are mixers that are not recognised"
    whole = members[1:-1] or members  # a trace may begin or end within a layer
    fed = np.mean([bool(member.feeds) for member in whole])
    if 0.15 < fed < 0.85:
        return "some mixers have a feed-forward and some have none: layers cannot be numbered"
    if likeness < _LIKE_ENOUGH:
        return f"the parts between mixers are too unlike each other ({likeness:.0%} alike)"
    return None


def _assemble(
    units: Units,
    layout: Layout,
    members: list[Member],
    labels: list[str],
    placed: list[Placed],
    spans: list[tuple[int, int]],
) -> Template:
    size = units.starts[-1]
    layer, position = np.full(size, -1, dtype=np.int64), np.full(size, -1, dtype=np.int64)
    role: list[str | None] = [None] * size
    kind: list[str | None] = [None] * size
    roles = [member.roles for member in members]
    canon = _canonical_roles(labels, placed, roles)
    strays = 0
    for number, ((start, _), place, label) in enumerate(zip(spans, placed, labels, strict=True)):
        for at, (spot, stray) in enumerate(zip(place.positions, place.strays, strict=True)):
            if stray:
                strays += 1
                continue
            layer[start + at], position[start + at], kind[start + at] = number, spot, label
            role[start + at] = canon[label][spot] if spot >= 0 else roles[number][at]
    _name_outside(units, layout, role)
    period = int(np.median([end - start for start, end in spans]))
    likeness = float(np.mean([place.likeness for place in placed]))
    return Template(
        layer,
        position,
        tuple(role),
        tuple(kind),
        len(spans),
        period,
        strays,
        likeness,
        "mixer",
        None,
        layout.taught,
    )


def _repeat(named: tuple[str | None, ...], starts: tuple[int, ...]) -> list[str | None]:
    """Return what stands for each unit once for each of its kernels."""
    return [role for role, a, b in zip(named, starts, starts[1:], strict=False) for _ in range(b - a)]


def _canonical_roles(
    labels: list[str], placed: list[Placed], roles: list[tuple[str | None, ...]]
) -> dict[str, tuple[str | None, ...]]:
    """Return for each kind the roles of its commonest layer, place by place."""
    canon: dict[str, tuple[str | None, ...]] = {}
    for label in dict.fromkeys(labels):
        whole = Counter(
            named
            for named, place, other in zip(roles, placed, labels, strict=True)
            if other == label and place.likeness == 1.0
        )
        canon[label] = whole.most_common(1)[0][0]
    return canon


def _name_outside(units: Units, layout: Layout, role: list[str | None]) -> None:
    """Name the embedding before the layers, and final norm, lm_head and sampling after them."""
    signs, first, last = units.signs, layout.cuts[0], layout.cuts[-1]
    names = dict.fromkeys(places_of(signs, "E", 0, first), "embed")
    sampled = places_of(signs, "Z", last, len(signs))
    names.update(dict.fromkeys(sampled, "sample"))
    products = places_of(signs, "M", last, sampled[0] if sampled else len(signs))
    norms = places_of(signs, "N", last, products[0] if products else len(signs))
    names.update(dict.fromkeys(products[-1:], "lm_head"))
    names.update(dict.fromkeys(norms[:1], "final_norm"))
    for at, name in names.items():
        for token in range(units.starts[at], units.starts[at + 1]):
            role[token] = name


def _from_period(ids: Ints) -> Template:
    """Return layers by repetition alone: numbers and places, no roles."""
    runs = find_repeats(ids)
    if not runs:
        return refuse(len(ids), _NO_REPEAT)
    layer, position = np.full(len(ids), -1, dtype=np.int64), np.full(len(ids), -1, dtype=np.int64)
    for run in runs:
        sizes = np.array([len(places) for places in run])
        places, begins = np.concatenate(run), np.cumsum(sizes) - sizes
        layer[places] = np.repeat(np.arange(len(run)), sizes)
        position[places] = np.arange(len(places)) - np.repeat(begins, sizes)
    inside = layer >= 0
    span = max(1, sum(int(run[-1][-1] - run[0][0]) + 1 for run in runs))
    kind: tuple[str | None, ...] = tuple(np.array([None, "repetition"])[inside.astype(int)].tolist())
    layers = Counter(len(run) for run in runs).most_common(1)[0][0]
    period = int(np.median([len(places) for run in runs for places in run]))
    strays = span - int(inside.sum())
    likeness = float(inside.sum() / span)
    return Template(
        layer, position, (None,) * len(ids), kind, layers, period, strays, likeness, "period", None
    )
