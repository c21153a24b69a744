"""Find where layers begin in the kernel sequence of a forward pass.

The mixers (attention, state space, convolution) are the anchors, one per layer, and each gap between two of
them is cut once. A sequence without recognised mixers is split by its repeating period.
"""

import itertools
import re
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from capture.classify.kernel_symbols import (
    ACTIVATIONS,
    EXPERTS,
    HEAVY,
    MIXERS,
    align_prefixes,
    find_ssm_output,
    list_positions,
)

Ints = npt.NDArray[np.int64]
Span = tuple[int, int]

# layers of a pass, by their mixers

_BONUS_BEFORE_NORM: Final = 3.0
_BONUS_AFTER_RESIDUAL: Final = 0.7
_BONUS_WITHOUT_HEAD: Final = 4.0  # between residual sum and norm, if nothing else tells
_PENALTY_TORN_FEED_FORWARD: Final = 4.0
_UNLIKE_BERT: Final = re.compile("G|A[xcdo]*N[cx]*M")  # a choice of experts, a norm within a feed-forward
_LAYER_WORK: Final = frozenset(f"CS{EXPERTS}")
_RESIDUAL_SUM: Final = re.compile("[MN]a(?=[MN])")

LearnedCuts = tuple[tuple[str, int], ...]  # gap between mixers → position of its cut


@dataclass(frozen=True)
class LayerLayout:
    """The layers of one forward pass, by positions in its units."""

    cuts: tuple[int, ...]  # layer i is units cuts[i] … cuts[i + 1] − 1
    mixers: tuple[Span, ...]  # (start, end) of the mixer of each layer
    has_post_norm: bool  # the norm between two layers belongs to the earlier one
    learned_cuts: LearnedCuts


def find_mixers(symbols: str) -> list[Span]:
    """Find (start, end) of each group of mixer units: each group is the mixer of one layer."""
    groups: list[Span] = []
    for at in list_positions(symbols, MIXERS, 0, len(symbols)):
        if groups and _is_same_mixer(symbols, groups[-1], at):
            groups[-1] = (groups[-1][0], at + 1)
        else:
            groups.append((at, at + 1))
    groups = [
        group
        for at, group in enumerate(groups)
        if not (_is_bare_convolution(symbols, group) or _is_within_branch(symbols, groups[at:]))
    ]
    return _join_parallel(symbols, _drop_front_end_convolutions(symbols, groups))


def _is_bare_convolution(symbols: str, group: Span) -> bool:
    """Whether a group is a convolution with no matrix product before it, or none between the norms around it.

    It is part of a layer, as in a Conformer or a ConvNeXt: a state space projects its input and its output.
    """
    if symbols[group[0]] != "V":
        return False
    norm, total = symbols.rfind("N", 0, group[0]), symbols.rfind("a", 0, group[0])
    after = symbols.find("N", group[1])
    around = symbols[norm + 1 : None if after < 0 else after]
    before = symbols[max(norm, total) + 1 : group[0]]
    return not set(around) & set("MbSC") or (norm < total and not set(before) & set("MbX"))


def _is_within_branch(symbols: str, groups: list[Span]) -> bool:
    """Whether the first of some groups is a convolution of a feed-forward, or of what attention reads.

    It is between the products and the activation of the one; no sum parts it from the other. So it is in
    Segformer, whose layers all attend.
    """
    (start, end), *following = groups
    if set(symbols[start:end]) != {"V"} or "C" not in symbols:
        return False
    before = symbols[symbols.rfind("N", 0, start) + 1 : start]
    attention = next((at for at, _ in following if symbols[at] in MIXERS), None)
    is_read = attention is not None and re.fullmatch("c?N[cM]*", symbols[end:attention]) is not None
    is_fed = re.match(r"[ca]?[AB][cx]?M[cx]*a", symbols[end:]) is not None and before.strip("c") == "M"
    return is_fed or (is_read and attention is not None and symbols[attention] == "C")


def _join_parallel(symbols: str, groups: list[Span]) -> list[Span]:
    """Join attention and state-space parts without a norm between them: they share one layer."""
    gaps = [symbols[a[1] : b[0]] for a, b in itertools.pairwise(groups)]
    if 3 * sum("N" in gap for gap in gaps) < len(gaps):
        return groups
    joined = groups[:1]
    for gap, group in zip(gaps, groups[1:], strict=True):
        if "N" in gap or (symbols[joined[-1][0]] == "C") == (symbols[group[0]] == "C"):
            joined.append(group)
        else:
            joined[-1] = (joined[-1][0], group[1])
    return joined


def _is_same_mixer(symbols: str, group: Span, at: int) -> bool:
    """Whether a mixer unit continues the group before it."""
    before, between = symbols[group[1] - 1], symbols[group[1] : at]
    if before == "V" and symbols[at] == "S":
        return "V" not in between and find_ssm_output(between) is None
    if before == "S" and symbols[at] == "S":
        return "M" not in between
    return "M" not in between and "X" not in between and (before == "C") == (symbols[at] == "C")


def _drop_front_end_convolutions(symbols: str, groups: list[Span]) -> list[Span]:
    """Drop convolutions that precede the layers (a patch or audio front end)."""
    first = [symbols[start] for start, _ in groups]
    if len(groups) >= 4 and first.count("V") <= 2 and "V" in first[:2]:
        return [group for group, symbol in zip(groups, first, strict=True) if symbol != "V"]
    return groups


@lru_cache(maxsize=1 << 10)
def find_layer_layout(symbols: str, learned_cuts: LearnedCuts = ()) -> LayerLayout | None:
    """Find the layers of one forward pass; None with fewer than two mixers.

    `learned_cuts` come from a complete pass of the same trace, and are reused in a pass that is cut off
    at its start or end.
    """
    mixers = find_mixers(symbols)
    if len(mixers) < 2:
        return None
    head, tail = symbols[: mixers[0][0]], symbols[mixers[-1][1] :]
    gaps = [symbols[a[1] : b[0]] for a, b in itertools.pairwise(mixers)]
    has_post_norm = _is_post_norm(head, tail, gaps)
    learned = dict(learned_cuts)
    own_cuts = _cut_gaps(symbols, mixers, gaps, has_post_norm)
    offsets = [learned.get(gap, at) for gap, at in zip(gaps, own_cuts, strict=True)]
    cuts = [mixer[1] + at for mixer, at in zip(mixers, offsets, strict=False)]
    kinds = [symbols[start] for start, _ in mixers]
    before = [gap[at:][::-1] for gap, at in zip(gaps, offsets, strict=True)]  # all mixers but the first
    after = [gap[:at] for gap, at in zip(gaps, offsets, strict=True)]  # all mixers but the last
    start = mixers[0][0] - _align_to_nearest(head[::-1], before, kinds[1:], kinds[0])
    end = mixers[-1][1] + _align_to_nearest(tail, after, kinds[:-1], kinds[-1])
    learned_cuts = tuple(dict(zip(gaps, offsets, strict=True)).items())
    return LayerLayout((start, *cuts, end), tuple(mixers), has_post_norm, learned_cuts)


def _align_to_nearest(text: str, parts: list[str], kinds: list[str], kind: str) -> int:
    """Find how much of a text belongs to a layer, by the part that is most like it.

    `kinds` are those of the mixers beside the parts; parts beside one of this kind are preferred.
    """
    same = [part for part, other in zip(parts, kinds, strict=True) if other == kind] or parts
    counts = Counter(same)  # of experts, whose number varies, each may be the only one
    common = [part for part in counts if counts[part] > 1 or set(part) & set(EXPERTS)] or list(counts)
    common = [part for part in common if not any(_has_more_between(part, other) for other in common)]
    nearest = max(common, key=lambda part: align_prefixes(part, text)[0][-1])
    return align_prefixes(nearest, text)[1][-1]


def _has_more_between(part: str, other: str) -> bool:
    """Whether a part has other work beyond another one, as a downsampling, but no mixer or feed-forward."""
    extra = part[len(other) :]
    is_of_layer = _FEED_FORWARD.search(extra) or set(extra) & _LAYER_WORK
    return part != other and part.startswith(other) and not is_of_layer


def _is_post_norm(head: str, tail: str, gaps: list[str]) -> bool:
    """Whether the norm between two layers belongs to the earlier one, as in BERT.

    There, three embeddings are summed and their norm follows at once, or no norm precedes the first layer's
    mixer and one follows each sum, or the output head has an activation between the last norm and the last
    product.
    """
    if "n" in head or _UNLIKE_BERT.search(" ".join(gaps)):
        return False
    if "E" in head and "N" not in head and all(map(_has_norm_after_sum, gaps)):
        return True
    last = tail.rfind("M")
    norms = [at for at, symbol in enumerate(tail[:last]) if symbol == "N"]
    is_transformed = len(norms) > 1 and re.search(r"NM[ce]?[AB]N$", tail[: norms[-1] + 1]) is not None
    least = 2 if is_transformed else 3
    is_apart = re.search(r"[^aEc]N", head) is not None  # from the sum of the embeddings, by other work
    return head.count("E") >= least and head.count("N") <= 1 and not is_apart


def _has_norm_after_sum(gap: str) -> bool:
    return "aN" in gap and "Na" not in gap


def _cut_gaps(symbols: str, mixers: list[Span], gaps: list[str], has_post_norm: bool) -> list[int]:
    """Cut each gap where the next layer begins.

    The head of the pass shows what precedes a mixer, but only for layers of the first one's kind.
    """
    head, tail = symbols[: mixers[0][0]], symbols[mixers[-1][1] :]
    # up to there it is of the embeddings
    head = head[head.rfind("N") + 1 :] if has_post_norm else head[max(0, head.find("N")) :]
    tail = tail[: tail.rfind("M", 0, tail.find("Z") if "Z" in tail else None)]
    tail_without_norm = tail[: tail.rfind("N")]
    attends = [symbols[start] == "C" for start, _ in mixers]
    cuts = []
    for gap, previous, following in zip(gaps, attends, attends[1:], strict=False):
        ends = (head, tail) if following == attends[0] else ("", tail_without_norm)
        cuts.append(_cut_gap(gap, *ends, has_post_norm, "C" if previous else "S"))
    return cuts


@lru_cache(maxsize=1 << 12)
def _cut_gap(gap: str, head: str, tail: str, has_post_norm: bool, mixer: str) -> int:
    """Find the position in a gap where the next layer begins: the one that head and tail explain best."""
    before, _ = align_prefixes(gap, tail)
    after = align_prefixes(gap[::-1], head[::-1])[0] if head else (0.0,) * (len(gap) + 1)
    low, high = _find_cut_bounds(gap, mixer)
    scores = {
        at: before[at] + after[len(gap) - at] + _score_position(gap, at, has_post_norm, bool(head))
        for at in range(low, high + 1)
    }
    return max(scores, key=scores.__getitem__, default=low)


def _find_cut_bounds(gap: str, mixer: str) -> Span:
    """Find the first and the last possible cut: after the output product, before the next input product.

    A product after the residual sum of the last feed-forward is of the next layer; so are batched ones.
    """
    products = list_positions(gap, "MX", 0, len(gap))
    if len(products) < 2:
        return 0, len(gap)
    first = (find_ssm_output(gap) if mixer in "SV" else None) or products[0]
    activation = max(gap.rfind(symbol) for symbol in ACTIVATIONS)
    summed = _RESIDUAL_SUM.search(gap, activation) if activation >= 0 else None
    last = next((at for at in products if summed and at >= summed.end()), products[-1])
    if 0 <= activation < last and not set(gap[activation:last]) & set("MX"):  # it ends the feed-forward
        last = max(last, gap.find("b", last))
    return min(first + 1, last), last


def _score_position(gap: str, at: int, has_post_norm: bool, has_head: bool) -> float:
    """Score a cut by the usual structure of layers."""
    before, after = gap[at - 1 : at], gap[at : at + 1]
    score = _BONUS_BEFORE_NORM if _is_norm_at_cut(gap, at, has_post_norm) else 0.0
    activation = max(gap.rfind(symbol) for symbol in ACTIVATIONS)
    if before == "a":
        is_open = not has_head and after == "N" and activation < at  # no feed-forward follows
        score += _BONUS_WITHOUT_HEAD if is_open else _BONUS_AFTER_RESIDUAL
    if activation >= at or (activation >= 0 and not set(gap[activation:at]) & set("MX")):
        score -= _PENALTY_TORN_FEED_FORWARD
    return score


def _is_norm_at_cut(gap: str, at: int, has_post_norm: bool) -> bool:
    """Whether a norm ends or begins a layer here; where sums precede norms, one after a product does not."""
    if has_post_norm:
        return gap[at - 1 : at] == "N"
    is_of_product = gap[at - 1 : at] == "M" and "aN" in gap
    return gap[at : at + 1] == "N" and gap[at + 1 : at + 2] != "a" and not is_of_product


# work between two layers alone

_FEED_FORWARD: Final = re.compile("M.*[AB]|[AB].*M")
Gap = tuple[str, str, int]  # mixers around it, symbols, those before its cut
_JOIN: Final = re.compile("^(?=.*j)[^MbXCSVN]{3,}$")  # of what is pooled
_HEAVY: Final = frozenset(HEAVY) | {"v"}


def find_seam(symbols: str, layout: LayerLayout) -> Span | None:
    """Find the first work between two layers, as (start, end) of its units, that more layers do not have.

    Otherwise the gap there is equal to a commoner one. A second stack or a narrower stage begins behind it,
    or layers that ran before run again. Experts, whose number varies, tell nothing.
    """
    gaps = []  # heavy units; mixers and symbols; those before the cut; the same of all units
    for (one, end), cut, (start, _) in zip(layout.mixers, layout.cuts[1:], layout.mixers[1:], strict=False):
        units = [at for at in range(end, start) if symbols[at] in _HEAVY]
        kind = symbols[one] + symbols[start]
        key = (kind, "".join(symbols[at] for at in units), bisect_left(units, cut))
        gaps.append((units, key, (kind, symbols[end:start], cut - end), end))
    counts, all_counts = Counter(gap[1] for gap in gaps), Counter(gap[2] for gap in gaps)
    for units, key, all_units, end in gaps:
        if span := _find_insertion(key, counts):
            return units[span[0]], units[span[1] - 1] + 1
        if span := _find_join(all_units, all_counts):
            return end + span[0], end + span[1]
    return None


def _find_join(gap: Gap, counts: Counter[Gap]) -> Span | None:
    """Find what a gap joins and pools at its cut, or behind the norm there, and a commoner one does not."""
    kind, text, _ = gap
    for (other, common, cut), count in counts.items():
        more = len(text) - len(common)
        for at in (cut, cut + 1) if kind == other and count > counts[gap] else ():
            if text[:at] + text[at + more :] == common and _JOIN.search(text[at : at + more]):
                return at, at + more
    return None


def _find_insertion(gap: Gap, counts: Counter[Gap]) -> Span | None:
    """Find from its cut on what a gap has there, and a commoner one not: no feed-forward, no usual norm."""
    kind, text, _ = gap
    for (other, common, cut), count in counts.items():
        more = len(text) - len(common)
        is_comparable = kind == other and count > counts[gap] and not set(text) & set(EXPERTS)
        for begin in range(cut, len(common) + 1) if is_comparable and more > 0 else ():
            end, inserted = begin + more, text[begin : begin + more]
            is_open = (inserted != "N" or counts[gap] == 1) and not _FEED_FORWARD.search(inserted)
            if is_open and text[:begin] + text[end:] == common:
                return cut, end
    return None


# repetition, where no mixer is recognised

_MIN_PERIOD: Final = 3  # kernels of a layer
_MAX_PERIOD: Final = 1200
_PERIOD_SAMPLE: Final = 1 << 14  # kernels of a pass in which the period is searched
_MIN_SIMILARITY: Final = 0.8
_NEAR_BEST_SHARE: Final = 0.8  # of the best agreement suffices for a shorter period
_MIN_COVERED_SHARE: Final = 0.6  # of all kernels must be in complete repetitions


def find_sequence_period(ids: Ints) -> int:
    """Find the smallest distance at which the sequence agrees with itself best; 0 if it does not repeat."""
    ids = ids[:_PERIOD_SAMPLE]
    longest = min(_MAX_PERIOD, len(ids) // 2)
    if longest < _MIN_PERIOD:
        return 0
    shares = np.array([np.mean(ids[lag:] == ids[:-lag]) for lag in range(1, longest + 1)])
    chance = float(np.sum((np.unique(ids, return_counts=True)[1] / len(ids)) ** 2))
    if shares.max() < max(_MIN_COVERED_SHARE, 2 * chance):
        return 0
    period = int(np.flatnonzero(shares >= _NEAR_BEST_SHARE * shares.max())[0]) + 1
    return period if period >= _MIN_PERIOD else 0


def find_repeats(ids: Ints) -> list[list[Ints]]:
    """Find runs of repetitions, each repetition as the positions of its kernels.

    Empty if too little repeats. A run skips a few unmatched kernels, and ends at more of them.
    """
    period = find_sequence_period(ids)
    if not period:
        return []
    same = np.concatenate([ids[period:] == ids[:-period], np.zeros(period, dtype=bool)])
    sums = np.concatenate([[0], np.cumsum(same)])
    agreeing = sums[period:] - sums[:-period]
    agreeing_from_same = np.where(same[: len(agreeing)], agreeing, -1)
    start = int(agreeing_from_same.argmax())
    if agreeing_from_same[start] < min(agreeing.max(), 0.97 * period):
        return []
    template = ids[start : start + period].tolist()
    offset, cuts = split_repetition(template)
    runs = _collect_repetitions(ids, np.array(template[offset:] + template[:offset]), start + offset)
    slices = [slice(a, b) for a, b in itertools.pairwise([0, *cuts, period])]
    runs = [[repetition[part] for repetition in run for part in slices] for run in runs if len(run) >= 2]
    covered = sum(len(part) for run in runs for part in run)
    return runs if covered >= _MIN_COVERED_SHARE * len(ids) else []


def _collect_repetitions(ids: Ints, template: Ints, at: int) -> list[list[Ints]]:
    """Collect the runs of repetitions from `at` on; exact ones that follow each other in bulk."""
    runs: list[list[Ints]] = []
    end, id_list, template_list = at, ids.tolist(), template.tolist()
    while at < len(ids):
        exact = _match_exact_repetitions(ids, template, at)
        repetitions = list(exact) if len(exact) else _match_repetition(id_list, template_list, at)
        if repetitions is None:
            at += 1
            continue
        if not runs or at - end > max(3, len(template) // 6):
            runs.append([])
        runs[-1] += repetitions
        at = end = int(repetitions[-1][-1]) + 1
    return runs


def _match_exact_repetitions(ids: Ints, template: Ints, at: int) -> Ints:
    """Match exact repetitions from `at` on, a row each; each look covers twice as many as the one before."""
    size, count, ahead = len(template), 0, 1
    while True:
        begin = at + count * size
        ahead = min(ahead, (len(ids) - begin) // size)
        is_equal = (ids[begin : begin + ahead * size].reshape(ahead, size) == template).all(axis=1)
        more = ahead if is_equal.all() else int(is_equal.argmin())
        count += more
        if more < ahead or not ahead:
            return np.arange(at, at + count * size).reshape(count, size)
        ahead *= 2


def _match_repetition(ids: list[int], template: list[int], at: int) -> list[Ints] | None:
    """Match one repetition from `at` on, skipping a few unmatched kernels; None if there is none."""
    if ids[at] != template[0]:
        return None
    skips_left = max(2, len(template) // 6)
    positions: list[int] = []
    for name in template:
        while at < len(ids) and ids[at] != name:
            at, skips_left = at + 1, skips_left - 1
            if skips_left < 0:
                return None
        if at >= len(ids):
            return None
        positions.append(at)
        at += 1
    return [np.array(positions, dtype=np.int64)]


def split_repetition(template: list[int]) -> tuple[int, list[int]]:
    """Split a repetition into several layers that are similar but not equal.

    Returns by how much to rotate the repetition, and where to cut it then; (0, []) if it is one layer.
    """
    best: tuple[int, list[int]] = (0, [])
    for name in dict.fromkeys(template):
        positions = [at for at, other in enumerate(template) if other == name]
        if len(positions) < len(best[1]) + 2:
            continue
        first = positions[0]
        rotated = template[first:] + template[:first]
        cuts = [*(at - first for at in positions), len(template)]
        parts = [rotated[a:b] for a, b in itertools.pairwise(cuts)]
        if all(_are_similar(parts[0], part) for part in parts[1:]):
            best = (first, cuts[1:-1])
    return best


def _are_similar(one: list[int], other: list[int]) -> bool:
    return SequenceMatcher(None, one, other, autojunk=False).ratio() >= _MIN_SIMILARITY
