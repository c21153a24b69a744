"""Make an input smaller while it still shows the same fault."""

import json
import re
import time
from collections.abc import Callable
from typing import Any, Final

from tests.fuzz.json_values import places

PATIENCE: Final = 20.0  # seconds for one input
_PIECES: Final = re.compile(rb"(?<=[\n,{}\[\]|])")

Shows = Callable[[bytes], bool]


def shrunk(content: bytes, shows: Shows, patience: float = PATIENCE) -> bytes:
    """Return the smallest input found for which `shows` is still true."""
    end = time.monotonic() + patience
    content = _smaller_document(content, shows, end)
    content = _fewer(_PIECES.split(content), shows, end)
    if len(content) < 2000:
        content = _fewer([content[i : i + 1] for i in range(len(content))], shows, end)
    return content


def _smaller_document(content: bytes, shows: Shows, end: float) -> bytes:
    """Return a JSON document without the members and elements that the fault does not need."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return content
    again = True
    while again and time.monotonic() < end:
        again = False
        for at, key in reversed(places(value)):
            if time.monotonic() > end or not _still_there(at, key):
                continue
            kept = at[key]
            del at[key]
            if _shows_document(value, shows):
                again = True
            elif isinstance(at, list):
                at.insert(key, kept)
            else:
                at[key] = kept
    small = _dumped(value)
    return small if small and shows(small) else content


def _still_there(at: Any, key: Any) -> bool:
    return key in at if isinstance(at, dict) else key < len(at)


def _shows_document(value: Any, shows: Shows) -> bool:
    text = _dumped(value)
    return bool(text) and shows(text)


def _dumped(value: Any) -> bytes:
    try:
        return json.dumps(value).encode()
    except (ValueError, RecursionError):
        return b""


def _fewer(pieces: list[bytes], shows: Shows, end: float) -> bytes:
    """Return the pieces that the fault needs, joined: blocks are left out, then smaller ones."""
    size = len(pieces) // 2
    while size and time.monotonic() < end:
        at = 0
        while at < len(pieces) and time.monotonic() < end:
            rest = pieces[:at] + pieces[at + size :]
            if rest and shows(b"".join(rest)):
                pieces = rest
            else:
                at += size
        size //= 2
    return b"".join(pieces)
