"""A short run of the key monkey; `python -m tests.tracetui.ui.monkey` goes on for as long as one likes."""

import random
from pathlib import Path

import pytest

from tests.tracetui.ui import monkey

SAMPLES = monkey.samples()


@pytest.mark.parametrize("name", SAMPLES)
def test_keys_at_once_and_one_by_one_lead_to_the_same_screen(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkey.unhurried(monkeypatch.setattr)
    draw = random.Random(f"suite {name}")
    monkey.compare(SAMPLES[name], [monkey.burst(draw) for _ in range(6)], (100, 24))
