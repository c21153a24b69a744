"""The parts of many files merged as they arrive, always in the same tree.

Sums of floats depend on their order in the last bit. Here the place of a file decides with whom it is merged,
not the moment at which it arrives: whoever computes, the answer is the same to the bit. What waits for its
neighbour is few: finished neighbours are merged at once.
"""

from collections.abc import Mapping

from tracetui.analysis.partial.algebra import Partial, Shape, merge


class Fold:
    """Merges the parts of a known number of files."""

    def __init__(self, total: int, shapes: Mapping[str, Shape]) -> None:
        self._total, self._shapes = total, shapes
        self._waiting: dict[tuple[int, int], Partial | None] = {}
        self.whole: Partial | None = None  # once all are there; None where no file contributed

    def add(self, number: int, part: Partial | None) -> None:
        """Add what the file of this number contributes, None for nothing; each number comes once."""
        level, place = 0, number
        while (1 << level) < self._total:
            neighbour = (level, place ^ 1)
            if (place ^ 1) << level < self._total:
                if neighbour not in self._waiting:
                    self._waiting[level, place] = part
                    return
                other = self._waiting.pop(neighbour)
                part = self._merged(part, other) if place % 2 == 0 else self._merged(other, part)
            level, place = level + 1, place >> 1
        self.whole = part

    def so_far(self) -> Partial | None:
        """Return what is there of all files; before the last one came, in a tree of its own."""
        if self.whole is not None:
            return self.whole
        whole: Partial | None = None
        for place in sorted(self._waiting):
            whole = self._merged(whole, self._waiting[place])
        return whole

    def _merged(self, one: Partial | None, other: Partial | None) -> Partial | None:
        if one is None or other is None:
            return one or other
        return merge(one, other, self._shapes)
