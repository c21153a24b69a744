"""Work that nobody waits for ends at its next check."""

import threading

import pytest

from tests.tracetui.runs import decode
from tracetui import cancel
from tracetui.cancel import Cancelled, CancelToken
from tracetui.look import Look
from tracetui.views import ask, load_view


def test_without_a_token_work_goes_on() -> None:
    cancel.check_cancelled()


def test_a_token_ends_the_work_that_is_done_for_it_and_no_other() -> None:
    token = CancelToken()
    token.cancel()
    with pytest.raises(Cancelled), cancel.use_token(token):
        cancel.check_cancelled()
    cancel.check_cancelled()
    with cancel.use_token(token):
        other = threading.Thread(target=cancel.check_cancelled)
        other.start()
        other.join()


@pytest.mark.parametrize("name", ["kernels", "layers", "growth", "steps", "compare", "tree"])
def test_a_view_is_ended_between_its_queries(name: str) -> None:
    token = CancelToken()
    token.cancel()
    with pytest.raises(Cancelled), cancel.use_token(token):
        ask(load_view(name), [decode(), decode()][: 2 if name == "compare" else 1], Look())
