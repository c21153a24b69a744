"""Every hostile file through the command line: the right exit, one sentence, no raw control byte."""

import json
import re
from pathlib import Path

import pytest

from tests.hostile import JSON, TABLES, Hostile
from tests.hostile_sqlite import DATABASES
from tracetui.cli import main

CASES = (*JSON, *TABLES, *DATABASES)
CONTROL = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b-\u200f\U000e0000-\U000e0fff]"
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.file)
def test_kernels_of_a_hostile_file(case: Hostile, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["report", "kernels", str(case.write(tmp_path)), "--no-cache"])
    printed = capsys.readouterr()
    assert code == (3 if case.expect == "refuse" else 0), printed.err
    assert not CONTROL.search(printed.out) and not CONTROL.search(printed.err)
    assert "Traceback" not in printed.err and "fault of its own" not in printed.err
    if code == 3:
        assert printed.out == ""
        assert len(printed.err.splitlines()) == 1


@pytest.mark.parametrize("case", [c for c in CASES if c.expect != "refuse"], ids=lambda c: c.file)
def test_names_are_data_in_every_format(
    case: Hostile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """JSON is valid, and no cell of the CSV begins like a formula."""
    path = str(case.write(tmp_path))
    assert main(["report", "kernels", path, "--format", "json", "--no-cache"]) == 0
    answer = json.loads(capsys.readouterr().out)
    account = answer["import"][0]
    assert account["read"] == account["kept"] + account["dropped"]
    if case.expect == "partial":
        assert account["notices"]
    assert main(["report", "kernels", path, "--format", "csv", "--no-cache"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert not any(re.match(r'"?[=+@\t\r]', line) for line in lines)
