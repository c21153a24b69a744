"""A short run of the key monkey; `python -m tests.tracetui.ui.monkey` goes on for as long as one likes."""

import random
from pathlib import Path

import pytest

from capture.load_runs import load
from tests.conftest import FIXTURES
from tests.tracetui.ui import monkey

SAMPLES = monkey.samples()


@pytest.mark.corpus
@pytest.mark.parametrize("name", SAMPLES)
def test_keys_at_once_and_one_by_one_lead_to_the_same_screen(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkey.unhurried(monkeypatch.setattr)
    draw = random.Random(f"suite {name}")
    monkey.compare(SAMPLES[name], [monkey.burst(draw) for _ in range(6)], (100, 24))


@pytest.mark.slow
def test_a_view_begins_at_its_top_whether_or_not_the_one_between_was_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that once led to a timeline that was scrolled otherwise where they were pressed at once."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkey.unhurried(monkeypatch.setattr)
    files = ("kernels.csv", "lines.jsonl", "semicolons.csv")
    runs = [run for file in files for run in load(FIXTURES / "plain" / file, cache=False)]
    bursts, size = monkey.Game("plain 0", 100).keys()
    monkey.compare(runs, bursts, size)
