"""Follow a growing native file through truncation, replacement and parts; nothing is counted twice."""

import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal

from capture.clean_text import clean
from capture.errors import UnreadableError
from capture.import_log import Log
from capture.native.assembler import Assembler
from capture.native.line_types import FORMAT, is_foreign, is_native, parse_run_id
from capture.native.parts import list_earlier_parts, parse_part_count
from capture.run import LiveRun
from capture.source import Source, describe_error

State = Literal["waiting", "growing", "quiet", "deleted", "ended"]

QUIET_S: Final = 30.0
HEARTBEAT_TIMEOUT_S: Final = 10.0  # silence allowed to a writer with a heartbeat, which it sends every second
MAX_POLL_BYTES: Final = 16 << 20  # read by one poll at most, so that it takes little time
MAX_LINE_BYTES: Final = 64 << 20
RECENT_EVENTS: Final = 1 << 15  # that stay single, so that drawing them takes little time

_READ_BYTES: Final = 1 << 20
_TAIL_BYTES: Final = 64


class FileTail:
    """A growing file: call `poll` a few times per second, and `build_runs` when it returns True.

    A truncated file is read again. After a replacement the successor continues the recording, unless it
    contains the same run. A deleted file is read to its end, then awaited.
    """

    def __init__(
        self, path: str | Path, clock: Callable[[], float] = time.monotonic, archived_launches: int = 0
    ) -> None:
        """Follow a file; `archived_launches` older launches are kept compressed."""
        self.path = Path(path)
        self._archived_launches = archived_launches
        self.notice = ""  # the last event of the file: truncated, replaced
        self.is_behind = False  # whether the last poll left a part of the file for the next one
        self._clock = clock
        self._label = clean(str(path), 4096)
        self._fd = -1
        self._is_deleted = False
        self._changed_at = self._active_at = clock()
        self._activity = 0
        self._offset = 0  # bytes read
        self._partial_line = b""  # read, but not complete yet
        self._restart()

    def poll(self) -> bool:
        """Read new lines and return whether there were any."""
        grown = self._read_new()
        if self._is_replaced():
            grown |= self._read_new()
            self._open_successor()
            grown |= self._read_new()
        if grown:
            self._changed_at = self._clock()
        if self._activity != self._assembler.activity:
            self.reset_silence_timer()
        return grown

    def reset_silence_timer(self) -> None:
        """Measure the silence of the writer from now on."""
        self._activity, self._active_at = self._assembler.activity, self._clock()

    def build_runs(self, *, is_final: bool = False) -> list[LiveRun]:
        """Return the runs so far; `is_final` reads the file as `load` would, for a writer that is gone."""
        if is_final and self._partial_line:
            self._assembler.feed([(self._offset - len(self._partial_line), self._partial_line)])
            self._partial_line = b""
        return self._assembler.build_snapshots(is_final=is_final or self._assembler.has_ended)

    @property
    def state(self) -> State:
        """The state of the file as one word."""
        if self._assembler.has_ended:
            return "ended"
        if self._is_deleted:
            return "deleted"
        if self._fd < 0 or self._offset == 0:
            return "waiting"
        return "quiet" if self.idle_s >= QUIET_S else "growing"

    @property
    def idle_s(self) -> float:
        """Seconds since the file last grew."""
        return self._clock() - self._changed_at

    @property
    def silence_warning(self) -> str:
        """A warning if the writer has been silent for too long, else empty.

        Counters do not count: they come from another process.
        """
        silence_s = self._clock() - self._active_at
        if silence_s < (HEARTBEAT_TIMEOUT_S if self._assembler.has_heartbeat else QUIET_S):
            return ""
        return f"the engine has been silent for {silence_s:.0f} s"

    @property
    def state_message(self) -> str:
        """The state of the file as a sentence; empty while it grows."""
        return {
            "waiting": f"waiting for {self._label}",
            "quiet": f"no data for {self.idle_s:.0f} s",
            "deleted": "the file was deleted; the events read so far stay",
            "ended": "the run has ended",
            "growing": "",
        }[self.state]

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _restart(self) -> None:
        log = Log(self._label, FORMAT)
        self._assembler = Assembler(log, self.path.stem, RECENT_EVENTS, self._archived_launches)
        self._is_native = False
        self._part_count = 0  # number of parts before the current file
        self._rewind()

    def _rewind(self) -> None:
        self._offset = 0
        self._partial_line = self._tail = b""
        self._is_skipping_line = False

    def _read_new(self) -> bool:
        """Read complete lines and return whether there were any."""
        if self._fd < 0 and not self._open():
            return False
        if self._is_truncated():
            self.notice = "the file was truncated; reading it again"
            os.lseek(self._fd, 0, os.SEEK_SET)
            self._restart()
            self._read_missed_parts()
        before = self._offset
        self._assembler.feed(self._iter_lines())
        self.is_behind = self._offset - before >= MAX_POLL_BYTES
        return self._offset > before

    def _open(self) -> bool:
        """Open the file and return True, or False if it is missing; raise if it cannot grow."""
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return False
        except OSError as e:
            raise UnreadableError(describe_error(e), where=self._label) from None
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise UnreadableError("is not a regular file", where=self._label)
        self._read_missed_parts()
        return True

    def _read_missed_parts(self) -> None:
        """Read the parts between the last file read and the one opened now."""
        first_line = os.pread(self._fd, _READ_BYTES, 0).partition(b"\n")[0]
        for part in list_earlier_parts(self.path, first_line, after=self._part_count):
            self._assembler.feed(Source.from_path(part).iter_lines())
        self._part_count = parse_part_count(first_line)

    def _is_truncated(self) -> bool:
        """Return whether the file no longer contains what was read from it."""
        if os.fstat(self._fd).st_size < self._offset:
            return True
        return os.pread(self._fd, len(self._tail), self._offset - len(self._tail)) != self._tail

    def _iter_lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the next complete lines with their offsets."""
        limit = self._offset + MAX_POLL_BYTES
        while self._offset < limit and (chunk := os.read(self._fd, _READ_BYTES)):
            offset = self._offset - len(self._partial_line)
            self._offset += len(chunk)
            self._tail = (self._tail + chunk)[-_TAIL_BYTES:]
            *complete, self._partial_line = (self._partial_line + chunk).split(b"\n")
            if complete and self._is_skipping_line:
                self._is_skipping_line, offset = False, offset + len(complete.pop(0)) + 1
            for line in complete:
                self._check_format(line)
                yield offset, line
                offset += len(line) + 1
            self._drop_endless_line()

    def _check_format(self, line: bytes) -> None:
        """Raise UnreadableError if the first complete line is of another format."""
        if self._is_native or not line.strip():
            return
        if is_foreign(line):
            why = "only native files can be read while they grow"
            raise UnreadableError("cannot be followed", where=self._label, why=why)
        self._is_native = is_native(line)

    def _drop_endless_line(self) -> None:
        """Drop what was read of a line that is too long, and skip its rest as it comes."""
        if len(self._partial_line) > MAX_LINE_BYTES:
            if not self._is_skipping_line:
                log, message = self._assembler.log, f"a line of more than {MAX_LINE_BYTES:,} bytes"
                log.read += 1
                log.drop("endless_line", message, at=self._offset - len(self._partial_line))
            self._partial_line, self._is_skipping_line = b"", True

    def _is_replaced(self) -> bool:
        """Return whether the path names another file now."""
        if self._fd < 0:
            return False
        try:
            current = self.path.stat()
        except OSError:
            self._is_deleted = True
            return False
        self._is_deleted = False
        return not os.path.samestat(current, os.fstat(self._fd))

    def _open_successor(self) -> None:
        """Close a file that is no longer at the path, and open the one that is."""
        self.close()
        self._part_count += 1  # the file read so far is a part, too, if the next one is
        if not self._open():
            return
        first_line = os.pread(self._fd, _READ_BYTES, 0).partition(b"\n")[0]
        run_id = parse_run_id(first_line)
        if run_id is not None and self._assembler.has_run(run_id) and not parse_part_count(first_line):
            self.notice = "the file was replaced; reading the new one"
            self._restart()
        else:
            self.notice = "the file was replaced; its successor continues"
            self._rewind()
