"""Parse printed numbers; times become integer nanoseconds exactly, without passing through a float."""

import re
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Final

MICROSECOND: Final = 1_000
MILLISECOND: Final = 1_000_000
SECOND: Final = 1_000_000_000

_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?")
_MAX_EXPONENT: Final = 15  # a time in ns with a larger one exceeds 64 bits


def parse_decimal(text: str) -> Decimal | None:
    """Parse a number; thousands commas and a per cent sign are ignored; None for anything else."""
    text = text.strip().removesuffix("%").rstrip().replace(",", "")
    return Decimal(text) if len(text) < 64 and _NUMBER.fullmatch(text) else None


def scale_to_integer(value: Decimal | None, scale: int) -> int | None:
    """Return `value * scale`, rounded half to even; None if it is missing or too large for 64 bits."""
    if value is None or not value.is_finite() or (value and value.adjusted() > _MAX_EXPONENT):
        return None
    return int((value * scale).to_integral_value(ROUND_HALF_EVEN))


def parse_nanoseconds(text: str, unit: int) -> int | None:
    """Parse a printed time as ns; `unit` is the length of its unit in ns."""
    return scale_to_integer(parse_decimal(text), unit)


def parse_float(text: str) -> float | None:
    """Parse a printed number as a float; None for `nan`, `-`, `N/A` and blanks."""
    value = parse_decimal(text)
    return None if value is None else float(value)
