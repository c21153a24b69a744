"""Whether a process that runs can be watched from outside: each refusal says why, and what would work."""

import os
import pwd
import re
import shutil
import sys
from pathlib import Path
from typing import Final

from capture.errors import EngineError, UsageError
from capture.text import clean
from tracetui.process import debugger

PROC: Final = Path("/proc")
OLDEST: Final = (3, 8)
_PYTHON: Final = re.compile(r"(?:libpython|/python|\.cpython-)(\d)\.?(\d+)")
_TORCH: Final = ("libtorch_python", "libtorch.", "libtorch_cpu")
_PTRACE: Final = 1 << 19  # CAP_SYS_PTRACE
_BEGIN: Final = "tracetui record -- CMD watches a program from its start"


class Target:
    """What the system tells of a process."""

    def __init__(self, pid: int, proc: Path = PROC) -> None:
        self.pid = pid
        self._proc, self._folder = proc, proc / str(pid)

    def check(self) -> None:
        """Raise UsageError where there is no such process, EngineError where it cannot be watched."""
        if not self._proc.is_dir():
            raise EngineError("a process that runs can be watched on Linux only", todo=_BEGIN)
        if not self._folder.is_dir():
            raise UsageError(f"there is no process {self.pid}", todo="pgrep -af python lists those of Python")
        if self.pid == os.getpid():
            raise UsageError(f"process {self.pid} is this tracetui")
        self._check_owner()
        self._check_state()
        maps = self._maps()
        self._check_place()
        self._check_program(maps)
        if self.debugger() is None:
            raise self._refused(
                "there is no debugger to reach it with", "install gdb, as apt install gdb does"
            )
        if self.debugger() == "gdb" and debugger.harms():
            raise self._refused(
                "this gdb does not know all registers of the processor, and would harm the process",
                "install gdb 14 or later",
            )

    @property
    def version(self) -> tuple[int, int] | None:
        """The version of Python that it runs, by what it has loaded; None where that does not tell."""
        found = _PYTHON.search(self._maps())
        return (int(found[1]), int(found[2])) if found else None

    def debugger(self) -> str | None:
        """Return what reaches it: `python` (its own door, from 3.14 on) or `gdb`; None where nothing."""
        if hasattr(sys, "remote_exec") and self.version == sys.version_info[:2]:
            return "python"
        return "gdb" if shutil.which("gdb") else None

    def not_allowed(self) -> EngineError:
        """Return the error to raise where the system did not let a debugger near it."""
        scope = _number(self._proc / "sys/kernel/yama/ptrace_scope")
        if scope and not self._is_privileged():
            way = "sudo sysctl kernel.yama.ptrace_scope=0" if scope < 3 else "a restart of the system"
            return self._refused(
                f"this system lets no process look into another (kernel.yama.ptrace_scope is {scope})",
                f"{way} allows it, and so does tracetui as root" if scope < 3 else f"only {way} changes that",
            )
        return self._refused(
            "the system does not let a debugger near it",
            "a container needs --cap-add SYS_PTRACE; or run tracetui as root",
        )

    def _check_owner(self) -> None:
        owner = self._folder.stat().st_uid
        if owner != os.geteuid():
            name = _user(owner)
            raise self._refused(f"it belongs to {name}", f"sudo -u {name} tracetui … may watch it")

    def _check_state(self) -> None:
        status = self._status("self" if self.pid < 0 else str(self.pid))
        state = status.get("State", "")
        if state.startswith(("Z", "X")):
            raise UsageError(f"process {self.pid} has ended")
        tracer = status.get("TracerPid", "0")
        if tracer != "0":
            raise self._refused(f"process {tracer} debugs it", "only one debugger can")
        if state.startswith(("T", "t")):
            raise self._refused("it is stopped", f"kill -CONT {self.pid} has it go on")

    def _check_place(self) -> None:
        for space in ("mnt", "pid"):
            try:
                own, its = ((self._proc / who / "ns" / space).readlink() for who in ("self", str(self.pid)))
            except OSError:
                continue
            if own != its:
                raise self._refused("it runs in a container", "run tracetui in that container")

    def _check_program(self, maps: str) -> None:
        version = self.version
        if version is None and "python" not in maps:
            raise self._refused("it runs no Python", "")
        if version is not None and version < OLDEST:
            raise self._refused(f"it runs Python {version[0]}.{version[1]}", "3.8 or later can be watched")
        if not any(name in maps for name in _TORCH):
            raise self._refused("it has not loaded torch", _BEGIN + ", and waits for torch")

    def _maps(self) -> str:
        try:
            return (self._folder / "maps").read_text("utf-8", "replace")
        except PermissionError:
            raise self.not_allowed() from None
        except OSError:
            raise UsageError(f"process {self.pid} has ended") from None

    def _is_privileged(self) -> bool:
        return bool(int(self._status("self").get("CapEff", "0"), 16) & _PTRACE)

    def _status(self, who: str) -> dict[str, str]:
        try:
            lines = (self._proc / who / "status").read_text("utf-8", "replace").splitlines()
        except OSError:
            return {}
        return {name: rest.strip() for name, _, rest in (line.partition(":") for line in lines)}

    def _refused(self, why: str, todo: str) -> EngineError:
        return EngineError(f"process {self.pid} cannot be watched: {why}", todo=todo)


def why_not_attached(proc: Path = PROC) -> str:
    """Return why no process can be attached to on this machine; empty where nothing known forbids it."""
    scope = _number(proc / "sys/kernel/yama/ptrace_scope")
    if not proc.is_dir():
        return "no, on Linux only"
    if not hasattr(sys, "remote_exec") and shutil.which("gdb") is None:
        return "no, gdb is not installed"
    if not hasattr(sys, "remote_exec") and debugger.harms():
        return "no, this gdb does not know all registers of the processor (gdb 14 and later do)"
    if scope and not Target(os.getpid(), proc)._is_privileged():
        return f"no, kernel.yama.ptrace_scope is {scope} (as root, or with sysctl kernel.yama.ptrace_scope=0)"
    return ""


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


def _user(uid: int) -> str:
    try:
        return clean(pwd.getpwuid(uid).pw_name, 80)
    except KeyError:
        return f"#{uid}"
