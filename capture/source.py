"""Input file: its bytes with gzip undone, its head for sniffing, and its import log."""

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
from functools import cached_property
from pathlib import Path
from typing import IO

from msgspec import Struct, field

from capture.clean_text import clean
from capture.errors import UnreadableError, suggest_nearest
from capture.files.addresses import is_url, mask_credentials
from capture.files.remote_files import fetch_copy, stat_remote
from capture.graphs.capture_files import find_adjacent_captures, find_compiler_files, find_reports
from capture.import_log import Log

HEAD_BYTES = 1 << 18  # that a sniffer may look at
LONG_HEAD_BYTES = 1 << 24
CHUNK_BYTES = 1 << 20
MAX_BLANK_LINES = 10_000  # in a row; further ones are dropped
_BLANK_LINES = (b"\n", b" \n", b"\t\n")
_BLANK_RUN = re.compile(rb"\n[ \t\n]{%d,}\n" % MAX_BLANK_LINES)
MIN_BOMB_BYTES = 1 << 27  # smaller unpacked sizes are never refused
MAX_UNPACK_RATIO = 200  # of unpacked to packed size
MAX_STREAM_BYTES = 8 << 30  # copied from a stream; never more than half of the free space
MAX_COMPARED_NAMES = 5000  # of a folder, when a similar name is searched
NO_LIMITS_HINT = "--no-limits reads it all"

_GZIP = b"\x1f\x8b"


class Head(Struct, frozen=True, dict=True):
    """The first bytes of an input, with gzip undone: all that a sniffer sees."""

    raw: bytes
    is_complete: bool  # whether this is the entire input

    @cached_property
    def text(self) -> str:
        """The head as text with Unix line ends."""
        return decode_text(self.raw).replace("\r\n", "\n")

    @cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @cached_property
    def lower_text(self) -> str:
        """The text in lower case."""
        return self.text.lower()

    @cached_property
    def stripped_text(self) -> str:
        """The text without leading blanks."""
        return self.text.lstrip()


def decode_text(raw: bytes) -> str:
    """Return bytes as text, by byte-order mark or as UTF-8; invalid bytes are replaced."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", "replace")
    return raw.decode("utf-8-sig", "replace")


class Source(Struct, dict=True):
    """An input on disk; `label` is its cleaned name."""

    path: Path
    label: str
    log: Log = field(default_factory=Log)
    requested_captures: tuple[Path, ...] | None = None  # None: search next to the input
    is_spooled: bool = False  # copied to a temporary file, not to be cached
    limits: bool = True  # on the unpacked size
    temporary_file: IO[bytes] | None = None  # keeps the temporary file alive
    lacks_blank_lines: bool = False  # noted in the log once

    @classmethod
    def from_path(cls, path: str | Path, *, limits: bool = True) -> "Source":
        """Return the input at a path or URL, `-` for stdin; raise UnreadableError if it is not a file."""
        if str(path) == "-":
            return cls.from_stream(sys.stdin.buffer, "stdin", limits=limits)
        if is_url(path):
            label = mask_credentials(str(path))
            return cls(fetch_copy(stat_remote(str(path))), label, Log(source=label), limits=limits)
        label = clean(str(path), 4096)
        path = Path(path)
        try:
            mode = path.stat().st_mode
        except (OSError, ValueError) as e:
            todo = suggest_nearest(path.name, _list_sibling_names(path), "check the path")
            raise UnreadableError(describe_error(e), where=label, todo=todo) from None
        if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
            with path.open("rb") as stream:
                return cls.from_stream(stream, label, limits=limits)
        if not stat.S_ISREG(mode):
            raise UnreadableError(f"is a {_describe_file_type(mode)}, not a file", where=label)
        return cls(path, label, Log(source=label), limits=limits)

    @classmethod
    def from_stream(cls, stream: IO[bytes], label: str, *, limits: bool = True) -> "Source":
        """Return a stream as an input, copied to a temporary file because it cannot be read twice.

        On Linux the file has no name, so that it disappears with the process.
        Raises UnreadableError if the stream is longer than MAX_STREAM_BYTES.
        """
        can_be_unnamed = Path("/proc/self/fd").is_dir()
        make = tempfile.TemporaryFile if can_be_unnamed else tempfile.NamedTemporaryFile
        copy = make(prefix="tracetui-")
        limit, size = min(MAX_STREAM_BYTES, shutil.disk_usage(tempfile.gettempdir()).free // 2), 0
        while chunk := stream.read(CHUNK_BYTES):
            size += len(chunk)
            if limits and size > limit:
                copy.close()
                what = f"is a stream of more than {limit:,} bytes"
                raise UnreadableError(what, where=label, todo=NO_LIMITS_HINT)
            copy.write(chunk)
        copy.flush()
        path = Path(f"/proc/{os.getpid()}/fd/{copy.fileno()}" if can_be_unnamed else copy.name)
        return cls(path, label, Log(source=label), is_spooled=True, limits=limits, temporary_file=copy)

    @cached_property
    def captures(self) -> tuple[Path, ...]:
        """Files with captures of the graphs that this input replays: as requested, else found next to it."""
        if self.requested_captures is not None:
            return self.requested_captures
        return () if self.is_spooled else find_adjacent_captures(self.path)

    @cached_property
    def compiler_files(self) -> tuple[Path, ...]:
        """Files next to this input in which torch.compile describes the kernels that it generated."""
        return () if self.is_spooled else find_compiler_files(self.path)

    @cached_property
    def reports(self) -> tuple[Path, ...]:
        """Files next to this input in which its writer says more of the same run."""
        return () if self.is_spooled else find_reports(self.path)

    @cached_property
    def size(self) -> int:
        return self.path.stat().st_size

    @cached_property
    def is_gzipped(self) -> bool:
        with self._open() as f:
            return f.read(2) == _GZIP

    @cached_property
    def head(self) -> Head:
        """The first HEAD_BYTES, unpacked."""
        return self._read_head(HEAD_BYTES)

    def extend_head(self) -> None:
        """Make the head longer, for a document of which the first HEAD_BYTES do not say what it is."""
        self.head = self._read_head(LONG_HEAD_BYTES)

    def _read_head(self, limit: int) -> Head:
        parts, size = [], 0
        for chunk in self._iter_chunks(None):
            parts.append(chunk)
            size += len(chunk)
            if size > limit:
                break
        raw = b"".join(parts)
        return Head(raw[:limit], len(raw) <= limit)

    def iter_chunks(self) -> Iterator[bytes]:
        """Yield all bytes, unpacked; of a damaged gzip stream the readable part, noted in the log."""
        yield from self._iter_chunks(self.log)

    def read(self, limit: int = 1 << 34) -> bytes:
        """Return all bytes, unpacked; raise UnreadableError if they exceed the limit."""
        parts, size = [], 0
        for chunk in self.iter_chunks() if self.is_gzipped else [self._read_raw(limit)]:
            size += len(chunk)
            if size > limit:
                raise UnreadableError(f"is larger than {limit:,} bytes when unpacked", where=self.label)
            parts.append(chunk)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_text(self) -> str:
        """Return the content as text with Unix line ends and limited runs of blank lines."""
        return self.read_utf8().decode()

    def read_utf8(self) -> bytes:
        """Return the content of `read_text` in UTF-8."""
        raw = self.read()
        text = raw if raw.isascii() else decode_text(raw).encode()
        return self._limit_blank_lines(text.replace(b"\r\n", b"\n") if b"\r" in text else text)

    def _limit_blank_lines(self, text: bytes) -> bytes:
        """Shorten long runs of blank lines: gzip packs millions of them into a few bytes."""
        if not any(blank * MAX_BLANK_LINES in text for blank in _BLANK_LINES):
            return text
        shorter = _BLANK_RUN.sub(lambda part: b"\n" * min(part[0].count(b"\n"), MAX_BLANK_LINES), text)
        if not self.lacks_blank_lines:
            message = "blank lines were dropped; later lines have lower numbers"
            self.log.note("blank_lines", message, count=text.count(b"\n") - shorter.count(b"\n"))
        self.lacks_blank_lines = True
        return shorter

    def iter_lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the offset and text of every line that is not blank, also of a last torn one."""
        line_parts, offset = list[bytes](), 0  # a line may span many chunks
        for chunk in self.iter_chunks():
            first, *later = chunk.split(b"\n")
            line_parts.append(first)
            if not later:
                continue
            for line in (b"".join(line_parts), *later[:-1]):
                if line and (len(line) > 1 or line.strip()):
                    yield offset, line.removesuffix(b"\r")
                offset += len(line) + 1
            line_parts = [later[-1]]
        if last_line := b"".join(line_parts):
            yield offset, last_line

    def _open(self) -> IO[bytes]:
        try:
            return self.path.open("rb")
        except OSError as e:
            raise UnreadableError(describe_error(e), where=self.label) from None

    def _read_raw(self, limit: int) -> bytes:
        """Return the bytes without unpacking; of a file above the limit, one byte more than the limit."""
        with self._open() as raw:
            try:
                return raw.read() if self.size <= limit else raw.read(limit + 1)
            except OSError as e:
                raise UnreadableError(describe_error(e), where=self.label) from None

    def _iter_chunks(self, log: Log | None) -> Iterator[bytes]:
        with self._open() as raw:
            try:
                if not self.is_gzipped:
                    while chunk := raw.read(CHUNK_BYTES):
                        yield chunk
                    return
                yield from self._iter_unpacked(raw)
            except (EOFError, zlib.error, gzip.BadGzipFile) as e:
                message = f"the gzip stream is damaged after its readable part: {e}"
                if log is not None:
                    log.note("gzip_damaged", message, at=raw.tell(), severity="data_loss")
            except OSError as e:
                raise UnreadableError(describe_error(e), where=self.label) from None

    def _iter_unpacked(self, raw: IO[bytes]) -> Iterator[bytes]:
        """Yield the unpacked bytes; raise zlib.error after the last readable one of a damaged stream."""
        size = 0
        unpacked = gzip.GzipFile(fileobj=raw)
        try:
            while chunk := unpacked.read1(CHUNK_BYTES):
                size += len(chunk)
                if self.limits and size > max(MIN_BOMB_BYTES, MAX_UNPACK_RATIO * self.size):
                    problem = f"unpacks to more than {MAX_UNPACK_RATIO} times its size"
                    raise UnreadableError(problem, where=self.label, todo=NO_LIMITS_HINT)
                yield chunk
        except zlib.error:
            raw.seek(0)
            yield _unpack_up_to_damage(raw, size)
            raise


def _unpack_up_to_damage(raw: IO[bytes], done: int) -> bytes:
    """Return the content of a damaged gzip stream after its first `done` bytes, up to the damage."""
    inflate, unpacked = zlib.decompressobj(31), 0
    while piece := inflate.unused_data or raw.read(CHUNK_BYTES >> 4):
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


def describe_error(error: Exception) -> str:
    """Return an error in plain words, as the end of a sentence."""
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno).lower()
    return clean(str(error), 500)


def _list_sibling_names(path: Path) -> list[str]:
    """Return names in the folder of a missing file, at most MAX_COMPARED_NAMES."""
    with contextlib.suppress(OSError, ValueError), os.scandir(path.parent) as entries:
        return [clean(entry.name, 255) for entry in itertools.islice(entries, MAX_COMPARED_NAMES)]
    return []


def _describe_file_type(mode: int) -> str:
    kinds = ((stat.S_ISDIR, "directory"), (stat.S_ISSOCK, "socket"), (stat.S_ISBLK, "block device"))
    return next((name for test, name in kinds if test(mode)), "special file")
