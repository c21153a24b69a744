"""Every hostile file through the command line: the right exit, one sentence, no raw control byte."""

import json
import re
from pathlib import Path

import pytest

from capture.errors import CaptureError
from capture.graphs.capture_files import NO_CAPTURE
from capture.load_runs import load
from tests.fuzz.checks import check_picture, check_report
from tests.hostile import JSON, TABLES, Hostile
from tests.hostile_sqlite import DATABASES
from tracetui.cli import main
from tracetui.look import Look
from tracetui.report_formats import format_report
from tracetui.ui.question import Question, make_picture, strip_presentation
from tracetui.views import View, load_views
from tracetui.views.ink import DrawSize

CASES = (*JSON, *TABLES, *DATABASES)
READ = [case for case in CASES if case.expect != "refuse"]
LARGE = 1 << 20  # bytes of a file that has a test of its own
NTH = 4  # every file is asked each fourth view, so that each view is asked of many files
CONTROL = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b-\u200f\U000e0000-\U000e0fff]"
)


@pytest.mark.corpus
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.file)
def test_kernels_of_a_hostile_file(case: Hostile, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["report", "kernels", str(case.write(tmp_path)), "--no-cache"])
    printed = capsys.readouterr()
    assert code == (3 if case.expect == "refuse" else 0), printed.err
    assert not CONTROL.search(printed.out) and not CONTROL.search(printed.err)
    assert not any(words in printed.err for words in ("Traceback", "internal error", "fault of its own"))
    if code == 3:
        assert printed.out == ""
        assert len(printed.err.splitlines()) == 1


@pytest.mark.corpus
@pytest.mark.parametrize("case", READ, ids=lambda c: c.file)
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


@pytest.mark.corpus
@pytest.mark.parametrize(("place", "case"), list(enumerate(READ)), ids=[case.file for case in READ])
def test_views_of_a_hostile_file(place: int, case: Hostile, tmp_path: Path) -> None:
    path = case.write(tmp_path)
    if path.stat().st_size < LARGE:
        ask_views(path, load_views()[place % NTH :: NTH])


@pytest.mark.parametrize("text", [
    '{"traceEvents":[{"ph":"X","cat":"kernel","name":"","pid":0,"tid":7,"ts":1,"dur":5}]}',
    '{"kind":"span","name":"","dur":5,"t":1}\n{"kind":"kernel","name":"","dur":2,"t":2,"path":" / a"}\n',
], ids=["chrome", "native"])  # fmt: skip
def test_every_view_of_a_name_that_is_empty(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    ask_views(path, load_views())


def ask_views(path: Path, chosen: list[View]) -> None:
    """Ask views for a report and a picture: each answers, or refuses in a sentence."""
    runs = load(path, cache=False, capture=NO_CAPTURE)
    for view in chosen:
        of = (runs * 2)[: view.run_count] if view.run_count <= 2 else runs * 2
        try:
            for format in ("md", "json"):
                check_report(format_report(view, of, Look(), format), view, format)
            question = Question(view, tuple(of), tuple(range(len(of))), strip_presentation(Look()))
            check_picture(make_picture(question, Look(), DrawSize(80, 24)), view)
        except CaptureError as e:
            assert "\n" not in str(e) and not CONTROL.search(str(e))
