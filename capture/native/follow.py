"""Follows a native file that grows; whatever becomes of the file, nothing is counted twice."""

import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal

from capture.errors import UnreadableError
from capture.importlog import Log
from capture.native.parts import earlier_parts, parts_before
from capture.native.read import Assembler
from capture.native.recognise import FORMAT, is_foreign, is_native, run_id
from capture.run import Run
from capture.source import Source, reason
from capture.text import clean

State = Literal["waiting", "growing", "quiet", "deleted", "ended"]

QUIET_S: Final = 30.0
PULSE_S: Final = 10.0  # as long may a writer with a heartbeat be silent; it has one a second
AT_ONCE: Final = 16 << 20  # bytes that one poll reads at most, so that it takes little time
LONGEST_LINE: Final = 64 << 20
NEWEST: Final = 1 << 15  # events that are kept one by one, so that drawing them takes little time

_READ: Final = 1 << 20
_TAIL: Final = 64


class Follow:
    """A growing file: poll it a few times a second, and ask for the runs when a poll has read something.

    A file that is cut starts anew; one that is replaced goes on in its successor, unless that holds the
    same run again; one that is deleted is read to its end and then waited for.
    """

    def __init__(
        self, path: str | Path, clock: Callable[[], float] = time.monotonic, shelved: int = 0
    ) -> None:
        """Follow a file; so many launches of older steps are kept packed beside those of the newest."""
        self.path = Path(path)
        self._shelved = shelved
        self.notice = ""  # the last thing that happened to the file
        self.behind = False  # whether the last poll left a part of the file for the next
        self._clock = clock
        self._label = clean(str(path), 4096)
        self._fd = -1
        self._deleted = False
        self._changed_at = self._active_at = clock()
        self._activity = 0
        self._at = 0  # bytes read
        self._rest = b""  # of which these are a line that is not whole yet
        self._start_anew()

    def poll(self) -> bool:
        """Read what is new and return whether there was anything."""
        grown = self._read()
        if self._is_replaced():
            grown |= self._read()
            self._open_successor()
            grown |= self._read()
        if grown:
            self._changed_at = self._clock()
        if self._activity != self._assembler.activity:
            self.listen()
        return grown

    def listen(self) -> None:
        """Count the writer's silence from now on."""
        self._activity, self._active_at = self._assembler.activity, self._clock()

    def runs(self, *, final: bool = False) -> list[Run]:
        """Return the runs so far; with `final`, for a writer that is gone, as `load` would read the file."""
        if final and self._rest:
            self._assembler.feed([(self._at - len(self._rest), self._rest)])
            self._rest = b""
        return self._assembler.runs(whole=final or self._assembler.ended)

    @property
    def state(self) -> State:
        """What the file does, as one word."""
        if self._assembler.ended:
            return "ended"
        if self._deleted:
            return "deleted"
        if self._fd < 0 or self._at == 0:
            return "waiting"
        return "quiet" if self.idle_s >= QUIET_S else "growing"

    @property
    def idle_s(self) -> float:
        """Seconds since the file last grew."""
        return self._clock() - self._changed_at

    @property
    def silence(self) -> str:
        """A sentence where the writer has written nothing for too long; empty where it has.

        Counters say nothing of it: they come from a process beside it.
        """
        silent = self._clock() - self._active_at
        if silent < (PULSE_S if self._assembler.has_heartbeat else QUIET_S):
            return ""
        return f"the engine has not been heard of for {silent:.0f} s"

    @property
    def says(self) -> str:
        """The state of the file as a sentence; empty while it grows."""
        return {
            "waiting": f"waiting for {self._label}",
            "quiet": f"no data for {self.idle_s:.0f} s",
            "deleted": "the file was deleted; what was read stays",
            "ended": "the run has ended",
            "growing": "",
        }[self.state]

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _start_anew(self) -> None:
        self._assembler = Assembler(Log(self._label, FORMAT), self.path.stem, NEWEST, self._shelved)
        self._is_native = False
        self._part = 0  # how many parts of the recording came before the file that is read
        self._rewind()

    def _rewind(self) -> None:
        self._at = 0
        self._rest = self._tail = b""
        self._skipping = False

    def _read(self) -> bool:
        """Read on, but for a last line that is not whole yet, and return whether there was anything."""
        if self._fd < 0 and not self._open():
            return False
        if self._was_cut():
            self.notice = "the file was cut; it starts anew"
            os.lseek(self._fd, 0, os.SEEK_SET)
            self._start_anew()
            self._read_parts_between()
        before = self._at
        self._assembler.feed(self._lines())
        self.behind = self._at - before >= AT_ONCE
        return self._at > before

    def _open(self) -> bool:
        """Open the file and return True; return False where there is none, raise where it cannot grow."""
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return False
        except OSError as e:
            raise UnreadableError(reason(e), where=self._label) from None
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise UnreadableError("is no file that can grow", where=self._label)
        self._read_parts_between()
        return True

    def _read_parts_between(self) -> None:
        """Take the parts that came before the file that was opened and after the last that was read."""
        first = os.pread(self._fd, _READ, 0).partition(b"\n")[0]
        for part in earlier_parts(self.path, first, after=self._part):
            self._assembler.feed(Source.of(part).lines())
        self._part = parts_before(first)

    def _was_cut(self) -> bool:
        """Return whether the file no longer holds what was read from it."""
        if os.fstat(self._fd).st_size < self._at:
            return True
        return os.pread(self._fd, len(self._tail), self._at - len(self._tail)) != self._tail

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the next whole lines with their offsets."""
        limit = self._at + AT_ONCE
        while self._at < limit and (chunk := os.read(self._fd, _READ)):
            at = self._at - len(self._rest)
            self._at += len(chunk)
            self._tail = (self._tail + chunk)[-_TAIL:]
            *whole, self._rest = (self._rest + chunk).split(b"\n")
            if whole and self._skipping:
                self._skipping, at = False, at + len(whole.pop(0)) + 1
            for line in whole:
                self._check(line)
                yield at, line
                at += len(line) + 1
            self._drop_endless_line()

    def _check(self, line: bytes) -> None:
        """Raise UnreadableError where the first whole line is of another format."""
        if self._is_native or not line.strip():
            return
        if is_foreign(line):
            why = "only a file of native lines can be read while it grows"
            raise UnreadableError("cannot be followed", where=self._label, why=why)
        self._is_native = is_native(line)

    def _drop_endless_line(self) -> None:
        """Drop what was read of a line that is too long, and skip the rest of it as it comes."""
        if len(self._rest) > LONGEST_LINE:
            message = f"a line of more than {LONGEST_LINE:,} bytes"
            if not self._skipping:
                self._assembler.log.read += 1
                self._assembler.log.drop("endless_line", message, at=self._at - len(self._rest))
            self._rest, self._skipping = b"", True

    def _is_replaced(self) -> bool:
        """Return whether the path leads to another file now."""
        if self._fd < 0:
            return False
        try:
            there = self.path.stat()
        except OSError:
            self._deleted = True
            return False
        self._deleted = False
        return not os.path.samestat(there, os.fstat(self._fd))

    def _open_successor(self) -> None:
        """Close a file that is no longer at the path, and open the one that is."""
        self.close()
        self._part += 1  # what was read till here is a part itself, if the next file is one
        if not self._open():
            return
        first = os.pread(self._fd, _READ, 0).partition(b"\n")[0]
        run = run_id(first)
        if run is not None and self._assembler.has_run(run) and not parts_before(first):
            self.notice = "the file was replaced; it starts anew"
            self._start_anew()
        else:
            self.notice = "the file was replaced; its successor goes on"
            self._rewind()
