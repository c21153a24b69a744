"""Words and streams as codes, many at once."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.integer]


def numbered(codes: Codes) -> tuple[Codes, Codes]:
    """Return the distinct codes in their order, and for each code its place among them."""
    dense = codes.dtype.kind in "iu" and codes.min() >= 0 and codes.max() < len(codes)
    if not dense:
        return np.unique(codes, return_inverse=True)
    there = np.bincount(codes) > 0
    return np.flatnonzero(there), (np.cumsum(there) - 1)[codes]


def coded(words: Sequence[str | None], codes: dict[str, int]) -> npt.NDArray[np.int64] | int:
    """Return the code of each word, −1 for None, or one for all; a word without one is given the next."""
    alike = len(words) > 0 and words.count(words[0]) == len(words)  # sooner found than what is distinct
    distinct = dict.fromkeys(words[:1] if alike else words)
    known = {word: -1 if word is None else codes.setdefault(word, len(codes)) for word in distinct}
    if len(known) == 1:
        return next(iter(known.values()))
    return np.fromiter(map(known.__getitem__, words), dtype=np.int64, count=len(words))
