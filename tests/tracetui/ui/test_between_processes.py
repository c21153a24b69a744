"""A script that starts several recorded programs: between two of them it has not ended."""

from pathlib import Path

from capture.native.emit import Emitter
from tracetui.process import UserProgram
from tracetui.ui.workers.follow_file import BETWEEN_BADGE, FileFollower


class Script(UserProgram):
    """A program that runs, or has ended, as a test says."""

    def __init__(self, is_running: bool) -> None:
        self._runs = is_running

    @property
    def is_running(self) -> bool:
        return self._runs

    def explain_failure(self) -> str:
        return ""

    @property
    def start_message(self) -> str:
        return "starting"


def choose_badge(path: Path, is_running: bool) -> str:
    follower = FileFollower(path, Script(is_running))
    follower._tail.poll()
    return follower._choose_badge(not is_running)


def test_a_script_between_two_programs_still_runs(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    emitter = Emitter(path)
    emitter.run("x", {})
    emitter.step(1, 0, 10)
    emitter.end()
    assert choose_badge(path, is_running=True) == BETWEEN_BADGE
    assert choose_badge(path, is_running=False) == "engine ended"
