"""Keys and values of what was seen; a windowed layer keeps its window and no more."""

import torch

Pair = tuple[torch.Tensor, torch.Tensor]


class LayerCache:
    """One layer's keys and values, [batch, kv heads, positions, head_dim] each."""

    def __init__(
        self, batch: int, heads: int, capacity: int, head_dim: int, *,
        window: int | None, dtype: torch.dtype, device: torch.device,
    ) -> None:  # fmt: skip
        self._room = min(window or capacity, capacity)
        self._ring = self._room < capacity
        shape = (batch, heads, self._room, head_dim)
        self._keys = torch.zeros(shape, dtype=dtype, device=device)
        self._values = torch.zeros(shape, dtype=dtype, device=device)

    @property
    def size(self) -> int:
        return 2 * self._keys.numel() * self._keys.element_size()

    def append(self, keys: torch.Tensor, values: torch.Tensor, at: int) -> Pair:
        """Keeps the new pairs, that start at a position, and gives all that they may look at.

        For a single position their order is not kept, for several it is: the last columns are the new ones.
        """
        if not self._ring:
            return self._grown(keys, values, at)
        if keys.shape[2] == 1:
            return self._replaced(keys, values, at)
        return self._turned(keys, values, at)

    def fill(self, generator: torch.Generator, upto: int) -> None:
        """Stands in for a long past: values as they come out of a norm."""
        for held in (self._keys, self._values):
            held[:, :, :upto].normal_(generator=generator)

    def _grown(self, keys: torch.Tensor, values: torch.Tensor, at: int) -> Pair:
        end = at + keys.shape[2]
        self._keys[:, :, at:end] = keys
        self._values[:, :, at:end] = values
        return self._keys[:, :, :end], self._values[:, :, :end]

    def _replaced(self, keys: torch.Tensor, values: torch.Tensor, at: int) -> Pair:
        slot, seen = at % self._room, min(at + 1, self._room)
        self._keys[:, :, slot : slot + 1] = keys
        self._values[:, :, slot : slot + 1] = values
        return self._keys[:, :, :seen], self._values[:, :, :seen]

    def _turned(self, keys: torch.Tensor, values: torch.Tensor, at: int) -> Pair:
        before = torch.arange(max(0, at - self._room), at, device=keys.device) % self._room
        k = torch.cat((self._keys[:, :, before], keys), 2)
        v = torch.cat((self._values[:, :, before], values), 2)
        end = at + keys.shape[2]
        kept = torch.arange(max(0, end - self._room), end, device=keys.device) % self._room
        self._keys[:, :, kept] = k[:, :, -len(kept) :]
        self._values[:, :, kept] = v[:, :, -len(kept) :]
        return k, v
