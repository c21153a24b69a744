"""Kinds of layers, the place of each kernel in its layer, and kernels that do not belong to it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Final

from capture.classify.block_signs import MIXERS

_MIXER_NAMES: Final = {"C": "attention", "S": "state space", "V": "convolution"}
_MOST_VARIANTS: Final = 4  # more kinds of one sort than this are noise of the launch key
_ENOUGH: Final = 5  # layers of a kind before a kernel of only one of them counts as a stray

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Member:
    """One layer of a pass: its kernels by name code, sign and role, its mixer's launch, its feed-forwards."""

    ids: Tokens
    signs: str
    launch: Tokens
    roles: tuple[str | None, ...]
    feeds: int


@dataclass(frozen=True)
class Placed:
    """A layer's kernels: place in the commonest layer of the kind (−1: not in it), and which are strays."""

    positions: Tokens
    strays: tuple[bool, ...]
    likeness: float


def label_kinds(members: Sequence[Member]) -> list[str]:
    """Return the kind of each layer: mixer and feed-forward, with a letter where several mixers differ."""
    sorts = [_sort(member.signs, member.roles) for member in members]
    keys = [(sort, _mixer_ids(member), member.launch) for sort, member in zip(sorts, members, strict=True)]
    launches: dict[str, set[tuple[Tokens, Tokens]]] = {}
    for (mixer, _), names, launch in keys:
        launches.setdefault(mixer, set()).add((names, launch))
    letters: dict[str, dict[tuple[Tokens, ...], str]] = {}
    labels = []
    for (mixer, feed), names, launch in keys:
        key = (names,) if len(launches[mixer]) > _MOST_VARIANTS else (names, launch)
        seen = letters.setdefault(mixer, {})
        labels.append((mixer, seen.setdefault(key, chr(ord("a") + len(seen) % 26)), feed))
    return [
        " + ".join(part for part in (f"{mixer} {letter}" if len(letters[mixer]) > 1 else mixer, feed) if part)
        for mixer, letter, feed in labels
    ]


@lru_cache(maxsize=1 << 11)
def _sort(signs: str, roles: tuple[str | None, ...]) -> tuple[str, str]:
    """Return the words for a layer's mixer and for its feed-forward ('' when it has none)."""
    at = next(at for at, sign in enumerate(signs) if sign in MIXERS)
    mixer = _MIXER_NAMES["S" if signs[at] == "V" and "S" in signs[at:] else signs[at]]
    parts = {role.partition(".")[0] for role in roles if role and not role.endswith("norm")}
    return mixer, "experts" if "moe" in parts else "mlp" if "mlp" in parts else ""


def _mixer_ids(member: Member) -> Tokens:
    """Return the name codes of the mixer's kernels, each once, in order."""
    return tuple(dict.fromkeys(i for i, s in zip(member.ids, member.signs, strict=True) if s in MIXERS))


def place_members(members: Sequence[Member], labels: Sequence[str]) -> list[Placed]:
    """Return for each layer where its kernels stand in the commonest layer of its kind."""
    canon: dict[str, Tokens] = {}
    shared: dict[str, Counter[int]] = {}
    sizes = Counter(labels)
    for label in sizes:
        own = [member.ids for member, other in zip(members, labels, strict=True) if other == label]
        canon[label] = Counter(own).most_common(1)[0][0]
        shared[label] = Counter(i for ids in own for i in set(ids))
    placed = []
    for member, label in zip(members, labels, strict=True):
        positions, likeness = align(member.ids, canon[label])
        rare = max(1, sizes[label] // 10)
        strays = tuple(
            at < 0 and sizes[label] >= _ENOUGH and shared[label][token] <= rare and sign not in "MNCXSG"
            for at, token, sign in zip(positions, member.ids, member.signs, strict=True)
        )
        placed.append(Placed(positions, strays, likeness))
    return placed


@lru_cache(maxsize=1 << 11)
def align(ids: Tokens, canon: Tokens) -> tuple[Tokens, float]:
    """Return the place in `canon` of each token (−1: none), and how alike the two are, 0 to 1."""
    if ids == canon:
        return tuple(range(len(ids))), 1.0
    matcher = SequenceMatcher(None, ids, canon, autojunk=False)
    positions = [-1] * len(ids)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal" or (tag == "replace" and b - a == d - c):
            positions[a:b] = range(c, d)
    return tuple(positions), matcher.ratio()
