"""Tasks on several threads: order of the results, errors, short columns, cancellation."""

import threading
from collections.abc import Callable
from functools import partial

import polars as pl
import pytest

from capture import tasks
from capture.tasks import Cancelled, CancelToken, check_cancelled, run_parallel, use_token


@pytest.fixture(params=[1, 2, 16])
def _threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pl, "thread_pool_size", lambda: request.param)


def _fail() -> int:
    raise ValueError("no answer")


@pytest.mark.usefixtures("_threads")
def test_run_parallel_returns_results_in_order_of_tasks() -> None:
    assert run_parallel([partial(pow, n, 2) for n in range(20)]) == tuple(n * n for n in range(20))
    assert run_parallel((lambda: "one", lambda: 2)) == ("one", 2)
    assert run_parallel([]) == ()


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("tasks", [(_fail, int), (int, _fail)])
def test_run_parallel_raises_error_of_any_task(tasks: tuple[Callable[[], int], Callable[[], int]]) -> None:
    with pytest.raises(ValueError, match="no answer"):
        run_parallel(tasks)


@pytest.mark.usefixtures("_threads")
def test_run_parallel_cancelled_caller_stops_every_task() -> None:
    token, stopped = CancelToken(), []

    def cancel_and_check() -> None:
        token.cancel()
        try:
            check_cancelled()
        except Cancelled:
            stopped.append(threading.get_ident())
            raise

    def wait_for_cancellation() -> None:
        while not token.cancelled:
            pass
        cancel_and_check()

    with use_token(token), pytest.raises(Cancelled):
        run_parallel((cancel_and_check, wait_for_cancellation))
    assert len(stopped) in (1, 2)


def test_run_parallel_runs_two_tasks_on_two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pl, "thread_pool_size", lambda: 2)
    meet = threading.Barrier(2, timeout=30)
    assert run_parallel((meet.wait, meet.wait)) in ((0, 1), (1, 0))


def test_run_parallel_starts_no_threads_for_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pl, "thread_pool_size", lambda: 2)
    few = tasks._FEW_ROWS
    here = {threading.get_ident()}
    assert set(run_parallel([threading.get_ident] * 4, few)) == here
    assert not set(run_parallel([threading.get_ident] * 4, few + 1)) & here
