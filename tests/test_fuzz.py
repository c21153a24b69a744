"""The fuzzer finds what is planted and repeats itself exactly; a slice of it finds nothing in the program."""

import os
from pathlib import Path
from random import Random

import pytest

from capture.errors import UnreadableError
from capture.loaders import LOADERS
from tests.fuzz import campaign, case, inputs
from tests.fuzz.campaign import Campaign
from tests.fuzz.case import Outcome, examine
from tests.fuzz.corpus import NO_LOADER, by_loader, seeds
from tests.fuzz.inputs import Inputs
from tests.fuzz.shrink import shrunk
from tests.fuzz.worker import STDERR_FILE

SLICE = 120  # cases
OF_A_PROGRAM = {"nsys.report"}  # read through a program that need not be here


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "x.csv"
    path.write_text("name,dur\nk,1\n")
    return path


def test_a_slice_finds_nothing(tmp_path: Path) -> None:
    campaign = Campaign(14, tmp_path, samples=False)
    campaign.run(110, SLICE, 1)
    assert not campaign.faults, campaign.table()
    assert sum(campaign.counts.values()) > SLICE // 4, campaign.table()


def test_cases_are_the_same_every_time() -> None:
    one, other = Inputs(3, samples=False), Inputs(3, samples=False)
    first = [one.made(number)[1] for number in range(200)]
    assert [other.made(number)[1] for number in reversed(range(200))] == first[::-1]
    changed = [content != seed.content for seed, content in map(one.made, range(200))]
    assert sum(changed) > 180


def test_each_loader_has_seeds_that_it_reads() -> None:
    assert set(by_loader(seeds(samples=False))) - {NO_LOADER} == set(LOADERS) - OF_A_PROGRAM


def test_a_profile_and_a_refusal_are_no_faults(profile: Path) -> None:
    assert examine(profile, Random(1)).ended == "answered"
    profile.write_text("nothing that anybody reads")
    assert examine(profile, Random(1)).ended == "refused"


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
    outcome = examine(profile, Random(1))
    assert outcome.ended == "fault" and place in outcome.place


def test_a_control_character_in_a_report_is_a_fault(profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case, "report", lambda *args, **kwargs: "\x1b[2J")
    monkeypatch.setattr(case, "_picture", case._reports)
    assert "a control character in the" in examine(profile, Random(1)).place


def test_what_a_library_prints_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def loud(path: Path, draw: Random) -> Outcome:
        (path.parent / STDERR_FILE).write_text("thread main panicked")
        return Outcome("answered")

    (tmp_path / STDERR_FILE).touch()
    monkeypatch.setattr(inputs, "examine", loud)
    monkeypatch.setattr(inputs, "start_clock", lambda: None)
    _, outcome = Inputs(1, samples=False).run(1, tmp_path)
    assert "printed by a library: thread main panicked" in outcome.place


PLANT = """
import os, sys, types

class Inputs:
    def __init__(self, seed, *, samples): pass
    def warm_up(self, folder): pass
    def run(self, number, folder):
        from tests.fuzz.worker import start_clock
        start_clock()
        while number == 2: pass
        if number == 4: os.abort()
        if number == 6: return "plain", types.SimpleNamespace(ended="fault", place="here", details="")
        return "plain", types.SimpleNamespace(ended="answered")

sys.modules["tests.fuzz.inputs"] = types.ModuleType("tests.fuzz.inputs")
sys.modules["tests.fuzz.inputs"].Inputs = Inputs
"""


def test_what_ends_a_process_is_a_fault_and_the_next_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(PLANT)
    monkeypatch.setattr(campaign, "PATH", f"{tmp_path}{os.pathsep}{campaign.ROOT}")
    monkeypatch.setattr(campaign, "SHRINK", 0.1)
    ran = Campaign(1, tmp_path, samples=False)
    ran.run(60, 9, 2)
    found = {fault.case: fault.place for fault in ran.faults.values()}
    assert found == {2: "? took too long", 4: "? signal 6", 6: "here"}
    assert len(list(tmp_path.glob("0*.txt"))) == 3
    assert ran.counts["killed fault"] == 2 and ran.counts["plain answered"] >= 4


def test_an_input_is_made_smaller_while_it_shows_the_same() -> None:
    content = b'{"a": [1, 2, {"b": "x", "bad": [3]}], "c": {"d": 4}}'
    assert shrunk(content, lambda smaller: b'"bad"' in smaller and smaller.endswith(b"}")) == b'"bad"}'
    lines = b"".join(b"line %d\n" % n for n in range(50))
    assert shrunk(lines, lambda smaller: b"line 33\n" in smaller) == b"line 33\n"
