"""The tree of what threads did, against the spans of the same files read in plain Python."""

import random
from collections import Counter, defaultdict
from typing import Any

import polars as pl
import pytest

from capture.errors import CaptureError
from capture.load_runs import load
from capture.native.schema import PATH_SEPARATOR
from tests.capture.loaders._host_spans import read_events, read_spans, sum_self_times
from tests.conftest import SHARED, document
from tests.tracetui.analysis.test_tree import FILES, SAMPLES
from tests.tracetui.runs import made
from tests.tracetui.views.test_plausible_figures import CORPUS
from tracetui.analysis.tree import (
    compute_outside_ns,
    compute_tree_table,
    is_nested_by_time,
    resolve_tree_lens,
)
from tracetui.look import Look
from tracetui.views import ask, load_view

THREAD_FILES = [
    "chrome/cpu_only.jsonl",
    "chrome/functions.json",
    "chrome/torch_compiled.json",
    "samples/host_only/pyspy_chrometrace.json",
    "samples/host_only/torch_compile_cpu.json.gz",
    "samples/host_only/torch_stacks_modules.json.gz",
    "samples/host_only/viztracer.json.gz",
    "samples/gloo_ranks/late/rank0.pt.trace.json.gz",
]
EVERY_FILE = sorted({
    *FILES, *SAMPLES, *THREAD_FILES, *(f"seed {number}" for number in range(5)),
    *(path.relative_to(SHARED).as_posix() for path in CORPUS if "samples" in path.parts),
})  # fmt: skip


@pytest.mark.corpus
@pytest.mark.parametrize("name", THREAD_FILES)
def test_what_a_function_takes_itself_is_as_counted_along_its_threads(name: str) -> None:
    path = document(name)
    threads: dict[Any, list[tuple[int, int, str]]] = defaultdict(list)
    for thread, *span in read_spans(path):
        threads[thread].append(tuple(span))
    expected = sum((sum_self_times(spans) for spans in threads.values()), Counter[str]())
    (run,) = load(path, cache=False)
    table = compute_tree_table(run, Look()).with_columns(
        name=pl.col("path").str.split(PATH_SEPARATOR).list.last()
    )
    actual = dict(table.group_by("name").agg(pl.col("self_ns").sum()).iter_rows())
    differences = {n: (actual.get(n, 0), expected[n]) for n in {*actual, *expected}}
    assert {n: pair for n, pair in differences.items() if pair[0] != pair[1]} == {}
    assert table["self_ns"].sum() == table.filter(depth=0)["inclusive_ns"].sum()


@pytest.mark.corpus
@pytest.mark.parametrize("name", EVERY_FILE)
def test_self_times_of_a_thread_are_at_most_the_time_that_its_spans_cover(name: str) -> None:
    try:
        runs = load(document(name), cache=False)
    except CaptureError:
        return
    for run in runs:
        lens = resolve_tree_lens(run, Look())
        if lens == "gpu" or not is_nested_by_time(run, Look()):
            continue  # a device's tree adds up to its kernels
        rows = run.events.filter(pl.col("kind").is_in(["span", "kernel"]) & pl.col("dur").is_not_null())
        if run.has("lens"):
            rows = rows.filter(pl.col("lens").eq_missing(pl.lit(lens, pl.String)))
        if "track" not in rows.columns:
            rows = rows.with_columns(track=pl.lit(None, pl.String))
        for (track,), spans in rows.drop_nulls("t").partition_by("track", as_dict=True).items():
            look = Look() if track is None else Look(focus=(("track", str(track)),))
            ends = (pl.col("t") + pl.col("dur")).cum_max()
            begins = pl.max_horizontal("t", ends.shift(1))
            covered = spans.sort("t").select((ends - begins).clip(0).sum()).item()
            table = compute_tree_table(run, look)
            assert table["self_ns"].sum() <= covered and table["self_ns"].min() >= 0, track


WHOLE_FILES = [
    *THREAD_FILES[3:], "samples/real_jax/decode.trace.json.gz", "samples/real_onnxruntime/profile.json.gz",
    "samples/gloo_ranks/late/rank1.pt.trace.json.gz", "samples/gloo_ranks/even/rank0.pt.trace.json.gz",
]  # fmt: skip


@pytest.mark.parametrize("name", WHOLE_FILES)
def test_scopes_and_what_of_the_steps_is_in_none_are_all_that_the_file_covers(name: str) -> None:
    """Steps are no scopes: their own time is in the note, so that nothing is missing from the sum."""
    begun: dict[Any, list[int]] = defaultdict(list)
    threads: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for event in read_events(document(name)):
        thread, t = (event.get("pid"), event.get("tid")), round(event.get("ts", 0) * 1000)
        if event.get("ph") == "X" and event.get("cat") != "Trace":
            threads[thread].append((t, t + round(event.get("dur", 0) * 1000)))
        elif event.get("ph") == "B":
            begun[thread].append(t)
        elif event.get("ph") == "E":
            threads[thread].append((begun[thread].pop(), t))
    covered = count = 0
    for spans in threads.values():
        until, count = 0, count + len(spans)
        for begin, end in sorted(spans):
            covered += max(0, end - max(begin, until))
            until = max(until, end)
    (run,) = load(document(name), cache=False)
    outside, _ = compute_outside_ns(run)
    assert compute_tree_table(run, Look())["self_ns"].sum() + outside == pytest.approx(covered, rel=1e-3)
    assert bool(outside) == any(
        "are in no scope" in note for note in ask(load_view("tree"), [run], Look()).notes
    )


def test_what_of_a_servers_steps_is_in_no_scope_is_counted_from_begin_to_begin() -> None:
    """vLLM's annotations end before sampling: between them and inside of them no operator runs for a time."""
    name = "samples/real_vllm/eager_prefill_mixed_decode.pt.trace.json.gz"
    events = [event for event in read_events(document(name)) if event.get("ph") == "X"]
    begins = sorted(event["ts"] for event in events if event["cat"] == "user_annotation")
    free_us, until = begins[-1] - begins[0], begins[0]
    for event in sorted(events, key=lambda event: event["ts"]):
        if event["cat"] == "cpu_op":
            end = min(event["ts"] + event["dur"], begins[-1])
            free_us -= max(0, end - max(event["ts"], until))
            until = max(until, end)
    (run,) = load(document(name), cache=False)
    outside_ns, steps_ns = compute_outside_ns(run)
    assert outside_ns / 1000 == pytest.approx(float(free_us), rel=1e-3)
    assert steps_ns / 1000 == pytest.approx(float(begins[-1] - begins[0]), rel=1e-3)
    (note,) = [note for note in ask(load_view("tree"), [run], Look()).notes if "no scope" in note]
    assert note.startswith("154.8 ms of 266.6 ms in steps") and "until the next one begins" in note


def test_recursive_calls_count_once() -> None:
    rows = [("f", 0, 100), ("f", 10, 50), ("f", 20, 5), ("g", 70, 10)]
    run = made([{"kind": "span", "name": n, "t": t, "dur": d, "lens": "host"} for n, t, d in rows])
    table = {r["path"]: (r["inclusive_ns"], r["self_ns"]) for r in compute_tree_table(run, Look()).to_dicts()}
    assert table == {"f": (100, 40), "f / f": (50, 45), "f / f / f": (5, 5), "f / g": (10, 10)}


@pytest.mark.parametrize("seed", range(20))
def test_spans_that_only_overlap_share_no_instant(seed: int) -> None:
    draw = random.Random(seed)
    rows = [
        (draw.choice("abc"), draw.randrange(60), draw.randrange(30), draw.choice(("span", "kernel")))
        for _ in range(draw.randrange(1, 12))
    ]
    run = made(
        [{"kind": "span", "name": "z", "t": 0, "dur": 0, "lens": "host"}]
        + [{"kind": k, "name": n, "t": t, "dur": d, "lens": "host"} for n, t, d, k in rows]
    )
    covered = len({x for _, t, d, _ in rows for x in range(t, t + d)})
    assert compute_tree_table(run, Look())["self_ns"].sum() == covered
