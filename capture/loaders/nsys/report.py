"""Nsight Systems reports (`.nsys-rep`), through the `nsys` of whoever opens them.

The format is NVIDIA's own and has no lasting magic. Where `nsys` is on PATH it exports the report to
SQLite in a private folder, which is read and removed; nothing is written beside the report. Else the
command is told.
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
from functools import partial
from pathlib import Path
from typing import Final

from capture.activity import doing
from capture.errors import UnreadableError
from capture.loaders.nsys import sqlite
from capture.run import Run
from capture.source import Head, Source
from capture.text import clean

FORMAT: Final = "nsys-rep"
PRODUCER: Final = "NVIDIA Nsight Systems; read through your own nsys"
HOWTO: Final = "nsys profile -t cuda,nvtx -o run CMD"

_MAGIC: Final = (b"NSYS", b"QuadDAnalysis")
_LOOKED_AT: Final = 1 << 16
_EXPORT: Final = "nsys export --type sqlite FILE.nsys-rep"
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
_LAST_WORDS: Final = 300


def sniff(head: Head) -> bool:
    return head.raw.startswith(_MAGIC[0]) or (b"\0" in head.raw and _MAGIC[1] in head.raw[:_LOOKED_AT])


def load(source: Source) -> list[Run]:
    """Read a report by its export; raise UnreadableError where there is no nsys, or where it fails."""
    nsys = shutil.which("nsys")
    if nsys is None:
        raise UnreadableError(
            "is an Nsight Systems report",
            where=source.label,
            why="only nsys can read it, and it is not on PATH",
            todo=f"export it: {_EXPORT}",
        )
    with _tidied_up() as ending, tempfile.TemporaryDirectory(prefix="tracetui-") as folder:
        report = _plain(source, Path(folder))
        export = Path(folder) / "export.sqlite"
        with doing("nsys exports the report"):
            to_sqlite = ["--type=sqlite", f"--output={export}", "--force-overwrite=true"]
            said = _run([nsys, "export", *to_sqlite, str(report)], ending)
        if said is not None or not export.is_file():
            why = f"nsys says: {said}" if said else "nsys ended without an export"
            todo = f"try it by hand: {_EXPORT}"
            raise UnreadableError("could not be exported by nsys", where=source.label, why=why, todo=todo)
        return sqlite.load(Source(export, source.label, source.log))


class _Ending:
    """Makes an exit of a signal; one that comes while a child is started waits until the child is known."""

    def __init__(self) -> None:
        self._waits, self._came = False, 0

    def __call__(self, number: int, frame: object) -> None:
        self._came = number
        if not self._waits:
            self._exit()

    @contextmanager
    def held(self) -> Iterator[None]:
        self._waits = True
        yield
        self._waits = False
        if self._came:
            self._exit()

    def _exit(self) -> None:
        raise SystemExit(128 + self._came)  # as shells say of a signal


@contextmanager
def _tidied_up() -> Iterator[_Ending]:
    """Let signals that would end us at once be exits, so that neither a child nor a file is left behind."""
    ending = _Ending()
    ours = threading.current_thread() is threading.main_thread()
    taken = [s for s in _ENDING if ours and signal.getsignal(s) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, ending)
    try:
        yield ending
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _plain(source: Source, folder: Path) -> Path:
    """Return the report itself, or an unpacked private copy of it."""
    if not source.gzipped:
        return source.path.resolve()
    copy = folder / "report.nsys-rep"
    with copy.open("wb") as file:
        for chunk in source.chunks():
            file.write(chunk)
    return copy


def _run(command: Sequence[str], ending: _Ending) -> str | None:
    """Run a command to its end; return its last line where it fails, else None.

    It ends with us, however we end: it is in a group of its own, which is killed.
    """
    with ExitStack() as undo:
        with ending.held():
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            end = partial(_end, process)
            undo.callback(atexit.unregister, end)
            undo.callback(end)
            atexit.register(end)
        output, _ = process.communicate()
    lines = output.decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), f"exit code {process.returncode}")
    return clean(last, _LAST_WORDS) if process.returncode else None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and those that it started, where it still runs."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
