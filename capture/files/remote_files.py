"""Copy files behind URLs into the cache with fsspec, and write small ones; drivers find their credentials."""

import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from capture.errors import UnreadableError, UsageError
from capture.files.addresses import build_file_name, is_pattern, mask_credentials, parse_scheme, strip_user
from capture.files.user_dirs import find_cache_folder, make_private, prune
from capture.tasks import report_activity

# scheme → required module, and our extra that installs it
DRIVERS: Final[dict[str, tuple[str, str]]] = {
    "s3": ("s3fs", "s3"),
    "gs": ("gcsfs", "gs"),
    "hf": ("huggingface_hub", "hf"),
    "http": ("aiohttp", "http"),
    "https": ("aiohttp", "http"),
    "ssh": ("sshfs", "ssh"),
    "sftp": ("sshfs", "ssh"),
}
MAX_COPIES_BYTES: Final = 20 << 30  # total size of all copies
HTTP_TIMEOUT_S: Final = 60  # without a byte
SLOW_AFTER_S: Final = 60.0  # over which a download must have at least
MIN_BYTES_PER_S: Final = 1000
ANNOUNCE_INTERVAL_S: Final = 5.0  # between two words on what has arrived

_VERSION_KEYS: Final = (
    "ETag", "etag", "e_tag", "Content-MD5", "md5Hash", "crc32c", "generation",
    "blob_id", "oid", "LastModified", "Last-Modified", "last_modified", "updated", "mtime", "modified",
)  # fmt: skip


class RemoteFile(Struct, frozen=True):
    """A file behind a URL as its host describes it, before it is copied."""

    url: str
    size: int | None
    versions: tuple[tuple[str, str], ...]  # by which the host identifies its content

    @property
    def identity(self) -> str:
        """Digest of the address and the version of the file, or empty if the host reports no version."""
        if not self.versions:
            return ""
        description = repr((strip_user(self.url), self.size, self.versions))
        return hashlib.blake2b(description.encode(), digest_size=20).hexdigest()


def stat_remote(url: str) -> RemoteFile:
    """Return the host's description of a file; raise UnreadableError if there is no such file."""
    system, path = _find_driver(url)
    with _translate_driver_errors(url):
        system.invalidate_cache()
        info = system.info(path)
    if info.get("type") == "directory":
        raise UnreadableError("is a folder, not a file", where=mask_credentials(url))
    versions = tuple((name, str(info[name])) for name in _VERSION_KEYS if info.get(name) is not None)
    return RemoteFile(url, info.get("size"), versions)


def fetch_copy(remote: RemoteFile) -> Path:
    """Return the cached copy of a file, made if missing; raise UnreadableError if that fails."""
    folder = _find_copies_folder()
    own_folder = folder / (remote.identity or f"once-{os.getpid()}-{os.urandom(6).hex()}")
    copy = own_folder / build_file_name(remote.url)
    if copy.is_file():
        with suppress(OSError):
            os.utime(copy)
        return copy
    _check_space(remote, folder)
    activity = report_activity(f"copying {mask_credentials(remote.url)}")
    with activity as announce, _translate_driver_errors(remote.url):
        _download(remote, own_folder, copy, announce)
    if prune((p for p in folder.glob("*/*") if p != copy), max(0, MAX_COPIES_BYTES - copy.stat().st_size)):
        _remove_empty_folders(folder)
    return copy


def expand_url(url: str) -> list[str]:
    """Return the URLs of the files that match a pattern or lie in a folder; a plain URL unchanged."""
    if parse_scheme(url) in ("http", "https") or not (url.endswith("/") or is_pattern(url)):
        return [url]
    system, path = _find_driver(url)
    with _translate_driver_errors(url):
        paths = sorted(map(str, system.glob(path) if is_pattern(url) else system.find(path)))
    names = [file for file in paths if not file.rpartition("/")[2].startswith(".")]
    if not names:
        raise UnreadableError("no file matches this pattern", where=mask_credentials(url))
    return [_build_url(url, path, name) for name in names]


def list_folder(url: str) -> list[str]:
    """Return the names of the files in a folder, not those below it; empty if there is no such folder."""
    system, path = _find_driver(url)
    with _translate_driver_errors(url):
        system.invalidate_cache()
        try:
            entries = system.ls(path, detail=True)
        except FileNotFoundError:
            return []
    return [str(e["name"]).rpartition("/")[2] for e in entries if e.get("type") == "file"]


def read_bytes(url: str) -> bytes:
    """Return the content of a small file; raise UnreadableError if that fails."""
    system, path = _find_driver(url)
    with _translate_driver_errors(url):
        return bytes(system.cat_file(path))


def write_new(url: str, content: bytes) -> bool:
    """Write a small file at once unless it exists; return whether it was written.

    A host shows a file only when it is complete. Raise UnreadableError if writing fails.
    """
    system, path = _find_driver(url)
    with _translate_driver_errors(url, "cannot be written"):
        if system.exists(path):
            return False
        system.pipe_file(path, content)
    return True


def remove(url: str) -> None:
    """Remove a file; raise UnreadableError if that fails."""
    system, path = _find_driver(url)
    with _translate_driver_errors(url, "cannot be removed"):
        system.rm_file(path)


def _build_url(url: str, path: str, name: str) -> str:
    """Return the URL of a file found by a driver; the prefix stays as the user wrote it."""
    start = url.find(path)
    return url[: max(start, 0)] + name if start >= 0 else f"{parse_scheme(url)}://{name.lstrip('/')}"


def _find_driver(url: str) -> tuple[Any, str]:
    """Return the driver of a URL and its path; raise UsageError if the driver is not installed."""
    scheme = parse_scheme(url)
    if scheme not in DRIVERS or "::" in url:
        kinds = ", ".join(f"{name}://" for name in DRIVERS)
        raise UsageError("unsupported address", where=mask_credentials(url), todo=f"use one of {kinds}")
    module, extra = DRIVERS[scheme]
    if missing := next((name for name in ("fsspec", module) if find_spec(name) is None), None):
        what = f"{scheme}:// needs {missing}, which is not installed"
        raise UsageError(what, where=mask_credentials(url), todo=f"pip install 'tracetui[{extra}]'")
    with _translate_driver_errors(url):
        system, path = import_module("fsspec.core").url_to_fs(url, **_build_driver_options(scheme))
    return system, str(path)


def _build_driver_options(scheme: str) -> dict[str, Any]:
    """Return driver options: SSH hosts must be known, a silent HTTP server times out."""
    if scheme in ("ssh", "sftp"):
        return {"known_hosts": ()}
    if scheme not in ("http", "https"):
        return {}
    limits = {"sock_connect": HTTP_TIMEOUT_S, "sock_read": HTTP_TIMEOUT_S}
    timeout = import_module("aiohttp").ClientTimeout(total=None, **limits)
    return {"client_kwargs": {"timeout": timeout, "trust_env": True}}


@contextmanager
def _translate_driver_errors(url: str, failed: str = "cannot be downloaded") -> Iterator[None]:
    """Turn driver errors into messages without credentials."""
    try:
        yield
    except (UnreadableError, UsageError, KeyboardInterrupt):
        raise
    except FileNotFoundError as e:
        if cause := _find_http_cause(e):
            todo = "check the credentials" if cause[0] in (401, 403) else ""
            raise UnreadableError(cause[1], where=mask_credentials(url), todo=todo) from None
        raise UnreadableError("not found, or its host does not answer", where=mask_credentials(url)) from None
    except PermissionError:
        todo = "set up the credentials as the driver documents"
        raise UnreadableError("access denied", where=mask_credentials(url), todo=todo) from None
    except Exception as e:
        lines = mask_credentials(str(e)).splitlines()
        why = f"{type(e).__name__}: {lines[0][:300]}" if lines else type(e).__name__
        raise UnreadableError(failed, where=mask_credentials(url), why=why) from None


def _find_http_cause(error: BaseException | None) -> tuple[int, str] | None:
    """Find the answer of an HTTP server behind an error that fsspec takes for a missing file."""
    while error is not None and type(error).__module__.partition(".")[0] != "aiohttp":
        error = error.__cause__ or error.__context__
    if error is None or getattr(error, "status", 404) == 404:
        return None
    status, message = int(getattr(error, "status", 0)), str(getattr(error, "message", "") or error)
    if type(error).__name__ == "TooManyRedirects":
        return status, "its host redirects in a circle"
    reason = f": {mask_credentials(message)[:200]}" if message else ""
    return status, f"its host answers {status}{reason}" if status else f"its host does not answer{reason}"


def _find_copies_folder() -> Path:
    """Return the private folder of copies; raise UnreadableError without one."""
    cache = find_cache_folder()
    folder = make_private(cache / "remote") if cache else None
    if folder is None:
        raise UnreadableError("no private folder for copies", todo="set XDG_CACHE_HOME")
    return folder


def _check_space(remote: RemoteFile, folder: Path) -> None:
    status = os.statvfs(folder)
    free = min(status.f_bavail * status.f_frsize, MAX_COPIES_BYTES)
    if remote.size is not None and remote.size > free:
        problem = f"has {remote.size:,} bytes, more than the {free:,} available for copies"
        raise UnreadableError(problem, where=mask_credentials(remote.url))


class _Download:
    """A download in progress, which ends if it is too large or too slow, and announces what arrived."""

    def __init__(self, remote: RemoteFile, announce: Callable[[str], None]) -> None:
        self._remote, self._announce = remote, announce
        self._announced_at = self._checked_at = time.monotonic()
        self._checked_bytes = 0

    def check(self, size: int | None, received: int, **_: Any) -> None:
        """Check and announce what has been received; raise UnreadableError to end the download."""
        where, now = mask_credentials(self._remote.url), time.monotonic()
        if received > MAX_COPIES_BYTES:
            problem = f"sends more than the {MAX_COPIES_BYTES:,} bytes allowed for copies"
            raise UnreadableError(problem, where=where)
        if now - self._checked_at >= SLOW_AFTER_S:
            if received - self._checked_bytes < MIN_BYTES_PER_S * (now - self._checked_at):
                problem = f"arrives with less than {MIN_BYTES_PER_S:,} bytes per second"
                raise UnreadableError(problem, where=where, todo="try again")
            self._checked_at, self._checked_bytes = now, received
        if now - self._announced_at >= ANNOUNCE_INTERVAL_S:
            self._announced_at = now
            total = f" of {self._remote.size / 1e6:,.0f}" if self._remote.size else ""
            self._announce(f"copying {where}: {received / 1e6:,.0f}{total} MB")


def _download(remote: RemoteFile, folder: Path, copy: Path, announce: Callable[[str], None]) -> None:
    """Copy the file into a temporary file, then rename it to its place."""
    system, path = _find_driver(remote.url)
    _remove_abandoned_drafts(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    handle, draft = tempfile.mkstemp(prefix=f".{os.getpid()}-", dir=folder)
    os.close(handle)
    callback = import_module("fsspec.callbacks").Callback(hooks={"check": _Download(remote, announce).check})
    try:
        system.get_file(path, draft, callback=callback)
        received = Path(draft).stat().st_size
        if remote.size is not None and received != remote.size:
            problem = f"{received:,} bytes arrived where its host announced {remote.size:,}"
            raise UnreadableError(problem, where=mask_credentials(remote.url), todo="try again")
        Path(draft).replace(copy)
    finally:
        Path(draft).unlink(missing_ok=True)


def _remove_abandoned_drafts(folder: Path) -> None:
    """Remove the parts that processes left which were killed."""
    for draft in folder.glob("*/.*"):
        pid = draft.name[1:].partition("-")[0]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists():
            with suppress(OSError):
                draft.unlink()


def _remove_empty_folders(folder: Path) -> None:
    """Remove the folders whose copies are gone."""
    for subfolder in folder.iterdir():
        with suppress(OSError):
            subfolder.rmdir()
