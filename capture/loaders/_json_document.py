"""Whole JSON documents read with care: the document, and members and numbers of the expected type."""

import json
from typing import Any

from capture.errors import UnreadableError
from capture.source import Source


def document(source: Source) -> Any:
    """Return the parsed document; raise UnreadableError where it is damaged or nested too deeply."""
    try:
        return json.loads(source.text(), strict=False)
    except RecursionError:
        raise UnreadableError("is nested too deeply", where=source.label) from None
    except ValueError as e:
        raise UnreadableError(
            "is damaged or cut short", where=source.label, why=str(e), todo="write or copy the file again"
        ) from None


def number(value: Any) -> float | None:
    """Return a finite number, also from text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        real = float(value)
    except (ValueError, OverflowError):
        return None
    return real if abs(real) < float("inf") else None


def whole(value: Any) -> int | None:
    """Return a whole number without loss, also from text; None for anything else.

    Timestamps in ns do not fit a float, so no value passes through one.
    """
    if isinstance(value, str):
        text = value.strip()
        digits = text.removeprefix("-")
        return int(text) if digits.isascii() and digits.isdigit() and len(text) < 20 else None
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62 else None


def dict_in(holder: Any, key: str) -> dict[str, Any]:
    """Return the object that stands under a key; empty where it is absent or something else."""
    value = holder.get(key) if isinstance(holder, dict) else None
    return value if isinstance(value, dict) else {}


def list_in(holder: Any, key: str) -> list[Any]:
    """Return the list that stands under a key; empty where it is absent or something else."""
    value = holder.get(key) if isinstance(holder, dict) else None
    return value if isinstance(value, list) else []


def dicts_in(holder: Any, key: str) -> list[dict[str, Any]]:
    """Return the objects of the list that stands under a key; other elements are left out."""
    return [item for item in list_in(holder, key) if isinstance(item, dict)]
