"""A folder into which a profiler drops files: when a file is whole, and what never is."""

import gzip
import os
from functools import partial
from pathlib import Path

import pytest

from capture.watch import trace_folder as folder_module
from capture.watch.trace_folder import (
    COMPLETE_QUIET_S,
    INCOMPLETE_QUIET_S,
    MAX_INITIAL_FILES,
    UNKNOWN_QUIET_S,
    TraceFolder,
)

packed = partial(gzip.compress, mtime=0)  # the same name for a test whenever it is collected
WHOLE = b'{"traceEvents": []}'


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def folder(tmp_path: Path, clock: Clock) -> TraceFolder:
    (tmp_path / "in").mkdir()
    return TraceFolder(tmp_path / "in", clock=clock)


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def after(folder: TraceFolder, clock: Clock, seconds: float) -> list[str]:
    """What is told once no file has changed for so long."""
    first = folder.poll()
    clock.now += seconds
    return names([*first, *folder.poll()])


@pytest.mark.parametrize(
    ("name", "data", "seconds"),
    [
        ("a.json", WHOLE, COMPLETE_QUIET_S),
        ("list.json", b'[{"ph": "X"}]\n', COMPLETE_QUIET_S),
        ("packed.json.gz", packed(WHOLE), COMPLETE_QUIET_S),
        ("two.json.gz", packed(WHOLE[:9]) + packed(WHOLE[9:]), COMPLETE_QUIET_S),
        ("padded.json.gz", packed(WHOLE) + bytes(64), COMPLETE_QUIET_S),
        ("table.csv", b"name,ns\na,1\n", UNKNOWN_QUIET_S),
        ("torn.json", WHOLE[:-1], INCOMPLETE_QUIET_S),
        ("torn.json.gz", packed(WHOLE)[:-1], INCOMPLETE_QUIET_S),
        ("torn_inside.json.gz", packed(WHOLE[:-1]), INCOMPLETE_QUIET_S),
        ("damaged.json.gz", packed(WHOLE)[:12] + b"\xff" * 9, INCOMPLETE_QUIET_S),
    ],
)
def test_a_file_is_told_once_it_is_whole(
    folder: TraceFolder, clock: Clock, name: str, data: bytes, seconds: float
) -> None:
    (folder.path / name).write_bytes(data)
    assert after(folder, clock, seconds - 0.01) == []
    assert after(folder, clock, 0.01) == [name]
    assert after(folder, clock, 100) == []  # once


def test_a_file_that_grows_is_waited_for_at_every_byte(folder: TraceFolder, clock: Clock) -> None:
    path = folder.path / "a.json"
    for end in range(1, len(WHOLE)):
        path.write_bytes(WHOLE[:end])
        assert after(folder, clock, COMPLETE_QUIET_S) == []
    path.write_bytes(WHOLE)
    assert after(folder, clock, COMPLETE_QUIET_S) == ["a.json"]


def test_a_file_that_is_written_anew_is_told_again(folder: TraceFolder, clock: Clock) -> None:
    path = folder.path / "trace.json"
    path.write_bytes(WHOLE)
    assert after(folder, clock, COMPLETE_QUIET_S) == ["trace.json"]
    path.write_bytes(WHOLE + b"\n")
    assert after(folder, clock, COMPLETE_QUIET_S) == ["trace.json"]


def test_a_torn_file_that_goes_on_is_told_when_it_is_whole(folder: TraceFolder, clock: Clock) -> None:
    path = folder.path / "a.json"
    path.write_bytes(WHOLE[:5])
    assert after(folder, clock, INCOMPLETE_QUIET_S) == ["a.json"]
    path.write_bytes(WHOLE)
    assert after(folder, clock, COMPLETE_QUIET_S) == ["a.json"]


def test_what_is_no_plain_file_is_never_told(folder: TraceFolder, clock: Clock, tmp_path: Path) -> None:
    os.mkfifo(folder.path / "fifo.json")
    (folder.path / ".hidden.json").write_bytes(WHOLE)
    (folder.path / "empty.json").touch()
    (folder.path / "loop").symlink_to(folder.path)
    (folder.path / "nowhere.json").symlink_to(tmp_path / "nowhere")
    (folder.path / "deeper").mkdir()
    (folder.path / "deeper" / "a.json").write_bytes(WHOLE)
    assert after(folder, clock, INCOMPLETE_QUIET_S) == ["a.json"]


def test_the_recording_itself_is_never_told(tmp_path: Path, clock: Clock) -> None:
    out = tmp_path / "out.jsonl"
    out.write_bytes(b'{"kind":"run","schema":1}\n')
    (tmp_path / "a.json").write_bytes(WHOLE)
    assert after(TraceFolder(tmp_path, excluded=out, clock=clock), clock, INCOMPLETE_QUIET_S) == ["a.json"]


def test_a_folder_that_comes_and_goes(tmp_path: Path, clock: Clock) -> None:
    folder = TraceFolder(tmp_path / "later", clock=clock)
    assert folder.poll() == []
    assert not folder.is_present
    folder.path.mkdir()
    (folder.path / "a.json").write_bytes(WHOLE)
    assert after(folder, clock, COMPLETE_QUIET_S) == ["a.json"]
    (folder.path / "a.json").unlink()
    folder.path.rmdir()
    assert after(folder, clock, INCOMPLETE_QUIET_S) == []
    assert not folder.is_present


def test_of_thousands_the_newest_are_told(folder: TraceFolder, clock: Clock) -> None:
    for number in range(3000):
        path = folder.path / f"{number}.json"
        path.write_bytes(WHOLE)
        os.utime(path, ns=(number * 10**9, number * 10**9))
    assert after(folder, clock, COMPLETE_QUIET_S) == [
        f"{number}.json" for number in range(3000 - MAX_INITIAL_FILES, 3000)
    ]
    assert folder.skipped_count == 3000 - MAX_INITIAL_FILES
    (folder.path / "new.json").write_bytes(WHOLE)
    assert after(folder, clock, COMPLETE_QUIET_S) == ["new.json"]


def test_a_crowd_that_comes_later_is_cut_too(folder: TraceFolder, clock: Clock) -> None:
    folder.poll()
    for number in range(10 * MAX_INITIAL_FILES):
        path = folder.path / f"{number:02}.json"
        path.write_bytes(WHOLE)
        os.utime(path, ns=(number * 10**9, number * 10**9))
    actual = after(folder, clock, COMPLETE_QUIET_S)
    assert actual == [f"{number:02}.json" for number in range(2 * MAX_INITIAL_FILES, 10 * MAX_INITIAL_FILES)]
    assert folder.skipped_count == 2 * MAX_INITIAL_FILES


def test_what_was_there_can_be_passed_over(folder: TraceFolder, clock: Clock) -> None:
    (folder.path / "old.json").write_bytes(WHOLE)
    folder.ignore_current_files()
    (folder.path / "new.json").write_bytes(WHOLE)
    assert after(folder, clock, INCOMPLETE_QUIET_S) == ["new.json"]


def test_a_bomb_is_not_unpacked_to_its_end(
    folder: TraceFolder, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_module, "_MAX_UNPACKED_BYTES", 1 << 22)
    (folder.path / "bomb.json.gz").write_bytes(gzip.compress(b"{" + b" " * (1 << 26)))
    assert after(folder, clock, UNKNOWN_QUIET_S) == ["bomb.json.gz"]
