"""Nsight Systems reports (`.nsys-rep`), exported by the user's own `nsys` and then read.

The format is proprietary and has no stable magic. If `nsys` is on PATH it exports the report to SQLite in a
private folder, which is read and removed; nothing is written next to the report. Otherwise the error names
the command.
"""

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from capture.clean_text import clean
from capture.errors import UnreadableError
from capture.loaders.nsys import sqlite_export
from capture.run import Run
from capture.source import Head, Source
from capture.tasks import report_activity

FORMAT: Final = "nsys-rep"
PRODUCER: Final = "NVIDIA Nsight Systems; read through your own nsys"
HOWTO: Final = "nsys profile -t cuda,nvtx -o run CMD"

_MAGIC: Final = (b"NSYS", b"QuadDAnalysis")
_MAGIC_SEARCH_BYTES: Final = 1 << 16
_EXPORT: Final = "nsys export --type sqlite FILE.nsys-rep"
_FATAL_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
_MAX_LINE_LENGTH: Final = 300
_START_LIMIT_S: Final = 5.0  # that we wait at our exit for a process that is being started
_START_LOCK: Final = threading.Lock()  # held while a process starts, and for good once we exit
_RUNNING: Final[set[subprocess.Popen[bytes]]] = set()


def sniff(head: Head) -> bool:
    is_binary, start = b"\0" in head.raw, head.raw[:_MAGIC_SEARCH_BYTES]
    return head.raw.startswith(_MAGIC[0]) or (is_binary and _MAGIC[1] in start)


def load(source: Source) -> list[Run]:
    """Read a report through its export; raise UnreadableError if nsys is missing or fails."""
    nsys = shutil.which("nsys")
    if nsys is None:
        why, todo = "only nsys can read it, and it is not on PATH", f"export it: {_EXPORT}"
        raise UnreadableError("is an Nsight Systems report", where=source.label, why=why, todo=todo)
    with _exit_on_signals() as ending, tempfile.TemporaryDirectory(prefix="tracetui-") as folder:
        report = _unpack_if_gzipped(source, Path(folder))
        export = Path(folder) / "export.sqlite"
        with report_activity("nsys exports the report"):
            to_sqlite = ["--type=sqlite", f"--output={export}", "--force-overwrite=true"]
            failure = _run_command([nsys, "export", *to_sqlite, str(report)], ending)
        if failure is not None or not export.is_file():
            why = f"nsys says: {failure}" if failure else "nsys wrote no export"
            todo = f"try it yourself: {_EXPORT}"
            raise UnreadableError("could not be exported by nsys", where=source.label, why=why, todo=todo)
        return sqlite_export.load(Source(export, source.label, source.log))


class _SignalExit:
    """Turn a signal into an exit; delay it while a child process is being started."""

    def __init__(self) -> None:
        self._is_held, self._signal = False, 0

    def __call__(self, number: int, frame: object) -> None:
        self._signal = number
        if not self._is_held:
            self._exit()

    @contextmanager
    def hold(self) -> Iterator[None]:
        self._is_held = True
        yield
        self._is_held = False
        if self._signal:
            self._exit()

    def _exit(self) -> None:
        raise SystemExit(128 + self._signal)  # the exit code that shells use for a signal


@contextmanager
def _exit_on_signals() -> Iterator[_SignalExit]:
    """Let signals that would kill us raise SystemExit, so that neither child nor file is left behind."""
    signal_exit = _SignalExit()
    is_main_thread = threading.current_thread() is threading.main_thread()
    replaced_signals = [s for s in _FATAL_SIGNALS if is_main_thread and signal.getsignal(s) is signal.SIG_DFL]
    for number in replaced_signals:
        signal.signal(number, signal_exit)
    try:
        yield signal_exit
    finally:
        for number in replaced_signals:
            signal.signal(number, signal.SIG_DFL)


def _unpack_if_gzipped(source: Source, folder: Path) -> Path:
    """Return the report itself, or an unpacked private copy of it."""
    if not source.is_gzipped:
        return source.path.resolve()
    copy = folder / "report.nsys-rep"
    with copy.open("wb") as file:
        for chunk in source.iter_chunks():
            file.write(chunk)
    return copy


def _run_command(command: Sequence[str], signal_exit: _SignalExit) -> str | None:
    """Run a command to its end; return its last line if it fails, else None.

    The command never outlives us: it runs in its own process group, which is killed.
    """
    with ExitStack() as cleanup:
        with signal_exit.hold(), _START_LOCK:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            _RUNNING.add(process)
            cleanup.callback(_RUNNING.discard, process)
            cleanup.callback(_kill_process_group, process)
        output, _ = process.communicate()
    lines = output.decode("utf-8", "replace").split("\n")
    last_lines = (line.strip() for line in reversed(lines) if line.strip())
    last_line = next(last_lines, f"exit code {process.returncode}")
    return clean(last_line, _MAX_LINE_LENGTH) if process.returncode else None


def _kill_process_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and those that it started, where it still runs."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@atexit.register
def _kill_at_exit() -> None:
    """Kill what a daemon thread has started; from now on it starts nothing."""
    _START_LOCK.acquire(timeout=_START_LIMIT_S)
    for process in list(_RUNNING):
        _kill_process_group(process)
