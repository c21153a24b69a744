"""Collectives of made ranks: planted arrival, transfer, clocks and causes."""

import json

import numpy as np
import polars as pl
import pytest

from tests.conftest import shared
from tests.tracetui.in_process import tracetui
from tracetui.analysis.collective_times import ARRIVAL, MIXED, TRANSFER, UNKNOWN, split_collectives
from tracetui.views.collectives import _build_answer

MS = 1_000_000


def ranks(
    count: int, calls: int = 12, *, late: int | None = None, late_ms: float = 0.0, transfer_ms: float = 4.0,
    clock_ms: float = 0.0, cause: str = "mlp",
) -> tuple[pl.DataFrame, pl.DataFrame]:  # fmt: skip
    """Ranks work 10 ms, one `late_ms` more, then end a collective together; the last one's clock is off."""
    rng = np.random.default_rng(3)
    now, rows = 1_790_000_000_000 * MS, []
    for number in range(calls):
        starts = now + (10 + rng.normal(0, 0.05, count)) * MS
        if late is not None:
            starts[late] += late_ms * MS
        ends = starts.max() + transfer_ms * MS + rng.normal(0, 0.005, count) * MS
        for rank in range(count):
            shift = clock_ms * MS if rank == count - 1 else 0
            call = {"rank": rank, "name": "nccl", "message": "n=8", "number": number}
            own_ns = int(starts[rank] - now) if number else None
            dur = int(ends[rank] - starts[rank])
            rows.append({**call, "t": int(starts[rank] + shift), "dur": dur, "own_ns": own_ns})
        now = int(ends.max())
    totals = [10 * MS * calls] * count
    ops = {"rank": range(count), "name": "nccl", "message": "n=8", "op": "mlp", "total_ns": totals}
    table = pl.DataFrame(ops)
    if late is not None and cause == "mlp":
        extra = pl.when(pl.col("rank") == late).then(int(late_ms * MS * calls)).otherwise(0)
        table = table.with_columns(pl.col("total_ns") + extra)
    return pl.DataFrame(rows), table


@pytest.mark.parametrize("clock_ms", [0.0, 700.0, -3.0])
@pytest.mark.parametrize("late_ms", [1.0, 5.0, 20.0])
def test_arrival_is_the_planted_delay_whatever_the_clocks(late_ms: float, clock_ms: float) -> None:
    table, left_out = split_collectives(*ranks(4, late=2, late_ms=late_ms, clock_ms=clock_ms))
    (row,) = table.to_dicts()
    assert (row["rank"], row["cause"], left_out) == (2, "mlp", 0)
    assert row["late_ns"] == pytest.approx(late_ms * MS, rel=0.05)
    assert row["arrival_ns"] == pytest.approx(late_ms * MS, rel=0.15)
    assert row["transfer_ns"] == pytest.approx(4 * MS, rel=0.05)
    assert row["verdict"] == {1.0: TRANSFER, 5.0: MIXED, 20.0: ARRIVAL}[late_ms]


@pytest.mark.parametrize("count", [2, 4, 8])
def test_nobody_is_accused_in_an_even_job(count: int) -> None:
    (row,) = split_collectives(*ranks(count))[0].to_dicts()
    assert (row["rank"], row["verdict"]) == (None, TRANSFER)


def test_a_delay_in_no_kernel_is_of_the_host_or_a_gap() -> None:
    answer = _build_answer(*ranks(4, late=1, late_ms=20, cause="host"))
    assert answer.rows["cause"].to_list() == ["no kernel"]
    assert (
        answer.notes[0].startswith("rank 1 arrives 19.98 ms late at nccl")
        and "its host, or a gap" in answer.notes[0]
    )


def test_two_calls_have_no_verdict_and_unequal_counts_are_left_out() -> None:
    calls, ops = ranks(3, calls=2)
    assert split_collectives(calls, ops)[0]["verdict"].to_list() == [UNKNOWN]
    calls, ops = ranks(3)
    table, left_out = split_collectives(calls.filter((pl.col("rank") > 0) | (pl.col("number") > 3)), ops)
    assert table.is_empty() and left_out == 32


@pytest.mark.slow
def test_a_late_rank_of_gloo_is_in_the_first_line() -> None:
    """Rank 1 sleeps 20 ms before each all_reduce of 4 million elements; `even` are the same without."""
    folder = shared("samples/gloo_ranks")
    reports = (
        tracetui("report", "collectives", str(folder / kind), "--format", "json") for kind in ("late", "even")
    )
    late, even = (json.loads(report.stdout)["rows"] for report in reports)
    (row,) = late
    assert (row["rank"], row["cause"], row["message"]) == (1, "no kernel", "n=4000000")
    assert row["late_ns"] == pytest.approx(20 * MS, rel=0.05)
    (row,) = even
    assert (row["rank"], row["verdict"]) == (None, TRANSFER)


def test_fix_and_collectives_split_a_wait_of_gloo_at_the_same_moment() -> None:
    """Rank 1 sleeps 20 ms in each of 10 steps; Fix leaves out only what something else hides."""
    folder = str(shared("samples/gloo_ranks") / "late")
    fix, collectives = (
        json.loads(tracetui("report", view, folder, "--merge", "--format", "json").stdout)["rows"]
        for view in ("fix", "collectives")
    )
    (call,) = collectives
    by_cause = {row["cause"]: row for row in fix}
    assert by_cause["another rank"]["own_ns"] == pytest.approx(call["arrival_ns"], rel=0.02)
    assert by_cause["communication"]["own_ns"] == pytest.approx(call["transfer_ns"], rel=0.02)
    assert (by_cause["another rank"]["per_step"], by_cause["communication"]["per_step"]) == (1, 2)
