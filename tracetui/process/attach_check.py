"""Check whether a running process can be attached to; each refusal says why, and what helps."""

import os
import pwd
import re
import shutil
import sys
from pathlib import Path
from typing import Final

from capture.clean_text import clean
from capture.errors import EngineError, UsageError
from tracetui.process import debugger

PROC: Final = Path("/proc")
OLDEST_PYTHON: Final = (3, 8)
_PYTHON: Final = re.compile(r"(?:libpython|/python|\.cpython-)(\d)\.?(\d+)")
_TORCH_LIBRARIES: Final = ("libtorch_python", "libtorch.", "libtorch_cpu")
_PTRACE: Final = 1 << 19  # CAP_SYS_PTRACE
_RECORD_HINT: Final = "tracetui record -- CMD records a program from its start"


class AttachTarget:
    """A process to attach to, as `/proc` describes it."""

    def __init__(self, pid: int, proc: Path = PROC) -> None:
        self.pid = pid
        self._proc, self._folder = proc, proc / str(pid)

    def check(self) -> None:
        """Raise UsageError if there is no such process, EngineError if it cannot be attached to."""
        if not self._proc.is_dir():
            raise EngineError("attaching to a running process works on Linux only", todo=_RECORD_HINT)
        if not self._folder.is_dir():
            raise UsageError(f"no process {self.pid}", todo="pgrep -af python lists Python processes")
        if self.pid == os.getpid():
            raise UsageError(f"process {self.pid} is tracetui itself")
        self._check_owner()
        self._check_state()
        maps = self._read_maps()
        self._check_container()
        self._check_program(maps)
        if self.find_debugger() is None:
            todo = "install gdb, for example with: apt install gdb"
            raise self.build_refusal("no debugger is installed", todo)
        if self.find_debugger() == "gdb" and debugger.is_gdb_harmful():
            why = "this gdb does not support all registers of the CPU and would harm the process"
            raise self.build_refusal(why, "install gdb 14 or later")

    @property
    def version(self) -> tuple[int, int] | None:
        """The version of its Python, from the names of the loaded files; None if these do not contain it."""
        match = _PYTHON.search(self._read_maps())
        return (int(match[1]), int(match[2])) if match else None

    def find_debugger(self) -> str | None:
        """Return the tool that can reach it: `python` (`sys.remote_exec` of 3.14), `gdb`, or None."""
        if hasattr(sys, "remote_exec") and self.version == sys.version_info[:2]:
            return "python"
        return "gdb" if shutil.which("gdb") else None

    def build_refusal(self, why: str, todo: str) -> EngineError:
        """Return the error for a process that cannot be attached to."""
        return EngineError(f"cannot attach to process {self.pid}: {why}", todo=todo)

    def build_permission_error(self) -> EngineError:
        """Return the error for a debugger that the system kept away from the process."""
        scope = _read_number(self._proc / "sys/kernel/yama/ptrace_scope")
        if scope and not self._is_privileged():
            why = f"this system allows no debugging of other processes (kernel.yama.ptrace_scope is {scope})"
            todo = "sudo sysctl kernel.yama.ptrace_scope=0 allows it, or run tracetui as root"
            return self.build_refusal(why, todo if scope < 3 else "only a restart of the system changes that")
        todo = "a container needs --cap-add SYS_PTRACE; or run tracetui as root"
        return self.build_refusal("the system does not allow debugging it", todo)

    def _check_owner(self) -> None:
        owner = self._folder.stat().st_uid
        if owner != os.geteuid():
            name = _find_user_name(owner)
            raise self.build_refusal(f"it belongs to {name}", f"use sudo -u {name} tracetui …")

    def _check_state(self) -> None:
        status = self._read_status(str(self.pid))
        state = status.get("State", "")
        if state.startswith(("Z", "X")):
            raise UsageError(f"process {self.pid} has ended")
        tracer = status.get("TracerPid", "0")
        if tracer != "0":
            raise self.build_refusal(f"process {tracer} is debugging it", "detach that debugger first")
        if state.startswith(("T", "t")):
            raise self.build_refusal("it is stopped", f"kill -CONT {self.pid} continues it")

    def _check_container(self) -> None:
        for space in ("mnt", "pid"):
            try:
                ours, its = ((self._proc / who / "ns" / space).readlink() for who in ("self", str(self.pid)))
            except OSError:
                continue
            if ours != its:
                raise self.build_refusal("it runs in a container", "run tracetui inside that container")

    def _check_program(self, maps: str) -> None:
        version = self.version
        if version is None and "python" not in maps:
            raise self.build_refusal("it is not a Python program", "")
        if version is not None and version < OLDEST_PYTHON:
            raise self.build_refusal(f"it runs Python {version[0]}.{version[1]}", "3.8 or later is needed")
        if not any(name in maps for name in _TORCH_LIBRARIES):
            raise self.build_refusal("it has not loaded torch", _RECORD_HINT + " and waits for torch")

    def _read_maps(self) -> str:
        try:
            return (self._folder / "maps").read_text("utf-8", "replace")
        except PermissionError:
            raise self.build_permission_error() from None
        except OSError:
            raise UsageError(f"process {self.pid} has ended") from None

    def _is_privileged(self) -> bool:
        return bool(int(self._read_status("self").get("CapEff", "0"), 16) & _PTRACE)

    def _read_status(self, who: str) -> dict[str, str]:
        try:
            lines = (self._proc / who / "status").read_text("utf-8", "replace").splitlines()
        except OSError:
            return {}
        return {name: rest.strip() for name, _, rest in (line.partition(":") for line in lines)}


def explain_attach_limits(proc: Path = PROC) -> str:
    """Return why no process of this machine can be attached to, empty if no reason is known; for `doctor`."""
    scope = _read_number(proc / "sys/kernel/yama/ptrace_scope")
    if not proc.is_dir():
        return "no, on Linux only"
    if not hasattr(sys, "remote_exec") and shutil.which("gdb") is None:
        return "no, gdb is not installed"
    if not hasattr(sys, "remote_exec") and debugger.is_gdb_harmful():
        return "no, this gdb does not support all registers of the CPU (gdb 14 does)"
    if scope and not AttachTarget(os.getpid(), proc)._is_privileged():
        return f"no, kernel.yama.ptrace_scope is {scope} (as root, or with sysctl kernel.yama.ptrace_scope=0)"
    return ""


def _read_number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


def _find_user_name(uid: int) -> str:
    try:
        return clean(pwd.getpwuid(uid).pw_name, 80)
    except KeyError:
        return f"#{uid}"
