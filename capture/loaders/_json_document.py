"""A whole JSON document, or the sentence that says why it is none."""

import json
from typing import Any

from capture.errors import UnreadableError
from capture.source import Source


def document(source: Source) -> Any:
    try:
        return json.loads(source.text(), strict=False)
    except RecursionError:
        raise UnreadableError("is nested too deeply", where=source.label) from None
    except ValueError as e:
        raise UnreadableError(
            "is damaged or cut short", where=source.label, why=str(e), todo="write or copy the file again"
        ) from None


def number(value: Any) -> float | None:
    """A finite number, however a careless writer wrote it down; none for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if abs(found) < float("inf") else None


def whole(value: Any) -> int | None:
    """A whole number without loss: timestamps in ns do not fit a float."""
    if isinstance(value, str):
        text = value.strip()
        return (
            int(text)
            if text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() and len(text) < 20
            else None
        )
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62 else None
