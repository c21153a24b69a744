"""Work that nobody waits for ends at its next check."""

import threading

import pytest

from capture.tasks import Cancelled, CancelToken, check_cancelled, use_token
from tests.tracetui.runs import decode
from tracetui.look import Look
from tracetui.views import ask, load_view


def test_without_a_token_work_goes_on() -> None:
    check_cancelled()


def test_a_token_ends_the_work_that_is_done_for_it_and_no_other() -> None:
    token = CancelToken()
    token.cancel()
    with pytest.raises(Cancelled), use_token(token):
        check_cancelled()
    check_cancelled()
    with use_token(token):
        other = threading.Thread(target=check_cancelled)
        other.start()
        other.join()


@pytest.mark.parametrize("name", ["kernels", "layers", "growth", "steps", "compare", "tree"])
def test_a_view_is_ended_between_its_queries(name: str) -> None:
    token = CancelToken()
    token.cancel()
    with pytest.raises(Cancelled), use_token(token):
        ask(load_view(name), [decode(), decode()][: 2 if name == "compare" else 1], Look())
