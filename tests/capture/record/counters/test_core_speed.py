"""The pace of the processors: what is worth writing down, by hand, and what a real sampler writes."""

import os
from pathlib import Path

import polars as pl
import pytest

from capture.load_runs import load
from capture.native.emit import Emitter
from capture.record.counters import core_speed
from capture.record.counters.core_speed import CoreSpeedProbe, LastReadings, compute_pause_ns

MS = 1_000_000


def test_a_time_is_written_when_it_moves_by_a_twentieth_or_is_a_second_old() -> None:
    """Core 0: first, unmoved, unmoved, +5 %, back, 999 ms later, a second later; core 1: first."""
    kept = LastReadings()
    actual = [
        (0, 0, 10_000), (0, 20 * MS, 10_400), (0, 40 * MS, 9_600), (0, 60 * MS, 10_500),
        (0, 80 * MS, 9_900), (0, 1_079 * MS, 10_000), (1, 1_079 * MS, 10_000), (0, 1_080 * MS, 10_000),
    ]  # fmt: skip
    assert [kept.should_write(*one) for one in actual] == [True, False, False, True, True, False, True, True]


@pytest.mark.parametrize(
    ("spent_us", "processors", "pause_ms"),
    [(50, 1, 20), (100, 2, 20), (150, 2, 30), (1_000, 2, 200), (100, 64, 160), (1_000, 64, 200)],
)
def test_it_takes_half_a_per_cent_of_each_processor_at_most(
    spent_us: int, processors: int, pause_ms: int
) -> None:
    assert compute_pause_ns(spent_us * 1_000, processors) == pause_ms * MS


def test_each_processor_is_timed_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop is given the time that stands for the processor on which its thread is."""
    cores = core_speed.list_allowed_cores(os.getpid())
    if not cores:
        pytest.skip("this system does not bind a thread to a processor")
    monkeypatch.setattr(core_speed, "measure_loop_ns", lambda: 1_000 * (1 + min(os.sched_getaffinity(0))))
    monkeypatch.setattr(core_speed, "REWRITE_INTERVAL_NS", 0)
    out = tmp_path / "out.jsonl"
    emitter = Emitter(out)
    emitter.run("r", {})
    watch = CoreSpeedProbe(emitter, cores)
    watch.start()
    watch.stop()
    emitter.end()
    rows = load(out, cache=False)[0].events.filter(pl.col("name") == core_speed.COUNTER)
    actual = set(rows.select(pl.col("track").cast(pl.String), "value", pl.col("unit").cast(pl.String)).rows())
    assert actual == {(f"core {c}", 1_000.0 * (1 + c), "ns") for c in cores}
    assert os.sched_getaffinity(0) == set(cores), "the thread alone is bound"


def test_a_processor_that_is_refused_is_named(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    emitter = Emitter(out)
    emitter.run("r", {})
    watch = CoreSpeedProbe(emitter, [100_000])
    watch.start()
    watch.stop()
    emitter.end()
    (output,) = load(out, cache=False)[0].events.filter(kind="mark")["name"].cast(pl.String)
    assert output == "cannot be measured: the speed of core 100000 (Invalid argument)"


def test_the_loop_takes_time_in_proportion_to_its_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that counts rounds: the better of two is 1,500, whatever went before."""
    gone = [0]
    monkeypatch.setattr(core_speed, "_run_loop", lambda rounds: gone.__setitem__(0, gone[0] + rounds))
    monkeypatch.setattr(core_speed.time, "thread_time_ns", lambda: gone[0])
    assert core_speed.measure_loop_ns() == 1_500 and gone[0] == 3_300
