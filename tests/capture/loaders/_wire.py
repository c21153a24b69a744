"""Protocol-buffer messages written by the tests themselves: fields in the order given, no schema."""

import struct
from typing import Any


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, value: Any) -> bytes:
    """One field: a number as a varint, a float as a double, text and bytes with their length."""
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def message(*fields: tuple[int, Any]) -> bytes:
    return b"".join(field(number, value) for number, value in fields)
