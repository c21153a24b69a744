"""Keys and values of past positions; a layer with a window keeps its window and no more."""

import torch

from engines.models.spec import Spec

Pair = tuple[torch.Tensor, torch.Tensor]


class LayerCache:
    """One layer's keys and values in one tensor, [batch, keys' heads then values', positions, head_dim]."""

    def __init__(self, kv: torch.Tensor, *, ring: bool) -> None:
        self._kv, self._ring, self._room = kv, ring, kv.shape[2]
        self.set_views(kv, self.all)

    @property
    def size(self) -> int:
        return self._kv.numel() * self._kv.element_size()

    @property
    def all(self) -> Pair:
        """Every slot: position p lies in slot p mod their number."""
        return self._pair(self._kv)

    def set_views(self, slots: torch.Tensor, visible: Pair) -> None:
        """Set where the pairs of the next pass go, and which keys and values it then sees."""
        self._slots, self._visible = slots, visible

    def append(self, new: torch.Tensor, at: int) -> Pair:
        """Store the pairs of new positions from `at` on; return the keys and values that these see.

        For a single position their order is not kept, for several it is: the last columns are the new ones.
        """
        if self._ring and new.shape[2] > 1:
            return self._pair(self._append_to_ring(new, at))
        self._slots.copy_(new)
        return self._visible

    def fill(self, generator: torch.Generator, upto: int) -> None:
        """Fill the first positions with random numbers as they come out of a norm, for a made-up past."""
        self._kv[:, :, :upto].normal_(generator=generator)

    def _pair(self, kv: torch.Tensor) -> Pair:
        heads = kv.shape[1] // 2
        return kv.narrow(1, 0, heads), kv.narrow(1, heads, heads)

    def _append_to_ring(self, new: torch.Tensor, at: int) -> torch.Tensor:
        """Store several positions in a ring; return what they see, even what they push out of it."""
        before = torch.arange(max(0, at - self._room), at, device=new.device) % self._room
        visible = torch.cat((self._kv[:, :, before], new), 2)
        end = at + new.shape[2]
        kept = torch.arange(max(0, end - self._room), end, device=new.device) % self._room
        self._kv[:, :, kept] = visible[:, :, -len(kept) :]
        return visible


class CacheGroup:
    """The caches of layers that keep as many positions: one tensor, whose views are cut at once."""

    def __init__(self, kv: torch.Tensor, *, ring: bool) -> None:
        self._kv, self._room, self._heads = kv, kv.shape[3], kv.shape[2] // 2
        self.layers = [LayerCache(part, ring=ring) for part in kv.unbind()]

    def seek(self, at: int, tokens: int) -> None:
        """Cut the views for so many positions from one on; what does not fit a ring is left to `append`."""
        slot = at % self._room
        slots = self._kv.narrow(3, slot, min(tokens, self._room - slot)).unbind()
        visible = self._kv.narrow(3, 0, min(at + tokens, self._room))
        keys = visible.narrow(2, 0, self._heads).unbind()
        values = visible.narrow(2, self._heads, self._heads).unbind()
        for layer, new, key, value in zip(self.layers, slots, keys, values, strict=True):
            layer.set_views(new, (key, value))


class Caches:
    """The caches of all layers."""

    def __init__(
        self, spec: Spec, batch: int, capacity: int, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        rooms = [min(spec.window_of(i) or capacity, capacity) for i in range(spec.layers)]
        shape = (batch, 2 * spec.kv_heads)
        self._groups = {
            room: CacheGroup(
                torch.zeros(rooms.count(room), *shape, room, spec.head_dim, dtype=dtype, device=device),
                ring=room < capacity,
            )
            for room in set(rooms)
        }
        parts = {room: iter(group.layers) for room, group in self._groups.items()}
        self.layers = tuple(next(parts[room]) for room in rooms)

    def seek(self, at: int, tokens: int) -> None:
        """Prepare all caches for so many positions from one on."""
        for group in self._groups.values():
            group.seek(at, tokens)
