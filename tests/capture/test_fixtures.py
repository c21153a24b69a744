"""Every file in tests/fixtures passes these checks: dropping a file there is all that a new one needs.

The folder of a fixture is the first part of the name of the loader that must claim it.
"""

import gzip
import json
import re
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest
from polars.testing import assert_frame_equal

from capture import cache as parsed_cache
from capture.errors import CaptureError
from capture.export_runs import export
from capture.graphs.capture_files import NO_CAPTURE
from capture.load_runs import load
from capture.loaders import LOADERS, find_loaders
from capture.run import Run
from capture.source import Source
from tests.conftest import FIXTURES
from tracetui.look import Look
from tracetui.report_formats import format_report
from tracetui.views import load_views

NO_PROFILES = ("pictures",)
OF_A_PROGRAM = {"nsys.rep_file"}  # read through a program that need not be here
FILES = sorted(
    path
    for path in FIXTURES.rglob("*")
    if path.is_file() and path.parent != FIXTURES and path.relative_to(FIXTURES).parts[0] not in NO_PROFILES
)
CUTS = 40
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")

SMALLEST = {path.parent: path for path in sorted(FILES, key=lambda p: p.stat().st_size, reverse=True)}

of_each_file = pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(FIXTURES).as_posix())


@cache
def runs_of(path: Path) -> list[Run]:
    """Return the runs of a fixture by itself; parsed once for all checks."""
    return load(path, cache=False, capture=NO_CAPTURE)


def claims(path: Path) -> list[str]:
    """Return the names in LOADERS of the loaders that claim a file."""
    modules = [cast(ModuleType, loader).__name__ for loader in find_loaders(Source.from_path(path).head)]
    return [name.removeprefix("capture.loaders.") for name in modules]


def check_same(ours: list[Run], theirs: list[Run], *, names: bool = True, logs: bool = False) -> None:
    """Compare runs part by part; the name of a run may be that of its file, its log names the file."""
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert not names or one.name == other.name
        assert not logs or one.log == other.log
        assert one.meta == other.meta
        assert_frame_equal(one.events, other.events, categorical_as_str=True)
        assert one.tables.keys() == other.tables.keys()
        for name, table in one.tables.items():
            assert_frame_equal(table, other.tables[name])


def test_every_loader_has_a_fixture() -> None:
    assert {name for path in FILES for name in claims(path)} == set(LOADERS) - OF_A_PROGRAM


@of_each_file
def test_exactly_the_loader_of_its_folder_claims_it(path: Path) -> None:
    (name,) = claims(path)
    assert name.split(".")[0] == path.relative_to(FIXTURES).parts[0]


@pytest.mark.corpus
@of_each_file
def test_it_opens_and_its_account_adds_up(path: Path) -> None:
    runs = runs_of(path)
    assert runs and any(run.events.height or run.tables for run in runs)
    for run in runs:
        assert run.log.read == run.log.retained + run.log.dropped and run.log.dropped >= 0


@pytest.mark.corpus
@of_each_file
def test_its_name_does_not_matter(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "unknown"
    copy.write_bytes(path.read_bytes())
    check_same(load(copy, cache=False), runs_of(path), names=False)


@pytest.mark.corpus
@of_each_file
def test_gzip_does_not_matter(path: Path, tmp_path: Path) -> None:
    packed = tmp_path / path.name
    packed.write_bytes(gzip.compress(path.read_bytes()))
    check_same(load(packed, cache=False), runs_of(path))


@pytest.mark.corpus
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=() if path in SMALLEST.values() else pytest.mark.slow, id=path.name)
        for path in FILES
    ],
)
def test_a_cut_gives_runs_or_one_sentence(path: Path, tmp_path: Path) -> None:
    whole, cut = path.read_bytes(), tmp_path / path.name
    for size in range(0, len(whole), max(1, len(whole) // CUTS)):
        cut.write_bytes(whole[:size])
        try:
            runs = load(cut, cache=False)
        except CaptureError as e:
            assert str(cut) in str(e) and "\n" not in str(e)
            continue
        assert runs
        assert all(run.log.read >= run.log.dropped >= 0 for run in runs)


@pytest.mark.corpus
@of_each_file
def test_an_export_reads_back_the_same(path: Path, tmp_path: Path) -> None:
    runs = runs_of(path)
    assert export(runs, tmp_path / "out.jsonl") == []
    check_same(load(tmp_path / "out.jsonl", cache=False), runs, logs=True)
    for number, run in enumerate(runs):
        assert export([run], tmp_path / f"{number}.parquet") == []
        check_same(load(tmp_path / f"{number}.parquet", cache=False), [run], logs=True)


@pytest.mark.corpus
@of_each_file
def test_every_view_answers_or_says_what_is_missing(path: Path) -> None:
    for view in load_views():
        runs = runs_of(path) if view.run_count == 1 else runs_of(path) * 2  # against itself
        text = format_report(view, runs, Look())
        assert text.strip(), view.name
        assert not CONTROL.search(text), view.name
        answer = json.loads(format_report(view, runs, Look(), "json"))
        assert answer["view"] == view.name
        assert answer["rows"] or answer["notes"] or answer["columns"], view.name


@pytest.mark.corpus
@of_each_file
def test_the_cache_gives_the_same(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(parsed_cache.OFF_VARIABLE, raising=False)
    monkeypatch.setattr(parsed_cache, "MIN_INPUT_BYTES", 1)
    check_same(load(path, capture=NO_CAPTURE), runs_of(path))
    source = Source.from_path(path)
    source.requested_captures = ()
    place = parsed_cache.build_entry_path(source)
    assert place and place.exists()
    cached = parsed_cache.fetch(place, source)
    assert cached
    check_same(cached, runs_of(path))
