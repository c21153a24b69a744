"""Whole JSON documents read with care: the document, and members and numbers of the expected type."""

import json
import re
from collections.abc import Callable
from typing import Any, Final

from capture.errors import UnreadableError
from capture.source import Source

_MOST_DIGITS: Final = 400  # of an integer; what has more is larger than any float
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")


def document(source: Source, parse_float: Callable[[str], Any] | None = None) -> Any:
    """Return the parsed document; raise UnreadableError where it is damaged or nested too deeply.

    Half a character, which JSON can write and no text holds, is replaced.
    """
    text = source.text()
    try:
        parsed = _parsed(text, parse_float)
        return _whole_characters(parsed) if _SURROGATE.search(text) else parsed
    except RecursionError:
        raise UnreadableError("is nested too deeply", where=source.label) from None
    except ValueError as e:
        raise UnreadableError(
            "is damaged or cut short", where=source.label, why=str(e), todo="write or copy the file again"
        ) from None


def _parsed(text: str, parse_float: Callable[[str], Any] | None = None) -> Any:
    """Return what JSON says; an integer with more digits than Python takes is infinite, as 1e999 is."""
    try:
        return json.loads(text, strict=False, parse_float=parse_float)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return json.loads(text, strict=False, parse_float=parse_float, parse_int=_any_size)


def _any_size(digits: str) -> float:
    return int(digits) if len(digits) < _MOST_DIGITS else float(digits)


def value_of(text: str) -> Any:
    """Return one JSON value with integers of any size; None where there is none."""
    try:
        return _parsed(text)
    except (ValueError, RecursionError):
        return None


def _whole_characters(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_whole_characters(key): _whole_characters(inner) for key, inner in value.items()}
    return [_whole_characters(inner) for inner in value] if isinstance(value, list) else value


def number(value: Any) -> float | None:
    """Return a finite number, also from text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        real = float(value)
    except (ValueError, OverflowError):
        return None
    return real if abs(real) < float("inf") else None


def as_float(value: float) -> float:
    """Return a number as a float; what is too large for one is infinite."""
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def whole(value: Any) -> int | None:
    """Return a whole number without loss, also from text; None for anything else.

    Timestamps in ns do not fit a float, so no value passes through one.
    """
    if isinstance(value, str):
        text = value.strip()
        digits = text.removeprefix("-")
        value = int(text) if digits.isascii() and digits.isdigit() and len(text) < 20 else None
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
