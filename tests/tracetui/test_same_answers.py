"""The comparison of two checkouts: a planted difference is found, and nothing else."""

import shutil
from pathlib import Path

import pytest

from tests.bench.same_answers import ROOT, compare, first_change, jobs, neutral_text

FIXTURE = ROOT / "tests" / "fixtures" / "native" / "flat.jsonl"


def checkout(folder: Path) -> Path:
    """A copy of the code, without tests."""
    for room in ("capture", "tracetui"):
        shutil.copytree(ROOT / room, folder / room, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.slow
def test_a_planted_difference_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = checkout(tmp_path)
    view = other / "tracetui" / "views" / "memory.py"
    kernels = other / "tracetui" / "views" / "kernels.py"
    view.write_text(view.read_text() + "\n# no difference\n")
    kernels.write_text(kernels.read_text().replace('"Kernels",', '"Kernel",').replace('"p50_ns"', '"p51_ns"'))
    assert compare(other, [FIXTURE], looks=False, limit=60) > 0
    printed = capsys.readouterr().out
    assert "kernels as json, run 1" in printed and "p51" in printed and "memory as" not in printed


def test_the_first_line_that_differs_is_shown() -> None:
    assert first_change("one\ntwo\n", "one\ntwo\n") == ""
    assert first_change("one\ntwo", "one\n2").splitlines() == ["line 2", "    was two", "    now 2"]
    assert "(nothing)" in first_change("one", "one\ntwo")


def test_places_of_a_checkout_are_no_difference() -> None:
    texts = (neutral_text(f"from {place}/x", {place: "CHECKOUT"}) for place in ("/old", "/new"))
    assert len(set(texts)) == 1
    assert neutral_text('{"a": 1}', {}) == '{\n "a": 1\n}'


def test_neighbours_of_one_folder_and_suffix_are_compared(tmp_path: Path) -> None:
    for name in ("a.json", "b.json", "c.txt"):
        (tmp_path / name).write_text("")
    names = [tuple(path.name for path in job) for job in jobs([tmp_path])]
    assert names == [("a.json",), ("b.json",), ("c.txt",), ("a.json", "b.json")]
