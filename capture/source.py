"""One input file: its bytes with gzip undone, its head, and the log of its import."""

import contextlib
import gzip
import itertools
import os
import re
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO

from capture.addresses import is_url, masked
from capture.captures import found
from capture.errors import UnreadableError
from capture.importlog import Log
from capture.nearest import did_you_mean
from capture.remote import copy_of, look_up
from capture.text import clean

HEAD = 1 << 18  # bytes that a sniffer may look at
CHUNK = 1 << 20
MANY_BLANKS = 10_000  # lines, of which the others are left out
_BLANK_LINES = (b"\n", b" \n", b"\t\n")
_BLANK_PART = re.compile(rb"\n[ \t\n]{%d,}\n" % MANY_BLANKS)
BOMB_FLOOR = 1 << 27  # bytes; only what unpacks to more can be refused as a bomb
BOMB_RATIO = 200  # unpacked size to packed size
STREAM_LIMIT = 8 << 30  # bytes of a stream that are copied; never more than half of what is free
NAMES = 5000  # of a folder, among which a name that does not exist is looked for
GO_ON = "--no-limits reads on"

_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Head:
    """The first bytes of an input, with gzip undone: all that a sniffer may look at."""

    raw: bytes
    whole: bool  # the head is the entire input

    @cached_property
    def text(self) -> str:
        """The head as text with Unix line ends."""
        return decode(self.raw).replace("\r\n", "\n")

    @cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @cached_property
    def lower(self) -> str:
        """The text in lower case."""
        return self.text.lower()

    @cached_property
    def start(self) -> str:
        """The text without leading blanks."""
        return self.text.lstrip()


def decode(raw: bytes) -> str:
    """Return bytes as text: by their byte-order mark, else as UTF-8; bad bytes are replaced."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", "replace")
    return raw.decode("utf-8-sig", "replace")


@dataclass
class Source:
    """An input on disk; `label` is its cleaned name."""

    path: Path
    label: str
    log: Log = field(default_factory=Log)
    named_captures: tuple[Path, ...] | None = None  # None: they are looked for beside the input
    spooled: bool = False  # copied to a temporary file, which is no input that could come again
    limits: bool = True  # on how far it may unpack
    held: IO[bytes] | None = field(default=None, repr=False)  # what keeps a temporary file alive
    shortened: bool = field(default=False, repr=False)  # of blank lines, which the log notes

    @classmethod
    def of(cls, path: str | Path, *, limits: bool = True) -> "Source":
        """Return the input at a path or a URL, `-` for standard input; raise UnreadableError for no file."""
        if str(path) == "-":
            return cls.spool(sys.stdin.buffer, "stdin", limits=limits)
        if is_url(path):
            label = masked(str(path))
            return cls(copy_of(look_up(str(path))), label, Log(source=label), limits=limits)
        label = clean(str(path), 4096)
        path = Path(path)
        try:
            mode = path.stat().st_mode
        except (OSError, ValueError) as e:
            todo = did_you_mean(path.name, _beside(path), "check the path")
            raise UnreadableError(reason(e), where=label, todo=todo) from None
        if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
            with path.open("rb") as stream:
                return cls.spool(stream, label, limits=limits)
        if not stat.S_ISREG(mode):
            raise UnreadableError(f"is a {_kind(mode)}, not a file", where=label)
        return cls(path, label, Log(source=label), limits=limits)

    @classmethod
    def spool(cls, stream: IO[bytes], label: str, *, limits: bool = True) -> "Source":
        """Return a stream as an input: copied to a temporary file, for it cannot be read twice.

        Raises UnreadableError where it is longer than STREAM_LIMIT. Where the system can, the file has no
        name and is gone with the process, however that ends.
        """
        unnamed = Path("/proc/self/fd").is_dir()
        make = tempfile.TemporaryFile if unnamed else tempfile.NamedTemporaryFile
        copy = make(prefix="tracetui-")
        most, have = min(STREAM_LIMIT, shutil.disk_usage(tempfile.gettempdir()).free // 2), 0
        while chunk := stream.read(CHUNK):
            have += len(chunk)
            if limits and have > most:
                copy.close()
                raise UnreadableError(f"is a stream of more than {most:,} bytes", where=label, todo=GO_ON)
            copy.write(chunk)
        copy.flush()
        path = Path(f"/proc/{os.getpid()}/fd/{copy.fileno()}" if unnamed else copy.name)
        return cls(path, label, Log(source=label), spooled=True, limits=limits, held=copy)

    @cached_property
    def captures(self) -> tuple[Path, ...]:
        """The files that may tell of graphs which this input replays: as named, else as found beside it."""
        if self.named_captures is not None:
            return self.named_captures
        return () if self.spooled else found(self.path)

    @cached_property
    def size(self) -> int:
        return self.path.stat().st_size

    @cached_property
    def gzipped(self) -> bool:
        with self._open() as f:
            return f.read(2) == _GZIP

    @cached_property
    def head(self) -> Head:
        """The first HEAD bytes, unpacked."""
        parts, have = [], 0
        for chunk in self._chunks(None):
            parts.append(chunk)
            have += len(chunk)
            if have > HEAD:
                break
        raw = b"".join(parts)
        return Head(raw[:HEAD], len(raw) <= HEAD)

    def chunks(self) -> Iterator[bytes]:
        """Yield all bytes, unpacked; a damaged gzip stream yields what it holds, and the log notes it."""
        yield from self._chunks(self.log)

    def read(self, limit: int = 1 << 34) -> bytes:
        """Return all bytes, unpacked; raise UnreadableError where they are more than the limit."""
        parts, have = [], 0
        for chunk in self.chunks() if self.gzipped else [self._whole(limit)]:
            have += len(chunk)
            if have > limit:
                raise UnreadableError(f"is larger than {limit:,} bytes when unpacked", where=self.label)
            parts.append(chunk)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def text(self) -> str:
        """Return all of it as text with Unix line ends; of a long run of blank lines the first ones."""
        return self.utf8().decode()

    def utf8(self) -> bytes:
        """Return the same in UTF-8."""
        raw = self.read()
        text = raw if raw.isascii() else decode(raw).encode()
        return self._shortened(text.replace(b"\r\n", b"\n") if b"\r" in text else text)

    def _shortened(self, text: bytes) -> bytes:
        """Leave out blank lines where a great many follow each other, which a few bytes can unpack to."""
        if not any(blank * MANY_BLANKS in text for blank in _BLANK_LINES):
            return text
        shorter = _BLANK_PART.sub(lambda part: b"\n" * min(part[0].count(b"\n"), MANY_BLANKS), text)
        if not self.shortened:
            said = "blank lines were left out; later lines have lower numbers"
            self.log.note("blank_lines", said, count=text.count(b"\n") - shorter.count(b"\n"))
        self.shortened = True
        return shorter

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield every line that says anything without its end, with the offset of its first byte; a last torn
        line too.
        """
        begun, at = list[bytes](), 0  # a line may be longer than many chunks
        for chunk in self.chunks():
            first, *whole = chunk.split(b"\n")
            begun.append(first)
            if not whole:
                continue
            for line in (b"".join(begun), *whole[:-1]):
                if line and (len(line) > 1 or line.strip()):
                    yield at, line.removesuffix(b"\r")
                at += len(line) + 1
            begun = [whole[-1]]
        if rest := b"".join(begun):
            yield at, rest

    def _open(self) -> IO[bytes]:
        try:
            return self.path.open("rb")
        except OSError as e:
            raise UnreadableError(reason(e), where=self.label) from None

    def _whole(self, limit: int) -> bytes:
        """Return the bytes as they lie there, in one piece; of more than the limit one byte more than it."""
        with self._open() as raw:
            try:
                return raw.read() if self.size <= limit else raw.read(limit + 1)
            except OSError as e:
                raise UnreadableError(reason(e), where=self.label) from None

    def _chunks(self, log: Log | None) -> Iterator[bytes]:
        with self._open() as raw:
            try:
                if not self.gzipped:
                    while chunk := raw.read(CHUNK):
                        yield chunk
                    return
                yield from self._unpack(raw)
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

    def _unpack(self, raw: IO[bytes]) -> Iterator[bytes]:
        """Yield the unpacked bytes; raise zlib.error after the last readable one of a damaged stream."""
        out = 0
        unpacked = gzip.GzipFile(fileobj=raw)
        try:
            while chunk := unpacked.read1(CHUNK):
                out += len(chunk)
                if self.limits and out > max(BOMB_FLOOR, BOMB_RATIO * self.size):
                    what = f"unpacks to more than {BOMB_RATIO} times its size"
                    raise UnreadableError(what, where=self.label, todo=GO_ON)
                yield chunk
        except zlib.error:
            raw.seek(0)
            yield _unpack_up_to_damage(raw, out)
            raise


def _unpack_up_to_damage(raw: IO[bytes], done: int) -> bytes:
    """Return what a damaged gzip stream holds beyond its first `done` bytes, to the last readable one."""
    inflate, unpacked = zlib.decompressobj(31), 0
    while piece := inflate.unused_data or raw.read(CHUNK >> 4):
        inflate = zlib.decompressobj(31) if inflate.eof else inflate
        before = inflate.copy()
        try:
            unpacked += len(inflate.decompress(piece))
        except zlib.error:
            return _unpack_bytewise(before, piece)[max(0, done - unpacked) :]
    return b""


def _unpack_bytewise(inflate: "zlib._Decompress", piece: bytes) -> bytes:
    out = bytearray()
    with contextlib.suppress(zlib.error):
        for byte in piece:
            out += inflate.decompress(bytes([byte]))
    return bytes(out)


def reason(error: Exception) -> str:
    """Return an error in plain words, as the end of a sentence."""
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno).lower()
    return clean(str(error), 500)


def _beside(path: Path) -> list[str]:
    """Return the names that lie where a file was looked for, some thousand at most."""
    with contextlib.suppress(OSError, ValueError), os.scandir(path.parent) as entries:
        return [clean(entry.name, 255) for entry in itertools.islice(entries, NAMES)]
    return []


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISDIR, "directory"), (stat.S_ISSOCK, "socket"), (stat.S_ISBLK, "block device"))
    return next((name for test, name in kinds if test(mode)), "special file")
