"""Which process can be watched: each refusal says why and what would work. The system is played, a folder."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from capture.errors import CaptureError, EngineError, UsageError
from tests.capture.record.test_pythons import pythons
from tracetui import cli
from tracetui.process import debugger
from tracetui.process.attach_check import AttachTarget, explain_attach_limits

PID = 4242
harms = debugger.is_gdb_harmful  # not the played one
MAPS = """\
400000-401000 r-xp 00000000 08:01 1 /usr/bin/python3.11
7f0000000000-7f0000001000 r-xp 00000000 08:01 2 /usr/lib/libpython3.11.so.1.0
7f0000002000-7f0000003000 r-xp 00000000 08:01 3 /site/torch/lib/libtorch_cpu.so
"""


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system in which process 4242 can be watched."""
    for who in ("self", str(PID)):
        (tmp_path / who / "ns").mkdir(parents=True)
        (tmp_path / who / "status").write_text(
            "State:\tS (sleeping)\nTracerPid:\t0\nCapEff:\t0000000000000000\n"
        )
        for space in ("mnt", "pid"):
            (tmp_path / who / "ns" / space).symlink_to(f"{space}:[1]")
    (tmp_path / str(PID) / "maps").write_text(MAPS)
    (tmp_path / "sys/kernel/yama").mkdir(parents=True)
    monkeypatch.setattr("tracetui.process.attach_check.shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(debugger, "is_gdb_harmful", lambda: False)
    return tmp_path


def refusal(proc: Path) -> str:
    with pytest.raises(CaptureError) as caught:
        AttachTarget(PID, proc).check()
    return str(caught.value)


def test_a_process_of_torch_can_be_watched(proc: Path) -> None:
    target = AttachTarget(PID, proc)
    target.check()
    assert target.version == (3, 11) and target.find_debugger() == "gdb"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("State:\tZ (zombie)", "process 4242 has ended"),
        ("State:\tT (stopped)", "it is stopped; kill -CONT 4242 continues it"),
        (
            "TracerPid:\t99\nState:\tt (tracing stop)",
            "process 99 is debugging it; detach that debugger first",
        ),
    ],
)
def test_states(proc: Path, line: str, words: str) -> None:
    (proc / str(PID) / "status").write_text(line + "\n")
    assert words in refusal(proc)


@pytest.mark.parametrize(
    ("maps", "words"),
    [
        ("400000-401000 r-xp 0 08:01 1 /usr/bin/sleep\n", "it is not a Python program"),
        (MAPS.replace("libtorch_cpu", "libother"), "it has not loaded torch; tracetui record -- CMD records"),
        (MAPS.replace("3.11", "2.7"), "it runs Python 2.7; 3.8 or later is needed"),
        (MAPS.replace("3.11", "3.7"), "it runs Python 3.7; 3.8 or later is needed"),
    ],
)
def test_programs(proc: Path, maps: str, words: str) -> None:
    (proc / str(PID) / "maps").write_text(maps)
    assert words in refusal(proc)


def test_no_such_process(proc: Path) -> None:
    with pytest.raises(UsageError, match="no process 17"):
        AttachTarget(17, proc).check()


def test_no_linux(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="on Linux only"):
        AttachTarget(17, tmp_path / "absent").check()


def test_a_container(proc: Path) -> None:
    (proc / str(PID) / "ns" / "mnt").unlink()
    (proc / str(PID) / "ns" / "mnt").symlink_to("mnt:[2]")
    assert "it runs in a container; run tracetui inside that container" in refusal(proc)


@pytest.mark.parametrize(
    ("said", "harm"),
    [
        ("Couldn't write extended state status: Bad address.", True),
        ("ptrace: Operation not permitted.", False),
    ],
)
def test_a_gdb_that_cannot_write_all_registers_is_let_near_nothing(
    said: str, harm: bool, proc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of gdb 13 on a processor with AMX the first is what it says; a read that waited then fails with 512."""
    played = tmp_path / "bin" / "gdb"
    played.parent.mkdir()
    played.write_text(f'#!/bin/sh\n[ "$LC_ALL" = C ] && echo "{said}" >&2\nexit 1\n')
    played.chmod(0o755)
    monkeypatch.setenv("PATH", str(played.parent))
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setattr(debugger, "is_gdb_harmful", harms.__wrapped__)
    if harm:
        assert "all registers of the CPU and would harm the process; install gdb 14" in refusal(proc)
        assert "does not support all registers" in explain_attach_limits(proc)
    else:
        AttachTarget(PID, proc).check()
        assert explain_attach_limits(proc) == ""


def test_no_debugger(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracetui.process.attach_check.shutil.which", lambda name: None)
    monkeypatch.delattr(sys, "remote_exec", raising=False)
    assert "no debugger is installed; install gdb" in refusal(proc)


def test_python_reaches_its_own_version_by_itself(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "remote_exec", print, raising=False)
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    (proc / str(PID) / "maps").write_text(MAPS.replace("3.11", here))
    assert AttachTarget(PID, proc).find_debugger() == "python"
    (proc / str(PID) / "maps").write_text(MAPS.replace("3.11", "3.9"))
    assert AttachTarget(PID, proc).find_debugger() == "gdb"


@pytest.mark.parametrize(
    ("scope", "capabilities", "words"),
    [
        (1, 0, "ptrace_scope is 1); sudo sysctl kernel.yama.ptrace_scope=0 allows it"),
        (2, 0, "ptrace_scope is 2); sudo sysctl kernel.yama.ptrace_scope=0 allows it"),
        (3, 0, "ptrace_scope is 3); only a restart of the system changes that"),
        (0, 0, "does not allow debugging it; a container needs --cap-add SYS_PTRACE"),
        (1, 1 << 19, "does not allow debugging it"),
    ],
)
def test_what_the_system_does_not_allow(proc: Path, scope: int, capabilities: int, words: str) -> None:
    (proc / "sys/kernel/yama/ptrace_scope").write_text(f"{scope}\n")
    (proc / "self" / "status").write_text(f"CapEff:\t{capabilities:016x}\n")
    assert words in str(AttachTarget(PID, proc).build_permission_error())


def test_doctor_says_what_this_machine_allows(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys, "remote_exec", raising=False)
    assert explain_attach_limits(proc) == ""
    (proc / "sys/kernel/yama/ptrace_scope").write_text("1\n")
    assert explain_attach_limits(proc).startswith("no, kernel.yama.ptrace_scope is 1 (as root")
    (proc / "self" / "status").write_text("CapEff:\t0000000000080000\n")
    assert explain_attach_limits(proc) == ""
    monkeypatch.setattr("tracetui.process.attach_check.shutil.which", lambda name: None)
    assert explain_attach_limits(proc) == "no, gdb is not installed"
    assert explain_attach_limits(proc / "absent") == "no, on Linux only"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of somebody else")
def test_a_process_of_somebody_else(capsys: pytest.CaptureFixture[str]) -> None:
    child = subprocess.Popen(["sleep", "60"], user=65534)
    try:
        assert cli.main(["record", "--pid", str(child.pid)]) == 5
        assert "it belongs to nobody; use sudo -u nobody tracetui" in capsys.readouterr().err
    finally:
        child.kill()
        child.wait()


def without_torch() -> Iterator[str]:
    yield from (python for python in pythons() if "/3.12." in python or "/3.13." in python)


@pytest.mark.parametrize("python", list(without_torch()) or [sys.executable])
def test_a_loop_without_torch(python: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loop = "import time\nprint(1, flush=True)\nfor n in range(9**9): time.sleep(0.01)"
    child = subprocess.Popen([python, "-c", loop], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None and child.stdout.readline()
        assert cli.main(["record", "--pid", str(child.pid), "-o", str(tmp_path / "prof.jsonl")]) == 5
        actual = capsys.readouterr().err
        assert actual == (
            f"tracetui: cannot attach to process {child.pid}: it has not loaded torch; "
            "tracetui record -- CMD records a program from its start and waits for torch\n"
        )
        assert child.poll() is None and not (tmp_path / "prof.jsonl").exists()
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--pid", "1", "--", "true"], "--pid excludes a program"),
        (["--pid", "1", "--watch", "."], "--pid excludes --watch"),
        (["--pid", str(os.getpid())], "is tracetui itself"),
    ],
)
def test_usage(options: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["record", *options]) == 2
    assert words in capsys.readouterr().err


def test_free_memory_is_found_between_what_is_mapped() -> None:
    low = 1 << 36
    assert debugger.find_free_address("400000-401000 r\n", 4096) == low
    assert (
        debugger.find_free_address(f"{low:x}-{low + 4096:x} r\n{low + 4096:x}-{low + 9999:x} r\n", 4096)
        == low + 9999
    )
    gap = f"{low:x}-{low + 4096:x} r\n{low + 8192:x}-{low + 12288:x} r\n"
    assert debugger.find_free_address(gap, 4096) == low + 4096
    assert debugger.find_free_address(gap, 8192) == low + 12288
