"""Every hostile file through the command line: the right exit, one sentence, no raw control byte."""

import json
import re

import pytest

from tests.conftest import SHARED
from tracetui.cli import main

FOLDER = SHARED / "samples" / "hostile"
MANIFEST = FOLDER / "MANIFEST.jsonl"
ENTRIES = [json.loads(line) for line in MANIFEST.read_text().splitlines()] if MANIFEST.exists() else []
PROFILES = [e for e in ENTRIES if not e["file"].endswith(".safetensors")]  # weights are the engine's to read
PRESENT = [e for e in PROFILES if (FOLDER / e["file"]).exists()]
CONTROL = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b-\u200f\U000e0000-\U000e0fff]"
)

if not PRESENT:
    pytest.skip("the hostile samples are not beside this checkout", allow_module_level=True)


@pytest.mark.parametrize("entry", PRESENT, ids=lambda e: e["file"])
def test_kernels_of_a_hostile_file(entry: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["report", "kernels", str(FOLDER / entry["file"]), "--no-cache"])
    told = capsys.readouterr()
    assert code == (3 if entry["expect"] == "refuse" else 0), told.err
    assert not CONTROL.search(told.out) and not CONTROL.search(told.err)
    assert "Traceback" not in told.err and "fault of its own" not in told.err
    if code == 3:
        assert told.out == ""
        assert len(told.err.splitlines()) == 1


@pytest.mark.parametrize("entry", [e for e in PRESENT if e["expect"] != "refuse"], ids=lambda e: e["file"])
def test_names_are_data_in_every_format(entry: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """JSON is valid, and no cell of the CSV begins like a formula."""
    path = str(FOLDER / entry["file"])
    assert main(["report", "kernels", path, "--format", "json", "--no-cache"]) == 0
    told = json.loads(capsys.readouterr().out)
    account = told["import"][0]
    assert account["read"] == account["kept"] + account["dropped"]
    if entry["expect"] == "partial":
        assert account["notices"]
    assert main(["report", "kernels", path, "--format", "csv", "--no-cache"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert not any(re.match(r'"?[=+@\t\r]', line) for line in lines)
