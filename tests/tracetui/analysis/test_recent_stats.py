"""The present of a run by hand: its last seconds, its last minute, its late steps, also once folded."""

import math
from dataclasses import replace

import polars as pl
import pytest

from capture.run import LiveRun, Run
from tests.tracetui.runs import made
from tracetui.analysis import recent_stats
from tracetui.analysis.recent_stats import MAX_HISTORY_STEPS, compute_step_history, with_earlier_steps
from tracetui.look import Look
from tracetui.report_formats import format_report
from tracetui.views import ask, load_view
from tracetui.views.ink import DrawSize, format_plain
from tracetui.views.now import round_up_to_nice

HALF = 500_000_000  # ns


def half_seconds(count: int, late: int | None = None, weights: str = "") -> Run:
    """So many steps of half a second and one token; in the last ten `gemv` takes 30 ms, before it 20 ms.

    The late step takes 400 ms more, all of it in `head`; layer 2 takes twice as long as the other two.
    """
    rows: list[dict[str, object]] = []
    clock = 0
    for step in range(count):
        gemv, more = (30 if step >= count - 10 else 20), (400 if step == late else 0)
        begin = clock
        for name, op, ms, layer in (
            ("gemv", "mlp.down", gemv, 0), ("gemv", "mlp.down", gemv, 1), ("gemv", "mlp.down", 2 * gemv, 2),
            ("head", "lm_head", 100 + more, None),
        ):  # fmt: skip
            row = {
                "kind": "kernel",
                "name": name,
                "op": op,
                "t": clock,
                "dur": ms * 1_000_000,
                "lens": "wall",
            }
            rows.append({**row, "step": step, "phase": "decode", "layer": layer})
            clock += ms * 1_000_000
        clock = begin + HALF + more * 1_000_000
        mark = {"kind": "step", "t": begin, "dur": clock - begin, "step": step, "phase": "decode"}
        rows.append({**mark, "tokens": 1, "context": 10 + step})
        rows.append({"kind": "counter", "name": "host_cpu_usage", "t": begin, "value": 50.0, "unit": "%"})
    rows.append({"kind": "mark", "name": "hello", "path": "text", "t": clock})
    return made(rows, weights=weights)


def test_the_last_seconds_against_the_run() -> None:
    """The last five seconds hold ten of 40 steps. A token of gemv takes 120 ms in them, 80 ms before."""
    rows = {r["name"]: r for r in recent_stats.compute_recent_kernels(half_seconds(40)).iter_rows(named=True)}
    mean = (10 * 120 + 30 * 80) / 40 * 1e6
    assert rows["gemv"]["now_ns"] == 120e6 and rows["gemv"]["run_ns"] == mean
    assert rows["gemv"]["vs_run_pct"] == pytest.approx(100 * (120e6 / mean - 1))
    assert rows["head"]["vs_run_pct"] == 0 and rows["gemv"]["share"] == pytest.approx(120 / 220)


def test_the_pace_now_and_in_all() -> None:
    now = recent_stats.compute_throughput(half_seconds(40, late=5))
    assert now is not None
    assert (now.now_per_s, now.p50_ns, now.p95_ns, now.context) == (2, HALF, HALF, 49)
    assert now.mean_per_s == pytest.approx(40 / 20.4)


@pytest.mark.parametrize(("silent_s", "words"), [(3, "now 2 tok/s"), (40, "40.00 s ago 2 tok/s")])
def test_what_is_old_says_its_age(silent_s: int, words: str) -> None:
    """A server whose steps ended at 20 s is still asked for its figures: they go on for so many seconds."""
    run = half_seconds(40)
    asked = {"kind": "counter", "name": "host_cpu_usage", "t": 40 * HALF + silent_s * 10**9, "value": 1.0}
    run = replace(run, events=pl.concat([run.events, made([asked]).events], how="diagonal_relaxed"))
    answer = ask(load_view("now"), [run], Look())
    head = format_plain(load_view("now").draw(answer, Look(), DrawSize(110, 30))[:1])
    assert words in "".join(head)
    assert ("before 40.00 s without a step" in answer.notes[0]) == (silent_s == 40)


def test_each_second_keeps_its_place_and_the_scale_stays() -> None:
    """Two steps end in each second; a late one ends alone, and the second before it has one less."""
    strips = {s.name: s for s in recent_stats.compute_strips(half_seconds(200))}
    assert set(strips) == {"tok/s", "step", "cpu"}
    assert len(strips["tok/s"].values) == recent_stats.STRIP_S and set(strips["tok/s"].values) == {2.0}
    before, after = (recent_stats.compute_strips(half_seconds(n, late=150))[1].values for n in (200, 202))
    assert before[1:] == after[:-1]  # a second later all of them stand one place further left
    nice = [round_up_to_nice(v) for v in (0, 0.3, 1, 1.1, 2, 4.2, 46, 70)]
    assert nice == pytest.approx([1, 0.3, 1, 1.5, 2, 5, 50, 75])
    assert [round_up_to_nice(v) for v in (math.nan, math.inf, -math.inf, -3.0)] == [1.0] * 4
    assert (
        round_up_to_nice(1.7e308) == 1.7e308 and round_up_to_nice(5e-324) == 5e-324
    )  # next to the ends of what a float holds


def test_a_late_step_is_named_with_what_was_slow_in_it() -> None:
    assert recent_stats.describe_slow_steps(half_seconds(100, late=95)) == [
        "step 95 took 900.0 ms, 1.8× the median; most of it head +400.0 ms"
    ]
    assert recent_stats.describe_slow_steps(half_seconds(100)) == []


@pytest.mark.parametrize(
    ("head_ms", "gemv_ms", "words"),
    [(0, 1, "; most of it outside of kernels"), (-20, 0, "; most of it outside of kernels"), (180, 120, "")],
)
def test_a_row_is_not_most_of_a_late_step_unless_it_is(head_ms: int, gemv_ms: int, words: str) -> None:
    run = half_seconds(100, late=95)
    more = {"head": float(head_ms - 400), "gemv": gemv_ms / 3}  # of its 400 ms, the rest is a gap
    ms = pl.col("name").cast(pl.String).replace_strict(more, default=0.0, return_dtype=pl.Float64)
    is_late = (pl.col("step") == 95) & (pl.col("kind") == "kernel")
    dur = pl.when(is_late).then(pl.col("dur") + (ms * 1e6).cast(pl.Int64)).otherwise("dur")
    (said,) = recent_stats.describe_slow_steps(run.with_events(run.events.with_columns(dur=dur)))
    assert said == f"step 95 took 900.0 ms, 1.8× the median{words}"


def test_layers_and_the_last_step_in_the_order_in_which_it_ran() -> None:
    run = half_seconds(40)
    assert recent_stats.compute_recent_layers(run).rows() == [(0, 0.0), (1, 0.0), (2, 100.0)]
    step = recent_stats.select_last_step(run)
    assert step["name"].to_list() == ["gemv"] * 3 + ["head"]
    assert step["dur"].to_list() == [30_000_000, 30_000_000, 60_000_000, 100_000_000]


def test_the_steps_that_a_run_has_folded_are_remembered() -> None:
    whole = half_seconds(60)
    step = whole.events["step"]
    early = LiveRun(**vars(whole.with_events(whole.events.filter(step.is_null() | (step < 40)))))
    late = LiveRun(**vars(whole.with_events(whole.events.filter(step.is_null() | (step >= 30)))))
    late = with_earlier_steps(late, with_earlier_steps(early, None))
    assert (
        compute_step_history(late).rows() == compute_step_history(whole).rows()
        and MAX_HISTORY_STEPS >= 60_000
    )
    other = LiveRun(**vars(replace(late.with_events(late.events), meta={"clock": [1, 2]})))
    assert with_earlier_steps(other, late) is other  # another run: nothing of the first is its own
    assert compute_step_history(other)["step"].to_list() == list(range(30, 60))


@pytest.mark.parametrize(
    "size",
    [DrawSize(80, 18), DrawSize(120, 34), DrawSize(200, 54), DrawSize(80, 18, ascii=True), DrawSize(30, 6)],
)
def test_the_view_fits_and_says_all_of_it(size: DrawSize) -> None:
    shown = load_view("now")
    assert shown.draw is not None
    answer = ask(shown, [half_seconds(100, late=50)], Look())
    lines = shown.draw(answer, Look(), size)
    text = format_plain(lines)
    assert len(lines) <= size.height and max(map(len, text.splitlines())) <= size.width
    if size.ascii:
        assert all(c.isascii() or c in "µ×" for c in text)
    if size.height > 12:  # a token of gemv takes 120 ms now, and 84 ms over all of the run
        assert (
            "now 2 tok/s" in text and "step 50 took 900.0 ms" in text and "> hello" in text and "+43%" in text
        )


def test_words_of_random_weights_are_told_once_to_mean_nothing() -> None:
    text = format_report(load_view("now"), [half_seconds(20, weights="random(0)")], Look(), width=100)
    assert "random weights: the text is meaningless" in text and "hello" not in text
