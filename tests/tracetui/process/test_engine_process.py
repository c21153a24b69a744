"""Engines as child processes: what they say, how they end, and that none is left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from capture.errors import EngineError
from tracetui.process import EngineProcess, UserProgram, build_recorded_environment

LISTENS = "import sys, time\nfor line in sys.stdin: print('got', line.strip(), flush=True)"


def program(code: str) -> EngineProcess:
    return EngineProcess([sys.executable, "-c", code])


def until(holds: Callable[[], object], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_orders_reach_the_engine() -> None:
    engine = program(LISTENS)
    assert engine.send({"do": "prompt", "text": "hé"})
    until(lambda: engine.list_last_lines() and engine.list_last_lines()[0].endswith("}"))
    assert json.loads(engine.list_last_lines()[0].removeprefix("got ")) == {"do": "prompt", "text": "hé"}
    engine.stop()
    assert gone(engine.pid)
    assert engine.explain_failure() == ""


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "was ended by SIGKILL"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV, a crash in native code"),
        ("raise SystemExit('no weights here')", "exit code 1: no weights here"),
        ("print('\\x1b[31mred'); raise SystemExit(7)", "exit code 7: \ufffd[31mred"),
    ],
)
def test_each_death_has_its_sentence(code: str, says: str) -> None:
    engine = program(code)
    until(lambda: not engine.is_running)
    until(lambda: says in engine.explain_failure())
    engine.stop()


@pytest.mark.parametrize(
    ("before", "after"), [("", ""), ("oom_kill 3", "oom_kill 3"), ("oom_kill 3", "oom_kill 4")]
)
def test_a_kill_is_for_want_of_memory_where_the_kernel_says_so(
    before: str, after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = tmp_path / "vmstat"
    monkeypatch.setattr("tracetui.process.engine_process._VMSTAT", counts)
    counts.write_text(f"pgfault 7\n{before}\n")
    engine = program("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    until(lambda: not engine.is_running)
    counts.write_text(f"pgfault 8\n{after}\n")
    assert ("memory" in engine.explain_failure()) == (before != after)
    engine.stop()


def test_a_good_end_has_none() -> None:
    engine = program("print('done')")
    until(lambda: not engine.is_running)
    assert engine.explain_failure() == ""


def test_what_it_prints_is_kept_within_bounds() -> None:
    engine = program("import sys\nfor i in range(200000): print('x' * 20, i)")
    until(lambda: not engine.is_running, 30)
    until(lambda: engine.list_last_lines(1) == ["x" * 20 + " 199999"])
    assert sum(map(len, engine.list_last_lines(10**6))) <= 70_000
    engine.stop()


@pytest.mark.slow
def test_an_engine_that_will_not_end_is_ended_with_its_children(tmp_path: Path) -> None:
    note = tmp_path / "child"
    code = f"""
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open({str(note)!r}, "w").write(str(child.pid))
time.sleep(60)
"""
    engine = program(code)
    until(note.exists)
    until(lambda: note.read_text() != "")
    engine.stop()
    assert engine.returncode == -signal.SIGKILL
    until(lambda: _dead(int(note.read_text())))


STARTER = """
import sys, time
from tracetui.process import EngineProcess
engine = EngineProcess([sys.executable, "-c", sys.argv[1]], with_watchdog=True)
print(engine.pid, engine._watchdog.pid, flush=True)
time.sleep(60)
"""

STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open({note!r}, "w").write(str(child.pid) + chr(10))
time.sleep(60)
"""


@pytest.mark.slow
def test_a_program_with_a_watchdog_and_its_children_end_when_their_starter_is_killed(tmp_path: Path) -> None:
    note = tmp_path / "child"
    code = STUBBORN.format(note=str(note))
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, code], stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        pids = [int(word) for word in starter.stdout.readline().split()]
        until(lambda: note.exists() and note.read_text().endswith("\n"))
        pids.append(int(note.read_text()))
        assert not any(map(_dead, pids))
        starter.kill()
    until(lambda: all(map(_dead, pids)), 30)


@pytest.mark.slow
def test_an_engine_that_is_started_anew_is_sampled_anew(tmp_path: Path) -> None:
    out = tmp_path / "prof.jsonl"
    out.touch()  # as record and live do
    engine = program("import time; time.sleep(60)")
    engine.start_sampler(out)
    for _ in range(2):
        until(lambda: b"process_mem_used" in out.read_bytes())
        sampler = engine._sampler
        assert sampler is not None and sampler.is_running
        engine.stop()
        assert gone(engine.pid) and gone(sampler.pid)
        out.write_bytes(b"")
        engine.start()
    engine.stop()


STRAY = """
import os, signal, subprocess, sys, time
def tidy(*_):
    time.sleep(0.05)
    open({note!r}, "a").write("tidied" + chr(10))
    os._exit(0)
signal.signal(signal.SIGTERM, tidy)
open({note!r}, "w").write(str(os.getpid()) + chr(10))
time.sleep(60)
"""


COUNTS = """
import signal, sys, time
def count(*_):
    open({note!r}, "a").write("asked ")
signal.signal(signal.SIGTERM, count)
open({note!r}, "w").write("here ")
while "asked" not in open({note!r}).read():
    time.sleep(0.01)
time.sleep(0.2)
"""


def test_a_program_is_asked_to_end_once_and_nobody_waits_for_that(tmp_path: Path) -> None:
    note = tmp_path / "note"
    engine = EngineProcess([sys.executable, "-c", COUNTS.format(note=str(note))], accepts_orders=False)
    until(note.exists)
    until(lambda: note.read_text() == "here ")
    engine.request_stop()
    assert engine.is_running
    engine.request_stop()
    engine.stop()
    assert note.read_text() == "here asked " and engine.returncode == 0
    assert engine.explain_failure() == ""
    engine.start()
    until(lambda: note.read_text() == "here ")
    engine.stop()
    assert note.read_text() == "here asked ", "started anew it is asked anew"


def test_what_a_program_started_in_a_session_of_its_own_has_time_to_end(tmp_path: Path) -> None:
    note = tmp_path / "stray"
    stray = f"[sys.executable, '-c', {STRAY.format(note=str(note))!r}]"
    code = f"import subprocess, sys\nsubprocess.Popen({stray}, start_new_session=True).wait()"
    program = UserProgram([sys.executable, "-c", code], tmp_path / "out.jsonl")
    until(lambda: note.exists() and note.read_text().endswith("\n"))
    program.stop(in_background=True)
    until(lambda: _dead(int(note.read_text().split()[0])))
    assert note.read_text().split()[1:] == ["tidied"]


def test_the_last_steps_of_a_program_that_was_killed_are_added(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.touch()
    code = """
import os, torch
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
for _ in range(30):
    model(torch.ones(1, 4))
os.kill(os.getpid(), 9)
"""
    program = UserProgram([sys.executable, "-c", code], out)
    until(lambda: not program.is_running, 60)
    program.stop(in_background=True)
    assert out.read_text().count('{"kind":"step"') == 30


def test_a_watchdog_leaves_with_its_program() -> None:
    engine = EngineProcess([sys.executable, "-c", "raise SystemExit(3)"], with_watchdog=True)
    assert engine._watchdog is not None
    held = engine._watchdog.pid
    until(lambda: engine.returncode == 3 and gone(held))
    engine.stop()
    assert engine.explain_failure() == "the engine ended with exit code 3"


def test_a_program_with_a_watchdog_has_its_own_streams_and_signals() -> None:
    output = "import os, sys; print(sys.stdin.readline().strip(), flush=True); os.kill(os.getpid(), 11)"
    engine = EngineProcess([sys.executable, "-c", output], with_watchdog=True)
    assert engine.send({"do": "hear"})
    until(lambda: engine.returncode == -signal.SIGSEGV)
    until(lambda: engine.list_last_lines() == ['{"do": "hear"}'])
    engine.stop()


def _dead(pid: int) -> bool:
    """Gone, or a zombie that init has not yet taken."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except FileNotFoundError:
        return True


def test_what_cannot_be_started() -> None:
    with pytest.raises(EngineError, match="cannot be started"):
        EngineProcess(["/nonexistent/engine"])


def test_a_foreign_program_learns_where_its_lines_go(tmp_path: Path) -> None:
    environment = build_recorded_environment(tmp_path / "out.jsonl")
    assert environment["TRACETUI_OUT"] == str(tmp_path / "out.jsonl")
    assert environment["PYTHONPATH"].split(os.pathsep)[0].endswith("capture/record/site")


STARTS_AND_DIES = """
import os, signal, subprocess, sys
from tracetui.process import EngineProcess, engine_process
real = subprocess.Popen
def popen(command, **options):
    child = real(command, **options)
    if "capture.record.watchdog" not in command:
        print(child.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return child
engine_process.subprocess.Popen = popen
EngineProcess([sys.executable, "-c", "import time; time.sleep(60)"], with_watchdog=True)
"""


def test_a_program_ends_with_a_starter_that_is_killed_right_after_its_start() -> None:
    starter = subprocess.run(
        [sys.executable, "-c", STARTS_AND_DIES], stdout=subprocess.PIPE, text=True, check=False
    )
    pid = int(starter.stdout)
    try:
        assert starter.returncode == -signal.SIGKILL
        until(lambda: gone(pid))
    finally:
        if not gone(pid):
            os.kill(pid, signal.SIGKILL)
