"""Has a running Python execute a text: through a debugger, or through Python's own door where it has one.

A debugger stops the process for a moment, writes the text into a page of its own, and hands it to Python as a
pending call, which Python makes between two instructions of its main thread: no lock of Python's own is held
there, and nothing is half done. A main thread that waits within a system call comes to no next instruction:
what is asked for then runs within the wait, as a callback would.
"""

import os
import signal
import subprocess
import sys
import time
from functools import lru_cache
from pathlib import Path
from typing import Final

from capture.errors import EngineError
from capture.text import clean
from tracetui import rooms

PATIENCE_S: Final = 20.0  # for the debugger: it reads the symbols of a large program
PAGE: Final = 4096
_LOWEST: Final = 1 << 36  # above what programs are linked to, below where the system puts what it maps
TOLD: Final = "tracetui: told"  # says gdb when the text is where it shall be
_LOOKS, _LOOK_EVERY_S = 6, 0.05
_GDB: Final = (
    "gdb", "-batch", "-nx", "-iex", "set auto-load no", "-iex", "set auto-solib-add off",
    "-iex", "set debuginfod enabled off",
)  # fmt: skip
_TRIED: Final = ("-ex", "set startup-with-shell off", "-ex", "starti", "-ex", "set $mxcsr = 0x1fa0")
_UNWRITTEN: Final = "extended state"  # gdb before 14 knows fewer registers than a processor with AMX has
_HEAD: Final = """\
set confirm off
set pagination off
set print thread-events off
set unwindonsignal on
handle all nostop noprint pass
handle SIGINT nostop noprint pass
sharedlibrary libc\\.
sharedlibrary ld-musl
sharedlibrary libpython
"""
_TOLD: Final = """\
set $page = ((long (*)(long, unsigned long, int, int, int, long))mmap)({page}, {size}, 3, 0x22, -1, 0)
if $page != {page}
  call ((int (*)(long, unsigned long))munmap)($page, {size})
  quit
end
set {{char[{length}]}} $page = "{text}"
if ((int (*)(void *, long))Py_AddPendingCall)((void *)PyRun_SimpleString, $page) == 0
  echo {told}\\n
end
"""
_WOKEN: Final = """\
if ((int (*)())PyGILState_Check)() == 0
  set $state = ((int (*)())PyGILState_Ensure)()
  call ((int (*)())Py_MakePendingCalls)()
  call ((void (*)(int))PyGILState_Release)($state)
end
"""


def text(control: Path, page: int = 0, size: int = 0) -> str:
    """Return what a running Python is to execute: it begins our thread, leaves no name, raises nothing."""
    entry = str(rooms.folder() / "capture" / "record" / "entry.py")
    given = {"__name__": "tracetui", "__file__": entry, "CONTROL": str(control), "PAGE": page, "SIZE": size}
    inner = (
        f"try:\n with open({entry!a}) as file: text = file.read()\n"
        f" exec(compile(text, {entry!a}, 'exec'), {given!a})\nexcept Exception: pass\n"
    )
    return (
        f"try: __import__('_thread').start_new_thread(exec, ({inner!a}, {{}}))\n"
        "except KeyboardInterrupt: __import__('_thread').interrupt_main()\n"
        "except Exception: pass\n"
    )


def script(maps: str, control: Path) -> str:
    """Return what gdb is to do in a process with this table of what is mapped."""
    size = PAGE * (1 + len(text(control, 1 << 46, 1 << 20)) // PAGE)
    page = free_address(maps, size)
    told = text(control, page, size).encode()
    escaped = "".join(f"\\{byte:03o}" for byte in told)
    return _HEAD + _TOLD.format(page=page, size=size, length=len(told) + 1, text=escaped, told=TOLD)


def free_address(maps: str, size: int) -> int:
    """Return where in a process so many bytes are free, from its table of what is mapped."""
    at = _LOWEST
    for line in maps.splitlines():
        begin, end = (int(word, 16) for word in line.split()[0].split("-"))
        if begin >= at + size:
            break
        at = max(at, end)
    return at


@lru_cache(maxsize=1)
def harms() -> bool:
    """Return whether a process goes wrong once gdb has stopped it here, tried on a program of our own: where
    gdb cannot write all registers back, a system call that waited fails.
    """
    command = [*_GDB, *_TRIED, "--args", sys.executable, "-c", ""]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, check=False,
            start_new_session=True, env={**os.environ, "LC_ALL": "C"},  # what it says is looked at
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False  # what it then says of the process itself tells why
    return _UNWRITTEN in (done.stdout + done.stderr).decode("utf-8", "replace")


def tell_by_gdb(pid: int, control: Path) -> str:
    """Have a process execute the text for this socket at its next instruction; return what gdb said."""
    maps = Path(f"/proc/{pid}/maps").read_text("utf-8", "replace")
    return _gdb(pid, script(maps, control), control.with_suffix(".gdb"))


def wake_by_gdb(pid: int, control: Path) -> str:
    """Have a main thread that waits make its pending calls within the wait; return what gdb said."""
    return _gdb(pid, _HEAD + _WOKEN, control.with_suffix(".gdb"))


def _gdb(pid: int, orders: str, place: Path) -> str:
    try:
        place.write_text(orders)
        child = subprocess.Popen(
            [*_GDB, "-p", str(pid), "-x", str(place)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    except OSError as e:
        raise EngineError("gdb cannot be started", why=os.strerror(e.errno or 0).lower()) from None
    return clean(_said(child).decode("utf-8", "replace"), 10_000)


def _said(child: subprocess.Popen[bytes]) -> bytes:
    """Return what a debugger says until its end; one that takes too long is asked to let go, never killed."""
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            return child.communicate(timeout=PATIENCE_S)[0]
        except subprocess.TimeoutExpired:
            child.send_signal(number)
    return child.communicate()[0]


def tell_by_python(pid: int, control: Path) -> None:
    """Have a process execute the text for this socket through `sys.remote_exec`, from Python 3.14 on."""
    place = control.with_suffix(".py")
    place.write_text(text(control))
    sys.remote_exec(pid, str(place))  # type: ignore[attr-defined]


def waits(pid: int, folder: Path = Path("/proc")) -> bool:
    """Return whether the main thread of a process waits within one and the same system call."""
    seen = set()
    for _ in range(_LOOKS):
        try:
            seen.add((folder / str(pid) / "task" / str(pid) / "syscall").read_text())
        except OSError:
            return False
        time.sleep(_LOOK_EVERY_S)
    return len(seen) == 1 and next(iter(seen)).split()[0].isdecimal()
