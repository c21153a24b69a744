"""A process that runs already is watched and left as it was: by gdb, and by a played door of Python 3.14."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from capture.errors import EngineError
from capture.load_runs import load
from capture.native.schema import UNWATCHED_NAME
from tests.capture.record.running import (
    Running,
    alone,
    attach_once,
    not_possible,
    plain_environment,
)
from tests.house import ROOT
from tracetui import cli

pytest.importorskip("torch")

pytestmark = pytest.mark.xdist_group("attached")  # one recording for all

SAME = ("files", "known", "names", "environment", "path", "changed", "hooks", "threads")
WAITS = """
import threading, time, torch
from torch import nn

model = nn.Linear(4, 4)
def work():
    with torch.no_grad():
        while True:
            model(torch.ones(2, 4))
            time.sleep(0.001)
threading.Thread(target=work, daemon=True).start()
print("here", flush=True)
threading.Lock().acquire()
over = threading.Lock()
over.acquire()
over.acquire()
"""


@pytest.fixture(scope="module", autouse=True)
def possible() -> None:
    if why := not_possible():
        pytest.skip(why)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with Running() as program:
        yield program


@pytest.fixture
def waiting() -> Iterator[subprocess.Popen[str]]:
    """A program whose main thread waits for ever in a lock while another one works."""
    child = subprocess.Popen(
        [sys.executable, "-c", WAITS], env=plain_environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None and child.stdout.readline() == "here\n"
    yield child
    child.kill()
    child.communicate()


@pytest.fixture
def fresh() -> Iterator[Running]:
    with Running() as program:
        yield program


def begin(pid: int, folder: Path) -> subprocess.Popen[str]:
    """Begin to record a process from the command line."""
    command = [sys.executable, "-m", "tracetui", "record", "--pid", str(pid), "-o", "prof.jsonl"]
    environment = plain_environment() | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_five_times_attached_and_left_it_is_as_it_was(fresh: Running, tmp_path: Path) -> None:
    seen = [attach_once(fresh.pid, tmp_path / "0.jsonl", 0.3)]
    first = fresh.ask()  # torch's profiler has its own thread from its first window on
    seen += [attach_once(fresh.pid, tmp_path / f"{n}.jsonl", 0.3) for n in range(1, 5)]
    last = fresh.ask()
    assert {name: last[name] for name in SAME} == {name: first[name] for name in SAME}
    assert last["changed"] == [] and last["hooks"] == 0 and last["known"] == ["MainThread"]
    assert last["blocks"] - first["blocks"] < 2000  # of some million
    assert fresh.leave() == (0, "")
    assert alone(last["iterations"])["digest"] == last["digest"]
    assert min(seen) > 0
    for number, steps in enumerate(seen):
        (run,) = load(tmp_path / f"{number}.jsonl", cache=False)
        assert run.log.dropped == 0
        assert run.events.filter(kind="step").height == steps


@pytest.mark.slow
def test_steps_of_training_are_whole_and_have_their_parts(running: Running, tmp_path: Path) -> None:
    attach_once(running.pid, tmp_path / "prof.jsonl", 1.0)
    (run,) = load(tmp_path / "prof.jsonl", cache=False)
    steps = run.events.filter(kind="step")
    rows = run.events.filter(kind="kernel", lens="wall").filter(pl.col("step").is_not_null())
    counts = dict(rows.group_by("name").len().rows())
    # an iteration is a training step and an answer: two steps, of which one goes backward
    assert abs(counts["backward"] * 2 - steps.height) <= 2
    assert abs(counts["optimizer"] * 2 - steps.height) <= 2
    unwatched = run.events.filter(name=UNWATCHED_NAME)["step"].n_unique()
    assert abs(counts["0"] - (steps.height - unwatched)) <= 2


@pytest.mark.slow
def test_a_main_thread_that_waits_is_reached(waiting: subprocess.Popen[str], tmp_path: Path) -> None:
    assert attach_once(waiting.pid, tmp_path / "prof.jsonl", 0.5) > 0
    assert waiting.poll() is None


@pytest.mark.slow
def test_only_one_is_attached_at_a_time(running: Running, tmp_path: Path) -> None:
    from tracetui.process import AttachedProcess

    (tmp_path / "prof.jsonl").touch()
    first = AttachedProcess(running.pid, tmp_path / "prof.jsonl")
    try:
        with pytest.raises(EngineError, match="another tracetui is attached to it"):
            AttachedProcess(running.pid, tmp_path / "other.jsonl")
        assert first.is_running
    finally:
        first.stop()
    assert not first.is_running and not first.explain_failure()
    assert running.ask()["changed"] == []


def recorder_of(running: Running, folder: Path) -> subprocess.Popen[str]:
    """`record --pid` as a command, once it has said that it watches."""
    recorder = subprocess.Popen(
        [sys.executable, "-m", "tracetui", "record", "--pid", str(running.pid), "-o", "prof.jsonl"],
        cwd=folder,
        env=plain_environment() | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert recorder.stderr is not None
    said = recorder.stderr.readline()
    assert f"recording process {running.pid} until Ctrl+C" in said, said
    return recorder


@pytest.mark.slow
def test_a_recorder_that_is_killed_lets_the_process_go(running: Running, tmp_path: Path) -> None:
    before = running.ask()
    recorder = recorder_of(running, tmp_path)
    assert running.ask()["changed"]
    recorder.kill()
    recorder.communicate()
    deadline = time.monotonic() + 10
    while (after := running.ask())["changed"] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (after["changed"], after["hooks"], after["files"]) == ([], 0, before["files"])


@pytest.mark.slow
def test_record_ends_with_the_process(
    fresh: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tracetui.verbs import _recording

    monkeypatch.setattr(
        _recording._options, "print_status", lambda text: "recording process" in text and fresh.leave()
    )
    out = tmp_path / "prof.jsonl"
    assert cli.main(["record", "--pid", str(fresh.pid), "-o", str(out)]) == 0
    (run,) = load(out, cache=False)
    assert run.events.filter(kind="step").height > 0


@pytest.mark.slow
def test_record_for_a_while(running: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "prof.jsonl"
    assert cli.main(["record", "--pid", str(running.pid), "--for", "0.5", "--quiet", "-o", str(out)]) == 0
    assert capsys.readouterr() == ("", "")
    assert running.ask()["changed"] == []
    (run,) = load(out, cache=False)
    assert run.events.filter(kind="step").height > 0


@pytest.mark.slow
def test_ctrl_c_detaches(running: Running, tmp_path: Path) -> None:
    recorder = recorder_of(running, tmp_path)
    running.ask()
    recorder.send_signal(signal.SIGINT)
    output = recorder.communicate(timeout=60)[1]
    assert recorder.returncode == 0 and "recorded prof.jsonl" in output, output
    assert running.ask()["changed"] == []


@pytest.mark.slow
def test_a_process_without_a_step_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = "import torch, time\nprint(1, flush=True)\nwhile True: time.sleep(0.01)"
    child = subprocess.Popen([sys.executable, "-c", program], env=plain_environment(), stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None and child.stdout.readline()
        out = tmp_path / "prof.jsonl"
        assert cli.main(["record", "--pid", str(child.pid), "--for", "0.2", "-o", str(out)]) == 5
        assert "nothing was recorded, because process" in capsys.readouterr().err
        assert not out.exists()
    finally:
        child.kill()
        child.communicate()


@pytest.mark.slow
def test_a_forked_child_is_left_alone(tmp_path: Path) -> None:
    program = (
        "import json, os, sys, time, torch\nplain = torch.nn.Module.__call__\nprint(1, flush=True)\n"
        "while torch.nn.Module.__call__ is plain: time.sleep(0.01)\n"
        "if not os.fork():\n"
        "    files = len(os.listdir('/proc/self/fd'))\n"
        "    print(json.dumps([torch.nn.Module.__call__ is plain, files]), flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\ntime.sleep(60)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program], env=plain_environment(), stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None and child.stdout.readline()
        attach_once(child.pid, tmp_path / "prof.jsonl", 0.3)
        assert json.loads(child.stdout.readline()) == [True, 4]  # three, and the folder that is listed
    finally:
        child.kill()
        child.communicate()
