"""Command-line inputs that are not plain paths: URLs, glob patterns and `@` lists of files."""

import glob
import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from capture.clean_text import clean
from capture.errors import UnreadableError, UsageError

LIST_PREFIX: Final = "@"  # before the path of a text file with one address per line
MAX_LISTED_ADDRESSES: Final = 1_000_000

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SECRETS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)((?:[^/\s@]*@)+)?([^\s?#'\"]*)(\?[^\s'\"]*)?")
_WILDCARD: Final = re.compile(r"[*?\[]")
_WILDCARD_IN_URL: Final = re.compile(r"[*\[]")  # ? starts the query of a URL


def is_url(path: object) -> bool:
    """Return whether a path is a URL (`Path` would collapse its slashes)."""
    return isinstance(path, str) and _URL.match(path) is not None


def parse_scheme(url: str) -> str:
    """Return the scheme of a URL in lower case."""
    return url.partition("://")[0].lower()


def build_file_name(url: str) -> str:
    """Return the last part of a URL path as a file name: safe characters only, never empty."""
    last = urlsplit(url).path.rstrip("/").rpartition("/")[2]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", last).lstrip(".-")[-120:] or "file"


def mask_credentials(text: str) -> str:
    """Return a text with users, passwords and queries of its URLs masked."""

    def hide(match: re.Match[str]) -> str:
        user, query = "***@" if match[2] else "", "?***" if match[4] else ""
        return f"{match[1]}{user}{match[3]}{query}"

    return clean(_SECRETS.sub(hide, text), 4096)


def strip_user(url: str) -> str:
    """Return a URL without user and password, so that all users share one name for a file."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def is_pattern(path: str) -> bool:
    """Return whether a word is a glob pattern; a word that is an existing file is not."""
    if is_url(path):
        return parse_scheme(path) not in ("http", "https") and _WILDCARD_IN_URL.search(path) is not None
    return _WILDCARD.search(path) is not None and not Path(path).exists()


def match_local_files(pattern: str) -> list[str]:
    """Return the files and folders that match a pattern, sorted; raise UnreadableError if none does."""
    matches = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - a pattern from the root too
    if not matches:
        raise UnreadableError("no file matches this pattern", where=clean(pattern, 4096))
    return matches


def parse_address_list(text: str, list_path: str) -> list[str]:
    """Return the addresses in the text of a list, one per line; empty lines and lines with # are skipped.

    Relative paths are resolved against `list_path`. Raises UsageError if there is none or one is a list.
    """
    lines = [line.strip() for line in text.splitlines()]
    addresses = [line for line in lines if line and not line.startswith("#")]
    if not addresses or len(addresses) > MAX_LISTED_ADDRESSES:
        problem = f"lists {len(addresses):,} addresses" if addresses else "lists no address"
        todo = f"write one per line, at most {MAX_LISTED_ADDRESSES:,}"
        raise UsageError(problem, where=mask_credentials(list_path), todo=todo)
    if nested := next((line for line in addresses if line.startswith(LIST_PREFIX)), None):
        raise UsageError(f"lists another list: {mask_credentials(nested)}", where=mask_credentials(list_path))
    return [_resolve_against_list(line, list_path) for line in addresses]


def _resolve_against_list(line: str, list_path: str) -> str:
    """Return an address of a list as a path or URL that works from any folder."""
    if is_url(line) or Path(line).is_absolute():
        return line
    if is_url(list_path):
        return f"{list_path.partition('?')[0].rpartition('/')[0]}/{line}"
    return str(Path(list_path).parent / line)


def find_list_path(word: str) -> str | None:
    """Return the path of the list that a word names, or None if it names no list or is itself a file."""
    is_list = word.startswith(LIST_PREFIX) and not Path(word).exists()
    return word.removeprefix(LIST_PREFIX) if is_list else None
