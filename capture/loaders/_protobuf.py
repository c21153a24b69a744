"""Protocol-buffer messages without their schema: the fields of a message as pairs of number and value.

There are four kinds of value and no more; a generated parser would be a dependency larger than what is read.
Nothing recurses: whoever wants the inside of a message asks for its fields.
The format: https://protobuf.dev/programming-guides/encoding/
"""

import struct
from collections.abc import Iterator
from typing import Final

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5

Value = int | bytes  # varints and fixed numbers as they stand, unsigned; anything with a length as bytes
Field = tuple[int, Value]

_WORD: Final = (1 << 64) - 1
_LONGEST: Final = 70  # bits of a varint; more belong to none
_DOUBLE: Final = struct.Struct("<d")
_WORD64: Final = struct.Struct("<Q")
_WORD32: Final = struct.Struct("<I")


class WireError(ValueError):
    """Bytes that are no message: cut, of a kind that does not exist, or longer than what holds them."""


def fields(message: bytes) -> list[Field]:
    """Return the fields of a message in their order; raise WireError where it is none."""
    found: list[Field] = []
    at, end = 0, len(message)
    while at < end:
        tag = message[at]
        at += 1
        if tag > 127:
            tag, at = varint(message, at - 1)
        kind = tag & 7
        if kind == VARINT:
            if at < end and message[at] < 128:  # most are one byte long
                found.append((tag >> 3, message[at]))
                at += 1
            else:
                value, at = varint(message, at)
                found.append((tag >> 3, value))
        elif kind == BYTES:
            if at < end and message[at] < 128:
                size = message[at]
                at += 1
            else:
                size, at = varint(message, at)
            if size > end - at:
                raise WireError("a field is longer than its message")
            found.append((tag >> 3, message[at : at + size]))
            at += size
        else:
            value, at = _fixed(message, at, kind)
            found.append((tag >> 3, value))
        if tag < 8:
            raise WireError("a field has the number 0")
    return found


def varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at an offset, and the offset behind it; raise WireError if cut."""
    value = shift = 0
    while True:
        if at >= len(message):
            raise WireError("a number is cut off")
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & _WORD, at
        shift += 7
        if shift >= _LONGEST:
            raise WireError("a number has too many bytes")


def records(whole: bytes, number: int) -> Iterator[tuple[int, bytes]]:
    """Yield offset and bytes of each message in one field of the outermost; other fields are passed over.

    Raises WireError at the first place that is no field, when all before it was yielded.
    """
    at, end = 0, len(whole)
    while at < end:
        begin, tag = at, whole[at]
        at += 1
        if tag > 127:
            tag, at = varint(whole, begin)
        if tag & 7 == BYTES:
            size, at = varint(whole, at)
            if size > end - at:
                raise WireError("the last record is cut off")
            at += size
            if tag >> 3 == number:
                yield begin, whole[at - size : at]
        elif tag & 7 == VARINT:
            if at < end and whole[at] < 128:
                at += 1
            else:
                _, at = varint(whole, at)
        else:
            _, at = _fixed(whole, at, tag & 7)
        if tag < 8:
            raise WireError("a field has the number 0")


def signed(value: int) -> int:
    """Return a varint as the int64 that it stands for."""
    return value - (1 << 64) if value >> 63 else value


def double(value: int) -> float:
    """Return a fixed 64-bit value as the floating-point number that it stands for."""
    return float(_DOUBLE.unpack(_WORD64.pack(value))[0])


def text(value: Value) -> str:
    """Return a string field; bytes that are no UTF-8 are replaced, and what is no string is empty."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def number(value: Value) -> int:
    """Return a numeric field; 0 where the field holds bytes."""
    return value if isinstance(value, int) else 0


def inner(value: Value) -> list[Field]:
    """Return the fields of a message within a field; raise WireError where it holds none."""
    if isinstance(value, int):
        raise WireError("a number stands where a message is expected")
    return fields(value)


def packed(value: Value) -> list[int]:
    """Return the numbers of a repeated field, whether it stands packed or one by one."""
    if isinstance(value, int):
        return [value]
    numbers, at = [], 0
    while at < len(value):
        one, at = varint(value, at)
        numbers.append(one)
    return numbers


def _fixed(message: bytes, at: int, kind: int) -> tuple[int, int]:
    form = {FIXED64: _WORD64, FIXED32: _WORD32}.get(kind)
    if form is None:
        raise WireError("a field is of a kind that does not exist")
    if at + form.size > len(message):
        raise WireError("a number is cut off")
    return int(form.unpack_from(message, at)[0]), at + form.size
