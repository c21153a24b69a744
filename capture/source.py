"""One input file: its bytes with gzip undone, its head, and the account of what is lost on the way."""

import contextlib
import gzip
import os
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO

from capture.errors import UnreadableError
from capture.importlog import Log
from capture.text import clean

HEAD = 1 << 18
CHUNK = 1 << 20
BOMB_FLOOR = 1 << 30
BOMB_RATIO = 200

_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Head:
    """The first bytes of an input, with gzip undone: all that a sniffer may look at."""

    raw: bytes
    whole: bool  # the head is the entire input

    @cached_property
    def text(self) -> str:
        return decode(self.raw).replace("\r\n", "\n")

    @cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @cached_property
    def start(self) -> str:
        """The text without leading blanks."""
        return self.text.lstrip()


def decode(raw: bytes) -> str:
    """Bytes as text: a byte-order mark decides, else UTF-8 with bad bytes replaced."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", "replace")
    return raw.decode("utf-8-sig", "replace")


@dataclass
class Source:
    """An input on disk."""

    path: Path
    label: str
    log: Log = field(default_factory=Log)

    @classmethod
    def of(cls, path: str | Path) -> "Source":
        """The input behind a path, `-` for standard input; refuses what is no file."""
        if str(path) == "-":
            return cls.spooled(sys.stdin.buffer, "stdin")
        label = clean(str(path), 4096)
        path = Path(path)
        try:
            mode = path.stat().st_mode
        except (OSError, ValueError) as e:
            raise UnreadableError(reason(e), where=label, todo="check the path") from None
        if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
            with path.open("rb") as stream:
                return cls.spooled(stream, label)
        if not stat.S_ISREG(mode):
            raise UnreadableError(f"is a {_kind(mode)}, not a file", where=label)
        return cls(path, label, Log(source=label))

    @classmethod
    def spooled(cls, stream: IO[bytes], label: str) -> "Source":
        """A stream that cannot be read twice, copied to a private temporary file first."""
        with tempfile.NamedTemporaryFile(prefix="tracetui-", delete=False) as copy:
            while chunk := stream.read(CHUNK):
                copy.write(chunk)
        return cls(Path(copy.name), label, Log(source=label))

    @cached_property
    def size(self) -> int:
        return self.path.stat().st_size

    @cached_property
    def gzipped(self) -> bool:
        with self._open() as f:
            return f.read(2) == _GZIP

    @cached_property
    def head(self) -> Head:
        """The first quarter megabyte, unpacked."""
        parts, have = [], 0
        for chunk in self._chunks(None):
            parts.append(chunk)
            have += len(chunk)
            if have > HEAD:
                break
        raw = b"".join(parts)
        return Head(raw[:HEAD], len(raw) <= HEAD)

    def chunks(self) -> Iterator[bytes]:
        """All bytes, unpacked, in pieces; a damaged gzip stream gives what it holds and is noted."""
        yield from self._chunks(self.log)

    def read(self, limit: int = 1 << 34) -> bytes:
        """All bytes, unpacked."""
        parts, have = [], 0
        for chunk in self.chunks():
            have += len(chunk)
            if have > limit:
                raise UnreadableError(f"is larger than {limit:,} bytes when unpacked", where=self.label)
            parts.append(chunk)
        return b"".join(parts)

    def text(self) -> str:
        return decode(self.read()).replace("\r\n", "\n")

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Every line with the offset of its first byte, without its end; a last torn line is given too."""
        rest, at = b"", 0
        for chunk in self.chunks():
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                yield at, line.removesuffix(b"\r")
                at += len(line) + 1
        if rest:
            yield at, rest

    def _open(self) -> IO[bytes]:
        try:
            return self.path.open("rb")
        except OSError as e:
            raise UnreadableError(reason(e), where=self.label) from None

    def _chunks(self, log: Log | None) -> Iterator[bytes]:
        with self._open() as raw:
            try:
                if not self.gzipped:
                    while chunk := raw.read(CHUNK):
                        yield chunk
                    return
                yield from self._inflated(raw)
            except (EOFError, zlib.error, gzip.BadGzipFile) as e:
                if log is not None:
                    log.note(
                        "gzip_damaged",
                        f"the gzip stream is damaged after its readable part: {e}",
                        at=raw.tell(),
                        severity="data_loss",
                    )
            except OSError as e:
                raise UnreadableError(reason(e), where=self.label) from None

    def _inflated(self, raw: IO[bytes]) -> Iterator[bytes]:
        out = 0
        unpacked = gzip.GzipFile(fileobj=raw)
        try:
            while chunk := unpacked.read1(CHUNK):
                out += len(chunk)
                if out > max(BOMB_FLOOR, BOMB_RATIO * self.size):
                    raise UnreadableError(
                        f"unpacks to more than {BOMB_RATIO} times its size",
                        where=self.label,
                        todo="unpack it by hand if it is genuine",
                    )
                yield chunk
        except zlib.error:
            raw.seek(0)
            yield _up_to_damage(raw, out)
            raise


def _up_to_damage(raw: IO[bytes], done: int) -> bytes:
    """What a damaged gzip stream holds beyond its first `done` bytes, down to the last readable one."""
    inflate, seen = zlib.decompressobj(31), 0
    while piece := inflate.unused_data or raw.read(CHUNK >> 4):
        inflate = zlib.decompressobj(31) if inflate.eof else inflate
        before = inflate.copy()
        try:
            seen += len(inflate.decompress(piece))
        except zlib.error:
            return _byte_by_byte(before, piece)[max(0, done - seen) :]
    return b""


def _byte_by_byte(inflate: "zlib._Decompress", piece: bytes) -> bytes:
    out = bytearray()
    with contextlib.suppress(zlib.error):
        for byte in piece:
            out += inflate.decompress(bytes([byte]))
    return bytes(out)


def reason(error: Exception) -> str:
    """An operating-system error in plain words."""
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno).lower()
    return clean(str(error), 500)


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISDIR, "directory"), (stat.S_ISSOCK, "socket"), (stat.S_ISBLK, "block device"))
    return next((name for test, name in kinds if test(mode)), "special file")
