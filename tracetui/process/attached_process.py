"""Record a process that was already running, while a socket to it is open; it continues when we leave."""

import contextlib
import json
import os
import secrets
import select
import socket
import struct
import time
import weakref
from pathlib import Path
from typing import Any, Final

from capture.clean_text import clean
from capture.errors import CaptureError, EngineError
from tracetui.process import debugger
from tracetui.process.attach_check import AttachTarget
from tracetui.process.command_lines import DETAIL_VARIABLE, OUT_VARIABLE
from tracetui.process.engine_process import EngineProcess
from tracetui.process.process_reports import FOLDER_VARIABLE, ReportFolder

NEXT_INSTRUCTION_S: Final = 1.5  # a main thread at work reaches its next instruction in that time
CONNECT_TIMEOUT_S: Final = 15.0
DETACH_TIMEOUT_S: Final = 3.0  # the recorder may have to end a profiler window first
_REFUSALS: Final = {
    "attached": ("another tracetui is attached to it", ""),
    "recorded": ("it is already being recorded", ""),
    "torch": ("it has not imported torch", "tracetui record -- CMD waits for torch"),
    "importing": ("it is importing torch right now", "try again in a moment"),
}


class AttachedProcess(EngineProcess):
    """A recorder inside a process that we did not start; stopping it leaves the process as it was."""

    start_message = "attaching to the process"

    def __init__(self, pid: int, out: Path) -> None:
        """Attach, recording into `out`. Raise UsageError or EngineError if that is impossible."""
        self._target, self._out = AttachTarget(pid), out
        self._link: socket.socket | None = None
        self._was_asked_to_stop = False
        super().__init__([f"process {pid}"])

    def start(self) -> None:
        """Attach; attaching again appends another run to the same file."""
        self._target.check()
        self.reports = ReportFolder(secrets.token_hex(8))
        weakref.finalize(self, self.reports.remove)
        self._was_asked_to_stop = False
        self._link = self._attach()
        if self._sampled_file is not None:
            self.start_sampler(self._sampled_file)

    @property
    def pid(self) -> int:
        return self._target.pid

    @property
    def returncode(self) -> int | None:
        """0 once the link is closed, None while the process is being recorded."""
        if self._sampler is not None:
            self._sampler._child.poll()
        return 0 if self._link is None or _is_closed(self._link) else None

    def send(self, order: Any) -> bool:
        """Return False: an attached process accepts no orders."""
        return False

    def request_stop(self) -> None:
        """Ask the recorder to leave the process, without waiting for it."""
        if self._was_asked_to_stop:
            return
        self._was_asked_to_stop = True
        if self._link is not None:
            with contextlib.suppress(OSError):  # the process has ended
                self._link.sendall(b"stop\n")
        if self._sampler is not None:
            self._sampler.request_stop()

    def stop(self, *, in_background: bool = False) -> None:
        """Detach; the process continues."""
        self.request_stop()
        link, self._link = self._link, None
        if link is not None:
            _read_line(link, DETACH_TIMEOUT_S)
            link.close()
        if self._sampler is not None:
            self._sampler.stop()  # it would live as long as the process

    def list_last_lines(self, lines: int = 20) -> list[str]:
        """Return nothing: the output of the process is not ours."""
        return []

    def explain_failure(self) -> str:
        """Return why the recorder stopped by itself; empty while it records and after the process ended."""
        return "" if self._was_asked_to_stop or self.is_running else self.reports.explain_stop()

    @property
    def gap_warning(self) -> str:
        """Gaps of the recording, as a sentence; empty if there are none."""
        gaps = self.reports.find_gaps()
        return f"the recording has gaps: {gaps}" if gaps else ""

    def _attach(self) -> socket.socket:
        """Inject the recorder and return the link to it, once it records."""
        settings = {OUT_VARIABLE: str(self._out.absolute()), **self.reports.environment}
        settings |= {name: os.environ[name] for name in (DETAIL_VARIABLE,) if name in os.environ}
        control = Path(settings[FOLDER_VARIABLE]) / "control"
        with socket.socket(socket.AF_UNIX) as server:
            try:
                server.bind(str(control))
            except OSError as e:
                raise EngineError(f"{control} cannot be created", why=str(e)) from None
            server.listen()
            link = self._reach_recorder(server, control)
        try:
            self._send_settings(link, settings)
        except BaseException:
            link.close()
            raise
        return link

    def _reach_recorder(self, server: socket.socket, control: Path) -> socket.socket:
        """Make the process connect to the socket `control`; return the connection."""
        if self._target.find_debugger() == "python":
            debugger.inject_by_python(self.pid, control)
            link = self._accept_link(server, CONNECT_TIMEOUT_S)
            output = ""
        else:
            output = debugger.inject_by_gdb(self.pid, control)
            link = self._accept_link(server, NEXT_INSTRUCTION_S)
            if link is None and debugger.is_blocked_in_syscall(self.pid):
                debugger.wake_by_gdb(self.pid, control)
            is_injected = debugger.INJECTED_MARK in output
            link = link or self._accept_link(server, CONNECT_TIMEOUT_S if is_injected else 0)
        if link is None:
            raise self._build_silence_error(output)
        return link

    def _accept_link(self, server: socket.socket, seconds: float) -> socket.socket | None:
        """Return the connection of the process, None after so many seconds; reject other processes."""
        deadline = time.monotonic() + seconds
        while select.select([server], [], [], max(0, deadline - time.monotonic()))[0]:
            link = server.accept()[0]
            if _read_peer_pid(link) == self.pid:
                return link
            link.close()
        return None

    def _build_silence_error(self, output: str) -> CaptureError:
        """Return the error for a process that never connected, by what gdb printed."""
        self._target.check()
        if debugger.INJECTED_MARK in output:
            why = f"its main thread ran no Python code for {CONNECT_TIMEOUT_S:.0f} s"
            return self._target.build_refusal(why, "try again when it is not in one long call")
        if "not permitted" in output or "ptrace" in output:
            return self._target.build_permission_error()
        last_line = output.splitlines()[-1][:200] if output else "nothing"
        return self._target.build_refusal(f"gdb printed: {last_line}", "")

    def _send_settings(self, link: socket.socket, settings: dict[str, str]) -> None:
        """Send the settings and wait until the recorder has started. Raise EngineError if it refuses."""
        for expected in ("here", "watching"):
            word, _, rest = _read_line(link, CONNECT_TIMEOUT_S).partition(" ")
            if word == "refused":
                raise self._build_refusal(rest)
            if word != expected:
                raise self._target.build_refusal("it ended or hangs", "")
            if word == "here":
                link.sendall(json.dumps(settings).encode())

    def _build_refusal(self, answer: str) -> EngineError:
        reason, _, rest = answer.partition(" ")
        if reason == "python":
            return self._target.build_refusal(f"it runs Python {rest}", "3.8 or later is needed")
        why, todo = _REFUSALS.get(reason, (f"the recorder cannot start there ({rest or reason})", ""))
        return self._target.build_refusal(why, todo)


def _read_line(link: socket.socket, seconds: float) -> str:
    """Return the next line from the recorder, cleaned; empty after so many seconds or if the link closes."""
    deadline, line = time.monotonic() + seconds, b""
    while not line.endswith(b"\n") and select.select([link], [], [], max(0, deadline - time.monotonic()))[0]:
        try:
            byte = link.recv(1)
        except OSError:
            return ""
        if not byte:
            return ""
        line += byte
    return clean(line.decode("utf-8", "replace").strip(), 1000)


def _is_closed(link: socket.socket) -> bool:
    try:
        return bool(select.select([link], [], [], 0)[0]) and not link.recv(1, socket.MSG_PEEK)
    except OSError:
        return True


def _read_peer_pid(link: socket.socket) -> int:
    """Return the pid at the other end of a Unix socket."""
    size = struct.calcsize("3i")
    return int(struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[0])
