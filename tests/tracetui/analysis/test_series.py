"""Counters and memory: range and order."""

from tests.tracetui.runs import made
from tracetui.analysis.series import counter_table, memory_table
from tracetui.look import Look


def test_counters_and_memory_keep_their_range_and_order() -> None:
    run = made(
        [
            {"kind": "counter", "name": "clock", "t": t, "value": v, "unit": "MHz"}
            for t, v in ((3, 30.0), (1, 10.0), (2, 50.0))
        ]
        + [{"kind": "memory", "name": "heap", "t": t, "bytes": b} for t, b in ((1, 100.0), (2, 50.0))]
    )
    (clock,) = counter_table(run, Look()).to_dicts()
    assert (clock["first"], clock["last"], clock["min"], clock["max"], clock["mean"]) == (10, 30, 10, 50, 30)
    assert clock["trend"] == [10, 50, 30] and clock["unit"] == "MHz"
    (heap,) = memory_table(run, Look()).to_dicts()
    assert (heap["first_bytes"], heap["last_bytes"], heap["max_bytes"], heap["mean_bytes"]) == (
        100,
        50,
        100,
        75,
    )
