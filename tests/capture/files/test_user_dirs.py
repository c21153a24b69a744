"""Where files lie: the XDG rules, private, and nothing where nothing can be had."""

import os
import stat
from pathlib import Path

import pytest

from capture.errors import CaptureError
from capture.files import user_dirs


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "tracetui" / "runs"


def test_recordings_lie_in_a_private_folder_newest_first(state: Path) -> None:
    first = user_dirs.create_recording("gemma-3-1b")
    assert first.parent == state and first.name.endswith("-gemma-3-1b.jsonl")
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    first.write_text("{}")
    second = user_dirs.create_recording("gemma-3-1b")
    assert second != first
    second.write_text("{}")
    os.utime(first, (1, 1))
    assert user_dirs.list_recordings() == [second, first]


def test_a_title_cannot_leave_the_folder(state: Path) -> None:
    assert user_dirs.create_recording("../../etc/pass wd\n\x1b[0m").parent == state
    assert user_dirs.create_recording("").name.endswith("-run.jsonl")


def test_recordings_stay_until_somebody_asks(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert user_dirs.format_recordings_warning() == ""
    for n in range(4):
        path = user_dirs.create_recording(f"run {n}")
        path.write_bytes(bytes(100))
        os.utime(path, (n + 1, n + 1))
    monkeypatch.setattr(user_dirs, "RECORDINGS_WARNING_BYTES", 399)
    assert "tracetui recordings --prune" in user_dirs.format_recordings_warning()
    assert len(user_dirs.list_recordings()) == 4
    gone = user_dirs.prune(user_dirs.list_recordings(), 250)
    assert [p.name.rpartition("-")[2] for p in gone] == ["1.jsonl", "0.jsonl"]
    assert [p.name.rpartition("-")[2] for p in user_dirs.list_recordings()] == ["3.jsonl", "2.jsonl"]


def test_two_recordings_never_share_a_file(state: Path) -> None:
    assert len({user_dirs.create_recording("same") for _ in range(5)}) == 5
    assert user_dirs.create_private_file(state / "one") and not user_dirs.create_private_file(state / "one")


def test_no_folder_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file" / "below"))
    assert user_dirs.list_recordings() == []
    with pytest.raises(CaptureError, match=r"no private folder for recordings.*-o FILE"):
        user_dirs.create_recording("x")


def test_the_home_folder_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/does/not/count")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert user_dirs.find_cache_folder() == tmp_path / "home" / ".cache" / "tracetui"


def test_an_open_folder_is_closed_to_others(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    assert user_dirs.make_private(tmp_path / "open")
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o700
