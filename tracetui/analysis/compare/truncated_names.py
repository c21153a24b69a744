"""Names that a source cut, and the one name that each can have been."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Final

_END: Final = re.compile(r"(?:…|\.\.\.)(?: \[\d+\])?$")  # a number tells equal ones of a source apart
LEAST: Final = 12  # letters that are left of a name which says anything


def completions(sources: Sequence[Collection[str]]) -> dict[str, str]:
    """Of the names that were cut, and of those that complete them, the longest form of the same name.

    Rows of one source are different kernels. So a name is settled where all that it can be, in all sources,
    is one name cut here and there; where several could complete it, it is nobody's.
    """
    stems = {name: stem(name) for names in sources for name in names}
    cut = {name for name, kept in stems.items() if kept != name and len(kept) >= LEAST}
    alike = _alike(stems, cut)
    homes: dict[str, set[int]] = defaultdict(set)
    for i, names in enumerate(sources):
        for name in names:
            homes[name].add(i)
    settled = {name for name in alike if _is_one(name, alike[name], stems, cut, homes)}
    families = {name: [name, *(other for other in alike[name] if other in settled)] for name in settled}
    longest = {name: max(family, key=lambda n: (len(stems[n]), n)) for name, family in families.items()}
    return {name: whole for name, whole in longest.items() if len(families[name]) > 1}


def doubtful(sources: Sequence[Collection[str]], settled: Mapping[str, str]) -> int:
    """How many cut names stand in no other source, and are settled by none."""
    often: dict[str, int] = defaultdict(int)
    for names in sources:
        for name in names:
            often[name] += 1
    return sum(n == 1 and name not in settled and bool(_END.search(name)) for name, n in often.items())


def stem(name: str) -> str:
    """What is left of a name that was cut; a whole name as it is."""
    return _END.sub("", name)


def _alike(stems: Mapping[str, str], cut: Collection[str]) -> dict[str, set[str]]:
    """Of each name the others that it can be: one begins as the other was cut."""
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
    name: str, others: Collection[str], stems: Mapping[str, str], cut: Collection[str],
    homes: Mapping[str, Collection[int]],
) -> bool:  # fmt: skip
    """Whether all these can be one name, and no source tells two of them apart."""
    family = sorted((name, *others), key=lambda n: len(stems[n]))
    places = [place for each in family for place in homes[each]]
    grows = all(short in cut and stems[long].startswith(stems[short]) for short, long in pairwise(family))
    return grows and len(places) == len(set(places))
