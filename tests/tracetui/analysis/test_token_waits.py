"""Why tokens came late: planted causes, and none where none was planted."""

from typing import Any

import polars as pl
import pytest

from capture.import_log import Log
from capture.load_runs import load
from capture.loaders.requests.request_rows import REQUESTS, STALLS, TOKENS
from capture.run import Run, build_run
from tests.conftest import FIXTURES
from tracetui.analysis.token_waits import (
    CauseFinder,
    TokenCause,
    build_request_table,
    build_token_table,
    find_slow_tokens,
)
from tracetui.look import Look
from tracetui.views import ask, load_view

MS = 1_000_000
STEP_NS = 10 * MS


def build_served_run(
    delays: dict[int, int],
    prompts: dict[int, int] | None = None,
    steps: list[dict[str, Any]] | None = None,
    length: int = 60,
) -> Run:
    """Return two requests of so many tokens, a step of 10 ms each; some steps take longer (delays in ms).

    `prompts` has requests of one token, whose first token comes at the end of such a step.
    """
    at, times = 0, []
    for number in range(length):
        at += STEP_NS + delays.get(number, 0) * MS
        times.append(at)
    requests = [(name, 0, 32, length, times[0]) for name in ("1", "2")]
    tokens = [(name, n + 1, t, 1) for name in ("1", "2") for n, t in enumerate(times)]
    for number, size in (prompts or {}).items():
        sent = times[number] - STEP_NS - delays.get(number, 0) * MS
        requests.append((f"p{number}", sent, size, 1, times[number] - sent))
        tokens.append((f"p{number}", 1, times[number], 1))
    names = ("request", "sent_ns", "prompt_tokens", "tokens", "ttft_ns")
    table = pl.DataFrame(requests, schema=list(names), orient="row")
    nulls = ("queue_ns", "prefill_ns", "decode_ns", "total_ns")
    table = table.with_columns(
        *(pl.lit(None, pl.Int64).alias(c) for c in nulls),
        *(pl.lit(None, pl.String).alias(c) for c in ("client", "server_id", "outcome")),
    )
    arrivals = pl.DataFrame(tokens, schema=["request", "token", "at_ns", "tokens"], orient="row")
    events = pl.DataFrame(steps or [{"kind": "mark", "name": "x", "t": 0}])
    meta = {"clock": [0, 0]}
    return build_run("x", meta, events, Log(), {REQUESTS: table, TOKENS: arrivals})


def find_causes(run: Run) -> dict[tuple[str, int], TokenCause]:
    tokens = build_token_table(run)
    finder = CauseFinder(run, build_request_table(run, tokens), tokens)
    rows = find_slow_tokens(tokens).select("request", "token", "start_ns", "at_ns").iter_rows()
    return {(name, token): finder.find_cause(name, start, end) for name, token, start, end in rows}


def test_planted_prefills_are_the_cause_of_each_late_token() -> None:
    planted = {number: 50 + number for number in range(5, 55, 5)}
    causes = find_causes(build_served_run(planted, dict.fromkeys(planted, 4000)))
    assert len(causes) == 2 * len(planted)
    for (_, token), cause in causes.items():
        assert cause.cause == "prefill" and f"request p{token - 1} with a prompt of 4,000" in cause.why


def test_a_short_prompt_is_no_cause_of_a_long_delay() -> None:
    planted = {10: 60, 20: 60, 30: 60, 40: 400}
    causes = find_causes(build_served_run(planted, {10: 4000, 20: 4000, 30: 4000, 40: 64}, length=200))
    assert causes["1", 11].cause == "prefill"
    assert causes["1", 41] == (None, "no request got a token meanwhile", None)


def test_quiet_requests_have_no_late_token() -> None:
    assert not find_causes(build_served_run({}, {10: 64, 20: 64}))


def test_short_prompts_in_uneven_waits_are_no_cause() -> None:
    """An instant meets long waits more often than short ones: so do prefills that delay nothing."""
    uneven = dict.fromkeys(range(0, 60, 4), 25)
    causes = find_causes(build_served_run(uneven, dict.fromkeys((4, 12, 24, 30, 40, 44), 32)))
    assert causes and {cause.cause for cause in causes.values()} == {None}


def test_prompts_that_two_of_six_hiccups_meet_are_no_cause() -> None:
    """Such hiccups fill nearly half of the time: that both prompts meet one is chance."""
    hiccups = dict.fromkeys(range(0, 60, 10), 60)
    causes = find_causes(build_served_run(hiccups, {10: 32, 30: 32}))
    assert causes and {cause.cause for cause in causes.values()} == {None}
    assert {c.cause for c in find_causes(build_served_run({10: 60, 30: 60}, {10: 32, 30: 32})).values()} == {
        "prefill"
    }


def test_a_delay_without_evidence_has_no_cause() -> None:
    causes = find_causes(build_served_run({20: 80}))
    assert [cause.cause for cause in causes.values()] == [None, None]


def test_a_stalled_client_is_blamed() -> None:
    run = build_served_run({20: 80})
    stalls = pl.DataFrame({"start_ns": [200 * MS], "end_ns": [285 * MS]})
    run = Run(run.name, run.meta, run.events, run.log, {**run.tables, STALLS: stalls})
    assert find_causes(run)["1", 21].cause == "client"


@pytest.mark.parametrize(
    ("name", "cause", "words"),
    [
        ("execute_context_1(8192)_generation_2(2)", "prefill", "a prefill of 8,192 tokens of request p20"),
        ("execute_context_0(0)_generation_2(2)", "slow step", "step 20 (decode) took 90.00 ms"),
    ],
)
def test_the_step_that_held_a_late_token_is_named(name: str, cause: str, words: str) -> None:
    steps, at = [], 0
    for number in range(60):
        dur = STEP_NS + (80 * MS if number == 20 else 0)
        label = name if number == 20 else "execute_context_0(0)_generation_2(2)"
        phase = "mixed" if "context_1" in label else "decode"
        row = {"kind": "step", "name": label, "t": at, "dur": dur, "step": number, "phase": phase}
        steps.append(row)
        at += dur
    actual = find_causes(build_served_run({20: 80}, {20: 8192} if cause == "prefill" else {}, steps))
    assert actual["1", 21].cause == cause and words in actual["1", 21].why
    assert actual["1", 21].step == 20


def test_time_between_steps_is_a_cause() -> None:
    steps, at = [], 0
    for number in range(60):
        at += 80 * MS if number == 20 else 0
        steps.append({"kind": "step", "name": "decode", "t": at, "dur": STEP_NS, "step": number})
        at += STEP_NS
    cause = find_causes(build_served_run({20: 80}, {}, steps))["1", 21]
    assert cause.cause == "between steps" and "no step ran for 80.00 ms before step 20" in cause.why


def test_a_profile_of_ours_is_the_cause() -> None:
    marks = [
        {"kind": "mark", "name": name, "t": t, "path": "profile"}
        for name, t in (("begin", 205 * MS), ("end", 290 * MS))
    ]
    cause = find_causes(build_served_run({20: 80}, {}, marks))["1", 21]
    assert cause.cause == "profiling"


def test_the_view_leads_from_request_to_token_to_step() -> None:
    view = load_view("requests")
    runs = load(FIXTURES / "requests" / "clients.jsonl", cache=False)
    whole = ask(view, runs, Look())
    assert whole.key == ("request",) and whole.rows["request"].to_list() == ["1", "2", "3", "4"]
    assert "by cause: prefill 100.0% (2)" in whole.notes[1]
    assert view.find_focus is not None and view.find_focus(whole, Look()) == (("request", "1"),)
    inside = ask(view, runs, Look(focus=(("request", "1"),)))
    late = inside.rows.filter(pl.col("cause").is_not_null())
    assert late.select("token", "cause").rows() == [(7, "prefill"), (17, "client")]
    assert late["wait_ns"].to_list() == [210 * MS, 60 * MS]
    assert view.find_focus(inside, Look()) == ()
    stepped = build_served_run({20: 80}, {}, [
        {"kind": "step", "name": "decode", "t": n * STEP_NS, "dur": STEP_NS, "step": n} for n in range(20)
    ])  # fmt: skip
    inside = ask(view, [stepped], Look(focus=(("request", "1"),)))
    assert inside.rows.height == 60
