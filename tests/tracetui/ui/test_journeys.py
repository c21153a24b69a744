"""Journeys are short, and those through what is in the repository lead to their answers."""

import shutil

import pytest

from tests.journeys import MORE_QUESTIONS, MOST_KEYS, QUESTIONS, Journey, walk

pytestmark = pytest.mark.slow

HERE = [
    journey
    for journey in (*QUESTIONS, *MORE_QUESTIONS)
    if all(word.startswith(("sample:", "diff")) for word in journey.words)
]


def test_no_journey_is_long() -> None:
    assert len(QUESTIONS) == 15
    assert [j.question for j in (*QUESTIONS, *MORE_QUESTIONS) if j.key_count > MOST_KEYS] == []


@pytest.mark.terminal
@pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux here")
@pytest.mark.parametrize("journey", HERE, ids=lambda j: j.question)
def test_it_leads_to_its_answer(journey: Journey) -> None:
    assert walk(journey, (80, 24)) > 0


@pytest.mark.terminal
@pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux here")
def test_what_is_not_in_sight_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.journeys.PATIENCE", 4.0)
    with pytest.raises(TimeoutError, match="no such words is not in sight"):
        walk(Journey("?", ("sample:decode",), ("2",), "no such words"), (80, 24))
