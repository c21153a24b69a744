"""The cache: the same runs again, and never a stale or a damaged one."""

import os
import stat
from pathlib import Path

import pytest

import capture.load_runs
from capture import cache
from capture.load_runs import load
from capture.native.schema import seal_record
from capture.source import Source
from tests.capture.test_export_runs import same


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv(cache.OFF_VARIABLE, raising=False)
    monkeypatch.setattr(cache, "MIN_INPUT_BYTES", 1)
    return tmp_path / "home" / "tracetui"


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    path = tmp_path / "sample.jsonl"
    table = {"kind": "table", "name": "notes", "types": {"n": "Int64"}, "columns": {"n": [1, None]}}
    kernels = [{"kind": "kernel", "name": f"k{i % 3}", "t": i, "dur": i + 1} for i in range(50)]
    run = {"kind": "run", "schema": 1, "id": "a", "name": "one", "meta": {"deep": {"x": [1, 2.5, None]}}}
    lines = [run, table, *kernels, {**run, "id": "b", "name": "two"}, *kernels]
    path.write_bytes(b"".join(map(seal_record, lines)) + b"torn")
    return path


def parses(monkeypatch: pytest.MonkeyPatch) -> list[Source]:
    """Every source that is really parsed from here on."""
    seen: list[Source] = []
    parsed = capture.load_runs._parse_source
    monkeypatch.setattr(
        capture.load_runs,
        "_parse_source",
        lambda source, loader: (seen.append(source), parsed(source, loader))[1],
    )
    return seen


def entries(home: Path) -> list[Path]:
    return sorted(home.iterdir()) if home.exists() else []


def test_the_second_opening_parses_nothing(sample: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load(sample)
    seen = parses(monkeypatch)
    again = load(sample)
    assert seen == [] and len(again) == len(first) == 2
    for one, other in zip(first, again, strict=True):
        same(one, other)
    (entry,) = entries(home)
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600 and stat.S_IMODE(home.stat().st_mode) == 0o700


def test_an_entry_that_was_begun_is_read_once(sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, reads, read = load(sample), [], cache._read
    monkeypatch.setattr(cache, "_read", lambda *given: (reads.append(given[0]), read(*given))[1])
    seen = parses(monkeypatch)
    for other in ("-", "s3://bucket/a.json", sample.parent, sample.parent / "none"):
        capture.load_runs.prefetch([other])
    capture.load_runs.prefetch([sample, sample, sample])
    again = load(sample)
    assert seen == [] and len(reads) == 1 and cache._PENDING == {}
    for one, other in zip(first, again, strict=True):
        same(one, other)
    load(sample)
    assert len(reads) == 2


def test_what_was_begun_is_not_taken_for_a_file_that_has_changed_since(
    sample: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_PENDING", {})  # in which it will be left
    load(sample)
    capture.load_runs.prefetch([sample])
    seen = parses(monkeypatch)
    about = sample.stat()
    os.utime(sample, ns=(about.st_atime_ns, about.st_mtime_ns + 1))
    assert len(load(sample)) == 2 and len(seen) == 1


def test_a_damaged_entry_that_was_begun_is_parsed_anew(
    sample: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(sample)
    (entry,) = entries(home)
    entry.write_bytes(entry.read_bytes()[:-9])
    seen = parses(monkeypatch)
    capture.load_runs.prefetch([sample])
    assert len(load(sample)) == 2 and len(seen) == 1


def test_nothing_is_begun_where_nothing_is_kept(sample: Path) -> None:
    capture.load_runs.prefetch([sample])
    assert cache._PENDING == {}


def test_any_change_of_the_file_is_seen(sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(sample)
    seen = parses(monkeypatch)
    about = sample.stat()
    sample.write_bytes(sample.read_bytes().replace(b"torn", b"teen"))
    os.utime(sample, ns=(about.st_atime_ns, about.st_mtime_ns))
    load(sample)
    assert len(seen) == 1


def test_another_version_of_the_code_parses_anew(sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(sample)
    seen = parses(monkeypatch)
    monkeypatch.setattr(cache, "_compute_code_version", lambda: b"another")
    load(sample)
    assert len(seen) == 1


@pytest.mark.parametrize("stride", [1999, pytest.param(89, marks=pytest.mark.slow)])
def test_a_damaged_entry_is_written_anew(
    stride: int, sample: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load(sample)
    (entry,) = entries(home)
    whole = entry.read_bytes()
    seen = parses(monkeypatch)
    wounds = [whole[:cut] for cut in range(0, len(whole), stride)]
    wounds += [whole[:i] + bytes([whole[i] ^ 4]) + whole[i + 1 :] for i in range(0, len(whole), stride)]
    for wound in wounds:
        entry.write_bytes(wound)
        for one, other in zip(first, load(sample), strict=True):
            same(one, other)
    assert len(seen) == len(wounds)
    assert entry.read_bytes() == whole


def test_off_by_flag_and_by_environment(sample: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(sample, cache=False)
    monkeypatch.setenv(cache.OFF_VARIABLE, "1")
    load(sample)
    assert entries(home) == []


@pytest.mark.parametrize("broken", ["file", "readonly", "relative", "link"])
def test_without_a_folder_everything_still_opens(
    sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    place = tmp_path / "place"
    if broken == "file":
        place.write_text("in the way")
    elif broken == "readonly":
        monkeypatch.setattr(os, "access", lambda *_: False)
    elif broken == "link":
        place.mkdir()
        (place / "tracetui").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setenv("XDG_CACHE_HOME", "place" if broken == "relative" else str(place))
    monkeypatch.setenv("HOME", str(tmp_path / "nobody" / "file"))
    assert len(load(sample)) == 2
    assert not (tmp_path / "elsewhere").exists() and not Path("place").exists()


def test_the_oldest_entries_make_room(
    sample: Path, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    load(sample)
    (oldest,) = entries(home)
    os.utime(oldest, (1, 1))
    monkeypatch.setattr(cache, "MAX_CACHE_BYTES", oldest.stat().st_size + 10)
    other = tmp_path / "other.jsonl"
    other.write_bytes(sample.read_bytes())
    load(other)
    (kept,) = entries(home)
    assert kept != oldest


def test_small_inputs_and_pipes_are_not_kept(
    sample: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "MIN_INPUT_BYTES", 1 << 30)
    load(sample)
    monkeypatch.setattr(cache, "MIN_INPUT_BYTES", 1)
    with sample.open("rb") as stream:
        assert cache.build_entry_path(Source.from_stream(stream, "stdin")) is None
    assert entries(home) == []
