"""Counters and memory: range and order."""

from capture.load_runs import load
from tests.conftest import shared
from tests.tracetui.runs import made
from tracetui.analysis.time.series import compute_counter_table, compute_memory_table
from tracetui.look import Look


def test_counters_and_memory_keep_their_range_and_order() -> None:
    run = made(
        [
            {"kind": "counter", "name": "clock", "t": t, "value": v, "unit": "MHz"}
            for t, v in ((3, 30.0), (1, 10.0), (2, 50.0))
        ]
        + [{"kind": "memory", "name": "heap", "t": t, "bytes": b} for t, b in ((1, 100.0), (2, 50.0))]
    )
    (clock,) = compute_counter_table(run, Look()).to_dicts()
    assert (clock["first"], clock["last"], clock["min"], clock["max"], clock["mean"]) == (10, 30, 10, 50, 30)
    assert clock["trend"] == [10, 50, 30] and clock["unit"] == "MHz"
    (heap,) = compute_memory_table(run, Look()).to_dicts()
    assert (heap["first_bytes"], heap["last_bytes"], heap["max_bytes"], heap["mean_bytes"]) == (
        100,
        50,
        100,
        75,
    )


def test_a_size_that_no_machine_has_is_unknown() -> None:
    run = made([{"kind": "memory", "name": "heap", "t": t, "bytes": b} for t, b in ((1, 1e25), (2, 50.0))])
    (heap,) = compute_memory_table(run, Look()).to_dicts()
    assert (heap["first_bytes"], heap["last_bytes"], heap["min_bytes"]) == (None, 50, 50)


def test_the_memory_of_a_trace_is_what_its_allocator_totals() -> None:
    """The largest `Total Allocated` of the file is 96.6 MiB; the changes between have a mean of nothing."""
    (run,) = load(shared("samples/chrome_trace/bert-small-h100.json.gz"), cache=False)
    rows = {(r["name"], r["track"]): r for r in compute_memory_table(run, Look()).to_dicts()}
    assert round(rows["allocated", "gpu0"]["max_bytes"] / 2**20, 1) == 96.6
    assert rows["allocated", "gpu0"]["min_bytes"] > 0
    assert rows["reserved", "gpu0"]["min_bytes"] >= rows["allocated", "gpu0"]["max_bytes"]
