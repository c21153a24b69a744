"""A process that ran before us and goes on after us: it is watched for as long as a link to it is open."""

import contextlib
import json
import secrets
import select
import socket
import struct
import time
import weakref
from pathlib import Path
from typing import Any, Final

from capture.errors import CaptureError, EngineError
from capture.text import clean
from tracetui.process import debugger
from tracetui.process.account import FOLDER, Account
from tracetui.process.commands import OUT
from tracetui.process.engine import Engine
from tracetui.process.target import Target

SOON_S: Final = 1.5  # in which a main thread at work comes to its next instruction
PATIENCE_S: Final = 15.0
LEAVE_S: Final = 3.0  # in which the program's own thread ends a profiler window
_WHY: Final = {
    "attached": ("another tracetui watches it", ""),
    "recorded": ("it is recorded already, by itself or since its start", ""),
    "torch": ("it has not imported torch", "tracetui record -- CMD waits for torch"),
    "importing": ("it is just importing torch", "try again in a moment"),
}


class Attached(Engine):
    """A recorder in a process of somebody else's; to stop it leaves the process as it was."""

    first_words = "attaching to the process"

    def __init__(self, pid: int, out: Path) -> None:
        """Attach, recording into `out`; raise UsageError or EngineError where that cannot be."""
        self._target, self._out = Target(pid), out
        self._link: socket.socket | None = None
        self._asked_to_end = False
        super().__init__([f"process {pid}"])

    def start(self) -> None:
        """Attach, also once more: what is appended to the file is a run of its own."""
        self._target.check()
        self.account = Account(secrets.token_hex(8))
        weakref.finalize(self, self.account.remove)
        self._asked_to_end = False
        self._link = self._attached()
        if self._sampled is not None:
            self.sample_into(self._sampled)

    @property
    def pid(self) -> int:
        return self._target.pid

    @property
    def returncode(self) -> int | None:
        """0 once it is watched no more, None while it is."""
        if self._sampler is not None:
            self._sampler._child.poll()
        return 0 if self._link is None or _is_closed(self._link) else None

    def send(self, order: Any) -> bool:
        """Return False: it takes no orders."""
        return False

    def ask_to_end(self) -> None:
        """Ask the recorder to leave the process, and wait for nothing: `stop` does."""
        if self._asked_to_end:
            return
        self._asked_to_end = True
        if self._link is not None:
            with contextlib.suppress(OSError):  # it has ended
                self._link.sendall(b"stop\n")
        if self._sampler is not None:
            self._sampler.ask_to_end()

    def stop(self, *, in_background: bool = False) -> None:
        """Detach, which takes no longer in the background; the process goes on."""
        self.ask_to_end()
        link, self._link = self._link, None
        if link is not None:
            _line(link, LEAVE_S)
            link.close()
        if self._sampler is not None:
            self._sampler.stop()  # it would go on for as long as the process

    def last_lines(self, lines: int = 20) -> list[str]:
        """Return nothing: what it prints is its own."""
        return []

    def failure_reason(self) -> str:
        """Return why the recorder let go; empty while it watches, and where the process has ended."""
        if self._asked_to_end or self.running:
            return ""
        faults = [fault for told in self.account.told().values() for fault in told.faults]
        return f"the recorder let go: {faults[0]}" if faults else ""

    @property
    def gap_warning(self) -> str:
        """What the recorder could not write; empty where it wrote all."""
        gaps = self.account.gaps()
        return f"the recording has gaps: {gaps}" if gaps else ""

    def _attached(self) -> socket.socket:
        """Return the link to the recorder in the process, which watches."""
        settings = {OUT: str(self._out.absolute()), **self.account.environment}
        control = Path(settings[FOLDER]) / "control"
        with socket.socket(socket.AF_UNIX) as door:
            try:
                door.bind(str(control))
            except OSError as e:
                raise EngineError(f"{control} cannot be made", why=str(e)) from None
            door.listen()
            link = self._answer(door, control)
        try:
            self._greet(link, settings)
        except BaseException:
            link.close()
            raise
        return link

    def _answer(self, door: socket.socket, control: Path) -> socket.socket:
        """Have the process come to the door, and return the link to it."""
        if self._target.debugger() == "python":
            debugger.tell_by_python(self.pid, control)
            link = self._come(door, PATIENCE_S)
            said = ""
        else:
            said = debugger.tell_by_gdb(self.pid, control)
            link = self._come(door, SOON_S)
            if link is None and debugger.waits(self.pid):
                debugger.wake_by_gdb(self.pid, control)
            link = link or self._come(door, PATIENCE_S if debugger.TOLD in said else 0)
        if link is None:
            raise self._silent(said)
        return link

    def _come(self, door: socket.socket, seconds: float) -> socket.socket | None:
        """Return the link to the process when it comes within so many seconds; others are sent away."""
        deadline = time.monotonic() + seconds
        while select.select([door], [], [], max(0, deadline - time.monotonic()))[0]:
            link = door.accept()[0]
            if _pid_of(link) == self.pid:
                return link
            link.close()
        return None

    def _silent(self, said: str) -> CaptureError:
        """Return the error to raise of a process that did not come."""
        self._target.check()
        if debugger.TOLD in said:
            why = f"its main thread came to no Python in {PATIENCE_S:.0f} s"
            return _cannot(self.pid, why, "try again when it is not within one long call")
        if "not permitted" in said or "ptrace" in said:
            return self._target.not_allowed()
        return _cannot(self.pid, f"gdb says: {said.splitlines()[-1][:200] if said else 'nothing'}", "")

    def _greet(self, link: socket.socket, settings: dict[str, str]) -> None:
        """Take the recorder's hello, tell it the settings, see it watch; raise EngineError for a refusal."""
        for expected in ("here", "watching"):
            word, _, rest = _line(link, PATIENCE_S).partition(" ")
            if word == "refused":
                raise self._refusal(rest)
            if word != expected:
                raise _cannot(self.pid, "it ended, or hangs", "")
            if word == "here":
                link.sendall(json.dumps(settings).encode())

    def _refusal(self, told: str) -> EngineError:
        what, _, rest = told.partition(" ")
        if what == "python":
            return _cannot(self.pid, f"it runs Python {rest}", "3.8 or later can be watched")
        why, todo = _WHY.get(what, (f"the recorder cannot begin there ({rest or what})", ""))
        return _cannot(self.pid, why, todo)


def _cannot(pid: int, why: str, todo: str) -> EngineError:
    return EngineError(f"process {pid} cannot be watched: {why}", todo=todo)


def _line(link: socket.socket, seconds: float) -> str:
    """Return the next line of the recorder, cleaned; empty where none comes in time or the link closes."""
    deadline, told = time.monotonic() + seconds, b""
    while not told.endswith(b"\n") and select.select([link], [], [], max(0, deadline - time.monotonic()))[0]:
        try:
            byte = link.recv(1)
        except OSError:
            return ""
        if not byte:
            return ""
        told += byte
    return clean(told.decode("utf-8", "replace").strip(), 1000)


def _is_closed(link: socket.socket) -> bool:
    """Return whether the other end of a link is gone."""
    try:
        return bool(select.select([link], [], [], 0)[0]) and not link.recv(1, socket.MSG_PEEK)
    except OSError:
        return True


def _pid_of(link: socket.socket) -> int:
    """Return the process at the other end of a link."""
    size = struct.calcsize("3i")
    return int(struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[0])
