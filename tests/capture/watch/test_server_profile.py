"""How long a server was silent while it was profiled, and when it may be profiled again."""

import time
from types import SimpleNamespace

import pytest

from capture.watch import server_profile
from capture.watch.http_client import HttpResponse
from capture.watch.server_profile import ServiceMeter, Silence, WindowSchedule
from capture.watch.servers import vllm as vllm_kind
from tests.capture.watch.test_server_watcher import wait_for


def test_a_window_that_cost_much_is_followed_by_a_long_pause() -> None:
    schedule = WindowSchedule(25.0, 0.02)
    assert schedule.wait_s == 0
    schedule.charge(time.monotonic() - 0.5, 0.4)
    assert schedule.wait_s == pytest.approx(24.5, abs=0.5)
    schedule.charge(time.monotonic() - 12.0, 10.0)  # 10 s of 500 are 2 %
    assert schedule.wait_s == pytest.approx(488.0, abs=0.5)
    schedule.postpone()  # the next profile of that window failed
    assert schedule.wait_s == pytest.approx(488.0, abs=0.5)


@pytest.mark.parametrize("waited_s", [1.1, 0.02])
def test_a_silence_after_a_step_that_ended_all_requests_is_what_the_next_waited(
    monkeypatch: pytest.MonkeyPatch, waited_s: float
) -> None:
    """Both a silent server and an idle one report the requests of their last step: none."""
    clock, later = [0.0], 1.3

    def get(*_: object) -> HttpResponse:
        clock[0] += 0.05
        first, sent = (1, 0.01) if clock[0] < later else (5, 0.01 + 4 * waited_s)
        body = f"""vllm:generation_tokens_total {9 if clock[0] < later else 13}
vllm:num_requests_running {0 if 0.06 < clock[0] < later else 4}
vllm:time_to_first_token_seconds_count {first}
vllm:time_to_first_token_seconds_sum {sent}
"""
        return HttpResponse(200, body.encode())

    slow = SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda _: time.sleep(0.001))
    monkeypatch.setattr(server_profile, "time", slow)
    meter = ServiceMeter(SimpleNamespace(get=get), vllm_kind)  # type: ignore[arg-type]
    meter.start()
    wait_for(lambda: clock[0] > later + 0.2)
    meter.finish()
    assert meter.silence.seconds == pytest.approx(waited_s, abs=0.003)


def test_the_longest_silence_is_between_the_longest_least_and_the_longest_most() -> None:
    """A late answer may hide a longer silence than the one that is certain."""
    certain, late = Silence(0.09, 0.01), Silence(0.3, 0.3)
    assert certain.find_longer(late) == late.find_longer(certain) == pytest.approx((0.34, 0.26, True))
    assert Silence(0.5, 0.02).find_longer(certain) == pytest.approx((0.5, 0.02, True))


def test_silence_ends_in_the_middle_before_a_late_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy server answers late: its first token came at some time since the answer before."""
    clock, answers = [0.0], iter([(0.05, 1), (0.05, 2), (0.05, 2), (0.6, 3)])

    def get(*_: object) -> HttpResponse:
        seconds, tokens = next(answers, (0.05, 0))  # at the end without requests
        clock[0] += seconds
        body = f"vllm:generation_tokens_total {tokens}\nvllm:num_requests_running {min(tokens, 1)}\n"
        return HttpResponse(200, body.encode())

    slow = SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda _: time.sleep(0.001))
    monkeypatch.setattr(server_profile, "time", slow)
    meter = ServiceMeter(SimpleNamespace(get=get), vllm_kind)  # type: ignore[arg-type]
    meter.start()
    wait_for(lambda: clock[0] > 1)
    meter.finish()
    assert meter.silence[:2] == pytest.approx(((0.15 + 0.75) / 2 - (0.05 + 0.1) / 2, 0.6 / 2 + 0.05 / 2))
    assert str(meter.silence) == "no token for 375 ± 325 ms"
