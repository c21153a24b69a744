"""Printed numbers as exact values: no figure passes through a float on its way to nanoseconds."""

import re
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Final

MICROSECOND: Final = 1_000
MILLISECOND: Final = 1_000_000
SECOND: Final = 1_000_000_000

_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?")
_LARGEST_EXPONENT: Final = 15  # beyond it a time in ns no longer fits 64 bits


def number(text: str) -> Decimal | None:
    """Return a printed number, with thousands commas and per cent signs taken off; None for anything else."""
    text = text.strip().removesuffix("%").rstrip().replace(",", "")
    return Decimal(text) if len(text) < 64 and _NUMBER.fullmatch(text) else None


def exact(value: Decimal | None, scale: int) -> int | None:
    """Return a value in whole units of 1/scale, half to even; None when it is absent or out of reach."""
    if value is None or not value.is_finite() or (value and value.adjusted() > _LARGEST_EXPONENT):
        return None
    return int((value * scale).to_integral_value(ROUND_HALF_EVEN))


def nanoseconds(text: str, unit: int) -> int | None:
    """Return a printed time in ns, the unit being its length in ns."""
    return exact(number(text), unit)


def real(text: str) -> float | None:
    """Return a printed number as a float; `nan`, `-`, `N/A` and blanks are none."""
    value = number(text)
    return None if value is None else float(value)
