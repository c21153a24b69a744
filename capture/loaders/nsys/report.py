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
from contextlib import contextmanager, suppress
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
    with _tidied_up(), tempfile.TemporaryDirectory(prefix="tracetui-") as folder:
        report = _plain(source, Path(folder))
        export = Path(folder) / "export.sqlite"
        with doing("nsys exports the report"):
            said = _run(
                [nsys, "export", "--type=sqlite", f"--output={export}", "--force-overwrite=true", str(report)]
            )
        if said is not None or not export.is_file():
            why = f"nsys says: {said}" if said else "nsys ended without an export"
            todo = f"try it by hand: {_EXPORT}"
            raise UnreadableError("could not be exported by nsys", where=source.label, why=why, todo=todo)
        return sqlite.load(Source(export, source.label, source.log))


@contextmanager
def _tidied_up() -> Iterator[None]:
    """Let signals that would end us at once be exits, so that neither a child nor a file is left behind."""
    ours = threading.current_thread() is threading.main_thread()
    taken = [s for s in _ENDING if ours and signal.getsignal(s) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, _exit)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _exit(number: int, frame: object) -> None:
    raise SystemExit(128 + number)  # as shells say of a signal


def _plain(source: Source, folder: Path) -> Path:
    """Return the report itself, or an unpacked private copy of it."""
    if not source.gzipped:
        return source.path.resolve()
    copy = folder / "report.nsys-rep"
    with copy.open("wb") as file:
        for chunk in source.chunks():
            file.write(chunk)
    return copy


def _run(command: Sequence[str]) -> str | None:
    """Run a command to its end; return its last line where it fails, else None.

    It ends with us, however we end: it is in a group of its own, which is killed.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    end = partial(_end, process)
    try:
        atexit.register(end)
        output, _ = process.communicate()
    finally:
        end()
        atexit.unregister(end)
    lines = output.decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), f"exit code {process.returncode}")
    return clean(last, _LAST_WORDS) if process.returncode else None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and those that it started, where it still runs."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
