"""A GGUF file as a weight source: tensors by their names in checkpoints, rows in their order."""

from collections.abc import Iterator
from typing import Final

import torch

from capture.errors import EngineError
from engines.models.spec import list_tensors
from engines.weights.checkpoint import WeightSource, read_file_stamp
from engines.weights.fastest_storage import use_one_core
from engines.weights.gguf.block_unpacking import PLAIN_DTYPES, UNPACKERS, unpack_blocks
from engines.weights.gguf.gguf_header import StoredTensor
from engines.weights.gguf.gguf_model import GgufModel
from engines.weights.low_bit import QUANT_FORMATS, PackedMatrix, QuantFormat
from engines.weights.matrix_storage import cast_weight

# block types with the codes and scales of a format
FORMATS_BY_BLOCK_TYPE: Final = {"Q8_0": QUANT_FORMATS["q8_0"]}
UNPACK_BYTES: Final = 1 << 17  # bytes unpacked at once: they and their intermediate results fit the caches

_ROTATED_TENSORS: Final = ("q_proj", "k_proj")


class GgufSource(WeightSource):
    """Reads tensors. The file is not mapped: if it shrank, the process would die of it."""

    def __init__(self, model: GgufModel, dtype: torch.dtype) -> None:
        """Open a model; blocks are unpacked to `dtype`, plain tensors keep their own."""
        self._model, self._dtype = model, dtype
        self._stamp = read_file_stamp(model.path)
        for name in list_tensors(model.spec):
            kind = model.find_stored(name).type.name
            if kind not in PLAIN_DTYPES and kind not in UNPACKERS:
                what = f"tensors of type {kind} are not supported"
                todo = f"supported: {', '.join((*PLAIN_DTYPES, *UNPACKERS))}"
                raise EngineError(what, where=str(model.path), todo=todo)

    def read(self, name: str) -> torch.Tensor:
        stored = self._model.find_stored(name)
        if dtype := PLAIN_DTYPES.get(stored.type.name):
            rows = self._read_bytes(stored).view(dtype).view(stored.shape)
        else:
            rows = self._read_unpacked(stored)
        return self._split_pairs(name, rows)

    def _read_unpacked(self, stored: StoredTensor) -> torch.Tensor:
        """Unpack a tensor, on one core: the chunks are too small for more."""
        numbers, first = torch.empty(stored.shape, dtype=self._dtype), 0
        flat = numbers.view(-1, stored.shape[-1])
        with use_one_core():
            for raw in self._iter_row_bytes(stored, max(1, UNPACK_BYTES // stored.row_bytes)):
                rows = unpack_blocks(raw, stored.type.name, stored.type.size)
                flat[first : first + len(rows)] = cast_weight(rows, self._dtype)
                first += len(rows)
        return numbers

    def read_packed(self, name: str) -> PackedMatrix | None:
        stored = self._model.find_stored(name)
        form = FORMATS_BY_BLOCK_TYPE.get(stored.type.name)
        if form is None:
            return None
        blocks = self._read_bytes(stored).view(stored.shape[0], -1, stored.type.size)
        scales = blocks[..., :2].contiguous().view(torch.float16).flatten(1)
        codes = blocks[..., 2:].contiguous().view(torch.int8).flatten(1)
        return PackedMatrix(form, codes, scales).map_parts(lambda rows: self._split_pairs(name, rows))

    def _read_bytes(self, stored: StoredTensor) -> torch.Tensor:
        """Return a tensor as bytes [rows, row bytes]."""
        return torch.cat(list(self._iter_row_bytes(stored, stored.size // stored.row_bytes)))

    def _iter_row_bytes(self, stored: StoredTensor, step: int) -> Iterator[torch.Tensor]:
        """Iterate over the rows of a tensor as bytes, `step` rows at a time."""
        rows = stored.size // stored.row_bytes
        try:
            with self._model.path.open("rb") as file:
                file.seek(stored.start)
                for first in range(0, rows, step):
                    raw = torch.empty(min(step, rows - first), stored.row_bytes, dtype=torch.uint8)
                    if file.readinto(raw.numpy().data) != raw.numel():
                        raise EngineError("changed while being read", where=str(self._model.path))
                    yield raw
        except OSError as e:
            raise EngineError("cannot be read", where=str(self._model.path), why=str(e)) from None
        if read_file_stamp(self._model.path) != self._stamp:
            raise EngineError("changed while being read", where=str(self._model.path))

    def _split_pairs(self, name: str, rows: torch.Tensor) -> torch.Tensor:
        """Return rows of query and key heads in halves: the first numbers of all pairs before the second."""
        if not self._model.has_adjacent_pairs or name.split(".")[-2] not in _ROTATED_TENSORS:
            return rows
        pairs: torch.Tensor = rows.unflatten(0, (-1, self._model.spec.head_dim // 2, 2))
        return pairs.transpose(1, 2).flatten(0, 2)


def find_common_format(model: GgufModel) -> QuantFormat | None:
    """Return the format of all matrices of a file; None if they must be unpacked."""
    forms = {FORMATS_BY_BLOCK_TYPE.get(kind) for kind in model.layer_types | model.embedding_types}
    return forms.pop() if len(forms) == 1 else None
