"""The head of a GGUF file: its metadata, and where each tensor lies. No size is believed before the file's.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
"""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from capture.errors import EngineError
from engines.weights.gguf.block_types import TYPES, BlockType

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
HEADER_LIMIT: Final = 256 << 20  # bytes: a large vocabulary takes ten million
MOST_TENSORS: Final = 1 << 17
MOST_FIELDS: Final = 1 << 16
MOST_ITEMS: Final = 1 << 23  # of an array
MOST_NESTED: Final = 3
LONGEST: Final = 16 << 20  # bytes of a string
MOST_DIMENSIONS: Final = 4
ALIGNMENT: Final = 32
MOST_ALIGNED: Final = 1 << 20

_STRING, _ARRAY = 8, 9
_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


@dataclass(frozen=True)
class StoredTensor:
    """Where one tensor lies: its rows one after the other, each in whole blocks."""

    type: BlockType
    shape: tuple[int, ...]  # the longest stride first, as torch has it
    start: int

    @property
    def row_bytes(self) -> int:
        return self.shape[-1] // self.type.numbers * self.type.size

    @property
    def size(self) -> int:
        return math.prod(self.shape[:-1]) * self.row_bytes


@dataclass(frozen=True)
class Header:
    """What the head of a file says."""

    path: Path
    fields: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.size for tensor in self.tensors.values())


class _Cursor:
    """Reads numbers and strings one after the other. Raise ValueError beyond the file's end or the limit."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size = file, min(size, HEADER_LIMIT)
        self._beyond = "it ends within its head" if size <= HEADER_LIMIT else "its head is impossibly long"
        self.at = 0

    def take(self, count: int) -> bytes:
        self.at += count
        raw = self._file.read(count) if self.at <= self._size else b""
        if len(raw) != count:
            raise ValueError(self._beyond)
        return raw

    def scalar(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize(code)))[0]

    def count(self, most: int, what: str) -> int:
        number: int = self.scalar("Q")
        if number > most:
            raise ValueError(f"it states {number:,} {what}")
        return number

    def string(self) -> str:
        return self.take(self.count(LONGEST, "bytes of a string")).decode("utf-8", "replace")


def read_header(path: Path) -> Header:
    """Return the head of a GGUF file. Raise EngineError unless everything it names lies within the file."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            return _read(path, _Cursor(file, size), size)
    except (OSError, ValueError, struct.error) as e:
        raise EngineError("is no whole GGUF file", where=str(path), why=str(e)[:200]) from None


def _read(path: Path, cursor: _Cursor, size: int) -> Header:
    if cursor.take(4) != MAGIC:
        raise ValueError("it does not begin with GGUF")
    version = cursor.scalar("I")
    if version not in VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
        raise ValueError("it is big-endian" if swapped else f"it is of version {version}, read are 2 and 3")
    tensors = cursor.count(MOST_TENSORS, "tensors")
    fields = _fields(cursor, cursor.count(MOST_FIELDS, "fields"))
    entries = [_entry(cursor) for _ in range(tensors)]
    alignment = fields.get("general.alignment", ALIGNMENT)
    if type(alignment) is not int or not 0 < alignment <= MOST_ALIGNED or alignment & (alignment - 1):
        raise ValueError(f"its alignment is {alignment!r:.40}")
    base = -(-cursor.at // alignment) * alignment
    return Header(path, fields, _placed(entries, base, alignment, size))


def _fields(cursor: _Cursor, count: int) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for _ in range(count):
        key = cursor.string()
        if key in fields:
            raise ValueError(f"the field {key[:60]!r} stands twice")
        fields[key] = _value(cursor, cursor.scalar("I"), 0)
    return fields


def _value(cursor: _Cursor, kind: int, depth: int) -> Any:
    if kind == _STRING:
        return cursor.string()
    if kind == _ARRAY:
        return _array(cursor, depth + 1)
    if kind not in _SCALARS:
        raise ValueError(f"a field is of the unknown kind {kind}")
    return cursor.scalar(_SCALARS[kind])


def _array(cursor: _Cursor, depth: int) -> list[Any]:
    kind = cursor.scalar("I")
    count = cursor.count(MOST_ITEMS, "items of an array")
    if depth > MOST_NESTED:
        raise ValueError("its arrays are nested too deep")
    if code := _SCALARS.get(kind):
        return list(struct.unpack(f"<{count}{code}", cursor.take(count * struct.calcsize(code))))
    return [_value(cursor, kind, depth) for _ in range(count)]


def _entry(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    """Return name, shape, type and offset of a tensor, as stated."""
    name, dimensions = cursor.string(), cursor.scalar("I")
    if not 0 < dimensions <= MOST_DIMENSIONS:
        raise ValueError(f"{name[:60]!r} has {dimensions} dimensions")
    shape = struct.unpack(f"<{dimensions}Q", cursor.take(8 * dimensions))
    return name, shape[::-1], cursor.scalar("I"), cursor.scalar("Q")


def _placed(
    entries: list[tuple[str, tuple[int, ...], int, int]], base: int, alignment: int, size: int
) -> dict[str, StoredTensor]:
    """Return the tensors by name. Raise ValueError unless each lies in the file and on no other."""
    placed: dict[str, StoredTensor] = {}
    for name, shape, kind, offset in entries:
        where = repr(name[:60])
        if name in placed:
            raise ValueError(f"{where} stands twice")
        if kind not in TYPES:
            raise ValueError(f"{where} is of the unknown type {kind}")
        if not all(shape) or shape[-1] % TYPES[kind].numbers:
            raise ValueError(f"{where} has rows that are no whole blocks")
        tensor = StoredTensor(TYPES[kind], shape, base + offset)
        if offset % alignment or tensor.start + tensor.size > size:
            raise ValueError(f"{where} lies beyond the end, or askew")
        placed[name] = tensor
    end = base
    for name, tensor in sorted(placed.items(), key=lambda item: item[1].start):
        if tensor.start < end:
            raise ValueError(f"{name[:60]!r} lies over another tensor")
        end = tensor.start + tensor.size
    return placed
