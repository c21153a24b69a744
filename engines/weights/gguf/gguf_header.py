"""Header of a GGUF file: metadata, block types, tensor locations. Sizes are checked against the file.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
"""

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from capture.errors import EngineError

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
HEADER_LIMIT: Final = 256 << 20  # bytes; a large vocabulary takes ten million
MAX_TENSORS: Final = 1 << 17
MAX_FIELDS: Final = 1 << 16
MAX_ARRAY_ITEMS: Final = 1 << 23
MAX_ARRAY_DEPTH: Final = 3
MAX_STRING_BYTES: Final = 16 << 20
MAX_DIMENSIONS: Final = 4
DEFAULT_ALIGNMENT: Final = 32
MAX_ALIGNMENT: Final = 1 << 20

_STRING, _ARRAY = 8, 9
_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


class BlockType(NamedTuple):
    """A tensor type: numbers per block, and bytes per block."""

    name: str
    numbers: int
    size: int  # bytes


# by type id (ggml.h); block_unpacking.py decides which of them are read
BLOCK_TYPES: Final = {
    number: BlockType(name, numbers, size)
    for number, name, numbers, size in (
        (0, "F32", 1, 4), (1, "F16", 1, 2), (2, "Q4_0", 32, 18), (3, "Q4_1", 32, 20),
        (6, "Q5_0", 32, 22), (7, "Q5_1", 32, 24), (8, "Q8_0", 32, 34), (9, "Q8_1", 32, 36),
        (10, "Q2_K", 256, 84), (11, "Q3_K", 256, 110), (12, "Q4_K", 256, 144), (13, "Q5_K", 256, 176),
        (14, "Q6_K", 256, 210), (15, "Q8_K", 256, 292), (16, "IQ2_XXS", 256, 66), (17, "IQ2_XS", 256, 74),
        (18, "IQ3_XXS", 256, 98), (19, "IQ1_S", 256, 50), (20, "IQ4_NL", 32, 18), (21, "IQ3_S", 256, 110),
        (22, "IQ2_S", 256, 82), (23, "IQ4_XS", 256, 136), (24, "I8", 1, 1), (25, "I16", 1, 2),
        (26, "I32", 1, 4), (27, "I64", 1, 8), (28, "F64", 1, 8), (29, "IQ1_M", 256, 56),
        (30, "BF16", 1, 2), (34, "TQ1_0", 256, 54), (35, "TQ2_0", 256, 66), (39, "MXFP4", 32, 17),
    )
}  # fmt: skip


class StoredTensor(NamedTuple):
    """Location of a tensor; each row consists of whole blocks."""

    type: BlockType
    shape: tuple[int, ...]  # as torch has it: rows before columns
    start: int  # offset in the file

    @property
    def row_bytes(self) -> int:
        return self.shape[-1] // self.type.numbers * self.type.size

    @property
    def size(self) -> int:
        return math.prod(self.shape[:-1]) * self.row_bytes


class GgufHeader(NamedTuple):
    """Header of a file."""

    path: Path
    fields: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.size for tensor in self.tensors.values())


class _HeaderCursor:
    """Reads values in sequence. Raises ValueError beyond the end of the file or the header limit."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size = file, min(size, HEADER_LIMIT)
        is_cut = size <= HEADER_LIMIT
        self._end_reason = "the file ends within its header" if is_cut else "the header is too long"
        self.position = 0

    def read(self, count: int) -> bytes:
        self.position += count
        raw = self._file.read(count) if self.position <= self._size else b""
        if len(raw) != count:
            raise ValueError(self._end_reason)
        return raw

    def read_scalar(self, code: str) -> Any:
        return struct.unpack("<" + code, self.read(struct.calcsize(code)))[0]

    def read_count(self, most: int, what: str) -> int:
        """Read a number of things; `what` they are is for the error."""
        number: int = self.read_scalar("Q")
        if number > most:
            raise ValueError(f"it claims {number:,} {what}")
        return number

    def read_string(self) -> str:
        return self.read(self.read_count(MAX_STRING_BYTES, "bytes of a string")).decode("utf-8", "replace")


def read_gguf_header(path: Path) -> GgufHeader:
    """Read the header of a GGUF file. Raise EngineError unless all tensors are within the file."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            return _read_file(path, _HeaderCursor(file, size), size)
    except (OSError, ValueError, struct.error) as e:
        raise EngineError("not a complete GGUF file", where=str(path), why=str(e)[:200]) from None


def _read_file(path: Path, cursor: _HeaderCursor, size: int) -> GgufHeader:
    if cursor.read(4) != MAGIC:
        raise ValueError("it does not start with GGUF")
    version = cursor.read_scalar("I")
    if version not in VERSIONS:
        if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
            raise ValueError("it is big-endian")
        raise ValueError(f"version {version} is not supported, only 2 and 3")
    tensor_count = cursor.read_count(MAX_TENSORS, "tensors")
    fields = _read_fields(cursor, cursor.read_count(MAX_FIELDS, "fields"))
    entries = [_read_entry(cursor) for _ in range(tensor_count)]
    alignment = fields.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(alignment) is not int or not 0 < alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        raise ValueError(f"invalid alignment {alignment!r:.40}")
    first = -(-cursor.position // alignment) * alignment
    return GgufHeader(path, fields, _locate_tensors(entries, first, alignment, size))


def _read_fields(cursor: _HeaderCursor, count: int) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for _ in range(count):
        key = cursor.read_string()
        if key in fields:
            raise ValueError(f"field {key[:60]!r} occurs twice")
        fields[key] = _read_value(cursor, cursor.read_scalar("I"), 0)
    return fields


def _read_value(cursor: _HeaderCursor, kind: int, depth: int) -> Any:
    if kind == _STRING:
        return cursor.read_string()
    if kind == _ARRAY:
        return _read_array(cursor, depth + 1)
    if kind not in _SCALARS:
        raise ValueError(f"unknown field type {kind}")
    return cursor.read_scalar(_SCALARS[kind])


def _read_array(cursor: _HeaderCursor, depth: int) -> list[Any]:
    kind = cursor.read_scalar("I")
    count = cursor.read_count(MAX_ARRAY_ITEMS, "items of an array")
    if depth > MAX_ARRAY_DEPTH:
        raise ValueError("arrays are nested too deeply")
    if code := _SCALARS.get(kind):
        return list(struct.unpack(f"<{count}{code}", cursor.read(count * struct.calcsize(code))))
    return [_read_value(cursor, kind, depth) for _ in range(count)]


def _read_entry(cursor: _HeaderCursor) -> tuple[str, tuple[int, ...], int, int]:
    """Read name, shape, type and offset of a tensor."""
    name, dimensions = cursor.read_string(), cursor.read_scalar("I")
    if not 0 < dimensions <= MAX_DIMENSIONS:
        raise ValueError(f"{name[:60]!r} has {dimensions} dimensions")
    shape = struct.unpack(f"<{dimensions}Q", cursor.read(8 * dimensions))
    return name, shape[::-1], cursor.read_scalar("I"), cursor.read_scalar("Q")


def _locate_tensors(
    entries: list[tuple[str, tuple[int, ...], int, int]], base: int, alignment: int, size: int
) -> dict[str, StoredTensor]:
    """Map names to tensors. Raise ValueError unless each is in the file and overlaps no other."""
    placed: dict[str, StoredTensor] = {}
    for name, shape, kind, offset in entries:
        label = repr(name[:60])
        if name in placed:
            raise ValueError(f"{label} occurs twice")
        if kind not in BLOCK_TYPES:
            raise ValueError(f"{label} has the unknown type {kind}")
        if not all(shape) or shape[-1] % BLOCK_TYPES[kind].numbers:
            raise ValueError(f"rows of {label} are not a multiple of its block size")
        tensor = StoredTensor(BLOCK_TYPES[kind], shape, base + offset)
        if offset % alignment or tensor.start + tensor.size > size:
            raise ValueError(f"{label} is misaligned or beyond the end of the file")
        placed[name] = tensor
    previous_end = base
    for name, tensor in sorted(placed.items(), key=lambda item: item[1].start):
        if tensor.start < previous_end:
            raise ValueError(f"{name[:60]!r} overlaps another tensor")
        previous_end = tensor.start + tensor.size
    return placed
