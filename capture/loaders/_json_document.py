"""Parse whole JSON documents, and read members and numbers of the expected type from them."""

import json
import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from capture.errors import UnreadableError
from capture.source import Source

S = TypeVar("S")
T = TypeVar("T")

TOO_DEEP: Final = ("too_deep", "records nested too deeply to be read")  # id and message of a loss

_MAX_DIGITS: Final = 400  # of an integer; a longer one exceeds any float
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")


def parse_document(source: Source, parse_float: Callable[[str], Any] | None = None) -> Any:
    """Parse a JSON document; raise UnreadableError if it is damaged or nested too deeply.

    Lone surrogates, which JSON can write but no text can hold, are replaced.
    """
    text = source.read_text()
    try:
        value = _parse_json(text, parse_float)
        return _replace_surrogates(value) if _SURROGATE.search(text) else value
    except RecursionError:
        raise UnreadableError("is nested too deeply", where=source.label) from None
    except ValueError as e:
        what, todo = "is damaged or cut short", "write or copy the file again"
        raise UnreadableError(what, where=source.label, why=str(e), todo=todo) from None


def _parse_json(text: str, parse_float: Callable[[str], Any] | None = None) -> Any:
    """Parse JSON; an integer with more digits than Python accepts becomes infinite, like 1e999."""

    def parse_integer(digits: str) -> float:
        return int(digits) if len(digits) < _MAX_DIGITS else float(digits)

    try:
        return json.loads(text, strict=False, parse_float=parse_float)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return json.loads(text, strict=False, parse_float=parse_float, parse_int=parse_integer)


def parse_value(text: str) -> Any:
    """Parse one JSON value with integers of any size; None if it is not JSON."""
    return decode_or_none(_parse_json, text)


def parse_object(text: bytes | str) -> dict[str, Any]:
    """Parse a JSON object with integers of any size; empty for anything else."""
    value = decode_or_none(msgspec.json.decode, text)
    if value is None:
        value = parse_value(text if isinstance(text, str) else text.decode("utf-8", "replace"))
    return value if isinstance(value, dict) else {}


def decode_or_none(decode: Callable[[S], T], text: S) -> T | None:
    """Decode a text; None if it is invalid or nested too deeply."""
    try:
        return decode(text)
    except (ValueError, RecursionError):
        return None


def is_too_deep(decode: Callable[[S], object], text: S) -> bool:
    """Whether a text cannot be decoded because it is nested too deeply."""
    try:
        decode(text)
    except RecursionError:
        return True
    except ValueError:
        return False
    return False


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_replace_surrogates(key): _replace_surrogates(item) for key, item in value.items()}
    return [_replace_surrogates(item) for item in value] if isinstance(value, list) else value


def to_finite_float(value: Any) -> float | None:
    """Return a finite number, also from text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < float("inf") else None


def to_float(value: float) -> float:
    """Return a number as a float; infinite if it is too large for one."""
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def to_integer(value: Any) -> int | None:
    """Return an integer, also from text, without passing through a float; None for anything else."""
    if isinstance(value, str):
        text = value.strip()
        digits = text.removeprefix("-")
        value = int(text) if digits.isascii() and digits.isdigit() and len(text) < 20 else None
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62 else None


def read_dict(holder: Any, key: str) -> dict[str, Any]:
    """Return the object under a key; empty if it is missing or of another type."""
    value = holder.get(key) if isinstance(holder, dict) else None
    return value if isinstance(value, dict) else {}


def read_list(holder: Any, key: str) -> list[Any]:
    """Return the list under a key; empty if it is missing or of another type."""
    value = holder.get(key) if isinstance(holder, dict) else None
    return value if isinstance(value, list) else []


def read_dicts(holder: Any, key: str) -> list[dict[str, Any]]:
    """Return the objects in the list under a key; other elements are ignored."""
    return [item for item in read_list(holder, key) if isinstance(item, dict)]
