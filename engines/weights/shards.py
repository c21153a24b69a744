"""Safetensors as tensors: read from a folder once every size and shape in it has been checked."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch

from capture.errors import EngineError
from engines.weights.headers import check, read_headers

_DTYPES: Final = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "U8": torch.uint8}


class Shards:
    """Reads the tensors of a folder; a file is not mapped: if it shrinks, the process must not die of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stored = read_headers(folder)
        self._stamps = {s.path: stamp(s.path) for s in self._stored.values()}

    def check(self, wanted: Mapping[str, tuple[int, ...]]) -> None:
        """Raise EngineError unless every wanted tensor is there, in its shape."""
        check(self._stored, wanted, self.folder)

    def read(self, name: str, item: int | None = None) -> torch.Tensor:
        """Return a tensor, or one item of its first dimension."""
        stored = self._stored[name]
        shape, size, start = stored.shape, stored.size, stored.start
        if item is not None:
            size //= shape[0]
            shape, start = shape[1:], start + item * size
        raw = torch.empty(size, dtype=torch.uint8)
        try:
            with stored.path.open("rb") as f:
                f.seek(start)
                got = f.readinto(raw.numpy().data)
        except OSError as e:
            raise EngineError("cannot be read", where=str(stored.path), why=str(e)) from None
        if got != size or stamp(stored.path) != self._stamps[stored.path]:
            raise EngineError("changed while it was read", where=str(stored.path))
        return raw.view(_DTYPES[stored.dtype]).view(shape)


def stamp(path: Path) -> tuple[int, int, int]:
    """Return what changes when a file does."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino
