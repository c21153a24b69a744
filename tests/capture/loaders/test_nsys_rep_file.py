"""Reports of Nsight Systems, through an `nsys` that the tests put on PATH: a script that copies an export."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from polars.testing import assert_frame_equal

from capture import tasks
from capture.errors import UnreadableError
from capture.load_runs import load
from tests.conftest import FIXTURES

EXPORT = FIXTURES / "nsys" / "two_processes.sqlite"
REPORT = b"\x01\x02QuadDAnalysis\0" + bytes(100)
SCRIPT = """#!/bin/sh
echo "$@" > "$NSYS_CALLED"
for argument in "$@"; do
  case "$argument" in --output=*) out="${argument#--output=}";; esac
done
"""


@pytest.fixture
def report(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    path = folder / "run.nsys-rep"
    path.write_bytes(REPORT)
    return path


@pytest.fixture
def called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the script writes how it was called."""
    monkeypatch.setenv("NSYS_CALLED", str(tmp_path / "called"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path / "called"


def put_nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "nsys"
    script.write_text(SCRIPT + ending)
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_a_report_reads_as_its_export(
    report: Path, called: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_nsys(tmp_path, monkeypatch, f'cp "{EXPORT}" "$out"\n')
    heard: list[str] = []
    tasks.add_listener(heard.append)
    (run,), (expected,) = load(report, cache=False), load(EXPORT, cache=False)
    assert_frame_equal(run.events, expected.events, categorical_as_str=True)
    assert run.log.source == str(report) and run.log.format == "nsys-rep"
    words = called.read_text().split()
    assert words[:2] == ["export", "--type=sqlite"] and words[-1] == str(report)
    assert heard == ["nsys exports the report"] and tasks.describe_activity() == ""
    assert [p.name for p in report.parent.iterdir()] == ["run.nsys-rep"], "nothing is written beside it"
    assert not list(tmp_path.glob("tracetui-*")), "the export is removed"


def test_a_report_without_any_mark_is_known_by_its_name(
    report: Path, called: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_nsys(tmp_path, monkeypatch, f'cp "{EXPORT}" "$out"\n')
    report.write_bytes(b"\x07" + bytes(200))
    assert load(report, cache=False)[0].events.height
    report.write_text("this is text")
    with pytest.raises(UnreadableError, match="is text"):
        load(report, cache=False)


def test_its_failure_is_passed_on_as_one_sentence(
    report: Path, called: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_nsys(
        tmp_path, monkeypatch, 'printf "Exporting\\nERROR: \\033[31mversion 2099.1 is newer\\n"; exit 3\n'
    )
    with pytest.raises(UnreadableError) as actual:
        load(report, cache=False)
    assert "nsys says: ERROR:" in str(actual.value) and "version 2099.1 is newer" in str(actual.value)
    assert "\n" not in str(actual.value) and "\033" not in str(actual.value)


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        ("exit 0\n", "wrote no export"),
        ('echo x > "$out"\n', "SQLite"),
        ("kill -9 $$\n", "exit code -9"),
    ],
)
def test_an_export_that_is_none_is_refused(
    report: Path, called: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, why: str
) -> None:
    put_nsys(tmp_path, monkeypatch, ending)
    with pytest.raises(UnreadableError, match=why):
        load(report, cache=False)


def test_without_nsys_the_command_is_told(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UnreadableError, match=r"not on PATH\); export it: nsys export --type sqlite"):
        load(report, cache=False)


CHILD = """
import signal, sys
from capture.load_runs import load
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background begins without it
load(sys.argv[1], cache=False)
"""


def test_it_ends_with_whoever_asked(
    report: Path, called: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C ends the script and the process that it waits for."""
    put_nsys(tmp_path, monkeypatch, 'sleep 600 & echo $! > "$NSYS_CALLED.pid"; wait\n')
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(report)], stderr=subprocess.DEVNULL)
    pid = tmp_path / "called.pid"
    until = time.monotonic() + 60
    while not (pid.exists() and pid.read_text().strip()) and time.monotonic() < until:
        time.sleep(0.05)
    sleeper = int(pid.read_text())
    _until_it_waits(child.pid)
    child.send_signal(signal.SIGINT)
    child.wait(timeout=60)
    assert _gone(sleeper)


def test_it_ends_when_the_program_leaves_while_a_thread_reads(
    report: Path, called: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The screen reads in a daemon thread: leaving it must not leave nsys behind."""
    put_nsys(tmp_path, monkeypatch, 'sleep 600 & echo $! > "$NSYS_CALLED.pid"; wait\n')
    program = f"""
import pathlib, sys, threading, time
from capture.load_runs import load
threading.Thread(target=load, args=(sys.argv[1],), kwargs=dict(cache=False), daemon=True).start()
pid = pathlib.Path({str(tmp_path / "called.pid")!r})
while not (pid.exists() and pid.read_text().strip()):
    time.sleep(0.05)
"""
    child = [sys.executable, "-c", program, str(report)]
    subprocess.run(child, stderr=subprocess.DEVNULL, timeout=100, check=False)
    assert _gone(int((tmp_path / "called.pid").read_text()))


def _until_it_waits(pid: int) -> None:
    """Wait until a process sleeps in a call of the kernel, as one does that waits for another's output."""
    seen = 0
    while seen < 5:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        seen = seen + 1 if state == "S" else 0
        time.sleep(0.1)


def _gone(pid: int) -> bool:
    """Return whether a process ends soon; one that has ended but was not waited for counts as gone."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        threading.Event().wait(0.1)
    return False


@pytest.mark.corpus
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_ended_leaves_neither_child_nor_file(
    report: Path, called: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    put_nsys(tmp_path, monkeypatch, 'sleep 600 & echo $! > "$NSYS_CALLED.pid"; wait\n')
    ours = subprocess.Popen(
        [sys.executable, "-m", "tracetui", "report", "kernels", str(report), "--no-cache"]
    )
    pid = Path(f"{called}.pid")
    while not (pid.exists() and pid.read_text().strip()):
        time.sleep(0.05)
    sleeper = int(pid.read_text())
    ours.send_signal(number)
    assert ours.wait(timeout=60) == 128 + number
    assert _gone(sleeper) and not list(tmp_path.glob("tracetui-*"))


def test_a_signal_that_comes_while_the_child_starts_ends_it_too(
    report: Path, called: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_nsys(tmp_path, monkeypatch, 'sleep 600 & echo $! > "$NSYS_CALLED.pid"; wait\n')
    pid, plain = Path(f"{called}.pid"), subprocess.Popen

    def interrupted(*args: Any, **more: Any) -> "subprocess.Popen[bytes]":
        process = plain(*args, **more)
        while not (pid.exists() and pid.read_text().strip()):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)
        return process

    monkeypatch.setattr("capture.loaders.nsys.rep_file.subprocess.Popen", interrupted)
    with pytest.raises(SystemExit) as ended:
        load(report, cache=False)
    assert ended.value.code == 128 + signal.SIGTERM
    assert _gone(int(pid.read_text()))
