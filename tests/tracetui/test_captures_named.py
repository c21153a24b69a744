"""The captures of replayed graphs, as commands name them: a file, a folder, or none."""

import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import FIXTURES
from tests.tracetui.in_process import tracetui

REPLAY = FIXTURES / "chrome" / "replay"
CAPTURES = str(REPLAY / "capture_traces")


@pytest.fixture
def alone(tmp_path: Path) -> str:
    """The trace without its captures beside it."""
    return str(shutil.copy(REPLAY / "decode-TP-0.trace.json", tmp_path / "alone.json"))


def test_doctor_tells_of_a_trace_as_its_captures_let_it_be_read(alone: str) -> None:
    actual = [tracetui("doctor", alone, *way).stdout for way in ((), ("--capture", CAPTURES))]
    assert "from captures of graphs" not in actual[0] and "from captures of graphs" in actual[1]
    assert "from captures of graphs" in tracetui("doctor", str(REPLAY)).stdout
    assert "from captures of graphs" not in tracetui("doctor", str(REPLAY), "--capture", "none").stdout


@pytest.mark.parametrize("command", ["compare", "diff"])
def test_both_sides_of_a_comparison_are_read_with_the_captures(
    command: str, alone: str, tmp_path: Path
) -> None:
    other = str(shutil.copy(alone, tmp_path / "other.json"))
    text = Path(other).read_text()
    Path(other).write_text(text.replace('"schemaVersion"', '"again": 1, "schemaVersion"', 1) + "\n")
    asked = (command, alone, other, "--format", "json")
    answers = [tracetui(*asked, *way) for way in ((), ("--capture", CAPTURES), ("--capture", "none"))]
    assert {answer.returncode for answer in answers} == {0}
    actual = [
        sum("from captures of graphs" in notice["message"] for notice in notices(a.stdout)) for a in answers
    ]
    assert actual == [0, 2, 0]


def notices(answer: str) -> list[dict[str, str]]:
    """What was noticed while the files of an answer were read."""
    return [notice for file in json.loads(answer)["import"] for notice in file["notices"]]
