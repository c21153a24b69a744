"""Where one layer ends and the next begins: mixers as anchors, cuts in the gaps between them."""

import itertools
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from capture.classify.block_align import extend
from capture.classify.block_signs import ACTS, MIXERS, find_state_output

_PRE_NORM: Final = 2.5
_AFTER_RESIDUAL: Final = 0.7
_UNHEADED: Final = 4.0  # between residual sum and norm, where nothing else tells
_TORN: Final = 4.0


Taught = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Layout:
    """The layers of one forward pass as places in its units.

    `cuts` has one place more than there are layers: layer i is units cuts[i]…cuts[i + 1] − 1;
    `mixers` has the (start, end) of each layer's attention or state-space part; `taught` says where
    each gap between mixers was cut.
    """

    cuts: tuple[int, ...]
    mixers: tuple[tuple[int, int], ...]
    post_norm: bool
    agreement: float
    taught: Taught


def find_mixers(signs: str) -> list[tuple[int, int]]:
    """Return (start, end) of each group of mixer units: one group is the mixer of one layer."""
    groups: list[tuple[int, int]] = []
    for at, sign in enumerate(signs):
        if sign not in MIXERS:
            continue
        if groups and _belongs(signs, groups[-1], at):
            groups[-1] = (groups[-1][0], at + 1)
        else:
            groups.append((at, at + 1))
    return _join_parallel(signs, _without_strangers(signs, groups))


def _join_parallel(signs: str, groups: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join attention and state-space parts without a norm between them: they share one layer."""
    gaps = [signs[a[1] : b[0]] for a, b in itertools.pairwise(groups)]
    if 3 * sum("N" in gap for gap in gaps) < len(gaps):
        return groups
    joined = groups[:1]
    for gap, group in zip(gaps, groups[1:], strict=True):
        if "N" in gap or (signs[joined[-1][0]] == "C") == (signs[group[0]] == "C"):
            joined.append(group)
        else:
            joined[-1] = (joined[-1][0], group[1])
    return joined


def _belongs(signs: str, group: tuple[int, int], at: int) -> bool:
    """Tell whether a mixer unit continues the group before it."""
    before, between = signs[group[1] - 1], signs[group[1] : at]
    if before == "V" and signs[at] == "S":
        return "V" not in between and find_state_output(between) is None
    if before == "S" and signs[at] == "S":
        return "M" not in between
    return "M" not in between and "X" not in between and (before == "C") == (signs[at] == "C")


def _without_strangers(signs: str, groups: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Drop convolutions that stand before the layers (a patch or audio front end)."""
    first = [signs[start] for start, _ in groups]
    if len(groups) >= 4 and first.count("V") <= 2 and "V" in first[:2]:
        return [group for group, sign in zip(groups, first, strict=True) if sign != "V"]
    return groups


@lru_cache(maxsize=1 << 10)
def lay_out(signs: str, taught: Taught = ()) -> Layout | None:
    """Return the layers of one forward pass; None when there are fewer than two mixers.

    `taught` holds gaps that a complete pass of the same trace has, each with its cut: a pass that
    is torn at its start or end is cut likewise.
    """
    mixers = find_mixers(signs)
    if len(mixers) < 2:
        return None
    head, tail = signs[: mixers[0][0]], signs[mixers[-1][1] :]
    gaps = [signs[a[1] : b[0]] for a, b in itertools.pairwise(mixers)]
    post_norm = _is_post_norm(head, tail, gaps)
    chosen = _cuts(signs, mixers, gaps, post_norm)
    learned = dict(taught)
    chosen = [(learned.get(gap, at), share) for gap, (at, share) in zip(gaps, chosen, strict=True)]
    cuts = [mixer[1] + at for mixer, (at, _) in zip(mixers, chosen, strict=False)]
    pre = _first(gaps, chosen, signs, mixers)
    post = _last(gaps, chosen, signs, mixers, tail)
    start = mixers[0][0] - extend(pre[::-1], head[::-1])[1][-1]
    end = mixers[-1][1] + extend(post, tail)[1][-1]
    agreement = sum(share for _, share in chosen) / len(chosen)
    offsets = tuple({gap: at for gap, (at, _) in zip(gaps, chosen, strict=True)}.items())
    return Layout((start, *cuts, end), tuple(mixers), post_norm, agreement, offsets)


def _first(
    gaps: list[str], chosen: list[tuple[int, float]], signs: str, mixers: list[tuple[int, int]]
) -> str:
    """Return what stands before the mixer in the layer that is most like the first one."""
    head = signs[: mixers[0][0]][::-1]
    parts = [gap[at:] for gap, (at, _) in zip(gaps, chosen, strict=True)]
    same = [
        part for part, mixer in zip(parts, mixers[1:], strict=True) if signs[mixer[0]] == signs[mixers[0][0]]
    ]
    return max(dict.fromkeys(same or parts), key=lambda part: extend(part[::-1], head)[0][-1])


def _last(
    gaps: list[str], chosen: list[tuple[int, float]], signs: str, mixers: list[tuple[int, int]], tail: str
) -> str:
    """Return what stands after the mixer in the layer that is most like the last one."""
    parts = [gap[:at] for gap, (at, _) in zip(gaps, chosen, strict=True)]
    same = [
        part for part, mixer in zip(parts, mixers, strict=False) if signs[mixer[0]] == signs[mixers[-1][0]]
    ]
    return max(dict.fromkeys(same or parts), key=lambda part: extend(part, tail)[0][-1])


def _is_post_norm(head: str, tail: str, gaps: list[str]) -> bool:
    """Tell whether the norm between two layers belongs to the earlier one (BERT and its like).

    Three embeddings are added up, or the head has an activation between the last norm and the last
    product.
    """
    if "G" in "".join(gaps) or "n" in head:
        return False
    last = tail.rfind("M")
    norms = [at for at, sign in enumerate(tail[:last]) if sign == "N"]
    transformed = len(norms) > 1 and re.search(r"NM[ce]?[AB]N$", tail[: norms[-1] + 1]) is not None
    return (head.count("E") >= 3 or transformed) and head.count("N") <= 1


def _cuts(
    signs: str, mixers: list[tuple[int, int]], gaps: list[str], post_norm: bool
) -> list[tuple[int, float]]:
    """Return where each gap is cut, with the share of the gap that head and tail explain.

    A whole head tells what stands before a mixer, of the first layer's sort only.
    """
    head, tail = signs[: mixers[0][0]], signs[mixers[-1][1] :]
    tail = tail[: tail.rfind("M", 0, tail.find("Z") if "Z" in tail else None)]
    within = tail[: tail.rfind("N")]  # without the final norm
    attends = [signs[start] == "C" for start, _ in mixers]
    return [
        _cut(
            gap,
            *((head, tail) if follows == attends[0] else ("", within)),
            post_norm,
            "C" if previous else "S",
        )
        for gap, previous, follows in zip(gaps, attends, attends[1:], strict=False)
    ]


@lru_cache(maxsize=1 << 12)
def _cut(gap: str, head: str, tail: str, post_norm: bool, mixer: str) -> tuple[int, float]:
    """Return where in a gap the next layer begins, and the share of the gap that head and tail explain."""
    before, _ = extend(gap, tail)
    after = extend(gap[::-1], head[::-1])[0] if head else (0.0,) * (len(gap) + 1)
    size = len(gap)
    low, high = _bounds(gap, mixer)
    best, where = float("-inf"), low
    for at in range(low, high + 1):
        score = before[at] + after[size - at] + _preference(gap, at, post_norm, bool(head))
        if score > best:
            best, where = score, at
    whole = extend(gap, gap)[0][-1] or 1.0
    return where, max(0.0, min(1.0, (before[where] + after[size - where]) / whole))


def _bounds(gap: str, mixer: str) -> tuple[int, int]:
    """Return the first and the last place for a cut: after the output product, before the input's."""
    products = [at for at, sign in enumerate(gap) if sign in "MX"]
    if len(products) < 2:
        return 0, len(gap)
    first = products[0]
    if mixer in "SV":
        first = find_state_output(gap) or first
    return min(first + 1, products[-1]), products[-1]


def _preference(gap: str, at: int, post_norm: bool, headed: bool) -> float:
    """Return how much the grammar of layers likes a cut at a place."""
    score = 0.0
    before, after = gap[at - 1 : at], gap[at : at + 1]
    if post_norm:
        score += _PRE_NORM if before == "N" else 0.0
    elif after == "N" and gap[at + 1 : at + 2] != "a":
        score += _PRE_NORM
    if before == "a":
        score += _AFTER_RESIDUAL if headed or after != "N" else _UNHEADED
    acts = max(gap.rfind(sign) for sign in ACTS)
    if acts >= at or (acts >= 0 and not set(gap[acts:at]) & set("MX")):
        score -= _TORN
    return score
