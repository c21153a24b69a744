"""Addresses: what a word of the command line names beside a file here: a URL, a pattern, a list of files."""

import glob
import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from capture.errors import UnreadableError, UsageError
from capture.text import clean

LIST: Final = "@"  # in front of a path: a text file with an address a line
MOST_LISTED: Final = 1_000_000  # addresses of one list

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SECRETS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)([^/\s@]*@)?([^\s?#'\"]*)(\?[^\s'\"]*)?")
_WILD: Final = re.compile(r"[*?\[]")
_WILD_URL: Final = re.compile(r"[*\[]")  # what stands behind ? in a URL is a query


def is_url(path: object) -> bool:
    """Tell whether a path is a URL, which `Path` would spoil."""
    return isinstance(path, str) and _URL.match(path) is not None


def scheme(url: str) -> str:
    """Return the scheme of a URL in small letters."""
    return url.partition("://")[0].lower()


def file_name(url: str) -> str:
    """Return the last part of a URL's path, without anything that does not belong into a file's name."""
    last = urlsplit(url).path.rstrip("/").rpartition("/")[2]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", last).lstrip(".-")[-120:] or "file"


def masked(text: str) -> str:
    """Return a text in which no URL shows who asks or with which signature: users, passwords and queries."""

    def hide(found: re.Match[str]) -> str:
        user, query = "***@" if found[2] else "", "?***" if found[4] else ""
        return f"{found[1]}{user}{found[3]}{query}"

    return clean(_SECRETS.sub(hide, text), 4096)


def without_user(url: str) -> str:
    """Return a URL without its user and password, by which the same file has one name for everybody."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def is_pattern(path: str) -> bool:
    """Tell whether a word is a pattern of names; one that is a file is that file."""
    if is_url(path):
        return scheme(path) not in ("http", "https") and _WILD_URL.search(path) is not None
    return _WILD.search(path) is not None and not Path(path).exists()


def local_matches(pattern: str) -> list[str]:
    """Return the files and folders here that fit a pattern, in order; raise UnreadableError without any."""
    found = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - a pattern from the root too
    if not found:
        raise UnreadableError("no file fits this pattern", where=clean(pattern, 4096))
    return found


def listed(text: str, beside: str) -> list[str]:
    """Return the addresses of a list: one a line, empty lines and those with # left out.

    A path that is no URL and does not begin at the root lies beside the list. Raises UsageError where there
    is no address, or where a line names a list again.
    """
    lines = [line.strip() for line in text.splitlines()]
    named = [line for line in lines if line and not line.startswith("#")]
    if not named or len(named) > MOST_LISTED:
        what = f"lists {len(named):,} addresses" if named else "lists no address"
        raise UsageError(what, where=masked(beside), todo=f"write one a line, at most {MOST_LISTED:,}")
    if again := next((line for line in named if line.startswith(LIST)), None):
        raise UsageError(f"lists another list: {masked(again)}", where=masked(beside))
    return [_beside(line, beside) for line in named]


def _beside(line: str, place: str) -> str:
    """Return an address of a list as it can be opened from anywhere."""
    if is_url(line) or Path(line).is_absolute():
        return line
    if is_url(place):
        return f"{place.partition('?')[0].rpartition('/')[0]}/{line}"
    return str(Path(place).parent / line)


def list_file(word: str) -> str | None:
    """Return the path of the list that a word names; None where it names none, or a file that begins so."""
    return word.removeprefix(LIST) if word.startswith(LIST) and not Path(word).exists() else None
