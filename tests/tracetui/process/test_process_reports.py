"""What a recorded process reports, added up over all that it wrote."""

import errno
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

import capture.record
from capture.native.emit import Emitter
from capture.record.call_phases import CallFacts
from capture.record.process_notes import LastSteps
from tracetui.process.command_lines import find_hook_folder
from tracetui.process.process_reports import FOLDER_VARIABLE, ProcessReport, ReportFolder

STAND_IN = Path(capture.record.__file__).parents[2] / "tests/capture/record/fake_torch"
DEAD = 1 << 30  # no process has this number


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> Iterator[ReportFolder]:
    monkeypatch.setattr("tracetui.process.process_reports._TORCH_LIBRARY", b"libc")  # all have it
    folder = ReportFolder(secrets.token_hex(8))  # of no process of a test beside this
    yield folder
    folder.remove()


def write_report(reports: ReportFolder, pid: int, *lines: str) -> None:
    (Path(reports.environment[FOLDER_VARIABLE]) / f"process-{pid}").write_text("\n".join(lines) + "\n")


def find_silent(reports: ReportFolder, environment: Mapping[str, str], *options: str) -> list[str]:
    """Check a Python that waits, and return what is said of it."""
    command = [sys.executable, *options, "-c", "print(flush=True); input()"]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline()
        reports.check_for_silent(child.pid)
        child.communicate(b"\n")
    return reports.list_silent()


def test_a_process_without_the_recorder_is_named_with_the_reason(reports: ReportFolder) -> None:
    ours = {**os.environ, **reports.environment, "PYTHONPATH": find_hook_folder()}
    (silent,) = find_silent(reports, ours)
    assert silent.endswith(")") and "-c print" in silent, "nothing shows the reason"


@pytest.mark.parametrize(
    ("changes", "options", "says"),
    [
        ({}, ["-I"], "-I, which leaves the recorder out"),
        ({}, ["-sE"], "-sE, which leaves the recorder out"),
        ({FOLDER_VARIABLE: "/elsewhere"}, [], "recorded by another tracetui"),
        ({FOLDER_VARIABLE: None}, [], "without tracetui's environment variables"),
        ({"PYTHONPATH": "/elsewhere"}, [], "started with a PYTHONPATH of its own, without tracetui's folder"),
    ],
)
def test_the_reason_of_a_silent_process_is_looked_up(
    changes: Mapping[str, str | None], options: list[str], says: str, reports: ReportFolder
) -> None:
    ours = {**os.environ, **reports.environment, **changes}
    environment = {name: value for name, value in ours.items() if value is not None}
    (silent,) = find_silent(reports, environment, *options)
    assert silent.endswith(says)
    assert silent in reports.explain_empty_recording()


def test_a_sitecustomize_before_ours_is_the_reason(reports: ReportFolder, tmp_path: Path) -> None:
    """A program may put its folder before ours on the path: Python imports only the first sitecustomize."""
    (tmp_path / "sitecustomize.py").touch()
    path = os.pathsep.join([str(STAND_IN), str(tmp_path), find_hook_folder()])
    (silent,) = find_silent(reports, {**os.environ, **reports.environment, "PYTHONPATH": path})
    assert silent.endswith(f", which runs the sitecustomize of {tmp_path} instead of tracetui's")


def test_all_silent_processes_are_named_if_nothing_is_recorded(reports: ReportFolder) -> None:
    ours = {**os.environ, **reports.environment}
    find_silent(reports, ours, "-I")
    silent = find_silent(reports, ours, "-sE")
    assert len(silent) == 2
    assert all(each in reports.explain_empty_recording() for each in silent)


REFUSED = """
import resource
from capture.record.process_notes import append_note
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
append_note("python 3.12.1")
append_note("torch 2.9")
"""


def test_a_process_that_may_not_write_is_named_with_the_cause(reports: ReportFolder) -> None:
    """Its notes are lost like its lines: without them it would pass for one that never imported torch."""
    with subprocess.Popen(
        [sys.executable, "-c", REFUSED], env={**os.environ, **reports.environment}
    ) as child:
        assert child.wait(60) == 0
    sentence = reports.explain_empty_recording()
    assert f"process {child.pid} " in sentence and os.strerror(errno.EFBIG).lower() in sentence


def test_a_process_that_loaded_torch_past_the_recorder_is_silent(reports: ReportFolder) -> None:
    write_report(reports, os.getpid(), "python 3.12.1")
    reports.check_for_silent(os.getpid())
    ours = f"process {os.getpid()} "  # other tests may have left children with torch
    assert sum(silent.startswith(ours) for silent in reports.list_silent()) == 1
    write_report(reports, os.getpid(), "python 3.12.1", "torch 2.9")
    assert not any(silent.startswith(ours) for silent in reports.list_silent())


GOES_ON = """
import os, sys
print("ready", flush=True)
input()
import torch
class Model(torch.nn.Module):
    def forward(self, ids):
        return ids
model = Model()
for _ in range(3):
    model(torch.Ids(2, 8))
def go_on(path, environment):
    print("ready", flush=True)
    input()
    os.execve(path, [sys.executable, "-c", "import torch; print(flush=True); input()"], environment)
try:
    go_on("text", {})
except OSError:
    kept = "PYTHONPATH" if len(sys.argv) > 1 else ""
    go_on(sys.executable, {name: text for name, text in os.environ.items() if kept in name})
"""


@pytest.mark.parametrize("clean", [True, False])
def test_a_program_that_goes_on_with_an_environment_of_its_own_is_silent_from_then_on(
    reports: ReportFolder, tmp_path: Path, clean: bool
) -> None:
    folders = [str(Path(capture.record.__file__).parent / "site"), str(STAND_IN)]
    ours = {"PYTHONPATH": os.pathsep.join(folders), "TRACETUI_OUT": str(tmp_path / "out.jsonl")}
    (tmp_path / "text").write_text("no program")
    (tmp_path / "text").chmod(0o700)
    with subprocess.Popen(
        [sys.executable, "-c", GOES_ON, *["clean"] * clean],
        env={**os.environ, **ours, **reports.environment},
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        for silent_count in (1, 0, 0):  # before the import of torch, and before each start of another program
            assert child.stdout.readline() == b"ready\n"
            for _ in range(3):
                reports.check_for_silent(child.pid)
            assert len(reports.list_silent()) == silent_count
            child.stdin.write(b"\n")
            child.stdin.flush()
        assert child.stdout.readline() == b"\n"
        reports.check_for_silent(child.pid)
        silent = reports.list_silent()
        child.communicate(b"\n")
    assert child.returncode == 0
    assert [line.rpartition(", ")[2] for line in silent] == (
        ["started without tracetui's environment variables"] if clean else []
    )


def test_a_program_that_is_about_to_go_on_as_another_is_not_silent_yet(
    reports: ReportFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_report(reports, os.getpid(), "python 3.12.1", "torch 2.9", "executes")
    monkeypatch.setenv(FOLDER_VARIABLE, reports.environment[FOLDER_VARIABLE])
    last = LastSteps(1)
    reports.check_for_silent(os.getpid())
    ours = f"process {os.getpid()} "
    assert not any(silent.startswith(ours) for silent in reports.list_silent())
    last.remove()


def test_a_recorder_within_a_recorder_reports_itself_to_the_outer_one(
    reports: ReportFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, reports.environment[FOLDER_VARIABLE])
    ReportFolder("another run").remove()
    assert reports.explain_empty_recording() == "it runs another tracetui, which records instead"


def test_counts_that_a_killed_process_did_not_report_are_left_out(reports: ReportFolder) -> None:
    write_report(reports, 1, "python 3.12.1", "torch 2.9", "watched")
    whole = reports.describe_coverage(482)
    assert whole[0] == "recorded 482 steps in 1 process" and "exited without a report" in whole[1]
    write_report(reports, 1, "python 3.12.1", "torch 2.9", "watched", "seen 482 484 2")
    assert reports.describe_coverage(482) == ["recorded 482 steps, 484 forwards in 1 process, 2 threads"]


def test_report_of_a_process_that_went_on_as_another_program_adds_up() -> None:
    report = ProcessReport()
    for line in ("python 3.12.1", "torch 2.9 forked", "watched", "seen 3 40 1", "fault of our own",
                 "seen 2 10 1", "gaps 7 events", "seen 1 x", "unheard of"):  # fmt: skip
        report.add_line(line)
    assert (report.python, report.torch, report.gaps) == ("3.12.1", "2.9 forked", "7 events")
    assert report.is_recorded and report.has_ended and not report.has_llama_cpp
    assert report.counts == (5, 50, 2) and report.faults == ["of our own"]


def test_an_import_that_went_past_the_recorder_is_the_reason(reports: ReportFolder) -> None:
    write_report(reports, os.getpid(), "python 3.11.2", "missed torch")
    reason = reports.explain_empty_recording()
    assert reason.startswith("torch was imported past the recorder") and "sys.meta_path" in reason


def save_steps(reports: ReportFolder, monkeypatch: pytest.MonkeyPatch, pid: int, writer: int | None) -> None:
    """Leave the last steps of a process with this number: three that are over, and one that is not."""
    monkeypatch.setenv(FOLDER_VARIABLE, reports.environment[FOLDER_VARIABLE])
    monkeypatch.setattr(os, "getpid", lambda: pid)
    last, fields = LastSteps(0), {} if writer is None else {"writer": writer}
    last.describe(json.dumps({"track": None, "writer": fields, "name": "Net", "id": "one", "meta": {"a": 1}}))
    for number, phase in enumerate(("prefill", "decode", "decode"), 1):
        last.save(number * 100, 50, CallFacts(phase, 1, 1, 8), is_over=True)
    last.save(400, 7, None, is_over=False)
    monkeypatch.undo()


def read_steps(out: Path, *keys: str) -> list[tuple[object, ...]]:
    lines = [json.loads(line) for line in out.read_text().splitlines() if line.endswith('"}')]
    return [tuple(line.get(key) for key in keys) for line in lines if line["kind"] == "step"]


def test_steps_that_a_killed_process_did_not_write_are_added_once(
    reports: ReportFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "prof.jsonl"
    out.touch()
    save_steps(reports, monkeypatch, DEAD, None)
    save_steps(reports, monkeypatch, os.getpid(), 7)  # runs: it writes them itself
    for _ in range(2):
        reports.add_last_steps(out)
    assert read_steps(out, "t", "dur", "step", "phase", "tokens", "writer") == [
        (100, 50, 0, "prefill", 1, None), (200, 50, 1, "decode", 1, None), (300, 50, 2, "decode", 1, None),
        (400, 7, 3, None, None, None),
    ]  # fmt: skip
    run, *_ = out.read_text().splitlines()
    assert json.loads(run)["meta"] == {"a": 1} and json.loads(run)["id"] == "one"


def test_a_step_that_is_saved_twice_is_added_once(
    reports: ReportFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The call before those of one form is saved when it ends, and again when its step is over."""
    out = tmp_path / "prof.jsonl"
    out.touch()
    monkeypatch.setenv(FOLDER_VARIABLE, reports.environment[FOLDER_VARIABLE])
    monkeypatch.setattr(os, "getpid", lambda: DEAD)
    last = LastSteps(0)
    last.describe(json.dumps({"track": None, "writer": {}, "name": "Net", "id": "one", "meta": {}}))
    last.save(100, 50, CallFacts("decode", 1, 1), is_over=False)
    last.settle()
    last.save(100, 50, CallFacts("decode", 1, 1, 9), is_over=True)
    last.save(200, 50, CallFacts("decode", 1, 1), is_over=False)
    last.settle()
    last.save(200, 60, None, is_over=True)
    monkeypatch.undo()
    reports.add_last_steps(out)
    assert read_steps(out, "t", "dur", "step") == [(100, 50, 1), (200, 60, 2)]


def test_steps_that_a_killed_process_wrote_are_not_added_again(
    reports: ReportFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "prof.jsonl"
    with closing(Emitter(out, writer=7)) as emitter:
        emitter.run("Net", id="one")
        for number in (1, 2):
            emitter.step(number + 10, number * 100, 50, tokens=1)
    with out.open("a") as file:
        file.write('{"kind":"step","name":"de')  # it was killed as it wrote
    save_steps(reports, monkeypatch, DEAD, 7)
    reports.add_last_steps(out)
    assert read_steps(out, "t", "step", "writer") == [(100, 11, 7), (200, 12, 7), (300, 13, 7), (400, 14, 7)]
    assert out.read_text().count('"kind":"run"') == 1


def test_no_last_steps_are_saved_on_a_full_disk(
    reports: ReportFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    out = tmp_path / "prof.jsonl"
    out.touch()
    monkeypatch.setattr(os, "posix_fallocate", refuse)
    save_steps(reports, monkeypatch, DEAD, None)
    assert not list(Path(reports.environment[FOLDER_VARIABLE]).iterdir())
    reports.add_last_steps(out)
    assert not out.stat().st_size
