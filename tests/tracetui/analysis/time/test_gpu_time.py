"""GPU time: unions against a count of instants, and the timelines that another tool printed of two traces."""

import csv

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capture.load_runs import load
from tests.conftest import shared
from tracetui.analysis.frames.time_axis import TimeAxis
from tracetui.analysis.time import gpu_time

INTERVALS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 20), st.sampled_from(gpu_time.CLASSES), st.integers(0, 2)),
    min_size=1,
    max_size=25,
)


def frame(intervals: list[tuple[int, int, str, int]]) -> pl.LazyFrame:
    return pl.LazyFrame(intervals, schema=["t", "dur", "class", "step"], orient="row")


def owned(intervals: list[tuple[int, int, str, int]], *by: str) -> pl.DataFrame:
    return gpu_time.compute_span_breakdown(TimeAxis.from_rows(frame(intervals).collect(), by), by)


@given(INTERVALS)
@settings(max_examples=150)
def test_every_instant_is_owned_once(intervals: list[tuple[int, int, str, int]]) -> None:
    row = owned(intervals).row(0, named=True)
    begin, end = min(t for t, *_ in intervals), max(t + d for t, d, *_ in intervals)
    owners = {"compute": 0, "comm": 0, "transfer": 0, None: 0}
    for instant in range(begin, end):
        running = {c for t, d, c, _ in intervals if t <= instant < t + d}
        owners[next((c for c in gpu_time.CLASSES if c in running), None)] += 1
    assert (row["compute_ns"], row["comm_exposed_ns"], row["transfer_exposed_ns"], row["idle_ns"]) == tuple(
        owners.values()
    )
    assert row["span_ns"] == end - begin == row["busy_ns"] + row["idle_ns"]


@given(INTERVALS)
@settings(max_examples=80)
def test_groups_are_apart(intervals: list[tuple[int, int, str, int]]) -> None:
    table = owned(intervals, "step")
    for step in table["step"]:
        mine = [i for i in intervals if i[3] == step]
        alone = owned(mine).row(0, named=True)
        assert alone == {k: v for k, v in table.row(by_predicate=pl.col("step") == step, named=True).items()
                         if k != "step"}  # fmt: skip


@given(INTERVALS)
@settings(max_examples=80)
def test_gaps_are_what_nothing_covers(intervals: list[tuple[int, int, str, int]]) -> None:
    axis = TimeAxis.from_rows(frame(intervals).collect(), ())
    ends = zip(axis.rows["t"], axis.gap_ns, strict=True)
    instants = [i for end, gap in ends for i in range(end - gap, end)]
    begin, end = min(t for t, *_ in intervals), max(t + d for t, d, *_ in intervals)
    covered = {i for t, d, *_ in intervals for i in range(t, t + d)}
    assert sorted(instants) == sorted(set(range(begin, end)) - covered)


@given(
    INTERVALS, st.lists(st.tuples(st.integers(1, 20), st.sampled_from(gpu_time.CLASSES), st.integers(0, 3)))
)
@settings(max_examples=80)
def test_rows_without_a_start_cover_nothing(
    intervals: list[tuple[int, int, str, int]], loose: list[tuple[int, str, int]]
) -> None:
    rows = [*intervals, *((None, *row) for row in loose)]
    table = pl.DataFrame(rows, schema=["t", "dur", "class", "step"], orient="row")
    axis = TimeAxis.from_rows(table.cast({"t": pl.Int64}), ["step"])
    actual = gpu_time.compute_unions_by_class(axis, {"all": gpu_time.CLASSES, "comm": ["comm"]})
    for step, sums in zip(axis.rows.filter(axis.is_first)["step"], actual.to_dicts(), strict=True):
        own = [row for row in rows if row[3] == step]
        spans = [(c, range(t, t + d)) for t, d, c, _ in own if t is not None]
        instants = {"all": {i for _, span in spans for i in span}}
        instants["comm"] = {i for c, span in spans for i in span if c == "comm"}
        assert sums == {"total_ns": sum(d for _, d, *_ in own), **{k: len(v) for k, v in instants.items()}}


@pytest.mark.parametrize("sample", ["sglang_qwen3_8b_decode", "vllm_gptoss_decode"])
def test_equal_to_the_reference_timeline(sample: str) -> None:
    """The reference is `gpu_timeline.csv` of the same trace, printed by another tool in ms."""
    with shared(f"samples/serving/{sample}/gpu_timeline.csv").open() as f:
        stated = {row["type"]: float(row["time ms"]) for row in csv.DictReader(f)}
    (run,) = load(shared(f"samples/serving/{sample}/execution.json.gz"), cache=False)
    row = gpu_time.compute_span_breakdown(
        TimeAxis.from_rows(gpu_time.select_device_rows(run).collect(), ())
    ).row(0, named=True)
    ours = {
        "computation_time": "compute_ns", "exposed_memcpy_time": "transfer_exposed_ns",
        "busy_time": "busy_ns", "idle_time": "idle_ns", "total_time": "span_ns",
        "total_memcpy_time": "transfer_ns", "exposed_comm_time": "comm_exposed_ns",
    }  # fmt: skip
    for theirs, column in ours.items():
        assert row[column] / 1e6 == pytest.approx(stated[theirs], rel=1e-3, abs=1e-6), theirs
