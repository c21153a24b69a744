"""Keys and values of past positions; layers with a sliding window keep only their window."""

import torch

from engines.models.spec import Spec
from engines.processor.huge_pages import allocate_zeros

KeysAndValues = tuple[torch.Tensor, torch.Tensor]


class LayerCache:
    """Keys and values of one layer: one tensor [batch, key then value heads, positions, head_dim]."""

    def __init__(self, kv: torch.Tensor, *, ring: bool) -> None:
        self._kv, self._ring, self._capacity = kv, ring, kv.shape[2]
        self.set_views(kv, self.all_slots)

    @property
    def all_slots(self) -> KeysAndValues:
        """Every slot: position p is in slot p mod their number."""
        return self._split_heads(self._kv)

    def set_views(self, slots: torch.Tensor, visible: KeysAndValues) -> None:
        """Set the target of the next pass, and the keys and values it then sees."""
        self._slots, self._visible = slots, visible

    def append(self, new: torch.Tensor, position: int) -> KeysAndValues:
        """Store keys and values of new positions; return those that the new positions see.

        For a single position their order is undefined; for several, the last columns are the new ones.
        """
        if self._ring and new.shape[2] > 1:
            return self._split_heads(self._append_to_ring(new, position))
        self._slots.copy_(new)
        return self._visible

    def fill(self, generator: torch.Generator, count: int) -> None:
        """Fill the first `count` positions with normal random numbers, as a made-up past."""
        self._kv[:, :, :count].normal_(generator=generator)

    def _split_heads(self, kv: torch.Tensor) -> KeysAndValues:
        heads = kv.shape[1] // 2
        return kv.narrow(1, 0, heads), kv.narrow(1, heads, heads)

    def _append_to_ring(self, new: torch.Tensor, position: int) -> torch.Tensor:
        """Store several positions in a ring; return what they see, including what they overwrite."""
        past = torch.arange(max(0, position - self._capacity), position, device=new.device) % self._capacity
        visible = torch.cat((self._kv[:, :, past], new), 2)
        end = position + new.shape[2]
        retained = torch.arange(max(0, end - self._capacity), end, device=new.device) % self._capacity
        self._kv[:, :, retained] = visible[:, :, -len(retained) :]
        return visible


class CacheGroup:
    """Caches of layers with the same number of positions: one tensor, sliced for all layers at once."""

    def __init__(self, kv: torch.Tensor, *, ring: bool) -> None:
        self._kv, self._capacity, self._heads = kv, kv.shape[3], kv.shape[2] // 2
        self.layers = [LayerCache(part, ring=ring) for part in kv.unbind()]

    def seek(self, position: int, tokens: int) -> None:
        """Slice the views for positions from one on; `append` handles what wraps around a ring."""
        slot = position % self._capacity
        slots = self._kv.narrow(3, slot, min(tokens, self._capacity - slot)).unbind()
        visible = self._kv.narrow(3, 0, min(position + tokens, self._capacity))
        keys = visible.narrow(2, 0, self._heads).unbind()
        values = visible.narrow(2, self._heads, self._heads).unbind()
        for layer, slot_view, key, value in zip(self.layers, slots, keys, values, strict=True):
            layer.set_views(slot_view, (key, value))


def allocate_caches(
    spec: Spec, batch: int, capacity: int, dtype: torch.dtype, device: torch.device
) -> tuple[list[CacheGroup], list[LayerCache]]:
    """Allocate the caches of all layers; return the groups of one size, and the layers in order."""
    sizes = [min(spec.find_window(i) or capacity, capacity) for i in range(spec.layers)]
    heads, dim = 2 * spec.kv_heads, spec.head_dim
    groups: dict[int, CacheGroup] = {}
    for size in set(sizes):
        shape = (sizes.count(size), batch, heads, size, dim)
        on_processor = device.type == "cpu"
        kv = allocate_zeros(shape, dtype) if on_processor else torch.zeros(shape, dtype=dtype, device=device)
        groups[size] = CacheGroup(kv, ring=size < capacity)
    layers_by_size = {size: iter(group.layers) for size, group in groups.items()}
    return list(groups.values()), [next(layers_by_size[size]) for size in sizes]
