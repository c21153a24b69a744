"""The fuzzer finds what is planted and repeats itself exactly; a slice of it finds nothing in the program."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from capture.errors import UnreadableError
from capture.export_runs import WRITERS_BY_SUFFIX
from capture.loaders import LOADERS
from tests.fuzz import campaign, case, inputs
from tests.fuzz.campaign import Campaign
from tests.fuzz.case import examine
from tests.fuzz.checks import Outcome
from tests.fuzz.corpus import NO_LOADER, by_loader, seeds
from tests.fuzz.inputs import Inputs
from tests.fuzz.shrink import shrunk
from tests.fuzz.tally import Fault, Tally, begun
from tests.fuzz.worker import STDERR_FILE

pytestmark = pytest.mark.slow

SLICE = 60  # inputs
OF_A_PROGRAM = {"nsys.rep_file"}  # read through a program that need not be here


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "x.csv"
    path.write_text("name,dur\nk,1\n")
    return path


def test_a_slice_finds_nothing(tmp_path: Path) -> None:
    campaign = Campaign(Tally(14), tmp_path, samples=False)
    campaign.run(110, SLICE, 1)
    assert not campaign.tally.faults, campaign.tally.table()
    assert campaign.tally.cases > SLICE, campaign.tally.table()


def test_cases_are_the_same_every_time() -> None:
    one, other = Inputs(3, samples=False), Inputs(3, samples=False)
    first = [one.made(number)[1] for number in range(200)]
    assert [other.made(number)[1] for number in reversed(range(200))] == first[::-1]
    changed = [content != seed.content for seed, content in map(one.made, range(200))]
    assert sum(changed) > 180


def test_each_loader_has_seeds_that_it_reads() -> None:
    assert set(by_loader(seeds(samples=False))) - {NO_LOADER} == set(LOADERS) - OF_A_PROGRAM


def test_a_profile_and_a_refusal_are_no_faults(profile: Path) -> None:
    read, *answers = examine(profile, Random(1))
    assert (read.ended, read.answer) == ("answered", "load")
    assert len({one.answer for one in answers}) > 5 and not any(one.ended == "fault" for one in answers)
    profile.write_text("nothing that anybody reads")
    assert [one.ended for one in examine(profile, Random(1))] == ["refused"]


def test_a_view_that_answers_is_asked_in_every_form(profile: Path) -> None:
    forms = Counter((one.answer, one.form) for number in range(9) for one in examine(profile, Random(number)))
    expected = {"picture", "again", "table", "json", "csv", "md", "html"}
    assert {form for answer, form in forms if answer == "kernels"} == expected
    assert {form for answer, form in forms if answer == "export"} <= set(WRITERS_BY_SUFFIX)


@pytest.mark.parametrize(
    ("raised", "place"),
    [
        (KeyError("x"), "KeyError"),
        (UnreadableError("two\nlines"), "no clean sentence"),
        (UnreadableError("ComputeError of polars"), "no clean sentence"),
        (UnreadableError("x", why="there is not enough memory"), "more memory than a case may take"),
    ],
)
def test_what_is_planted_is_a_fault(
    profile: Path, raised: Exception, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*args: object, **kwargs: object) -> None:
        raise raised

    monkeypatch.setattr(case, "load", load)
    (outcome,) = examine(profile, Random(1))
    assert outcome.ended == "fault" and place in outcome.place


def test_a_control_character_in_a_report_is_a_fault(profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case, "FORMATS", {"table": lambda content: "\x1b[2J"})
    faults = [one for one in examine(profile, Random(1)) if one.ended == "fault"]
    assert faults and all("a control character in the table of " in one.place for one in faults)


def test_what_a_library_prints_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def loud(path: Path, draw: Random, begin: Callable[[], None]) -> Iterator[Outcome]:
        (path.parent / STDERR_FILE).write_text("thread main panicked")
        yield Outcome("answered")
        yield Outcome("answered", "kernels", "md")

    (tmp_path / STDERR_FILE).touch()
    monkeypatch.setattr(inputs, "examine", loud)
    monkeypatch.setattr(inputs, "start_clock", lambda: None)
    first, second = Inputs(1, samples=False).run(1, tmp_path)[1]
    assert "printed by a library: thread main panicked" in first.place
    assert second == Outcome("answered", "kernels", "md")


PLANT = """
import os, sys, types

class Inputs:
    def __init__(self, seed, *, samples): pass
    def warm_up(self, folder): pass
    def run(self, number, folder):
        from tests.fuzz.worker import start_clock
        start_clock()
        while number == 2: pass
        once = os.path.join(os.path.dirname(__file__), "slow")
        while number == 5 and not os.path.exists(once):
            open(once, "w").close()
            while True: pass
        if number == 4: os.abort()
        ended = "fault" if number == 6 else "answered"
        return "plain", [types.SimpleNamespace(ended=ended, answer="load", form="", place="here", details="")]

sys.modules["tests.fuzz.inputs"] = types.ModuleType("tests.fuzz.inputs")
sys.modules["tests.fuzz.inputs"].Inputs = Inputs
"""


def test_what_ends_a_process_is_a_fault_and_the_next_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(PLANT)
    monkeypatch.setattr(campaign, "PATH", f"{tmp_path}{os.pathsep}{campaign.ROOT}")
    monkeypatch.setattr(campaign, "SHRINK", 0.1)
    ran = Campaign(Tally(1), tmp_path, samples=False)
    ran.run(60, 9, 2)
    actual = {fault.input: fault.place for fault in ran.tally.faults.values()}
    assert actual == {2: "? took too long", 4: "? signal 6", 6: "here"}
    assert ran.tally.slow == 2  # input 2 is so again, 5 is not
    assert len(list(tmp_path.glob("0*.txt"))) == 3
    counts = ran.tally.counts
    assert counts["killed ? ? fault"] == 2 and counts["plain load - answered"] >= 3


def test_an_account_goes_on_where_it_ended(tmp_path: Path) -> None:
    kept = tmp_path / "tally.json"
    begin = begun(kept, seed=9, first=3)
    assert (begin.seed, begin.first, begin.cases) == (9, 3, 0)
    begin.first, begin.inputs, begin.seconds = 8, 5, 2.0
    begin.counts.update({"plain load - answered": 5, "plain kernels md fault": 1})
    assert [begin.count(Fault("here", "plain", 7, "")) for _ in range(3)] == [True, False, False]
    begin.save(kept)
    again = begun(kept, seed=1, first=0)
    assert again == begin
    table = [" ".join(line.split()) for line in again.table().splitlines()]
    assert "plain 6 5 0 1" in table and "kernels 1 0 0 1" in table and "md 1 0 0 1" in table
    assert "6 cases of 5 inputs in 2 s, 3 a second" in table and "3 × here (input 9:7)" in table


def test_a_campaign_goes_on_with_the_next_inputs(tmp_path: Path) -> None:
    kept = tmp_path / "tally.json"
    for expected in (2, 4):
        campaign = Campaign(begun(kept, 14, 0), tmp_path, samples=False, kept=kept)
        campaign.run(60, 2, 1)
        assert (campaign.tally.first, campaign.tally.inputs) == (expected, expected)


def test_an_input_is_made_smaller_while_it_shows_the_same() -> None:
    content = b'{"a": [1, 2, {"b": "x", "bad": [3]}], "c": {"d": 4}}'
    assert shrunk(content, lambda smaller: b'"bad"' in smaller and smaller.endswith(b"}")) == b'"bad"}'
    lines = b"".join(b"line %d\n" % n for n in range(50))
    assert shrunk(lines, lambda smaller: b"line 33\n" in smaller) == b"line 33\n"
