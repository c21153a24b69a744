"""A native file that grows, as runs that grow: whatever becomes of the file, nothing is counted twice."""

import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal

from capture.errors import UnreadableError
from capture.importlog import Log
from capture.loaders import native
from capture.native.read import Assembler
from capture.run import Run
from capture.source import Head, reason
from capture.text import clean

State = Literal["waiting", "growing", "quiet", "deleted", "ended"]

QUIET_S: Final = 30.0
PULSE_S: Final = 10.0  # a writer that gives signs of life gives one a second
AT_ONCE: Final = 16 << 20  # bytes that one poll reads at most, so that it stays short
LONGEST_LINE: Final = 64 << 20
NEWEST: Final = 1 << 15  # events that are held one by one, so that a picture of them takes little time

_READ: Final = 1 << 20
_TAIL: Final = 64


class Follow:
    """Poll it a few times a second; ask for the runs when a poll says that there is news.

    A file that is cut starts anew; one that is replaced goes on in its successor, unless that tells the
    same run again; one that is deleted is read to its end and then waited for.
    """

    def __init__(self, path: str | Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = Path(path)
        self.notice = ""  # the last thing that befell the file
        self.behind = False  # whether the last poll left a part of it for the next
        self._clock = clock
        self._label = clean(str(path), 4096)
        self._fd = -1
        self._deleted = False
        self._changed_at = self._heard_at = clock()
        self._heard = 0
        self._at = 0  # bytes read
        self._rest = b""  # of which these are a line that is not whole yet
        self._start_anew()

    def poll(self) -> bool:
        """Reads what is new; whether there was anything."""
        news = self._read()
        if self._successor():
            news |= self._read()
            self._turn_over()
            news |= self._read()
        if news:
            self._changed_at = self._clock()
        if self._heard != self._assembler.heard:
            self.listen()
        return news

    def listen(self) -> None:
        """From now on something is to be heard of the writer."""
        self._heard, self._heard_at = self._assembler.heard, self._clock()

    def runs(self, *, final: bool = False) -> list[Run]:
        """The runs so far; `final` when the writer is known to be gone, as `load` would read the file."""
        if final and self._rest:
            self._assembler.feed([(self._at - len(self._rest), self._rest)])
            self._rest = b""
        return self._assembler.runs(whole=final or self._assembler.ended)

    @property
    def state(self) -> State:
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
        """That a writer which is alive gives no sign of it, as a sentence; empty while it does.

        Counters are no sign: they come from a process beside it.
        """
        silent = self._clock() - self._heard_at
        if silent < (PULSE_S if self._assembler.beats else QUIET_S):
            return ""
        return f"the engine has not been heard of for {silent:.0f} s"

    @property
    def says(self) -> str:
        """The state of the file as a sentence; nothing while it grows."""
        return {
            "waiting": f"waiting for {self._label}",
            "quiet": f"no data for {self.idle_s:.0f} s",
            "deleted": "the file was deleted; what was read stays",
            "ended": "the run has ended",
            "growing": "",
        }[self.state]

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _start_anew(self) -> None:
        self._assembler = Assembler(Log(self._label, native.FORMAT), self.path.stem, NEWEST)
        self._known = False
        self._rewind()

    def _rewind(self) -> None:
        self._at = 0
        self._rest = self._tail = b""
        self._skipping = False

    def _read(self) -> bool:
        """What the open file holds beyond what was read, but for a last line that is not whole yet."""
        if self._fd < 0 and not self._open():
            return False
        if self._was_cut():
            self.notice = "the file was cut; it starts anew"
            os.lseek(self._fd, 0, os.SEEK_SET)
            self._start_anew()
        before = self._at
        self._assembler.feed(self._lines())
        self.behind = self._at - before >= AT_ONCE
        return self._at > before

    def _open(self) -> bool:
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return False
        except OSError as e:
            raise UnreadableError(reason(e), where=self._label) from None
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise UnreadableError("is no file that can grow", where=self._label)
        return True

    def _was_cut(self) -> bool:
        """Whether what was read is no longer what the file holds before this place."""
        if os.fstat(self._fd).st_size < self._at:
            return True
        return os.pread(self._fd, len(self._tail), self._at - len(self._tail)) != self._tail

    def _lines(self) -> Iterator[tuple[int, bytes]]:
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
            self._drop_endless()

    def _check(self, line: bytes) -> None:
        """The first line that is whole tells whether this is a file to follow."""
        if self._known or not line.strip():
            return
        if native.foreign(line):
            why = "only a file of native lines can be read while it grows"
            raise UnreadableError("cannot be followed", where=self._label, why=why)
        self._known = native.sniff(Head(line, whole=True))

    def _drop_endless(self) -> None:
        if len(self._rest) > LONGEST_LINE:
            message = f"a line of more than {LONGEST_LINE:,} bytes"
            if not self._skipping:
                self._assembler.log.read += 1
                self._assembler.log.drop("endless_line", message, at=self._at - len(self._rest))
            self._rest, self._skipping = b"", True

    def _successor(self) -> bool:
        """Whether the path leads to another file now."""
        if self._fd < 0:
            return False
        try:
            there = self.path.stat()
        except OSError:
            self._deleted = True
            return False
        self._deleted = False
        return not os.path.samestat(there, os.fstat(self._fd))

    def _turn_over(self) -> None:
        """From a file that is no longer at the path to the one that is."""
        self.close()
        if not self._open():
            return
        first = os.pread(self._fd, _READ, 0).partition(b"\n")[0]
        again = native.run_id(first)
        if again is not None and self._assembler.knows(again):
            self.notice = "the file was replaced; it starts anew"
            self._start_anew()
        else:
            self.notice = "the file was replaced; its successor goes on"
            self._rewind()
