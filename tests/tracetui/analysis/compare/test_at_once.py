"""Questions that are asked at the same time: their answers, their faults, and that they can be stopped."""

import threading
from collections.abc import Callable

import polars as pl
import pytest

from tracetui import cancel
from tracetui.analysis.compare.at_once import both, of_each
from tracetui.cancel import Cancelled, Token


@pytest.fixture(params=[1, 2, 16])
def _threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pl, "thread_pool_size", lambda: request.param)


def _fails() -> int:
    raise ValueError("no answer")


@pytest.mark.usefixtures("_threads")
def test_answers_come_in_the_order_of_what_was_asked() -> None:
    assert of_each(lambda n: n * n, range(20)) == [n * n for n in range(20)]
    assert both(lambda: "one", lambda: 2) == ("one", 2)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("questions", [(_fails, int), (int, _fails)])
def test_a_fault_of_either_is_raised(questions: tuple[Callable[[], int], Callable[[], int]]) -> None:
    with pytest.raises(ValueError, match="no answer"):
        both(*questions)


@pytest.mark.usefixtures("_threads")
def test_both_are_stopped_with_the_work_that_asked() -> None:
    token, stopped = Token(), []

    def work() -> None:
        token.cancel()
        try:
            cancel.check()
        except Cancelled:
            stopped.append(threading.get_ident())
            raise

    def other() -> None:
        while not token.cancelled:
            pass
        work()

    with cancel.working_for(token), pytest.raises(Cancelled):
        both(work, other)
    assert len(stopped) in (1, 2) and (pl.thread_pool_size() < 2 or len(set(stopped)) == 2)


def test_two_questions_wait_for_each_other_on_two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pl, "thread_pool_size", lambda: 2)
    meet = threading.Barrier(2, timeout=30)
    assert both(meet.wait, meet.wait) in ((0, 1), (1, 0))
