"""An engine process: its command channel, its output, its helper processes, and how it ended."""

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from capture.clean_text import clean
from capture.errors import CaptureError, EngineError
from tracetui import package_paths
from tracetui.process.command_lines import (
    build_sampler_command,
    build_waiting_watchdog_command,
    build_watchdog_command,
)

STOP_TIMEOUT_S: Final = 3.0  # between asking an engine to stop and killing it
POLL_S: Final = 0.005  # interval at which its end is polled
OUR_PREFIX: Final = re.compile(r"^(engines|tracetui): ")  # our recorders begin their lines with it
GAP_LINE: Final = re.compile(OUR_PREFIX.pattern + "the recording has gaps")
TAIL_BYTES: Final = 64 << 10
_CHUNK_BYTES: Final = 4096
WATCHED_VARIABLE: Final = "TRACETUI_WATCHED"  # by which a watchdog finds a program it was not told of
_VMSTAT: Final = Path("/proc/vmstat")


class EngineProcess:
    """A program that writes a recording, with the helper processes that belong to it."""

    start_message = "starting the engine"  # shown until its file reports a status
    label = "the engine"
    stop_timeout_s: float = STOP_TIMEOUT_S
    background_grace_s: float | None = None  # what `stop` waits in the background; None: as in the foreground

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        with_watchdog: bool = False,
        accepts_orders: bool = True,
        log: Path | None = None,
    ) -> None:
        """Start the command. Raise EngineError if that fails.

        A watchdog kills it when this process ends; the bundled engine sees to that itself. An engine that
        accepts no orders gets an empty standard input. Its output is appended to `log` if given.
        """
        self._log = log
        self.command = list(command)
        self._environment = dict(environment) if environment is not None else None
        self._with_watchdog, self._accepts_orders = with_watchdog, accepts_orders
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._sampler: EngineProcess | None = None
        self._sampled_file: Path | None = None
        self.start()

    def start(self) -> None:
        """Start it; after its end it can be started again, which appends another run to its file."""
        self._memory_kills_before = count_memory_kills()
        environment = self._environment
        if self._with_watchdog:  # first: whatever ends us between the two must not leave the program
            mark = f"{os.getpid()}-{secrets.token_hex(8)}"
            environment = {**(os.environ if environment is None else environment), WATCHED_VARIABLE: mark}
            self._watchdog = _start_watchdog(build_waiting_watchdog_command(f"{WATCHED_VARIABLE}={mark}"))
        try:
            self._child = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE if self._accepts_orders else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        except OSError as e:
            if self._watchdog is not None:
                _end_watchdog(self._watchdog)
            why = os.strerror(e.errno or 0)
            raise EngineError(f"{clean(self.command[0])} cannot be started", why=why) from None
        if self._watchdog is not None and self._watchdog.stdin is not None:
            with contextlib.suppress(OSError):
                self._watchdog.stdin.write(b"%d\n" % self._child.pid)
                self._watchdog.stdin.flush()
        assert self._child.stdout is not None  # noqa: S101
        self._output = OutputTail(self._child.stdout, self._log)
        self._was_asked_to_stop = False
        self._escaped_pids: list[int] | None = None  # listed by `request_stop`; None before it
        if self._sampled_file is not None:
            self.start_sampler(self._sampled_file)

    def defer_sampling(self, out: Path) -> None:
        """Set the file of the counters; the sampler starts later, so that it does not slow our start."""
        self._sampled_file = out

    def start_deferred_sampler(self) -> None:
        """Start the deferred sampler, if there is one."""
        if self._sampled_file is not None and self._sampler is None:
            self.start_sampler(self._sampled_file)

    def start_sampler(self, out: Path) -> None:
        """Append CPU, memory and GPU counters to a recording, now and after each restart."""
        self._sampled_file = out
        command = build_sampler_command(out, self.pid)
        self._sampler = EngineProcess(command, package_paths.build_environment(), accepts_orders=False)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def is_running(self) -> bool:
        return self.returncode is None

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        if self._watchdog is not None:
            self._watchdog.poll()  # helpers end soon after it; reap them
        if self._sampler is not None:
            self._sampler._child.poll()
        return self._child.poll()

    def send(self, order: Mapping[str, Any]) -> bool:
        """Send one JSON line to the engine; return False if it no longer listens."""
        if self._child.stdin is None or not self.is_running:
            return False
        try:
            self._child.stdin.write(json.dumps(order).encode() + b"\n")
            self._child.stdin.flush()
        except (OSError, ValueError):
            return False
        return True

    def request_stop(self) -> None:
        """Ask the engine and its helpers once to end, without waiting for that."""
        if self._escaped_pids is not None:
            return
        self._was_asked_to_stop = self._was_asked_to_stop or self.is_running
        self._escaped_pids = self._list_escaped_processes()
        if not self.send({"do": "quit"}):
            self._send_signal(signal.SIGTERM, self._escaped_pids)
        if self._sampler is not None:
            self._sampler.request_stop()

    def stop(self, *, in_background: bool = False) -> None:
        """Ask the engine to end, then terminate it, then kill all that it started.

        In the background, what takes longer than `background_grace_s` is left to a watchdog process.
        """
        self.request_stop()
        escaped = self._escaped_pids or []
        if self._accepts_orders:
            self._wait_for_end(self.stop_timeout_s)
            self._send_signal(signal.SIGTERM, escaped)
        grace_s = self.stop_timeout_s
        if in_background and self.background_grace_s is not None:
            grace_s = self.background_grace_s
        if not self._wait_for_end(grace_s, escaped) and grace_s < self.stop_timeout_s:
            _start_watchdog(build_watchdog_command(self._child.pid, escaped), at_once=True)
        else:
            self._send_signal(signal.SIGKILL, escaped)
            self._wait_for_end(self.stop_timeout_s)
        self._output.wait_for_end(min(grace_s, 1.0) if self.background_grace_s is None else 0.05)
        if self._watchdog is not None:
            _end_watchdog(self._watchdog)
        if self._sampler is not None:
            self._sampler.stop()

    def explain_empty_recording(self) -> str:
        """Return why it recorded nothing, after its end."""
        return f"{self.label} ended before its first step"

    def _list_escaped_processes(self) -> list[int]:
        """Return the processes that it started but that left its process group."""
        return []

    def list_last_lines(self, lines: int = 20) -> list[str]:
        """Return the last lines of its output, cleaned."""
        return self._output.list_last_lines(lines)

    @property
    def printed_bytes(self) -> int:
        """Bytes of output so far."""
        return self._output.bytes_read

    def explain_failure(self) -> str:
        """Return why the engine died, in a sentence; empty while it runs or if it ended well."""
        code = self.returncode
        if code is None or code == 0 or self._was_asked_to_stop:
            return ""
        if code < 0:
            return f"{self.label} was ended by {_format_signal(-code)}{self._find_cause(-code)}"
        last = [OUR_PREFIX.sub("", line) for line in self.list_last_lines(1)]
        return f"{self.label} ended with exit code {code}" + (f": {last[0]}" if last else "")

    def _find_cause(self, number: int) -> str:
        """Return the cause of its end by a signal, as the end of a sentence; empty if nothing shows it."""
        if number == signal.SIGSEGV:
            return ", a crash in native code"
        if number == signal.SIGKILL and count_memory_kills() > self._memory_kills_before:
            return "; the kernel has killed a process for want of memory meanwhile"
        return ""

    def build_error(self, todo: str = "") -> CaptureError:
        """Return the error for an engine that has died."""
        return EngineError(self.explain_failure(), todo=todo)

    @property
    def gap_warning(self) -> str:
        """The last line that our recorder printed about gaps in its recording; empty if there is none."""
        warnings = (line for line in reversed(self.list_last_lines()) if GAP_LINE.match(line))
        return OUR_PREFIX.sub("", next(warnings, ""))

    def _wait_for_end(self, seconds: float, others: Sequence[int] = ()) -> bool:
        """Wait for its end and that of `others`; return whether all ended within so many seconds."""
        deadline = time.monotonic() + seconds
        while (alive := self.is_running or any(map(_is_alive, others))) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return not alive

    def _send_signal(self, number: signal.Signals, escaped: Sequence[int] = ()) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, number)
        for pid in escaped:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def _start_watchdog(command: Sequence[str], *, at_once: bool = False) -> subprocess.Popen[bytes]:
    """Start a process that ends others when our end of its standard input closes, or `at_once`."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL if at_once else subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=package_paths.build_environment(),
    )


def _end_watchdog(watchdog: subprocess.Popen[bytes]) -> None:
    watchdog.kill()
    watchdog.communicate()


def count_memory_kills() -> int:
    """Return the kernel's count of processes killed for want of memory; 0 where there is none."""
    with contextlib.suppress(OSError, ValueError):
        counts = (line.split() for line in _VMSTAT.read_text().splitlines())
        return next((int(words[1]) for words in counts if words[:1] == ["oom_kill"]), 0)
    return 0


def _is_alive(pid: int) -> bool:
    """Whether a process, which need not be our child, is running."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _format_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class OutputTail:
    """The last TAIL_BYTES of a stream, which a thread reads until its end."""

    def __init__(self, stream: IO[bytes], log: Path | None = None) -> None:
        """Read `stream`; append it to `log` too, as long as that can be written."""
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self.bytes_read = 0
        self._log = log.open("ab", buffering=0) if log is not None else None
        self._reader = threading.Thread(
            target=self._read_stream, args=(stream,), daemon=True, name="engine output"
        )
        self._reader.start()

    def list_last_lines(self, count: int) -> list[str]:
        """Return the last non-blank lines, cleaned."""
        text = b"".join(tuple(self._chunks)).decode("utf-8", "replace")
        return [clean(line, 2000) for line in text.splitlines() if line.strip()][-count:]

    def wait_for_end(self, seconds: float) -> None:
        """Wait for the end of the stream, at most so many seconds."""
        self._reader.join(seconds)

    def _read_stream(self, stream: IO[bytes]) -> None:
        while chunk := os.read(stream.fileno(), _CHUNK_BYTES):
            self._chunks.append(chunk)
            self._size += len(chunk)
            while self._size > TAIL_BYTES:
                self._size -= len(self._chunks.popleft())
            self._add_to_log(chunk)
            self.bytes_read += len(chunk)
        if self._log is not None:
            self._log.close()

    def _add_to_log(self, chunk: bytes) -> None:
        if self._log is not None:
            try:
                self._log.write(chunk)
            except OSError:  # a full disk must stop neither the program nor the screen
                self._log.close()
                self._log = None
