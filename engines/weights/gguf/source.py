"""The tensors of a GGUF file under the names of checkpoints, and in their order of rows."""

from collections.abc import Iterator
from typing import Final

import torch

from capture.errors import EngineError
from engines.models.spec import Spec, tensors
from engines.weights.fastest import one_core
from engines.weights.gguf.header import StoredTensor
from engines.weights.gguf.model import GgufModel
from engines.weights.gguf.unpack import PLAIN, UNPACKERS, unpacked
from engines.weights.low_bit import FORMS, Form, Packed
from engines.weights.shards import stamp
from engines.weights.storage import to_dtype

FORMS_OF_TYPES: Final = {"Q8_0": FORMS["q8_0"]}  # block types that hold codes and scales as a form does
CHUNK: Final = 1 << 17  # bytes that are unpacked at once: what the caches hold with all that comes of them

_PAIRED: Final = ("q_proj", "k_proj")


class GgufSource:
    """Reads tensors; a file is not mapped: if it shrinks, the process must not die of it."""

    label = "real"

    def __init__(self, model: GgufModel, dtype: torch.dtype) -> None:
        """Open a model; what is stored in blocks is unpacked to `dtype`, the rest comes as it is."""
        self._model, self._dtype = model, dtype
        self._stamp = stamp(model.path)
        for name in tensors(model.spec):
            kind = model.stored(name).type.name
            if kind not in PLAIN and kind not in UNPACKERS:
                todo = f"read are {', '.join((*PLAIN, *UNPACKERS))}"
                raise EngineError(f"stores tensors as {kind}", where=str(model.path), todo=todo)

    def read(self, name: str) -> torch.Tensor:
        stored = self._model.stored(name)
        if kind := PLAIN.get(stored.type.name):
            whole = self._whole(stored).view(kind).view(stored.shape)
        else:
            whole = self._unpacked(stored)
        return self._unpaired(name, whole)

    def _unpacked(self, stored: StoredTensor) -> torch.Tensor:
        """Return a tensor out of its blocks; on one core, as pieces so small are not worth more than that."""
        whole, at = torch.empty(stored.shape, dtype=self._dtype), 0
        flat = whole.view(-1, stored.shape[-1])
        with one_core():
            for raw in self._pieces(stored, max(1, CHUNK // stored.row_bytes)):
                rows = unpacked(raw, stored.type.name, stored.type.size)
                flat[at : at + len(rows)] = to_dtype(rows, self._dtype)
                at += len(rows)
        return whole

    def packed(self, name: str) -> Packed | None:
        """Return a matrix as it is stored; None where no form of ours is stored so."""
        stored = self._model.stored(name)
        form = FORMS_OF_TYPES.get(stored.type.name)
        if form is None:
            return None
        blocks = self._whole(stored).view(stored.shape[0], -1, stored.type.size)
        scales = blocks[..., :2].contiguous().view(torch.float16).flatten(1)
        codes = blocks[..., 2:].contiguous().view(torch.int8).flatten(1)
        return Packed(form, codes, scales).each(lambda rows: self._unpaired(name, rows))

    def _whole(self, stored: StoredTensor) -> torch.Tensor:
        """Return a tensor as bytes, row by row."""
        return torch.cat(list(self._pieces(stored, stored.size // stored.row_bytes)))

    def _pieces(self, stored: StoredTensor, step: int) -> Iterator[torch.Tensor]:
        """Yield the rows of a tensor as bytes, so many at a time."""
        rows = stored.size // stored.row_bytes
        try:
            with self._model.path.open("rb") as file:
                file.seek(stored.start)
                for first in range(0, rows, step):
                    raw = torch.empty(min(step, rows - first), stored.row_bytes, dtype=torch.uint8)
                    if file.readinto(raw.numpy().data) != raw.numel():
                        raise EngineError("changed while it was read", where=str(self._model.path))
                    yield raw
        except OSError as e:
            raise EngineError("cannot be read", where=str(self._model.path), why=str(e)) from None
        if stamp(self._model.path) != self._stamp:
            raise EngineError("changed while it was read", where=str(self._model.path))

    def _unpaired(self, name: str, rows: torch.Tensor) -> torch.Tensor:
        """Return rows of query and key heads in halves, as checkpoints have them."""
        if not self._model.pairs or name.split(".")[-2] not in _PAIRED:
            return rows
        return by_halves(rows, self._model.spec)


def form_of(model: GgufModel) -> Form | None:
    """Return the form in which a file stores all of its matrices; None where they must be unpacked."""
    forms = {FORMS_OF_TYPES.get(kind) for kind in model.layer_types | model.end_types}
    return forms.pop() if len(forms) == 1 else None


def by_halves(rows: torch.Tensor, spec: Spec) -> torch.Tensor:
    """Return the rows of heads with the first numbers of all pairs before the second ones."""
    pairs: torch.Tensor = rows.unflatten(0, (-1, spec.head_dim // 2, 2))
    return pairs.transpose(1, 2).flatten(0, 2)
