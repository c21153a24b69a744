"""A folder of safetensors as a weight source."""

from pathlib import Path
from typing import Final

import torch

from capture.errors import EngineError
from engines.models.catalogue import find_tensor_slice, list_stored_tensors
from engines.models.spec import Spec
from engines.weights.low_bit import PackedMatrix
from engines.weights.safetensors_headers import check_tensors, read_headers

_DTYPES: Final = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "U8": torch.uint8}
# the 4-bit numbers of MXFP4 (E2M1), by their codes
_E2M1: Final = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_EXPONENT_BIAS: Final = 127  # of the exponents that scale a group of them


class ShardReader:
    """Reads the tensors of a folder. Files are not mapped: if one shrank, the process would die of it."""

    def __init__(self, folder: Path) -> None:
        self.stored = read_headers(folder)
        self._stamps = {s.path: read_file_stamp(s.path) for s in self.stored.values()}

    def read(self, name: str, item: int | None = None) -> torch.Tensor:
        """Return a tensor, or one item of its first dimension."""
        stored = self.stored[name]
        shape, size, start = stored.shape, stored.size, stored.start
        if item is not None:
            size //= shape[0]
            shape, start = shape[1:], start + item * size
        raw = torch.empty(size, dtype=torch.uint8)
        try:
            with stored.path.open("rb") as f:
                f.seek(start)
                read_bytes = f.readinto(raw.numpy().data)
        except OSError as e:
            raise EngineError("cannot be read", where=str(stored.path), why=str(e)) from None
        if read_bytes != size or read_file_stamp(stored.path) != self._stamps[stored.path]:
            raise EngineError("changed while being read", where=str(stored.path))
        return raw.view(_DTYPES[stored.dtype]).view(shape)


def read_file_stamp(path: Path) -> tuple[int, int, int]:
    """Return size, modification time and inode: they change when the file does."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino


class WeightSource:
    """Tensors by their names in checkpoints; they may be shared, so nobody may write to them."""

    def read(self, name: str) -> torch.Tensor:
        raise NotImplementedError

    def read_packed(self, name: str) -> PackedMatrix | None:
        """Return a matrix as it is stored; None if it is stored in no format of ours."""
        return None


class Checkpoint(WeightSource):
    """Weights from a folder of safetensors, cut out of larger tensors if the family stores them so."""

    def __init__(self, folder: Path, spec: Spec) -> None:
        self._spec, self._shards = spec, ShardReader(folder)
        check_tensors(self._shards.stored, list_stored_tensors(spec), folder)

    def read(self, name: str) -> torch.Tensor:
        slice_ = find_tensor_slice(self._spec, name)
        if slice_ is None:
            return self._shards.read(name)
        stored = self._shards.read(slice_.name, slice_.item)
        if slice_.scales:
            stored = unpack_mxfp4(stored, self._shards.read(slice_.scales, slice_.item))
        matrix = stored.T if slice_.is_transposed else stored
        return matrix if slice_.rows is None else matrix[slice_.rows]


def unpack_mxfp4(blocks: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Return the numbers [rows, groups · 32] of blocks [rows, groups, 16] and their exponents, in bf16.

    A byte has two codes, the first in the low bits; bf16 represents every number of the format exactly.
    https://www.opencompute.org/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf
    """
    values = torch.tensor((*_E2M1, *(-value for value in _E2M1)), dtype=torch.float32)
    codes = torch.stack((blocks & 0xF, blocks >> 4), -1).flatten(-2)
    numbers = torch.ldexp(values[codes.int()], scales[..., None].int() - _EXPONENT_BIAS)
    return numbers.flatten(-2).to(torch.bfloat16)
