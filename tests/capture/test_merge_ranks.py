"""Runs of one rank each, made into one: whose is what, on one clock, and what is only a guess."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capture.errors import UsageError
from capture.import_log import Log
from capture.load_runs import group_inputs, load_all
from capture.merge_ranks import map_tracks_to_ranks, merge_logs, merge_ranks, parse_rank
from capture.run import Run, build_run

KERNEL = {"kind": "kernel", "name": "gemv", "step": 1, "lens": "gpu"}


def native(path: Path, *lines: dict[str, Any]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def started(clock: tuple[int, int], **more: Any) -> dict[str, Any]:
    return {"kind": "run", "schema": 1, "name": "toy", "clock": clock, "meta": {"model": "toy-1b"}, **more}


def pairs(run: Run) -> list[tuple[Any, ...]]:
    """track, t of every kernel, in order."""
    rows = run.events.filter(run.events["kind"] == "kernel")
    return sorted(rows.select("track", "t").rows())


def test_a_track_tells_its_rank() -> None:
    assert [parse_rank(t) for t in ("rank 3", "rank 12 / gpu0", "rank 3x", "my rank 3", "gpu0")] == [
        3, 12, None, None, None,
    ]  # fmt: skip


def test_files_that_name_their_rank_come_onto_one_clock(tmp_path: Path) -> None:
    """Machine b was started 500 s after machine a: its own clock shows that much less at the same moment."""
    native(
        tmp_path / "x.jsonl",
        started((1_000, 10**18), rank=0),
        {**KERNEL, "t": 2_000, "dur": 10, "launch": 1_500, "launcher": "main", "rank": 0},
    )
    behind = started((1_000 - 500 * 10**9, 10**18), rank=1)
    at = 3_000 - 500 * 10**9
    called = {"launch": at - 500, "launcher": "main"}
    native(tmp_path / "y.jsonl", behind, {**KERNEL, "t": at, "dur": 10, "rank": 1, **called})
    (one,) = merge_ranks(load_all([tmp_path], cache=False))
    assert pairs(one) == [("rank 0", 2_000), ("rank 1", 3_000)]
    launches = one.events.filter(one.events["kind"] == "kernel").select("launch", "launcher")
    assert sorted(launches.rows()) == [(1_500, "rank 0 / main"), (2_500, "rank 1 / main")]
    assert one.name == "toy" and one.meta["model"] == "toy-1b" and one.meta["ranks"] == 2
    assert "guess" not in one.meta
    assert one.log.source == str(tmp_path) and (one.log.read, one.log.dropped) == (2, 0)


def test_readings_of_one_clock_are_not_corrected_by_their_own_error(tmp_path: Path) -> None:
    for n, mono in enumerate((1_000, 1_400)):
        native(
            tmp_path / f"{n}.jsonl",
            started((mono, 10**18), rank=n),
            {**KERNEL, "t": 5_000, "dur": 1, "rank": n},
        )
    (one,) = merge_ranks(load_all([tmp_path], cache=False))
    assert pairs(one) == [("rank 0", 5_000), ("rank 1", 5_000)]


def test_a_file_name_may_tell_the_rank_and_tracks_stay_apart(tmp_path: Path) -> None:
    for n in (7, 10):
        row = {**KERNEL, "t": 5, "dur": 1, "track": "gpu0/stream7"}
        native(tmp_path / f"job42_rank{n}.jsonl", started((0, 10**18)), row)
    (one,) = merge_ranks(load_all([tmp_path], cache=False))
    assert pairs(one) == [("rank 10 / gpu0/stream7", 5), ("rank 7 / gpu0/stream7", 5)]
    assert map_tracks_to_ranks(one) == {"rank 7 / gpu0/stream7": 7, "rank 10 / gpu0/stream7": 10}


def test_the_one_number_that_differs_is_the_rank(tmp_path: Path) -> None:
    for n in (1, 0):
        native(tmp_path / f"host3.{n}.2026.jsonl", started((0, 10**18)), {**KERNEL, "t": n, "dur": 1})
    (one,) = merge_ranks(load_all([tmp_path], cache=False))
    assert pairs(one) == [("rank 0", 0), ("rank 1", 1)]


def test_guesses_are_labelled(tmp_path: Path) -> None:
    """No number, no clock: the order of the files and their first events stand in."""
    for name, t in (("left", 100), ("right", 9_000)):
        native(tmp_path / f"{name}.jsonl", {**KERNEL, "t": t, "dur": 1}, {**KERNEL, "t": t + 50, "dur": 1})
    (one,) = merge_ranks(load_all([tmp_path], cache=False))
    assert pairs(one) == [("rank 0", 100), ("rank 0", 150), ("rank 1", 100), ("rank 1", 150)]
    order, clocks = one.meta["guess"]
    assert "numbered in order" in order and "clocks of the ranks are unknown" in clocks


def test_launches_follow_each_other(tmp_path: Path) -> None:
    for n in range(2):
        runs = [
            line
            for launch in (1, 2)
            for line in (
                started((0, 10**18), rank=n, id=f"{launch}"),
                {**KERNEL, "t": 10 * launch + n, "dur": 1, "rank": n},
            )
        ]
        native(tmp_path / f"rank-{n}.jsonl", *runs)
    first, second = merge_ranks(load_all([tmp_path], cache=False))
    assert pairs(first) == [("rank 0", 10), ("rank 1", 11)]
    assert pairs(second) == [("rank 0", 20), ("rank 1", 21)]


def test_what_is_not_one_of_each_rank_is_refused(tmp_path: Path) -> None:
    for name, rank in (("a", 0), ("b", 0), ("c", 1)):
        native(
            tmp_path / f"{name}.jsonl", started((0, 1), rank=rank), {**KERNEL, "t": 1, "dur": 1, "rank": rank}
        )
    with pytest.raises(UsageError, match="there are 2 of rank 0, 1 of rank 1"):
        merge_ranks(load_all([tmp_path], cache=False))


def test_a_shared_file_is_one_run_already(tmp_path: Path) -> None:
    lines = [started((0, 1), rank=n, id="a") for n in range(2)]
    rows = [{**KERNEL, "t": n, "dur": 1, "rank": n} for n in range(2)]
    native(tmp_path / "a.jsonl", *lines, *rows)
    (run,) = load_all([tmp_path], cache=False)
    assert merge_ranks([run]) == [run] and map_tracks_to_ranks(run) == {"rank 0": 0, "rank 1": 1}


def test_tables_tell_whose_they_are(tmp_path: Path) -> None:
    table = {"kind": "table", "name": "t", "types": {"x": "Int64"}, "columns": {"x": [5]}}
    for n in range(2):
        native(tmp_path / f"rank{n}.jsonl", started((0, 1)), table, {**KERNEL, "t": 1, "dur": 1})
    (one,) = merge_ranks(load_all([tmp_path], cache=False))
    assert one.tables["t"].rows() == [(0, 5), (1, 5)]


def test_missing_ranks_are_counted(tmp_path: Path) -> None:
    for n in (0, 2):
        line = {**started((0, 1), rank=n), "meta": {"ranks": 4}}
        native(tmp_path / f"{n}.jsonl", line, {**KERNEL, "t": 1, "dur": 1, "rank": n})
    (one,) = merge_ranks(load_all([tmp_path], cache=False))
    assert "2 of 4 ranks are present" in [n.message for n in one.log.notices]


def test_a_folder_is_merged_by_itself_and_files_are_merged_together(tmp_path: Path) -> None:
    files = ["a.jsonl", "b.jsonl"]
    assert group_inputs([*files, tmp_path], merge=True) == [[tmp_path], files]
    assert group_inputs([*files, tmp_path], merge=False) == [["a.jsonl"], ["b.jsonl"], [tmp_path]]
    for n in range(2):
        native(tmp_path / f"{n}.jsonl", started((0, 1), rank=n), {**KERNEL, "t": n, "dur": 1, "rank": n})
    assert [pairs(run) for run in load_all([tmp_path], cache=False, merge=True)] == [
        [("rank 0", 0), ("rank 1", 1)]
    ]


def kineto(rank: int) -> str:
    """A profiler's file of one rank: a step, a product and a collective, on a base of its own."""
    base = 10**18 + rank * 7_000  # each started its profiler when it came to it
    spans = [
        ("user_annotation", "ProfilerStep#3", 0, 100, 1, {}),
        ("kernel", "gemm", 10 - 7 * rank, 20, 7, {"correlation": 1}),
        ("kernel", "ncclDevKernel_AllReduce", 40 - 7 * rank, 30 + rank, 9, {"correlation": 2}),
        ("cuda_runtime", "cudaLaunchKernel", 5, 1, 1, {"correlation": 1}),
        ("cuda_runtime", "cudaLaunchKernel", 6, 1, 1, {"correlation": 2}),
    ]
    events = [
        {"ph": "X", "cat": c, "name": n, "ts": t, "dur": d, "pid": 0, "tid": tid, "args": args}
        for c, n, t, d, tid, args in spans
    ]
    header = {
        "schemaVersion": 1,
        "baseTimeNanoseconds": base,
        "distributedInfo": {"rank": rank, "world_size": 2},
    }
    return json.dumps({**header, "traceEvents": events})


def test_a_profiler_that_writes_a_file_per_rank(tmp_path: Path) -> None:
    """The names of the files say nothing; what stands in them does. Kernels begin at the same moments."""
    for rank, name in ((1, "a"), (0, "b")):
        (tmp_path / f"{name}.pt.trace.json").write_text(kineto(rank))
    (one,) = load_all([tmp_path], cache=False, merge=True)
    assert [(track, t - 10**18) for track, t in pairs(one)] == [
        ("rank 0 / gpu0/stream7", 10_000), ("rank 0 / gpu0/stream9", 40_000),
        ("rank 1 / gpu0/stream7", 10_000), ("rank 1 / gpu0/stream9", 40_000),
    ]  # fmt: skip
    comm = one.events.filter(one.events["category"] == "comm")
    assert comm.select("track", "step", "dur").sort("track").rows() == [
        ("rank 0 / gpu0/stream9", 3, 30_000), ("rank 1 / gpu0/stream9", 3, 31_000),
    ]  # fmt: skip
    assert "guess" not in one.meta and not one.log.lost_data


def test_losses_of_all_ranks_are_added() -> None:
    runs = []
    for rank, dropped in ((0, 2), (1, 3)):
        log = Log(f"/x/rank{rank}.json", "chrome", read=10)
        log.drop("bad_row", "rows", count=dropped)
        runs.append(build_run(f"r{rank}", {}, pl.DataFrame({"name": ["a"]}), log))
    merged = merge_logs(runs)
    assert (merged.source, merged.read, merged.dropped) == ("/x", 20, 5)


def test_inferred_steps_of_one_rank_alone_are_dropped() -> None:
    """A stage of a pipeline repeats its layers only, and none can tell where its passes begin."""
    rows = [
        {"kind": "step", "name": "forward pass", "t": 5, "dur": 9, "step": 1},
        {**KERNEL, "t": 6, "dur": 2},
    ]
    meta = {"inferred_steps": "from passes"}
    with_steps, other = (build_run("a", meta | {"rank": rank}, pl.DataFrame(rows), Log()) for rank in (0, 1))
    without = build_run("a", {"rank": 1}, pl.DataFrame([{**KERNEL, "t": 7, "dur": 2}]).drop("step"), Log())
    (one,) = merge_ranks([with_steps, without])
    assert not one.has("step") and "inferred_steps" not in one.meta and len(pairs(one)) == 2
    (both,) = merge_ranks([with_steps, other])
    assert both.has("step") and both.meta["inferred_steps"] == "from passes"
