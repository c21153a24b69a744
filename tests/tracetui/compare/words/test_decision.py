"""What a comparison decides first: figures by hand, and real pairs of which the answer is known."""

import json

import numpy as np
import polars as pl
import pytest

from capture.load_runs import load
from capture.run import Run
from tests.conftest import document
from tests.tracetui.in_process import tracetui
from tests.tracetui.runs import made, recording
from tracetui.compare.diff import compare_runs
from tracetui.compare.run_sides import NoiseFloor, Sides
from tracetui.compare.words.decision import compute_decision, describe_decision
from tracetui.look import Look, Terms

KNOWN = NoiseFloor(0.02, source="said")


def stepped(gemm: int, norm: int, gap: int, steps: int = 12) -> Run:
    """Steps of two kernels with time between them."""
    rows = []
    for step in range(steps):
        of_step = {"step": step, "phase": "decode", "context": 10 + step, "tokens": 2}
        rows.append({"kind": "step", "name": "step", "dur": gemm + norm + gap, **of_step})
        rows += [
            {"kind": "kernel", "name": n, "dur": d, **of_step} for n, d in (("gemm", gemm), ("norm", norm))
        ]
    return made(rows, model="toy")


def trained(backward: int, optimizer: int, steps: int = 12) -> Run:
    """Steps of training without a phase of their own, with 100 µs between their kernels."""
    rows = []
    for step in range(steps):
        rows.append({"kind": "step", "name": "step", "dur": backward + optimizer + 100_000, "step": step})
        parts = {"backward": backward, "optimizer": optimizer}
        rows += [
            {"kind": "kernel", "name": f"of {phase}", "dur": dur, "phase": phase, "step": step}
            for phase, dur in parts.items()
        ]
    return made(rows)


def test_the_step_of_training_is_that_of_no_phase() -> None:
    runs = trained(600_000, 300_000), trained(900_000, 300_000)
    whole = compare_runs(Sides(runs, floor=KNOWN), Look())
    assert whole.phases.filter(what="step").select("phase", "a_ns", "b_ns").rows() == [(None, 1e6, 1.3e6)]
    first, *further = describe_decision(whole, Terms())
    assert first.startswith("SLOWER: step 1.000 ms → 1.300 ms per step")
    assert any(line.startswith("  carried by of backward +300.0 µs") for line in further)
    of_phase = compare_runs(Sides(runs, floor=KNOWN), Look(phase="backward"))
    assert of_phase.phases.select("what", "a_ns").rows() == [("kernels", 6e5)]


def test_step_kernels_and_gap_by_hand() -> None:
    """A step of two tokens: 600 + 200 + 200 µs, then 600 + 220 + 80 µs."""
    runs = stepped(600_000, 200_000, 200_000), stepped(600_000, 220_000, 80_000)
    actual = compare_runs(Sides(runs, floor=KNOWN), Look())
    figures = actual.phases.select("what", "a_ns", "b_ns", "verdict").rows()
    assert figures == [
        ("step", 500_000.0, 450_000.0, "faster"),
        ("kernels", 400_000.0, 410_000.0, "~"),
        ("between kernels", 100_000.0, 40_000.0, "faster"),
    ]
    carriers = compute_decision(actual).carriers.select("name", "delta_ns", "share", "named").rows()
    assert carriers == [
        ("time between kernels", -60_000.0, pytest.approx(6 / 7), True),
        ("norm", 10_000.0, pytest.approx(1 / 7), False),
        ("gemm", 0.0, 0.0, False),
    ]
    first, kernels, carried, *_, why = describe_decision(actual, Terms())
    assert first.startswith(
        "FASTER: decode step 500.0 µs → 450.0 µs per token, -50.00 µs (-10.0%; 95% likely "
    )
    assert "2,000.0 → 2,222.2 tokens/s at the median; p " in first
    assert kernels.startswith("undecided: decode kernels 400.0 µs → 410.0 µs per token")
    assert carried == "  carried by time between kernels -60.00 µs"
    needed = "record 11 more per side to decide"
    assert why == f"  kernels: equal runs differ by up to ±6% (floor 2%); this is +2.5%; {needed}"


def test_unequal_numbers_of_steps_are_compared_per_step() -> None:
    runs = stepped(600_000, 200_000, 0, 12), stepped(600_000, 200_000, 0, 30)
    actual = compare_runs(Sides(runs, floor=KNOWN), Look())
    assert actual.phases["delta_ns"].to_list() == [0.0, 0.0, 0.0]
    assert describe_decision(actual, Terms())[0].startswith("same: decode step 400.0 µs → 400.0 µs per token")


def test_phases_without_steps_have_their_totals() -> None:
    """No verdict without a spread, but the figures: 40 → 25 µs in all."""
    a, b = (
        made([{"name": "gemm", "dur": d, "count": 4, "phase": "decode", "lens": "gpu"}])
        for d in (40_000, 25_000)
    )
    (line, *_) = describe_decision(compare_runs((a, b), Look()), Terms())
    head = "undecided: decode kernels 40.00 µs → 25.00 µs in all, -15.00 µs (-37.5%)"
    assert line == f"{head}; no steps, so one total per run"


def test_repeats_of_a_source_without_steps_have_a_verdict() -> None:
    """Each run is one sample: three of about 40 ms against three of about 60 ms, and three of 40 again."""
    runs = [
        made([{"name": "gemm", "dur": d * 1_000, "t": 0, "phase": "decode", "lens": "gpu"}])
        for d in (40_000, 40_100, 39_900, 60_000, 60_200, 59_800, 40_050, 39_950, 40_000)
    ]
    for b, word in ((runs[3:6], "SLOWER"), (runs[6:], "same")):
        sides = Sides((runs[0], b[0]), more_a=tuple(runs[1:3]), more_b=tuple(b[1:]))
        (line, *_) = describe_decision(compare_runs(sides, Look()), Terms())
        assert line.startswith(f"{word}: decode kernels 40.00 ms → "), line


def test_one_run_a_side_says_on_what_its_verdict_rests() -> None:
    a, b = recording("a", noise=1), recording("b", noise=2, slow={"mlp.down": 4, "attn.q": 4, "norm": 4})
    line = describe_decision(compare_runs((a, b), Look()), Terms())[0]
    assert line.startswith("SLOWER: decode step ") and line.endswith(
        "if equal runs differ by no more than ±15% (floor 5%)"
    )


def test_a_pair_beside_identical_runs_has_a_verdict_of_their_noise() -> None:
    """Runs that differ by a third tell nothing of a sixth; runs that differ by a hundredth do. Of a single
    repeat of neither side nothing is known, and the figures stand all the same.
    """
    a, b = stepped(600_000, 200_000, 200_000), stepped(700_000, 240_000, 230_000)
    for factors, verdict in (((60, 80, 110), "~"), ((100, 101, 99), "slower")):
        noise = tuple(stepped(6_000 * f, 2_000 * f, 2_000 * f) for f in factors)
        actual = compare_runs(Sides((a, b), same=noise), Look())
        assert actual.phases.filter(what="step")["verdict"].to_list() == [verdict]
        assert actual.phases.filter(what="step")["delta_ns"].to_list() == [pytest.approx(85_000)]
        word = {"~": "undecided", "slower": "SLOWER"}[verdict]
        assert describe_decision(actual, Terms())[0].startswith(f"{word}: decode step 500.0 µs → 585.0 µs")


def test_an_undecided_change_stands_beside_the_change_that_would_be_shown() -> None:
    """Of 2 and 2 runs (90, 100; 100, 110), Student's t of two degrees shows no less than 36 %."""
    runs = [stepped(f * 6_000, f * 2_000, f * 2_000) for f in (90, 100, 100, 110)]
    a, more_a, b, more_b = runs
    actual = compare_runs(Sides((a, b), more_a=(more_a,), more_b=(more_b,)), Look())
    logs = np.log([90, 100]), np.log([100, 110])
    error = np.sqrt(sum(np.var(side, ddof=1) for side in logs) / 2)
    needed = np.expm1(4.302653 * error)
    first, *details, kernels = describe_decision(actual, Terms())
    why = next(line for line in details if line.startswith("  step: "))
    assert first.startswith("undecided: decode step ") and kernels.startswith("undecided: decode kernels")
    assert why.startswith(f"  step: 2 and 2 runs show a change from {needed:+.0%} on; this is +10.6%;")


def test_a_change_that_no_row_has_is_carried_by_none() -> None:
    """Each step is interrupted in another row: steps are longer, and the median of no row is."""

    def interrupted(extra: int) -> Run:
        rows = []
        for step in range(30):
            took = [100_000 + extra * (row == step % 3) for row in range(3)]
            rows += [
                {"name": f"k{i}", "dur": d, "step": step, "t": step * 10**6 + i, "lens": "wall"}
                for i, d in enumerate(took)
            ]
        return made(rows, model="toy")

    lines = describe_decision(compare_runs((interrupted(0), interrupted(50_000)), Look()), Terms())
    assert "300.0 µs → 350.0 µs" in lines[0]
    assert lines[1] == "  carried by no row: their medians changed by 0 ns, the kernels by +50.00 µs"


def test_repeats_without_a_gap_in_one_run_have_figures_and_no_verdict() -> None:
    """The logarithm of nothing is no number: the medians stand, with no test."""
    runs = stepped(600_000, 200_000, 0), stepped(600_000, 200_000, 20_000)
    actual = compare_runs(Sides(runs, more_a=(stepped(600_000, 200_000, 0),)), Look())
    (gap,) = actual.phases.filter(what="between kernels").to_dicts()
    assert (gap["a_ns"], gap["b_ns"], gap["delta_ns"]) == pytest.approx((0.0, 10_000.0, 10_000.0))
    assert (gap["p"], gap["verdict"]) == (None, "~")


def test_a_real_pair_of_devices() -> None:
    """The step got faster, since its gaps shrank, though attention takes three times as long."""
    files = [document(f"samples/chrome_trace/bert-small-{d}.json.gz") for d in ("h100", "mi300")]
    lines = describe_decision(compare_runs([load(f)[0] for f in files], Look()), Terms())
    assert lines[0].partition(": ")[2].startswith("step 4.426 ms → 4.007 ms per step, -418.8 µs (-9.5%); ")
    assert lines[0].startswith("as measured") and "what differs: device NVIDIA H100" in lines[2]
    carried = next(line for line in lines if "carried by" in line)
    assert "time between kernels -500.1 µs" in carried and "+76.25 µs" in carried


def test_the_decision_stands_first_and_in_json() -> None:
    pair = "sample:decode", "sample:slowed"
    assert tracetui("diff", *pair).stdout.startswith(
        "ffn_down SLOWER +40.2%; overall undecided: decode step 14.10 ms → 14.96 ms per token"
    )
    actual = json.loads(tracetui("diff", *pair, "--format", "json").stdout)["decision"]
    assert [(p["phase"], p["what"]) for p in actual["phases"]][:2] == [
        ("decode", "step"),
        ("decode", "kernels"),
    ]
    first = next(c for c in actual["carried_by"] if c["phase"] == "decode")
    assert (first["name"], first["verdict"]) == ("ffn_down", "slower")
    assert pl.DataFrame(actual["carried_by"])["share"].max() <= 1


def test_products_of_two_vendors_are_set_side_by_side() -> None:
    """What "matmul, 4 kernels, -23.5 µs" would hide: one of the four takes longer."""
    files = [document(f"samples/chrome_trace/bert-small-{d}.json.gz") for d in ("h100", "mi300")]
    rows = compare_runs([load(f)[0] for f in files], Look()).rows.filter(category="matmul")
    assert dict(rows.select("shape", "delta_ns").rows()) == {
        "m=141 n=30522 k=512": -15_743,
        "m=141 n=512 k=512": -12_982,
        "m=141 n=2048 k=512": 9_283,
        "m=141 n=512 k=2048": -4_026,
    }
    (head,) = rows.filter(shape="m=141 n=30522 k=512").to_dicts()  # one launch a side is no evidence
    assert (head["median_a_ns"], head["median_b_ns"], head["verdict"]) == (41_280, 25_537, "~")
    assert rows.filter(shape="m=141 n=512 k=512").select("count_a", "count_b").row(0) == (17, 17)


def test_kernels_that_share_a_category_alone_are_not_judged_as_one() -> None:
    def run(names: str, dur: int) -> Run:
        rows = [
            {"kind": "kernel", "name": n, "category": "elementwise", "dur": dur, "step": s, "context": s}
            for s in range(12)
            for n in names
        ]
        return made(rows)

    (row,) = compare_runs((run("ab", 1000), run("cd", 9000)), Look()).rows.to_dicts()
    assert (row["match"], row["verdict"], row["p"]) == ("category", "~", None)


def test_work_that_carries_a_change_is_named_before_the_waits_for_it() -> None:
    """A server works 200 ms longer; its client waits as long in a thread, and another one longer still."""
    runs = [
        made([
            {"kind": "kernel", "name": name, "track": name, "t": 0, "dur": ms * 1_000_000, "lens": "wall"}
            for name, ms in (("score", work), ("socket.recv_into", work), ("select.poll.poll", 2 * work))
        ])
        for work in (100, 300)
    ]  # fmt: skip
    lines = describe_decision(compare_runs(runs, Look()), Terms())
    assert lines[1] == "  carried by score +200.0 ms ~"
    assert lines[2] == "  waits: select.poll.poll +400.0 ms ~, socket.recv_into +200.0 ms ~"


def test_a_decided_row_of_less_than_a_hundredth_is_not_the_first_word() -> None:
    """`rsqrt FASTER -91%` stood before a step that took longer, of which it was 0.3 %."""
    for norm, is_first in ((1_000, False), (60_000, True)):
        runs = stepped(600_000, 10, 200_000), stepped(620_000, norm, 200_000)
        (line, *_) = describe_decision(compare_runs(runs, Look()), Terms())
        assert line.startswith("norm SLOWER") == is_first and "undecided: decode step" in line


def with_nodes(*names: str, dur: int = 10_000) -> Run:
    """Steps of a product of 600 µs and of nodes that take 10 µs each, in two layers."""
    rows = [{"kind": "kernel", "name": "/logits/MatMul", "dur": 600_000, "step": s} for s in range(12)]
    return made([
        *rows,
        *(
            {"kind": "kernel", "name": name.format(n), "layer": n, "op": "mlp.act", "dur": dur, "step": s}
            for s in range(12)
            for n in range(2)
            for name in names
        ),
    ])  # fmt: skip


def test_nodes_that_ran_instead_in_each_layer_are_one_change_of_their_operators() -> None:
    """12 steps of two layers, each of 30 µs instead of 10 µs: 40 µs per step."""
    erf = with_nodes("/l.{}/Erf", "/l.{}/Mul", "/l.{}/act_add (Add)")
    lines = describe_decision(compare_runs((with_nodes("/l.{}/act/Relu"), erf), Look()), Terms())
    assert any("Relu → Erf + Mul + Add +40.00 µs" in line for line in lines)


def test_a_small_row_of_one_side_only_is_named() -> None:
    """Products are 50 µs longer; a copy of 8 µs is named, and a norm of 0.4 µs, less than 0.1 %, is not."""

    kinds = "matmul", "attention", "copy", "norm"

    def run(**rows: int) -> Run:
        return made([
            {"kind": "kernel", "name": name, "dur": dur, "step": s, "category": category}
            for s in range(12)
            for category, (name, dur) in zip(kinds, rows.items(), strict=False)
        ])  # fmt: skip

    base = {"gemm": 300_000, "mm": 300_000}
    longer = run(gemm=350_000, mm=300_000, clone=8_000, tiny=400)
    lines = describe_decision(compare_runs((run(**base), longer), Look()), Terms())
    assert "  only in b: clone +8.000 µs" in lines
    back = describe_decision(compare_runs((longer, run(**base)), Look()), Terms())
    assert "  only in a: clone -8.000 µs" in back
