"""Make a running Python process execute our code: through gdb, or through `sys.remote_exec` of Python 3.14.

gdb pauses the process, maps a page, writes the code into it and registers it as a pending call. Python makes
pending calls between two instructions of its main thread, where no lock of the interpreter is held. A main
thread that is blocked in a system call reaches no next instruction; the code then runs inside the wait, as a
callback would.
"""

import os
import signal
import subprocess
import sys
import time
from functools import lru_cache
from pathlib import Path
from typing import Final

from capture.clean_text import clean
from capture.errors import EngineError
from tracetui import package_paths

GDB_TIMEOUT_S: Final = 20.0  # gdb may read the symbols of a large program
PAGE_BYTES: Final = 4096
_LOWEST_ADDRESS: Final = 1 << 36  # above what programs are linked to, below what the system maps
INJECTED_MARK: Final = "tracetui: told"  # gdb prints it once the code is registered
_SYSCALL_SAMPLES, _SYSCALL_SAMPLE_S = 6, 0.05
_GDB_COMMAND: Final = (
    "gdb", "-batch", "-nx", "-iex", "set auto-load no", "-iex", "set auto-solib-add off",
    "-iex", "set debuginfod enabled off",
)  # fmt: skip
_TRIAL_OPTIONS: Final = ("-ex", "set startup-with-shell off", "-ex", "starti", "-ex", "set $mxcsr = 0x1fa0")
_REGISTER_WARNING: Final = "extended state"  # gdb before 14 lacks registers of CPUs with AMX
_GDB_HEAD: Final = """\
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
_GDB_INJECT: Final = """\
set $page = ((long (*)(long, unsigned long, int, int, int, long))mmap)({page}, {size}, 3, 0x22, -1, 0)
if $page != {page}
  call ((int (*)(long, unsigned long))munmap)($page, {size})
  quit
end
set {{char[{length}]}} $page = "{code}"
if ((int (*)(void *, long))Py_AddPendingCall)((void *)PyRun_SimpleString, $page) == 0
  echo {mark}\\n
end
"""
_GDB_WAKE: Final = """\
if ((int (*)())PyGILState_Check)() == 0
  set $state = ((int (*)())PyGILState_Ensure)()
  call ((int (*)())Py_MakePendingCalls)()
  call ((void (*)(int))PyGILState_Release)($state)
end
"""


def build_injected_code(control: Path, page: int = 0, size: int = 0) -> str:
    """Return the Python code to inject: it starts our thread, binds no name and raises nothing."""
    entry = str(package_paths.find_packages_folder() / "capture" / "record" / "injected.py")
    variables = {
        "__name__": "tracetui",
        "__file__": entry,
        "CONTROL": str(control),
        "PAGE": page,
        "SIZE": size,
    }
    inner = (
        f"try:\n with open({entry!a}) as file: text = file.read()\n"
        f" exec(compile(text, {entry!a}, 'exec'), {variables!a})\nexcept Exception: pass\n"
    )
    return (
        f"try: __import__('_thread').start_new_thread(exec, ({inner!a}, {{}}))\n"
        "except KeyboardInterrupt: __import__('_thread').interrupt_main()\n"
        "except Exception: pass\n"
    )


def build_gdb_script(maps: str, control: Path) -> str:
    """Return the gdb script that injects our code into a process, given its `/proc/PID/maps`."""
    size = PAGE_BYTES * (1 + len(build_injected_code(control, 1 << 46, 1 << 20)) // PAGE_BYTES)
    page = find_free_address(maps, size)
    code = build_injected_code(control, page, size).encode()
    escaped = "".join(f"\\{byte:03o}" for byte in code)
    return _GDB_HEAD + _GDB_INJECT.format(
        page=page, size=size, length=len(code) + 1, code=escaped, mark=INJECTED_MARK
    )


def find_free_address(maps: str, size: int) -> int:
    """Return an address at which so many bytes are free, given `/proc/PID/maps`."""
    address = _LOWEST_ADDRESS
    for line in maps.splitlines():
        begin, end = (int(word, 16) for word in line.split()[0].split("-"))
        if begin >= address + size:
            break
        address = max(address, end)
    return address


@lru_cache(maxsize=1)
def is_gdb_harmful() -> bool:
    """Whether gdb harms a process that it pauses, tried on a process of our own.

    If gdb cannot write all registers back, a system call that was blocked fails.
    """
    command = [*_GDB_COMMAND, *_TRIAL_OPTIONS, "--args", sys.executable, "-c", ""]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=GDB_TIMEOUT_S, check=False,
            start_new_session=True, env={**os.environ, "LC_ALL": "C"},  # its messages are read
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False  # the attempt on the real process then reports why
    return _REGISTER_WARNING in (done.stdout + done.stderr).decode("utf-8", "replace")


def inject_by_gdb(pid: int, control: Path) -> str:
    """Inject our code, to run at the next instruction of the main thread; return the output of gdb."""
    maps = Path(f"/proc/{pid}/maps").read_text("utf-8", "replace")
    return _run_gdb(pid, build_gdb_script(maps, control), control.with_suffix(".gdb"))


def wake_by_gdb(pid: int, control: Path) -> str:
    """Make a blocked main thread run its pending calls within the wait; return the output of gdb."""
    return _run_gdb(pid, _GDB_HEAD + _GDB_WAKE, control.with_suffix(".gdb"))


def _run_gdb(pid: int, script: str, path: Path) -> str:
    try:
        path.write_text(script)
        child = subprocess.Popen(
            [*_GDB_COMMAND, "-p", str(pid), "-x", str(path)], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    except OSError as e:
        raise EngineError("gdb cannot be started", why=os.strerror(e.errno or 0).lower()) from None
    return clean(_read_output(child).decode("utf-8", "replace"), 10_000)


def _read_output(child: subprocess.Popen[bytes]) -> bytes:
    """Return the output of gdb until it exits; one that takes too long is interrupted, never killed."""
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            return child.communicate(timeout=GDB_TIMEOUT_S)[0]
        except subprocess.TimeoutExpired:
            child.send_signal(number)
    return child.communicate()[0]


def inject_by_python(pid: int, control: Path) -> None:
    """Inject our code through `sys.remote_exec`, from Python 3.14 on."""
    path = control.with_suffix(".py")
    path.write_text(build_injected_code(control))
    sys.remote_exec(pid, str(path))  # type: ignore[attr-defined]


def is_blocked_in_syscall(pid: int, folder: Path = Path("/proc")) -> bool:
    """Whether the main thread of a process stays in one system call while it is sampled."""
    samples = set()
    for _ in range(_SYSCALL_SAMPLES):
        try:
            samples.add((folder / str(pid) / "task" / str(pid) / "syscall").read_text())
        except OSError:
            return False
        time.sleep(_SYSCALL_SAMPLE_S)
    return len(samples) == 1 and next(iter(samples)).split()[0].isdecimal()
