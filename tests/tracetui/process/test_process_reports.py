"""What a recorded process reports, added up over all that it wrote."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tracetui.process.process_reports import FOLDER_VARIABLE, ProcessReport, ReportFolder


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> Iterator[ReportFolder]:
    monkeypatch.setattr("tracetui.process.process_reports._TORCH_LIBRARY", b"libc")  # all have it
    folder = ReportFolder("a run")
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
    ours = {**os.environ, **reports.environment}
    (silent,) = find_silent(reports, ours)
    assert silent.endswith(")") and "-c print" in silent, "nothing shows the reason"


@pytest.mark.parametrize(
    ("changes", "options", "says"),
    [
        ({}, ["-I"], "-I, which leaves the recorder out"),
        ({}, ["-sE"], "-sE, which leaves the recorder out"),
        ({FOLDER_VARIABLE: "/elsewhere"}, [], "recorded by another tracetui"),
        ({FOLDER_VARIABLE: None}, [], "without tracetui's environment variables"),
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
