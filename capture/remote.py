"""Files behind URLs, copied once into the cache through fsspec; each driver finds credentials its own way."""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from capture.activity import doing
from capture.addresses import file_name, is_pattern, masked, scheme, without_user
from capture.errors import UnreadableError, UsageError
from capture.places import cache_folder, make_private, prune

# scheme → the module that must be there, and the extra that brings it
DRIVERS: Final[dict[str, tuple[str, str]]] = {
    "s3": ("s3fs", "s3"),
    "gs": ("gcsfs", "gs"),
    "hf": ("huggingface_hub", "hf"),
    "http": ("aiohttp", "http"),
    "https": ("aiohttp", "http"),
    "ssh": ("sshfs", "ssh"),
    "sftp": ("sshfs", "ssh"),
}
LIMIT: Final = 20 << 30  # bytes of all copies together
SILENCE: Final = 60  # seconds without a byte after which a server over HTTP is given up

_MARKS: Final = ("ETag", "etag", "e_tag", "Content-MD5", "md5Hash", "crc32c", "generation", "blob_id", "oid",
          "LastModified", "Last-Modified", "last_modified", "updated", "mtime", "modified")  # fmt: skip


class Remote(Struct, frozen=True):
    """What is known of a file behind a URL before it is copied."""

    url: str
    size: int | None
    marks: tuple[tuple[str, str], ...]  # by what its host tells one state of it from another

    @property
    def identity(self) -> str:
        """Return a digest of the place and the state of the file; empty where the host tells no state."""
        if not self.marks:
            return ""
        told = repr((without_user(self.url), self.size, self.marks))
        return hashlib.blake2b(told.encode(), digest_size=20).hexdigest()


def look_up(url: str) -> Remote:
    """Return what its host says of a file; raise UnreadableError where there is none."""
    system, path = _system(url)
    with _told(url):
        system.invalidate_cache()
        info = system.info(path)
    if info.get("type") == "directory":
        raise UnreadableError("is a folder, not a file", where=masked(url))
    marks = tuple((name, str(info[name])) for name in _MARKS if info.get(name) is not None)
    return Remote(url, info.get("size"), marks)


def copy_of(remote: Remote) -> Path:
    """Return the copy of a file in the cache; it is made where it is missing. Raise UnreadableError where it
    cannot be read or does not fit on the disk.
    """
    folder = _copies()
    kept = folder / (remote.identity or f"once-{os.getpid()}-{os.urandom(6).hex()}")
    place = kept / file_name(remote.url)
    if place.is_file():
        with suppress(OSError):
            os.utime(place)
        return place
    _check_room(remote, folder)
    with doing(f"copying {masked(remote.url)}"), _told(remote.url):
        _copy(remote, kept, place)
    if prune((p for p in folder.glob("*/*") if p != place), max(0, LIMIT - place.stat().st_size)):
        _drop_empty(folder)
    return place


def expand(url: str) -> list[str]:
    """Return the URLs of the files that a pattern or a folder stands for; that of a file alone as it is."""
    if scheme(url) in ("http", "https") or not (url.endswith("/") or is_pattern(url)):
        return [url]
    system, path = _system(url)
    with _told(url):
        found = system.glob(path) if is_pattern(url) else system.find(path)
    names = [p for p in sorted(map(str, found)) if not p.rpartition("/")[2].startswith(".")]
    if not names:
        raise UnreadableError("no file fits this pattern", where=masked(url))
    return [_as_url(url, path, name) for name in names]


def _as_url(url: str, path: str, name: str) -> str:
    """Return the URL of a file that a driver found; what stands before the path is as it was written."""
    start = url.find(path)
    return url[: max(start, 0)] + name if start >= 0 else f"{scheme(url)}://{name.lstrip('/')}"


def _system(url: str) -> tuple[Any, str]:
    """Return the driver for a URL, and the path as it calls it. Raise UsageError where none is installed."""
    kind = scheme(url)
    if kind not in DRIVERS or "::" in url:
        kinds = ", ".join(f"{name}://" for name in DRIVERS)
        raise UsageError("is no address that can be read", where=masked(url), todo=f"known are {kinds}")
    module, extra = DRIVERS[kind]
    if find_spec("fsspec") is None or find_spec(module) is None:
        missing = "fsspec" if find_spec("fsspec") is None else module
        todo = f"pip install 'tracetui[{extra}]'"
        raise UsageError(f"{kind}:// needs {missing}, which is not installed", where=masked(url), todo=todo)
    with _told(url):
        system, path = import_module("fsspec.core").url_to_fs(url, **_options(kind))
    return system, str(path)


def _options(kind: str) -> dict[str, Any]:
    """Return what a driver is told: hosts of ssh must be known, a silent HTTP server is given up."""
    if kind in ("ssh", "sftp"):
        return {"known_hosts": ()}
    if kind not in ("http", "https"):
        return {}
    timeout = import_module("aiohttp").ClientTimeout(total=None, sock_connect=SILENCE, sock_read=SILENCE)
    return {"client_kwargs": {"timeout": timeout, "trust_env": True}}


@contextmanager
def _told(url: str) -> Iterator[None]:
    """Turn what a driver raises into a sentence that shows no credentials."""
    try:
        yield
    except (UnreadableError, UsageError, KeyboardInterrupt):
        raise
    except FileNotFoundError:
        raise UnreadableError("is not there, or its host does not answer", where=masked(url)) from None
    except PermissionError:
        todo = "the driver takes credentials from its own variables and files"
        raise UnreadableError("access is refused", where=masked(url), todo=todo) from None
    except Exception as e:
        lines = masked(str(e)).splitlines()
        why = f"{type(e).__name__}: {lines[0][:300]}" if lines else type(e).__name__
        raise UnreadableError("cannot be read from there", where=masked(url), why=why) from None


def _copies() -> Path:
    """Return the private folder of copies; raise UnreadableError where there is none."""
    cache = cache_folder()
    folder = make_private(cache / "remote") if cache else None
    if folder is None:
        raise UnreadableError("there is no private folder for copies", todo="set XDG_CACHE_HOME")
    return folder


def _check_room(remote: Remote, folder: Path) -> None:
    status = os.statvfs(folder)
    free = status.f_bavail * status.f_frsize
    if remote.size is not None and remote.size > min(free, LIMIT):
        what = f"holds {remote.size:,} bytes, more than the {min(free, LIMIT):,} that may be copied here"
        raise UnreadableError(what, where=masked(remote.url))


def _meter(remote: Remote) -> Any:
    """Return what a driver calls as bytes arrive: it stops a file that is larger than may be kept."""

    def check(size: int | None, value: int, **_: Any) -> None:
        if value > LIMIT:
            raise UnreadableError(
                f"sends more than the {LIMIT:,} bytes that may be kept", where=masked(remote.url)
            )

    return import_module("fsspec.callbacks").Callback(hooks={"check": check})


def _copy(remote: Remote, kept: Path, place: Path) -> None:
    """Copy the file beside its place, then move it there at once."""
    system, path = _system(remote.url)
    kept.mkdir(mode=0o700, exist_ok=True)
    handle, beside = tempfile.mkstemp(prefix=".", dir=kept)
    os.close(handle)
    try:
        system.get_file(path, beside, callback=_meter(remote))
        have = Path(beside).stat().st_size
        if remote.size is not None and have != remote.size:
            raise UnreadableError(
                f"only {have:,} of {remote.size:,} bytes arrived", where=masked(remote.url), todo="try again"
            )
        Path(beside).replace(place)
    finally:
        Path(beside).unlink(missing_ok=True)


def _drop_empty(folder: Path) -> None:
    """Remove the folders of copies that are gone."""
    for each in folder.iterdir():
        with suppress(OSError):
            each.rmdir()
