"""Keys and values of what was seen; a windowed layer keeps its window and no more."""

import torch

from engines.models.spec import Spec

Pair = tuple[torch.Tensor, torch.Tensor]


class LayerCache:
    """One layer's keys and values in one tensor, [batch, keys' heads then values', positions, head_dim]."""

    def __init__(self, kv: torch.Tensor, *, ring: bool) -> None:
        self._kv, self._ring, self._room = kv, ring, kv.shape[2]
        self.look(kv, self.all)

    @property
    def size(self) -> int:
        return self._kv.numel() * self._kv.element_size()

    @property
    def all(self) -> Pair:
        """Every slot: position p lies in slot p mod their number."""
        return self._pair(self._kv)

    def look(self, slots: torch.Tensor, seen: Pair) -> None:
        """Where the pairs of the next pass go, and what it may then look at."""
        self._slots, self._seen = slots, seen

    def append(self, new: torch.Tensor, at: int) -> Pair:
        """Keeps new pairs, that start at a position, and gives the keys and values that they may look at.

        For a single position their order is not kept, for several it is: the last columns are the new ones.
        """
        if self._ring and new.shape[2] > 1:
            return self._pair(self._turned(new, at))
        self._slots.copy_(new)
        return self._seen

    def fill(self, generator: torch.Generator, upto: int) -> None:
        """Stands in for a long past: values as they come out of a norm."""
        self._kv[:, :, :upto].normal_(generator=generator)

    def _pair(self, kv: torch.Tensor) -> Pair:
        heads = kv.shape[1] // 2
        return kv.narrow(1, 0, heads), kv.narrow(1, heads, heads)

    def _turned(self, new: torch.Tensor, at: int) -> torch.Tensor:
        """Several positions at once may push out what the first of them still sees."""
        before = torch.arange(max(0, at - self._room), at, device=new.device) % self._room
        seen = torch.cat((self._kv[:, :, before], new), 2)
        end = at + new.shape[2]
        kept = torch.arange(max(0, end - self._room), end, device=new.device) % self._room
        self._kv[:, :, kept] = seen[:, :, -len(kept) :]
        return seen


class Alike:
    """The caches of layers that keep as many positions: one tensor, of which all views are cut at once."""

    def __init__(self, kv: torch.Tensor, *, ring: bool) -> None:
        self._kv, self._room, self._heads = kv, kv.shape[3], kv.shape[2] // 2
        self.layers = [LayerCache(part, ring=ring) for part in kv.unbind()]

    def seek(self, at: int, tokens: int) -> None:
        """The views for so many positions from one on; several that do not fit a ring look for themselves."""
        slot = at % self._room
        slots = self._kv.narrow(3, slot, min(tokens, self._room - slot)).unbind()
        seen = self._kv.narrow(3, 0, min(at + tokens, self._room))
        keys = seen.narrow(2, 0, self._heads).unbind()
        values = seen.narrow(2, self._heads, self._heads).unbind()
        for layer, new, key, value in zip(self.layers, slots, keys, values, strict=True):
            layer.look(new, (key, value))


class Caches:
    """The caches of all layers."""

    def __init__(
        self, spec: Spec, batch: int, capacity: int, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        rooms = [min(spec.window_of(i) or capacity, capacity) for i in range(spec.layers)]
        shape = (batch, 2 * spec.kv_heads)
        self._alike = {
            room: Alike(
                torch.zeros(rooms.count(room), *shape, room, spec.head_dim, dtype=dtype, device=device),
                ring=room < capacity,
            )
            for room in set(rooms)
        }
        parts = {room: iter(alike.layers) for room, alike in self._alike.items()}
        self.layers = tuple(next(parts[room]) for room in rooms)

    def seek(self, at: int, tokens: int) -> None:
        """Makes ready for so many positions from one on."""
        for alike in self._alike.values():
            alike.seek(at, tokens)
