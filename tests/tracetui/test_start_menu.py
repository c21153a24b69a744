"""A start without a file: what was opened last, recordings, baselines, samples; a number opens one."""

import os
import sys
from pathlib import Path

import pexpect
import pytest

from capture.files import recent_files, user_dirs
from tests.tracetui.history.test_trend import write_log
from tracetui import start_menu
from tracetui.samples import SAMPLES, find_sample
from tracetui.verbs.open import summarise_log


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_files_are_remembered_the_newest_first(home: Path) -> None:
    files = [home / name for name in ("a.json", "b.json", "c.json")]
    for file in files:
        file.touch()
        recent_files.remember([str(file)])
    recent_files.remember([str(files[0]), "-", "https://host/x.json", str(home / "none.json")])
    assert recent_files.list_recent() == [files[0], files[2], files[1]]
    files[2].unlink()
    assert recent_files.list_recent() == [files[0], files[1]]
    kept = home / "state" / "tracetui" / "recent"
    assert kept.stat().st_mode & 0o077 == 0


def test_only_the_last_are_kept(home: Path) -> None:
    for number in range(recent_files.MAX_FILES + 5):
        (home / f"{number}.json").touch()
        recent_files.remember([str(home / f"{number}.json")])
    assert len(recent_files.list_recent()) == recent_files.MAX_FILES
    assert recent_files.list_recent()[0].name == f"{recent_files.MAX_FILES + 4}.json"


def test_without_a_private_folder_nothing_is_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "file"))
    recent_files.remember([__file__])
    assert recent_files.list_recent() == []


def test_the_menu_has_every_kind_once(home: Path) -> None:
    recording = user_dirs.create_recording("smollm2")
    kept = user_dirs.build_baseline_path("main")
    kept.touch()
    (home / "x.json").touch()
    recent_files.remember([str(home / "x.json"), str(recording)])
    offered = start_menu.list_entries()
    groups = [choice.group for choice in offered]
    assert groups == ["opened last", "opened last", "baselines", *["samples"] * len(SAMPLES)]
    lines = start_menu.format_menu(offered, 80)
    assert all(len(line) <= 80 for line in lines) and "~/x.json" in lines[1]
    assert any("baseline:main" in line for line in lines) and "tour" in lines[-1]
    assert start_menu.resolve_choice("1", offered) == str(home / "x.json")
    assert start_menu.resolve_choice(str(len(offered)), offered) == str(find_sample([*SAMPLES][-1]))
    assert start_menu.resolve_choice("sample:decode", offered) == str(find_sample("decode"))
    assert start_menu.resolve_choice("https://host/x.json", offered) == "https://host/x.json"
    assert (
        start_menu.resolve_choice("99", offered) is None and start_menu.resolve_choice("0", offered) is None
    )
    assert start_menu.resolve_choice("~/y.json", offered) == str(home / "y.json")


def test_last_runs_of_the_log_are_above_the_menu(home: Path) -> None:
    assert summarise_log(80) == []
    state = user_dirs.find_state_folder()
    assert state is not None
    write_log(state, lambda i: {"": 2} if i >= 20 else {})
    heading, line = summarise_log(80)
    assert heading.startswith("log") and len(line) <= 80
    trend = line[6:26]
    assert max(trend[:9]) < min(trend[11:]), "twice the time from the middle on"
    assert "decode, " in line and "a step; 40 runs" in line
    assert "a step; 40 runs" in summarise_log(200)[1]


def test_log_that_cannot_be_read_has_no_line(home: Path) -> None:
    state = user_dirs.find_state_folder()
    assert state is not None
    (state / "log").mkdir(parents=True)
    assert summarise_log(80) == []
    (state / "log" / "a.parquet").write_bytes(b"damaged")
    assert summarise_log(80) == []


def test_a_name_of_a_file_is_cleaned_in_the_menu(home: Path) -> None:
    (home / "a\x1b[2J\u202e.json").touch()
    recent_files.remember([str(home / "a\x1b[2J\u202e.json")])
    assert not any(
        "\x1b" in line or "\u202e" in line for line in start_menu.format_menu(start_menu.list_entries(), 80)
    )


@pytest.mark.corpus
@pytest.mark.terminal
@pytest.mark.parametrize(("typed", "shown"), [("1", "smollm2"), ("t", "tour 1/"), ("", "")])
def test_a_person_chooses(home: Path, typed: str, shown: str) -> None:
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    child = pexpect.spawn(
        sys.executable, ["-m", "tracetui"], env=env, encoding="utf-8", dimensions=(30, 100), timeout=60
    )
    child.expect_exact("or Enter to leave")
    child.sendline(typed)
    if shown:
        child.expect_exact(shown)
        child.send("q")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
