"""Laws and growth against numpy's least squares and planted figures."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capture.load_runs import load, load_all
from tests.conftest import seed
from tests.tracetui.runs import decode, made
from tracetui import units
from tracetui.analysis.frames import line_fit
from tracetui.analysis.growth import (
    compute_growth,
    compute_growth_lines,
    describe_growing_rows,
    describe_pace,
)
from tracetui.look import Look
from tracetui.samples import find_sample
from tracetui.views import ask, load_view
from tracetui.views.ink import DrawSize, Line


def fitted(y: list[float] | np.ndarray, x: list[float] | np.ndarray | None = None) -> dict[str, object]:
    xs = np.arange(len(y), dtype=float) if x is None else np.asarray(x, dtype=float)
    points = pl.DataFrame({"row": ["r"] * len(y), "x": xs, "y": np.asarray(y, dtype=float)})
    (found,) = line_fit.fit_lines(points).lines.to_dicts()
    return found


def test_a_line_is_the_least_squares_line() -> None:
    random = np.random.default_rng(3)
    x = np.arange(10, 210, 4.0)
    y = 500 + 7 * x + random.normal(0, 20, x.size)
    actual = fitted(y, x)
    (slope, offset), cov = np.polyfit(x, y, 1, cov=True)
    rest = y - slope * x - offset
    assert actual["slope"] == pytest.approx(slope, rel=1e-9)
    assert actual["intercept"] == pytest.approx(offset, rel=1e-9)
    assert actual["slope_se"] == pytest.approx(np.sqrt(cov[0, 0]), rel=1e-9)
    assert actual["r2"] == pytest.approx(1 - (rest**2).sum() / ((y - y.mean()) ** 2).sum(), rel=1e-9)
    assert actual["law"] == "linear"


def test_laws_of_planted_series() -> None:
    random = np.random.default_rng(5)
    steps = np.arange(60)
    assert fitted(100 + random.normal(0, 1, 60))["law"] == "flat"
    assert fitted(np.where(steps < 40, 100, 150) + random.normal(0, 1, 60))["law"] == "step"
    assert fitted(100 + random.normal(0, 40, 60))["law"] == "noisy"
    assert fitted(300 - 3.0 * steps)["law"] == "linear"
    assert fitted([5.0, 6.0, 7.0])["law"] is None


def test_a_spike_bends_no_line_and_is_an_outlier() -> None:
    x = np.arange(50.0)
    y = 100 + 2 * x
    clean = fitted(y)
    y[[20, 21, 40]] *= 4
    actual = fitted(y)
    assert (actual["slope"], actual["law"]) == (pytest.approx(clean["slope"]), "linear")
    points = pl.DataFrame({"row": ["r"] * 50, "x": x, "y": y})
    judged = line_fit.fit_lines(points).points
    assert judged.filter("outlier")["x"].to_list() == [20, 21, 40]


def test_growth_of_a_planted_decode() -> None:
    run = decode(steps=40, layers=4, spike=17)
    actual = compute_growth(run, Look(), "op")
    by_op = {r["op"]: r for r in actual.rows.to_dicts()}
    attention, down = by_op["attn.core"], by_op["mlp.down"]
    assert (attention["steps"], attention["tokens"], attention["name"]) == (40, 80, "attention")
    # 4 layers · 10 µs a context token, over 2 tokens a step
    assert attention["slope_ns_per_1k"] == pytest.approx(4 * 10_000 / 2 * 1000)
    assert attention["law"] == "linear" and attention["r2"] == pytest.approx(1)
    assert attention["first_ns"] == 4 * (100 + 10 * 12) * 1000 / 2
    assert attention["last_ns"] == 4 * (100 + 10 * 90) * 1000 / 2
    assert (down["law"], down["outliers"], attention["outliers"]) == ("flat", "17", None)
    assert attention["share_first"] == pytest.approx(220 / 640)
    # attention takes 200 + 20 · step µs beside 420 µs: it reaches half at step 11
    assert attention["half_step"] == 11
    assert actual.axis == "context"


def test_the_lines_alone_are_those_of_the_growth() -> None:
    run = decode(steps=40, layers=4, spike=17)
    alone, whole = (
        compute_growth_lines(run, Look(), "op").sort("op"),
        compute_growth(run, Look(), "op").rows.sort("op"),
    )
    assert alone.rows() == whole.select(alone.columns).rows()
    (attention,) = alone.filter(pl.col("op") == "attn.core").to_dicts()
    # 4 layers · 10 µs a context token over 2 tokens a step; its steps from 12 to 90 tokens, 2 more each
    assert attention["slope_ns_per_1k"] == pytest.approx(4 * 10_000 / 2 * 1000)
    assert attention["total_ns"] == sum(4 * (100 + 10 * x) * 1000 for x in range(12, 91, 2))
    assert (attention["law"], attention["axis"]) == ("linear", "context")


@given(st.lists(st.lists(st.integers(-9, 9), min_size=4, max_size=12), min_size=1, max_size=4))
def test_a_line_has_the_least_squares(series: list[list[int]]) -> None:
    """Against numpy's, for rows one behind the other."""
    cells = [
        {"row": r, "x": float(x), "y": float(y)} for r, ys in enumerate(series) for x, y in enumerate(ys)
    ]
    fit = line_fit.fit_lines(pl.DataFrame(cells))
    for (row,), points in fit.points.filter(~pl.col("outlier")).group_by("row"):
        (line,) = fit.lines.filter(pl.col("row") == row).to_dicts()
        slope, intercept = np.polyfit(points["x"], points["y"], 1)
        assert line["slope"] == pytest.approx(slope, abs=1e-9)
        assert line["intercept"] == pytest.approx(intercept, abs=1e-9)


def loaded(rng: np.random.Generator, steps: int = 96, grows: float = 4.0) -> list[dict[str, object]]:
    """Twelve products of constant work and an attention that grows, on a machine with a changing load.

    In a third of the steps all products take 1.6 times as long, and attention 1.2 times.
    """
    is_slow = np.repeat(rng.random(steps // 6) < 1 / 3, 6)
    rows: list[dict[str, object]] = []
    for step in range(steps):
        context = 100 + step
        rows.append({"kind": "step", "step": step, "phase": "decode", "tokens": 1, "context": context})
        for name in range(13):
            load = 1.6 if is_slow[step] else 1.0
            ns, response = (100_000.0 * (name + 1), 1.0) if name else (100_000 + 1000 * grows * context, 0.4)
            dur = int(ns * load**response * np.exp(rng.normal(0, 0.03)))
            named = {"name": f"k{name}", "op": f"op{name}", "layer": name % 2}
            rows.append({"kind": "kernel", "dur": dur, "step": step, "phase": "decode", **named})
    return rows


def test_a_load_of_all_rows_hides_no_growth_and_makes_none() -> None:
    rng = np.random.default_rng(12)
    covered, false, slopes = 0, 0, []
    for _ in range(20):
        actual = compute_growth(made(loaded(rng)), Look(), "name")
        by_name = {row["name"]: row for row in actual.rows.to_dicts()}
        attention = by_name.pop("k0")
        assert attention["law"] == "linear"
        slopes.append(attention["slope_ns_per_1k"])
        covered += attention["slope_low_ns_per_1k"] <= 4e6 <= attention["slope_high_ns_per_1k"]
        false += sum(row["law"] != "flat" for row in by_name.values())
    assert covered >= 17  # of 20 intervals of 95 %
    assert false <= 12  # of 240 rows
    assert np.mean(slopes) == pytest.approx(4e6, rel=0.02)
    assert any(note.startswith("slopes and trends are corrected") for note in describe_pace(actual))
    assert " per 1k tokens of context (corrected): " in describe_growing_rows(actual)[0]


def test_the_pace_is_that_of_all_kernels_also_of_layers_and_of_a_filter() -> None:
    """Every layer has a row that grows, so layers against each other would show nothing."""
    run = made(loaded(np.random.default_rng(4), grows=4.0))
    whole = compute_growth(run, Look(), "name").rows.filter(pl.col("name") == "k0")["slope_ns_per_1k"][0]
    only = compute_growth(run, Look(filter="k0"), "name").rows["slope_ns_per_1k"][0]
    assert only == pytest.approx(whole)
    layer = compute_growth(run, Look(), "layer").rows.filter(pl.col("layer") == 0)
    assert layer["slope_low_ns_per_1k"][0] < 4e6 < layer["slope_high_ns_per_1k"][0]


def test_trends_are_even_and_the_measured_ones_stay() -> None:
    rows = compute_growth(made(loaded(np.random.default_rng(4))), Look(), "name").rows
    products = rows.filter(pl.col("name") != "k0")
    even, plain = (np.array(products[column].to_list()) for column in ("trend", "plain_trend"))
    assert (even.std(axis=1) / even.mean(axis=1)).max() < 0.05
    assert (plain.std(axis=1) / plain.mean(axis=1)).min() > 0.15


def test_the_attention_of_the_sample_grows_and_nothing_else() -> None:
    answer = ask(load_view("growth"), [load(find_sample("decode"))[0]], Look())
    growing = answer.rows.filter(pl.col("law") == "linear", pl.col("slope_ns_per_1k") > 0)
    assert growing["op"].to_list() == ["attn.core"] == answer.rows["op"][:1].to_list()
    assert answer.notes[0].startswith("attn.core grows by +6.359 ms ± ")


def test_slow_steps_are_named_with_what_was_slow() -> None:
    answer = ask(load_view("growth"), [decode(steps=40, spike=17)], Look())
    (note,) = [n for n in answer.notes if n.startswith("step 17")]
    assert "mlp.down 3.0×" in note and "norm 3.0×" in note
    assert "attn.core on the line" in note


def test_without_context_tokens_are_the_axis_and_without_tokens_the_step() -> None:
    steps = [{"kind": "step", "name": "s", "step": s, "tokens": 2, "phase": "decode"} for s in range(1, 9)]
    rows = [
        {"kind": "kernel", "name": "a", "dur": 100 * s, "step": s, "phase": "decode"} for s in range(1, 9)
    ]
    by_tokens = compute_growth(made([*steps, *rows]), Look(), "name")
    assert by_tokens.axis == "tokens"
    assert by_tokens.rows["slope_ns_per_1k"][0] == pytest.approx(50 / 2 * 1000)  # 50 ns a token each 2 tokens
    by_steps = compute_growth(made(rows), Look(), "name")
    assert by_steps.axis == "step"
    assert by_steps.rows["slope_ns_per_1k"][0] == pytest.approx(100 * 1000)


def test_stretches() -> None:
    assert units.format_ranges([27, 28, 39, 54, 55, 56]) == "27–28, 39, 54–56"


def test_the_doppler_log() -> None:
    (run,) = load_all([seed(2)])
    answer = ask(load_view("growth"), [run], Look())
    (attention,) = answer.rows.filter(pl.col("op") == "attn.core").to_dicts()
    assert (attention["steps"], attention["tokens"], attention["half_step"]) == (64, 255, 45)
    assert (attention["first_ns"], attention["last_ns"]) == (5_192_500, 114_823_333)
    assert attention["law"] == "linear" and attention["r2"] > 0.999
    assert abs(attention["slope_ns_per_1k"] / 1e6 - 439.9) <= 1
    assert round(attention["share_first"], 3) == 0.060 and round(attention["share_last"], 3) == 0.580
    slow = [n for n in answer.notes if n.startswith("step ")]
    assert [n.split(":")[0] for n in slow] == ["step 27–28", "step 39", "step 54–55"]
    assert all("attn.core" in n.split(";")[1] for n in slow)
    assert "mlp.down 1.03–1.10×" in slow[2] and "norm 2.5–5.4×" in slow[2]
    assert any("37,092.20 ms of decode, 91.7%" in n for n in answer.notes)


@pytest.mark.parametrize("group", ["op", "layer", "step", "shape"])
def test_points_are_the_sums_of_a_plain_count(group: str) -> None:
    """Rows without a step or of no op, steps out of order, a column that the source lacks."""
    random = np.random.default_rng(8)
    ops, layers, steps = ["norm", "mlp.up", None, "attn.core"], [0, 7, None], [5, 2, 9, None, 3]
    rows = [
        {"kind": "kernel", "name": "k", "dur": int(random.integers(0, 90)), "op": ops[random.integers(4)],
         "layer": layers[random.integers(3)], "step": steps[random.integers(5)]}
        for _ in range(200)
    ]  # fmt: skip
    actual = compute_growth(made(rows), Look(), group).series
    plain: dict[tuple[object, int], int] = {}
    for row in rows:
        if row["step"] is not None:
            key = row.get(group), int(str(row["step"]))
            plain[key] = plain.get(key, 0) + int(str(row["dur"]))
    whole = {step: sum(dur for (_, s), dur in plain.items() if s == step) for _, step in plain}
    expected = {
        (row, step): (dur, dur / whole[step] if whole[step] else None) for (row, step), dur in plain.items()
    }
    assert {(row, step): (dur, share) for row, step, dur, share in
            actual.select("row", "step", "dur", "share").iter_rows()} == expected  # fmt: skip
    ordered = actual.with_row_index().sort("row", "step", nulls_last=True)["index"]
    assert ordered.to_list() == list(range(actual.height))


def test_the_planted_growth_in_words() -> None:
    """A token takes 200 + 20c µs of attention and 800 µs of down: they meet at a context of 30."""
    answer = ask(load_view("growth"), [decode()], Look())
    assert answer.notes[0] == (
        "attn.core grows by +20.00 ms per 1k tokens of context: 440.0 µs at 12, 2.000 ms at 90; "
        "longer than mlp.down from context 30 on"
    )
    assert answer.rows["op"][0] == "attn.core"


def grown(slope: int) -> list[dict[str, object]]:
    """Ten steps: `big` takes 10 µs, `small` 1 µs and so many ns more for each token of context."""
    rows: list[dict[str, object]] = []
    for step in range(1, 11):
        context = 100 * step
        for name, ns in (("big", 10_000), ("small", 1000 + slope * context)):
            rows.append(
                {"kind": "kernel", "name": name, "op": name, "dur": ns, "step": step, "phase": "decode"}
            )
        rows.append(
            {"kind": "step", "step": step, "phase": "decode", "tokens": 1, "context": context, "dur": 20_000}
        )
    return rows


def test_a_crossing_that_is_still_to_come_is_foreseen() -> None:
    """1,000 + 2c ns reach 10,000 ns at 4,500 tokens."""
    answer = ask(load_view("growth"), [made(grown(2))], Look())
    assert answer.rows["op"].to_list() == ["small", "big"]  # what grows first, though it is the smaller
    assert answer.notes[0].endswith(
        "1.200 µs at 100, 3.000 µs at 1,000; extrapolated, as long as big at context 4,500"
    )


def test_where_nothing_grows_the_largest_is_first_and_nothing_is_said() -> None:
    answer = ask(load_view("growth"), [made(grown(0))], Look())
    assert answer.rows["op"].to_list() == ["big", "small"] and "grows" not in " ".join(answer.notes)


def legend(lines: list[Line]) -> list[str]:
    """The names of the curves of a chart."""
    text = next(text for ln in lines if "━━" in (text := "".join(s.text for s in ln)))
    return [name.strip() for name in text.split("━━")[1:]]


def test_what_grows_is_charted_with_its_line_and_so_is_a_marked_row() -> None:
    shown = load_view("growth")
    assert shown.draw is not None
    answer = ask(shown, [made(grown(2))], Look())
    looks = Look(), Look(chosen=(("big",),))
    named = [legend(shown.draw(answer, look, DrawSize(100, 30))) for look in looks]
    assert named == [["small", "small, fitted line"], ["big"]]


def test_a_course_that_grows_has_a_colour() -> None:
    shown = load_view("growth")
    assert shown.draw is not None
    answer = ask(shown, [made(grown(2))], Look(cursor=(1, 0)))
    lines = shown.draw(answer, Look(cursor=(1, 0)), DrawSize(100, 30))
    assert [span.style for span in lines[1]][1] == "bad"
