"""Energy and cost: against a trapezoid integration by numpy, and arithmetic by hand."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from capture.import_log import Log
from capture.merge_ranks import merge_ranks
from capture.run import Run, build_run
from tests.tracetui.in_process import tracetui
from tests.tracetui.runs import decode, made
from tracetui.analysis.energy import (
    compute_step_energy,
    describe_energy,
    has_power,
    parse_power_counter,
    sum_phase_energy,
)
from tracetui.look import Look, Price
from tracetui.views import ask, load_view

S = 1_000_000_000


def recorded(power: list[tuple[float, float]], *, name: str = "gpu_power", unit: str | None = "W") -> Run:
    """Ten decode steps of 100 ms with 4 tokens each after a prefill of one second, and samples (s, value)."""
    rows: list[dict[str, Any]] = []
    for step in range(11):
        begin, dur = (0, S) if step == 0 else (S + (step - 1) * S // 10, S // 10)
        phase, tokens = ("decode", 4) if step else ("prefill", 128)
        common = {"t": begin, "step": step, "phase": phase}
        rows.append(common | {"kind": "step", "name": phase, "dur": dur, "tokens": tokens, "batch": 1})
        for name_, share in (("gemm", 0.6), ("norm", 0.2)):
            place = {"lens": "gpu", "track": "gpu0"}
            rows.append(common | place | {"kind": "kernel", "name": name_, "dur": int(dur * share)})
    track = "gpu 0" if "gpu" in name else None
    rows += [
        {"kind": "counter", "name": name, "t": int(s * S), "value": v, "unit": unit, "track": track}
        for s, v in power
    ]
    return made(rows)


def sampled(seed: int = 1, hz: float = 5.0) -> list[tuple[float, float]]:
    rng = np.random.default_rng(seed)
    times = np.arange(-0.1, 2.3, 1 / hz) + rng.uniform(0, 0.02, len(np.arange(-0.1, 2.3, 1 / hz)))
    return [(float(t), float(w)) for t, w in zip(times, 300 + 200 * rng.random(len(times)), strict=True)]


def integrate(samples: list[tuple[float, float]], begin: float, end: float) -> float:
    """Joules by numpy's trapezoid rule over a fine grid of the interpolated samples."""
    grid = np.linspace(begin, end, 200_001)
    return float(np.trapezoid(np.interp(grid, *zip(*samples, strict=True)), grid))


def record_rank(rank: int, gpus: int = 2) -> Run:
    """Record a rank on a GPU of its own that samples those of the machine; the second takes twice as much."""
    run = recorded(sampled())
    track = pl.col("track").cast(pl.String)
    track = pl.when(track == "gpu0").then(pl.lit(f"gpu{rank}")).otherwise(track)
    events = run.events.with_columns(track=track)
    second = events.filter(pl.col("kind") == "counter", gpus == 2)
    second = second.with_columns(track=pl.lit("gpu 1"), value=pl.col("value") * 2)
    meta = {**run.meta, "rank": rank, "world_size": 2}
    return build_run(f"rank {rank}", meta, pl.concat([events, second]), Log(), enriched=True)


def test_energy_of_merged_ranks_counts_each_device_once() -> None:
    (run,) = merge_ranks([record_rank(0), record_rank(1)])
    sums = {row["phase"]: row["joules"] for row in sum_phase_energy([run]).iter_rows(named=True)}
    assert sums["decode"] == pytest.approx(3 * integrate(sampled(), 1, 2), rel=1e-6)
    (part,) = merge_ranks([record_rank(0), record_rank(1, gpus=1)])
    assert not has_power(part)


@pytest.mark.parametrize("seed", range(5))
def test_joules_of_phases_equal_independent_integral(seed: int) -> None:
    samples = sampled(seed)
    sums = {row["phase"]: row for row in sum_phase_energy([recorded(samples)]).iter_rows(named=True)}
    for phase, begin, end, tokens in (("prefill", 0, 1, 128), ("decode", 1, 2, 40)):
        expected = integrate(samples, begin, end)
        assert sums[phase]["joules"] == pytest.approx(expected, rel=1e-6)
        assert sums[phase]["tokens"] == tokens


def test_joules_of_single_steps_equal_independent_integral() -> None:
    samples = sampled()
    steps = compute_step_energy(recorded(samples)).sort("begin")
    expected = [integrate(samples, a / S, b / S) for a, b in steps.select("begin", "end").rows()]
    assert steps["joules"].to_list() == pytest.approx(expected, rel=1e-6)


def test_rows_share_all_energy_by_time() -> None:
    samples = sampled()
    answer = ask(load_view("kernels"), [recorded(samples)], Look())
    joules = dict(answer.rows.select("name", "joules").rows())
    assert sum(joules.values()) == pytest.approx(integrate(samples, 0, 2), rel=1e-6)
    assert joules["gemm"] == pytest.approx(3 * joules["norm"])
    assert any("shared" in note and "time" in note for note in answer.notes)
    per_token = ask(load_view("kernels"), [recorded(samples)], Look(phase="decode", per="token"))
    assert per_token.rows["joules"].sum() == pytest.approx(integrate(samples, 1, 2) / 40, rel=1e-6)


def test_steps_outside_of_samples_are_unknown_and_said() -> None:
    run = recorded([(1.45, 400.0), (1.65, 400.0), (1.85, 400.0)])
    sums = sum_phase_energy([run])
    assert sums.rows(named=True) == [
        {"phase": "decode", "kind": "GPU", "joules": pytest.approx(120), "took_ns": 0.3 * S,
         "all_ns": S, "tokens": 12}
    ]  # fmt: skip
    assert describe_energy(run, None) == {
        "GPU energy": "10 J/token in decode (400 W, sampled in 30.0% of the time)"
    }


def test_long_silence_is_no_power() -> None:
    rows: list[dict[str, Any]] = [
        {"kind": "step", "name": "decode", "t": 0, "dur": 60 * S, "step": 0, "phase": "decode", "tokens": 1},
        {"kind": "kernel", "name": "gemm", "t": 0, "dur": 60 * S, "step": 0, "phase": "decode"},
    ]
    rows += [
        {"kind": "counter", "name": "gpu_power", "t": s * S, "value": 9.0, "unit": "W"} for s in (0, 1, 60)
    ]
    assert not has_power(made(rows))


def test_counter_of_energy_serves_where_power_is_absent_and_starts_anew() -> None:
    run = recorded([(-0.5, 5000.0), (0.5, 5100.0), (1.5, 5300.0), (2.5, 5500.0)], name="gpu_energy", unit="J")
    sums = dict(sum_phase_energy([run]).select("phase", "joules").rows())
    assert sums == {"prefill": pytest.approx(50 + 100), "decode": pytest.approx(100 + 100)}
    reset = recorded([(-0.5, 5000.0), (0.5, 100.0), (1.5, 300.0), (2.5, 500.0)], name="gpu_energy", unit="J")
    assert sum_phase_energy([reset])["phase"].to_list() == ["decode"]


def test_power_stands_before_energy_of_the_same_device() -> None:
    power, energy = (
        recorded([(-1, 100.0), (3, 100.0)]),
        recorded([(-1, 0.0), (3, 1e6)], name="gpu_energy", unit="J"),
    )
    both = pl.concat([power.events, energy.events.filter(kind="counter")], how="diagonal")
    assert sum_phase_energy([power.with_events(both)])["joules"].to_list() == pytest.approx([100, 100])


def test_devices_are_added_and_idle_ones_left_out() -> None:
    run = recorded([(-1, 100.0), (3, 100.0)])
    idle = run.events.filter(kind="counter").with_columns(track=pl.lit("gpu 1").cast(pl.Categorical))
    two = run.with_events(pl.concat([run.events, idle]))
    assert sum_phase_energy([two])["joules"].to_list() == pytest.approx([100, 100])
    busy = pl.lit("gpu1").cast(pl.Categorical)
    more = run.events.filter(name="norm").with_columns(track=busy)
    both = run.with_events(pl.concat([run.events, idle, more]))
    assert sum_phase_energy([both])["joules"].to_list() == pytest.approx([200, 200])


@pytest.mark.parametrize(
    ("name", "unit", "expected"),
    [
        ("gpu_power", "W", ("GPU", 1.0, False)),
        ("gpu_power", None, ("GPU", 1.0, False)),
        ("GPU 0 Power (W)", None, ("GPU", 1.0, False)),
        ("Power [mW]", None, ("GPU", 1e-3, False)),
        ("DCGM_FI_DEV_POWER_USAGE", None, ("GPU", 1.0, False)),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", None, ("GPU", 1e-3, True)),
        ("cpu_energy", "J", ("CPU", 1.0, True)),
        ("power", None, None),
        ("gpu_power", "%", None),
        ("gpu_usage", "W", None),
    ],
)
def test_power_counter_is_known_by_unit(
    name: str, unit: str | None, expected: tuple[str, float, bool] | None
) -> None:
    assert parse_power_counter(name, unit) == expected


def test_cost_equals_hand_arithmetic() -> None:
    # 40 tokens in one second: 144,000 an hour, which costs 2.50; a million costs 17.361
    # 128 tokens in one second: 460,800 an hour; a million costs 5.425
    texts = describe_energy(recorded([]), Price(2.5))
    assert texts["cost, prefill"] == "5.425 per 1M tokens" and texts["cost, decode"] == "17.36 per 1M tokens"


def test_diff_and_compare_show_both_sides() -> None:
    a, b = recorded([(-1, 100.0), (3, 100.0)]), recorded([(-1, 120.0), (3, 120.0)])
    for view, labels in (("diff", ("a", "b")), ("compare", ("1", "2"))):
        notes = "\n".join(ask(load_view(view), [a, b], Look(price=Price(2.5, "$"))).notes)
        assert "2.5 J/token" in notes and "3 J/token" in notes, labels
        assert notes.count("$17.36") == 2
    unknown = ask(load_view("diff"), [a, recorded([])], Look()).notes
    assert any("a 2.5 J/token, b no power known" in note for note in unknown)
    neither = [recorded([]), recorded([])]
    assert not any("energy" in note for note in ask(load_view("diff"), neither, Look()).notes)
    asked = ask(load_view("diff"), neither, Look(price=Price(1.0))).notes
    assert "energy: no power was recorded" in asked


def test_summary_says_what_is_missing() -> None:
    without = ask(load_view("summary"), [recorded([])], Look()).rows
    assert "gpu_power" in without.filter(part="unknown", name="energy")["text"][0]
    assert "joules" not in ask(load_view("kernels"), [recorded([])], Look()).rows.columns
    rows = ask(load_view("summary"), [recorded([(-1, 100.0), (3, 100.0)])], Look()).rows
    assert rows.filter(part="run", name="GPU energy")["text"][0] == (
        "0.7812 J/token in prefill, 2.5 J/token in decode (100 W)"
    )
    assert rows.filter(part="unknown", name="energy").is_empty()


def test_run_by_hand_with_power_of_no_device_is_counted() -> None:
    sums = sum_phase_energy([decode()])
    assert sums["tokens"].sum() > 0 and sums["joules"].min() > 0


@pytest.mark.parametrize("verb", ["report summary --width 80", "digest"])
def test_cost_at_the_shell(verb: str) -> None:
    done = tracetui(*verb.split(), "sample:decode", "--cost", "$2.50/h")
    assert "$9.971 per 1M tokens" in done.stdout


@pytest.mark.parametrize("price", ["2.5", "0/h", "nan/h", "1e400/h", "x/h", "٣/h", ""])
def test_bad_price_is_one_sentence(price: str) -> None:
    done = tracetui("report", "summary", "sample:decode", "--cost", price)
    assert done.returncode == 2 and "2.50/h" in done.stderr and done.stderr.count("\n") == 1


def test_cost_is_refused_where_it_changes_nothing() -> None:
    done = tracetui("report", "kernels", "sample:decode", "--cost", "2.50/h")
    assert done.returncode == 2 and "--cost changes nothing in the view kernels" in done.stderr
    assert tracetui("report", "sample:decode", "--cost", "2.50/h").returncode == 0
