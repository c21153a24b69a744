"""Keys and values of what was seen; a windowed layer keeps its window and no more."""

import torch

Pair = tuple[torch.Tensor, torch.Tensor]


class LayerCache:
    """One layer's keys and values in one tensor, [batch, keys' heads then values', positions, head_dim]."""

    def __init__(
        self, batch: int, heads: int, capacity: int, head_dim: int, *,
        window: int | None, dtype: torch.dtype, device: torch.device,
    ) -> None:  # fmt: skip
        self._room = min(window or capacity, capacity)
        self._ring = self._room < capacity
        self._heads = heads
        self._kv = torch.zeros(batch, 2 * heads, self._room, head_dim, dtype=dtype, device=device)

    @property
    def size(self) -> int:
        return self._kv.numel() * self._kv.element_size()

    @property
    def all(self) -> Pair:
        """Every slot: position p lies in slot p mod their number."""
        return self._pair(self._kv)

    def append(self, new: torch.Tensor, at: int) -> Pair:
        """Keeps new pairs, that start at a position, and gives the keys and values that they may look at.

        For a single position their order is not kept, for several it is: the last columns are the new ones.
        """
        count = new.shape[2]
        if self._ring and count > 1:
            return self._pair(self._turned(new, at))
        slot = at % self._room
        self._kv.narrow(2, slot, count).copy_(new)
        return self._pair(self._kv.narrow(2, 0, min(at + count, self._room)))

    def fill(self, generator: torch.Generator, upto: int) -> None:
        """Stands in for a long past: values as they come out of a norm."""
        self._kv[:, :, :upto].normal_(generator=generator)

    def _pair(self, kv: torch.Tensor) -> Pair:
        return kv.narrow(1, 0, self._heads), kv.narrow(1, self._heads, self._heads)

    def _turned(self, new: torch.Tensor, at: int) -> torch.Tensor:
        """Several positions at once may push out what the first of them still sees."""
        before = torch.arange(max(0, at - self._room), at, device=new.device) % self._room
        seen = torch.cat((self._kv[:, :, before], new), 2)
        end = at + new.shape[2]
        kept = torch.arange(max(0, end - self._room), end, device=new.device) % self._room
        self._kv[:, :, kept] = seen[:, :, -len(kept) :]
        return seen
