"""Names of columns: which one a person means by a word, and which mean the same on either side."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from tracetui import units

_SIDE: Final = re.compile(r"_[ab](?=_|$)")


def meant(words: Iterable[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that are meant, in the order of the words; a word that means none is left out."""
    by_word = {write(name): name for write in (units.heading, units.spoken, str) for name in reversed(names)}
    return tuple(dict.fromkeys(by_word[word] for word in words if word in by_word))


def alike(names: Sequence[str]) -> list[list[str]]:
    """Return the columns grouped by what they mean on either side: total a with total b."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_SIDE.sub("", name), []).append(name)
    return list(groups.values())
