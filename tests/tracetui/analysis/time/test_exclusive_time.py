"""Own time against a count of every single nanosecond."""

from collections import Counter

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from tracetui.analysis.frames.time_axis import TimeAxis
from tracetui.analysis.time.gpu_time import with_exclusive_time

OWNERS = ("compute", "comm", "transfer")
ROW = st.fixed_dictionaries(
    {
        "step": st.integers(0, 2), "t": st.integers(-30, 60), "dur": st.integers(1, 25),
        "class": st.sampled_from(OWNERS),
    }
)  # fmt: skip


@given(st.lists(ROW, min_size=1, max_size=14))
@settings(max_examples=150)
def test_every_instant_has_one_owner(rows: list[dict[str, object]]) -> None:
    expected: Counter[str] = Counter()
    for step in {row["step"] for row in rows}:
        running: dict[int, list[str]] = {}
        for row in (r for r in rows if r["step"] == step):
            start, dur = int(row["t"]), int(row["dur"])  # type: ignore[call-overload]
            for ns in range(start, start + dur):
                running.setdefault(ns, []).append(str(row["class"]))
        for ns in range(min(running), max(running)):
            owner = next((c for c in OWNERS if c in running.get(ns, ())), "gap")
            expected[owner] += 1
        expected[next(c for c in OWNERS if c in running[max(running)])] += 1
    actual = with_exclusive_time(TimeAxis.from_rows(pl.DataFrame(rows), ["step"]))
    sums = Counter(dict(actual.group_by("class").agg(pl.col("exclusive_ns").sum()).iter_rows()))
    sums["gap"] = int(actual["gap_ns"].sum())
    assert +sums == +expected


def test_an_instant_belongs_to_the_row_that_began_first() -> None:
    rows = pl.DataFrame(
        {
            "step": [1] * 4,
            "t": [0, 5, 7, None],
            "dur": [10, 10, 20, 3],
            "class": ["compute"] * 2 + ["comm", "compute"],
        }
    )
    actual = with_exclusive_time(TimeAxis.from_rows(rows, ["step"]))
    assert actual["exclusive_ns"].to_list() == [10, 5, 12, 3] and actual["gap_ns"].to_list() == [0, 0, 0, 0]


def test_of_streams_at_once_the_one_that_the_step_waits_for_has_the_time() -> None:
    """c follows b, which outlasts a: a hides nothing of it, although it began first."""
    rows = pl.DataFrame(
        {
            "step": [1] * 4, "t": [0, 2, 31, 33], "dur": [20, 28, 10, 3], "class": ["compute"] * 4,
            "track": ["1", "2", "2", "1"],
        }
    )  # fmt: skip
    actual = with_exclusive_time(TimeAxis.from_rows(rows, ["step"]))
    assert actual["exclusive_ns"].to_list() == [2, 28, 10, 0] and actual["gap_ns"].to_list() == [0, 0, 1, 0]


def test_within_a_stream_a_row_that_begins_early_waits_for_the_one_before() -> None:
    """As with programmatic dependent launch, beside a short row of another stream."""
    rows = pl.DataFrame(
        {
            "step": [1] * 3, "t": [0, 6, 8], "dur": [10, 14, 1], "class": ["compute"] * 3,
            "track": ["1", "1", "2"],
        }
    )  # fmt: skip
    assert with_exclusive_time(TimeAxis.from_rows(rows, ["step"]))["exclusive_ns"].to_list() == [10, 10, 0]
