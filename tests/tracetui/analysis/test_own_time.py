"""Own time against a count of every single nanosecond."""

from collections import Counter

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from tracetui.analysis.own_time import with_own

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
    found = with_own(pl.DataFrame(rows))
    sums = Counter(dict(found.group_by("class").agg(pl.col("own").sum()).iter_rows()))
    sums["gap"] = int(found["gap"].sum())
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
    found = with_own(rows)
    assert found["own"].to_list() == [10, 5, 12, 3] and found["gap"].to_list() == [0, 0, 0, 0]
