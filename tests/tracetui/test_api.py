"""`tracetui.load`: the answers of the command line as frames, in a program that keeps its own modules."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tracetui as package
from capture.errors import UnreadableError, UsageError
from tests.house import ROOT
from tests.tracetui.in_process import tracetui


def test_a_view_is_a_method_with_the_rows_of_the_report() -> None:
    profile = package.load("sample:decode")
    actual = json.loads(
        tracetui("report", "kernels", "sample:decode", "--phase", "decode", "--format", "json").stdout
    )
    assert profile.kernels(phase="decode").to_dicts() == actual["rows"]
    assert profile.ask("kernels", phase="decode").notes == tuple(actual["notes"])
    assert profile.sql("SELECT count(*) AS n FROM events").item() == profile.events.height
    assert "run 1 of 1" in repr(profile)


def test_two_profiles_are_compared_as_diff_does() -> None:
    a, b = package.load("sample:decode"), package.load("sample:slowed")
    actual = json.loads(tracetui("diff", "sample:decode", "sample:slowed", "--format", "json").stdout)
    assert a.against(b).rows["name"].to_list() == [row["name"] for row in actual["rows"]]


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    profile = package.load("sample:decode")
    with pytest.raises(AttributeError, match="no view 'kernls'"):
        profile.kernls()
    with pytest.raises(UsageError, match="no run is called"):
        package.load("sample:decode", run="another")
    (tmp_path / "empty.txt").write_text("nothing of interest\n")
    with pytest.raises(UnreadableError):
        package.load(tmp_path / "empty.txt")


def test_the_path_of_a_program_stays_as_it_is(tmp_path: Path) -> None:
    """Also where the program has a folder called capture: it is told so, and ours takes no name from it."""
    output = (
        "import sys, tracetui; before = list(sys.path); n = tracetui.load('sample:decode').events.height; "
    )
    kept = f"{output}print(n > 1000, before == sys.path, 'textual' in sys.modules, 'torch' in sys.modules)"
    (tmp_path / "capture").mkdir()
    (tmp_path / "capture" / "__init__.py").write_text("MINE = True\n")
    theirs = (
        "import capture, tracetui\ntry:\n    tracetui.load('sample:decode')\n"
        "except ImportError as e:\n    print(e)"
    )
    answers = [
        subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": f"{tmp_path}:{ROOT}"},
            capture_output=True, text=True, check=True,
        ).stdout
        for code in (theirs, kept)
    ]  # fmt: skip
    assert "another module called capture is already imported" in answers[0]
    assert answers[1].split() == ["True", "True", "False", "False"]
