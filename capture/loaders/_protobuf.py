"""Decode protobuf messages without a schema, as (field number, value) pairs.

There are only four kinds of value; a generated parser would be a larger dependency than this reader.
Nothing recurses: a caller that needs an embedded message decodes it with `decode_submessage`.
The format: https://protobuf.dev/programming-guides/encoding/
"""

import struct
from collections.abc import Iterator
from typing import Final

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5

Value = int | bytes  # unsigned for varints and fixed-width numbers, bytes for the rest
Field = tuple[int, Value]

_UINT64_MAX: Final = (1 << 64) - 1
_MAX_VARINT_BITS: Final = 70
_DOUBLE: Final = struct.Struct("<d")
_WORD64: Final = struct.Struct("<Q")
_WORD32: Final = struct.Struct("<I")


class WireError(ValueError):
    """Invalid bytes: cut, of an unknown wire type, or longer than the enclosing message."""


def decode_fields(message: bytes) -> list[Field]:
    """Decode the fields of a message, in order; raise WireError if it is invalid."""
    fields: list[Field] = []
    at, end = 0, len(message)
    while at < end:
        tag = message[at]
        at += 1
        if tag > 127:
            tag, at = decode_varint(message, at - 1)
        kind = tag & 7
        if kind == VARINT:
            if at < end and message[at] < 128:  # fast path: most are one byte long
                fields.append((tag >> 3, message[at]))
                at += 1
            else:
                value, at = decode_varint(message, at)
                fields.append((tag >> 3, value))
        elif kind == BYTES:
            if at < end and message[at] < 128:
                size = message[at]
                at += 1
            else:
                size, at = decode_varint(message, at)
            if size > end - at:
                raise WireError("a field is longer than its message")
            fields.append((tag >> 3, message[at : at + size]))
            at += size
        else:
            value, at = _decode_fixed(message, at, kind)
            fields.append((tag >> 3, value))
        if tag < 8:
            raise WireError("a field has the number 0")
    return fields


def decode_varint(message: bytes, at: int) -> tuple[int, int]:
    """Decode the varint at an offset; return it with the offset behind it; raise WireError if it is cut."""
    value = shift = 0
    while True:
        if at >= len(message):
            raise WireError("a number is cut off")
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & _UINT64_MAX, at
        shift += 7
        if shift >= _MAX_VARINT_BITS:
            raise WireError("a number has too many bytes")


def iter_records(data: bytes, number: int) -> Iterator[tuple[int, bytes]]:
    """Yield offset and bytes of each embedded message in one top-level field; skip other fields.

    Raises WireError at the first invalid place, after yielding everything before it.
    """
    at, end = 0, len(data)
    while at < end:
        begin, tag = at, data[at]
        at += 1
        if tag > 127:
            tag, at = decode_varint(data, begin)
        if tag & 7 == BYTES:
            size, at = decode_varint(data, at)
            if size > end - at:
                raise WireError("the last record is cut off")
            at += size
            if tag >> 3 == number:
                yield begin, data[at - size : at]
        elif tag & 7 == VARINT:
            if at < end and data[at] < 128:
                at += 1
            else:
                _, at = decode_varint(data, at)
        else:
            _, at = _decode_fixed(data, at, tag & 7)
        if tag < 8:
            raise WireError("a field has the number 0")


def index_fields(value: Value) -> dict[int, Value]:
    """Decode an embedded message as {field number: last value}; raise WireError if it is not a message."""
    return dict(decode_submessage(value))


def select_values(fields: list[Field], number: int) -> list[Value]:
    """Select the values of one field, in order."""
    return [value for tag, value in fields if tag == number]


def to_signed(value: int) -> int:
    """Reinterpret a varint as an int64."""
    return value - (1 << 64) if value >> 63 else value


def to_double(value: int) -> float:
    """Reinterpret a fixed 64-bit value as a double."""
    return float(_DOUBLE.unpack(_WORD64.pack(value))[0])


def to_text(value: Value) -> str:
    """Decode a string field; invalid UTF-8 is replaced, and a number gives an empty text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def to_number(value: Value) -> int:
    """Return a numeric field; 0 if the field contains bytes."""
    return value if isinstance(value, int) else 0


def decode_submessage(value: Value) -> list[Field]:
    """Decode the fields of an embedded message; raise WireError if the field is not a message."""
    if isinstance(value, int):
        raise WireError("expected a message, found a number")
    return decode_fields(value)


def _decode_fixed(message: bytes, at: int, kind: int) -> tuple[int, int]:
    layout = {FIXED64: _WORD64, FIXED32: _WORD32}.get(kind)
    if layout is None:
        raise WireError("a field is of a kind that does not exist")
    if at + layout.size > len(message):
        raise WireError("a number is cut off")
    return int(layout.unpack_from(message, at)[0]), at + layout.size
