"""The ledger: exact by construction, its items against figures worked out by hand."""

import gzip
import json
from itertools import pairwise

import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from capture.import_log import Log
from capture.load_runs import load
from capture.run import Run, build_run
from tests.conftest import shared
from tests.tracetui.runs import made
from tracetui.analysis.ledger.step_ledger import compute_ledger
from tracetui.look import Look
from tracetui.report_formats import format_report
from tracetui.views import ask, load_view

# 1 GB/s and 1 GFLOP/s: a byte takes a nanosecond, and so does an operation; a launch takes 10
ROOF = {
    "device": "toy", "source": "measured", "read_bytes_per_s": 1e9, "flop_per_s": {"fp32": 1e9},
    "floor_ns": 10.0,
}  # fmt: skip


def run_of(rows: list[dict[str, object]], roof: object = ROOF, **meta: object) -> Run:
    frame = pl.DataFrame(
        [{"kind": "kernel", "lens": "gpu", "phase": "decode", "step": 1, **row} for row in rows],
        infer_schema_length=None,
    )
    return build_run("toy", {"roof": roof, "dtype": "fp32", **meta}, frame, Log("toy"))


HAND = [
    {"name": "big", "op": "mlp.up", "t": 0, "dur": 200, "bytes": 120.0, "flops": 60.0},
    {"name": "big", "op": "mlp.up", "t": 250, "dur": 100, "bytes": 100.0, "flops": 50.0},  # at the roof
    {"name": "dense", "op": "attn.core", "t": 300, "dur": 100, "bytes": 1.0, "flops": 40.0},  # half hidden
    {"name": "tiny", "op": "norm", "t": 400, "dur": 30, "bytes": 2.0, "flops": 1.0},
    {"name": "what", "op": "other", "t": 430, "dur": 70},
]


def test_items_by_hand() -> None:
    book = compute_ledger(run_of(HAND), Look())
    assert book is not None and (book.steps, book.step_ns, book.phase) == (1, 500, "decode")
    rows = {(r["op"], r["cause"]): r for r in book.items.iter_rows(named=True)}
    assert rows["mlp.up", "memory"]["recoverable_ns"] == 80 and rows["mlp.up", "memory"]["own_ns"] == 300
    assert rows["mlp.up", "memory"]["low_ns"] == 200 - 150  # 120 ns at 80 % of the roof are 150
    assert rows["attn.core", "compute"]["own_ns"] == 50  # the first half ran under the product before it
    assert rows["attn.core", "compute"]["recoverable_ns"] == 10
    assert rows["norm", "launch"]["recoverable_ns"] == 20
    assert rows["other", "no model"]["recoverable_ns"] == 0 and book.unmodelled_ns == 70
    assert rows["gap", "launch unknown"]["recoverable_ns"] == 50
    assert book.bound_ns == 120 + 100 + 40 + 10 + 70
    assert book.items["op"].to_list()[:2] == ["mlp.up", "gap"]


def test_without_a_roof_nothing_is_claimed() -> None:
    book = compute_ledger(run_of(HAND, roof=None), Look())
    assert book is not None and book.items.filter(pl.col("op") != "gap")["recoverable_ns"].sum() == 0
    assert book.unmodelled_ns == 450 and book.step_ns == 500


def test_steps_of_another_phase_are_apart() -> None:
    rows = [{**row, "step": step} for step in (1, 2) for row in HAND]
    rows += [{**row, "step": 0, "phase": "prefill"} for row in HAND[:1]]
    book = compute_ledger(run_of(rows), Look())
    assert book is not None and (book.steps, book.step_ns, book.phase) == (2, 1000, "decode")
    book = compute_ledger(run_of(rows), Look(phase="prefill"))
    assert book is not None and (book.steps, book.step_ns) == (1, 200)


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from("abc"), "step": st.integers(1, 3), "t": st.integers(0, 400),
            "dur": st.integers(1, 90), "bytes": st.floats(0, 200), "flops": st.floats(0, 200),
        }
    ),
    min_size=1,
    max_size=30,
)  # fmt: skip


@given(ROWS)
@settings(max_examples=80)
def test_a_step_is_its_bound_and_what_lies_above_it(rows: list[dict[str, object]]) -> None:
    book = compute_ledger(run_of(rows), Look())
    assert book is not None
    assume(
        not book.stray_count
    )  # a row far from its step's others is left out, and the step is shorter by it
    spans = {}
    for row in rows:
        begin, end = spans.get(row["step"], (1 << 60, 0))
        t, dur = int(row["t"]), int(row["dur"])  # type: ignore[call-overload]
        spans[row["step"]] = min(begin, t), max(end, t + dur)
    assert book.step_ns == sum(end - begin for begin, end in spans.values())
    assert book.step_ns == book.bound_ns + book.items["recoverable_ns"].sum()
    assert (book.items["low_ns"] <= book.items["recoverable_ns"]).all()


def test_the_view_closes_the_sum() -> None:
    text = format_report(load_view("fix"), [run_of(HAND)], Look(), "csv").splitlines()
    columns = text[0].split(",")
    totals = [int(line.split(",")[columns.index("total_ns")]) for line in text[1:] if line[:1] != '"']
    assert len(totals) == len(text) - 1 and sum(totals) == 500


@pytest.mark.parametrize(
    ("second", "evidence"),
    [(None, "one gap, the longest 300 ns"), (150, "2 gaps, the longest 50 ns at 100 ns, before mlp.up")],
)
def test_what_surrounds_the_rows_of_a_step_has_no_place(second: int | None, evidence: str) -> None:
    """The wall time says how much it is; it may be several gaps, so it is the longest only if it is alone."""
    row = {"name": "k", "op": "mlp.up", "dur": 100, "lens": "wall"}
    rows = [{**row, "t": 0}, {"kind": "step", "t": 0, "dur": 400}]
    rows += [] if second is None else [{**row, "t": second}]
    view = ask(load_view("fix"), [made([{**row, "step": 1} for row in rows])], Look())
    assert view.rows.filter(pl.col("op") == "gap")["evidence"].to_list() == [evidence]


def test_the_longest_gap_is_the_one_of_a_plain_walk_through_the_file() -> None:
    path = shared("samples/real_vllm/eager_prefill_mixed_decode.pt.trace.json.gz")
    events = [e for e in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if e.get("ph") == "X"]
    begins = sorted(e["ts"] for e in events if e["cat"] == "user_annotation")[2:]  # those of decoding
    ops = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["cat"] == "cpu_op")
    longest = (0.0, 0.0)
    for begin, end in pairwise(begins):
        until = begin
        for op_begin, op_end in ops:
            longest = max(longest, (min(op_begin, end) - until, until - begins[0]))
            until = max(until, op_end)
    (run,) = load(path, cache=False)
    first = run.events.filter(pl.col("kind") == "step", pl.col("step") == 3)["t"].item()
    ((begin, end),) = ask(load_view("fix"), [run], Look()).parts["gap"]["span"]
    assert (end - begin) / 1000 == pytest.approx(longest[0], rel=0.02), "allocations are no work"
    assert (begin - first) / 1000 == pytest.approx(longest[1], abs=50)


def test_no_rows_is_said() -> None:
    rows = run_of([{"name": "x", "t": 0, "dur": 0}])
    assert compute_ledger(rows, Look()) is None
    assert "nothing to account for" in format_report(load_view("fix"), [rows], Look())


def test_a_slowed_op_leads_by_what_was_added() -> None:
    last = {"name": "down", "op": "mlp.down", "t": 500, "dur": 50, "bytes": 40.0, "flops": 1.0}
    books = [compute_ledger(run_of([*HAND, {**last, "dur": dur}]), Look()) for dur in (50, 250)]
    before, after = (book.items if book else pl.DataFrame() for book in books)
    by_op = [dict(items.select("op", "recoverable_ns").rows()) for items in (before, after)]
    assert after["op"][0] == "mlp.down" and before["op"][0] == "mlp.up"
    assert by_op[1]["mlp.down"] - by_op[0]["mlp.down"] == 200


def test_a_layer_that_loses_more_is_named_and_stands_apart_where_asked() -> None:
    """Six layers of 100 bytes in 110 ns each, but for the third, which takes 400."""
    shared_by_all = {"name": "k", "op": "mlp.up", "bytes": 100.0}
    rows = [{**shared_by_all, "t": 500 * i, "dur": 400 if i == 2 else 110, "layer": i} for i in range(6)]
    book, apart = (compute_ledger(run_of(rows), Look(group=group)) for group in (None, "layer"))
    assert book is not None and apart is not None
    (item,) = book.items.filter(pl.col("op") == "mlp.up").to_dicts()
    assert (item["layers"], item["recoverable_ns"], item["odd"], item["odd_ns"]) == ("0–5", 350, 2, 300)
    by_layer = apart.items.filter(pl.col("op") == "mlp.up").select("layers", "recoverable_ns").rows()
    assert by_layer == [("2", 300), ("0", 10), ("1", 10), ("3", 10), ("4", 10), ("5", 10)]
    assert book.step_ns == apart.step_ns == apart.bound_ns + apart.items["recoverable_ns"].sum()
    answer = ask(load_view("fix"), [run_of(rows)], Look())
    evidence = dict(answer.rows.select("op", "evidence").rows())["mlp.up"]
    assert evidence == "6 launches, 950 ns in one step; layer 2 loses 300 ns per step, others about 10 ns"


def test_exposed_copies_and_collectives_have_items_of_their_own() -> None:
    rows = [
        {"name": "gemm", "op": "mlp.up", "t": 0, "dur": 100, "bytes": 100.0, "category": "matmul"},
        {"name": "ncclAllReduce", "t": 80, "dur": 60, "category": "comm"},  # 40 of it alone
        {"name": "Memcpy HtoD", "t": 130, "dur": 200, "category": "copy"},  # 190 of it alone
    ]
    book = compute_ledger(run_of([{**row, "track": f"gpu0/{i}"} for i, row in enumerate(rows)]), Look())
    assert book is not None and (book.step_ns, book.bound_ns) == (330, 100)
    items = {r["cause"]: r for r in book.items.iter_rows(named=True)}
    assert (items["communication"]["recoverable_ns"], items["communication"]["low_ns"]) == (40, 40)
    assert (items["copy"]["recoverable_ns"], items["copy"]["low_ns"]) == (
        190,
        100,
    )  # all computation hides 100


def test_of_several_devices_the_busiest_is_accounted_for() -> None:
    rows = [{"name": "k", "op": "mlp.up", "t": t, "dur": d, "track": f"{gpu}/7"}
            for gpu, t, d in (("gpu0", 0, 40), ("gpu0", 60, 40), ("gpu1", 0, 9))]  # fmt: skip
    book = compute_ledger(run_of(rows), Look())
    assert book is not None and book.step_ns == 100
    assert book.items.filter(pl.col("op") == "gap")["recoverable_ns"].to_list() == [20]


def test_a_part_of_the_rows_has_no_gaps() -> None:
    book = compute_ledger(run_of(HAND), Look(focus=(("op", "norm"),)))
    assert book is not None and (book.step_ns, book.is_partial) == (30, True)
    assert book.items["op"].to_list() == ["norm"]


def test_of_a_served_model_the_first_three_are_those_of_the_reference() -> None:
    """Milliseconds above the roof by unified_perf_summary.csv: bytes at 5.3 TB/s against the kernels."""
    folder = shared("samples/serving/sglang_qwen3_8b_decode")
    (run,) = load(folder / "execution.json.gz", capture=str(folder / "capture_bs_32_rank0.json.gz"))
    book = compute_ledger(run, Look())
    assert book is not None and book.step_ns == book.bound_ns + book.items["recoverable_ns"].sum()
    first = [(r["op"], round(r["recoverable_ns"] / 1e6, 2)) for r in book.items.head(3).iter_rows(named=True)]
    assert first == [("attn.core", 1.21), ("mlp.gate_up", 1.04), ("mlp.down", 0.77)]


@pytest.mark.parametrize("second", [250, 140])
def test_a_collective_waits_for_another_rank_until_the_last_one_comes(second: int) -> None:
    """Both end at 300: rank 0 comes to the collective at 100, rank 1 at 250, or at 140."""
    begins = {0: 100, 1: second}
    rows = [
        {"name": name, "category": category, "t": t, "dur": dur, "track": f"rank {rank} / gpu0/7"}
        for rank, at in begins.items()
        for name, category, t, dur in (("gemm", "matmul", 0, at), ("ncclAllReduce", "comm", at, 300 - at))
    ]
    book = compute_ledger(run_of(rows), Look())
    assert book is not None and book.step_ns == 300
    items = dict(book.items.filter(pl.col("recoverable_ns") > 0).select("cause", "recoverable_ns").rows())
    assert items == {"another rank": second - 100, "communication": 300 - second}


def test_recoverable_is_a_range_from_the_makers_rate_to_the_achievable_one() -> None:
    """1.3074 TFLOP on an MI300X: 1 ms as AMD states it, 1.847 ms at the 708 TFLOP/s that AMD has reached.

    Its bytes, 5.3 GB in 2 ms: 1 ms, and 1.25 ms at 80 % of the bandwidth, of which nobody published more.
    """
    work = {"name": "a", "op": "mlp.up", "t": 0, "dur": 2_000_000, "flops": 1.3074e12, "bytes": 1.0}
    read = {"name": "b", "op": "mlp.down", "t": 2_000_000, "dur": 2_000_000, "flops": 1.0, "bytes": 5.3e9}
    run = run_of([work, read], roof=None, device="AMD Instinct MI300X", dtype="bf16")
    answer = ask(load_view("fix"), [run], Look())
    rows = {row["op"]: row for row in answer.rows.to_dicts()}
    assert [rows["mlp.up"][c] for c in ("recoverable_ns", "low_ns")] == [1_000_000, 2_000_000 - 1_846_610]
    assert [rows["mlp.down"][c] for c in ("recoverable_ns", "low_ns")] == [1_000_000, 750_000]
    assert "903.4 µs to 2.000 ms recoverable" in answer.notes[0]
    assert any("708 TFLOP/s in bf16, achievable by AMD" in note for note in answer.notes)


def test_work_without_a_bound_is_named_first_and_ranked_by_its_time() -> None:
    unknown = {"name": "what", "op": "moe.experts", "t": 500, "dur": 300}
    answer = ask(load_view("fix"), [run_of([*HAND, unknown])], Look())
    assert answer.notes[0].startswith(
        "a decode step takes 800 ns on the device: bound unknown for 370 ns (46.2%), 270 ns ideal"
    )
    assert answer.rows["op"].to_list()[:2] == ["moe.experts", "mlp.up"], (
        "300 ns of which any part may go, then 80"
    )
    assert answer.rows.row(0, named=True)["recoverable_ns"] is None
    rows = answer.rows.filter(pl.col("recoverable_ns").is_not_null())
    assert rows["recoverable_ns"].sum() + 370 + 270 == 800
