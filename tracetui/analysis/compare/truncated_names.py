"""Names that a source truncated, and the one whole name that each can stand for."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Final

_END: Final = re.compile(r"(?:…|\.\.\.)(?: \[\d+\])?$")  # a number tells equal ones of a source apart
_LAST: Final = ("…", "...", "]")
LEAST: Final = 12  # letters that are left of a name which says anything


def completions(sources: Sequence[Collection[str]]) -> dict[str, str]:
    """Return for names that were cut, and for those that complete them, the longest form of the same name.

    Rows of one source are different kernels. So a name is settled where all that it can be, in all sources,
    is one name cut here and there; where several could complete it, it is not in the result.
    """
    stems = {name: stem(name) for names in sources for name in names}
    cut = _cut(stems)
    if not cut:
        return {}
    alike, homes = _alike(stems, cut), _homes(sources)
    settled = {name for name in alike if _is_one(name, alike[name], stems, cut, homes)}
    out = {}
    for name in settled:
        family = [name, *(other for other in alike[name] if other in settled)]
        if len(family) > 1:
            out[name] = max(family, key=lambda n: (len(stems[n]), n))
    return out


def _cut(stems: Mapping[str, str]) -> set[str]:
    """Return the names that were cut, with enough left of them."""
    return {name for name, kept in stems.items() if kept != name and len(kept) >= LEAST}


def doubtful(sources: Sequence[Collection[str]], settled: Mapping[str, str]) -> int:
    """Count the cut names that stand in no other source and that `settled` does not complete."""
    homes = _homes(sources)
    return sum(len(homes[name]) == 1 and name not in settled and bool(_END.search(name)) for name in homes)


def _homes(sources: Sequence[Collection[str]]) -> dict[str, set[int]]:
    """Return for each name the numbers of the sources that have it."""
    homes: dict[str, set[int]] = defaultdict(set)
    for i, names in enumerate(sources):
        for name in names:
            homes[name].add(i)
    return homes


def stem(name: str) -> str:
    """Return a name without the mark of a cut; a whole name as it is."""
    return _END.sub("", name) if name.endswith(_LAST) else name


def _alike(stems: Mapping[str, str], cut: Collection[str]) -> dict[str, set[str]]:
    """Return for each name the others that it can stand for: one begins with the stem of the other."""
    order = sorted(stems, key=lambda n: stems[n])
    begins = [stems[n] for n in order]
    alike: dict[str, set[str]] = defaultdict(set)
    for name in cut:
        first = bisect_left(begins, stems[name])
        for other in order[first:]:
            if not stems[other].startswith(stems[name]):
                break
            if other != name:
                alike[name].add(other)
                alike[other].add(name)
    return alike


def _is_one(
    name: str,
    others: Collection[str],
    stems: Mapping[str, str],
    cut: Collection[str],
    homes: Mapping[str, Collection[int]],
) -> bool:
    """Tell whether all these can be one name, and no source has two of them as different rows."""
    family = sorted((name, *others), key=lambda n: len(stems[n]))
    places = [place for each in family for place in homes[each]]
    grows = all(short in cut and stems[long].startswith(stems[short]) for short, long in pairwise(family))
    return grows and len(places) == len(set(places))
