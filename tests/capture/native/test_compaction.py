"""Folding: of steps that lie far back the sums stay, and the sums are right."""

import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import capture.native.tail
from capture.native import compaction
from capture.native.emit import Emitter
from capture.native.tail import FileTail
from capture.run import Run

OPS = 6
NEWEST = 300

Step = dict[str, Any]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few events are held one by one that short runs are folded."""
    monkeypatch.setattr(capture.native.tail, "RECENT_EVENTS", NEWEST)
    monkeypatch.setattr(compaction, "MAX_BLOCKS", 8)
    monkeypatch.setattr(compaction, "RECENT_SAMPLES", 40)
    monkeypatch.setattr(compaction, "SAMPLE_CELLS", 6)
    monkeypatch.setattr(compaction, "RECENT_MARKS", 50)


def made(steps: int, seed: int = 0) -> Iterator[Step]:
    """Steps of random durations; every fortieth takes in a prompt."""
    rng = random.Random(seed)
    for n in range(steps):
        phase = "prefill" if n % 40 == 0 else "decode"
        durations = [rng.randrange(10, 10_000) for _ in range(OPS)]
        yield {"step": n, "phase": phase, "dur": durations, "context": 5 + 2 * n, "tokens": 1 + n % 3}


def write(emitter: Emitter, step: Step) -> None:
    n, start = step["step"], 1_000_000 * step["step"]
    starts = [start + 20_000 * i for i in range(OPS)]
    facts = {"step": n, "phase": step["phase"], "context": step["context"]}
    emitter.columns(range(OPS), starts, step["dur"], **facts)
    emitter.step(
        n, start, sum(step["dur"]) + 7, phase=step["phase"], tokens=step["tokens"], context=step["context"]
    )
    emitter.event("counter", "power", t=start, value=float(n * 7919 % 501), unit="W")
    emitter.event("mark", f"word {n}", t=start, path="text")


def begun(path: Path, rank: int | None = None) -> Emitter:
    emitter = Emitter(path, rank=rank)
    emitter.run("long", {"model": "tiny"}, id="one")
    emitter.plan(
        {"id": i, "name": f"op {i % 3}", "layer": i, "lens": "wall", "flops": [10, 2], "op": "attn.core"}
        for i in range(OPS)
    )
    return emitter


def followed(path: Path, steps: list[Step], seed: int = 0) -> Run:
    """The run as it is in the end, looked at now and then on the way."""
    rng, emitter, follow = random.Random(seed), begun(path), FileTail(path)
    for step in steps:
        write(emitter, step)
        if rng.random() < 0.1:
            emitter.flush()
            follow.poll()
            follow.build_runs()
    emitter.end()
    follow.poll()
    (run,) = follow.build_runs()
    return run


def whole_from(run: Run) -> int:
    return int(run.meta["folded"]["before"])


@pytest.mark.corpus
@pytest.mark.parametrize("seed", range(4))
def test_every_sum_is_that_of_all_launches(tmp_path: Path, seed: int) -> None:
    steps = list(made(700, seed))
    run = followed(tmp_path / "live.jsonl", steps, seed)
    truth: dict[tuple[str, int, str], list[int]] = defaultdict(list)
    for step in steps:
        for i, dur in enumerate(step["dur"]):
            truth[f"op {i % 3}", i, step["phase"]].append(dur)
    once = pl.col("count").fill_null(1)
    actual = (
        run.events.filter(pl.col("kind") == "kernel")
        .with_columns(pl.col("name", "phase").cast(pl.String))
        .group_by("name", "layer", "phase")
        .agg(
            once.sum().alias("n"), pl.col("dur").sum(),
            pl.coalesce("min", pl.when(once == 1).then("dur")).min().alias("low"),
            pl.coalesce("max", pl.when(once == 1).then("dur")).max().alias("high"),
        )
    )  # fmt: skip
    assert {row[:3]: row[3:] for row in actual.rows()} == {
        key: (len(durs), sum(durs), min(durs), max(durs)) for key, durs in truth.items()
    }


def test_a_block_says_how_many_steps_and_tokens_it_stands_for(tmp_path: Path) -> None:
    steps = list(made(700))
    run = followed(tmp_path / "live.jsonl", steps)
    first, size = whole_from(run), run.meta["folded"]["steps"]
    blocks: dict[tuple[int, str], list[Step]] = defaultdict(list)
    for step in steps[:first]:
        blocks[step["step"] // size, step["phase"]].append(step)
    rows = run.events.filter((pl.col("kind") == "step") & (pl.col("step") < first)).sort("step")
    actual = rows.select("step", "count", "tokens", "context", "dur", "min", "max").rows()
    walls = {step["step"]: sum(step["dur"]) + 7 for step in steps}
    assert actual == sorted(
        (
            block[0]["step"], len(block), sum(s["tokens"] for s in block),
            pytest.approx(sum(s["context"] for s in block) / len(block), abs=2),
            sum(walls[s["step"]] for s in block), min(walls[s["step"]] for s in block),
            max(walls[s["step"]] for s in block),
        )
        for block in blocks.values()
    )  # fmt: skip
    assert 1 < len(actual) <= 8 and size > 1


def test_the_newest_steps_stay_as_they_were(tmp_path: Path) -> None:
    steps = list(made(400))
    run = followed(tmp_path / "live.jsonl", steps)
    first = whole_from(run)
    kernels = run.events.filter((pl.col("kind") == "kernel") & (pl.col("step") >= first))
    actual = {n: rows["dur"].to_list() for (n,), rows in kernels.group_by("step", maintain_order=True)}
    assert actual == {step["step"]: step["dur"] for step in steps[first:]}
    assert NEWEST // 2 <= kernels.height <= 2 * NEWEST
    assert kernels["t"].null_count() == 0


@pytest.mark.slow
def test_however_long_it_goes_on_it_takes_no_more_room(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    emitter, follow, heights = begun(path), FileTail(path), []
    for step in made(3000):
        write(emitter, step)
        if step["step"] % 50 == 49:
            emitter.flush()
            follow.poll()
            heights.append(follow.build_runs()[0].events.height)
    assert max(heights[len(heights) // 2 :]) <= max(heights[: len(heights) // 2]) * 1.2
    assert max(heights) < 1500


def test_work_and_traffic_are_added_up(tmp_path: Path) -> None:
    steps = list(made(300))
    run = followed(tmp_path / "live.jsonl", steps)
    assert run.meta["folded"]
    assert run.events["flops"].sum() == OPS * sum(10 + 2 * step["context"] for step in steps)


def test_of_a_counter_the_first_the_extremes_and_the_mean_stay(tmp_path: Path) -> None:
    steps = list(made(900))
    run = followed(tmp_path / "live.jsonl", steps)
    values = [float(step["step"] * 7919 % 501) for step in steps]
    samples = run.events.filter((pl.col("kind") == "counter") & (pl.col("name") == "power")).sort("t")
    count = samples["count"].fill_null(1)
    assert samples.height < 100 and count.sum() == len(values)
    assert (samples["value"] * count).sum() / len(values) == pytest.approx(sum(values) / len(values))
    assert (samples["value"].min(), samples["value"].max()) == (min(values), max(values))
    assert (samples["value"][0], samples["value"][-1]) == (values[0], values[-1])


def test_what_is_folded_or_left_out_is_said(tmp_path: Path) -> None:
    run = followed(tmp_path / "live.jsonl", list(made(700)))
    (output,) = [n.message for n in run.log.notices if n.id == "folded"]
    words = run.events.filter(pl.col("kind") == "mark").height
    assert f"steps before {whole_from(run):,} are kept as sums" in output
    assert f"{700 - words:,} lines of the log dropped" in output and words < 200
    assert run.log.dropped == 0


def test_ranks_are_folded_each_on_its_track(tmp_path: Path) -> None:
    path, steps = tmp_path / "live.jsonl", list(made(200))
    emitters, follow = [begun(path, rank) for rank in range(2)], FileTail(path)
    for step in steps:
        for emitter in emitters:
            write(emitter, step)
            emitter.flush()
        follow.poll()
    (run,) = follow.build_runs()
    rows = run.events.filter(pl.col("kind") == "step").with_columns(pl.col("track").cast(pl.String))
    sums = dict(rows.group_by("track").agg(pl.col("count").fill_null(1).sum()).rows())
    assert sums == {"rank 0": 200, "rank 1": 200}


def test_steps_that_no_row_tells_of_are_counted_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    emitter, follow = begun(path), FileTail(path)
    for step in made(200):
        emitter.columns(range(OPS), [step["step"]] * OPS, step["dur"], step=step["step"])
        emitter.flush()
        follow.poll()
        follow.build_runs()
    (run,) = follow.build_runs()
    first = whole_from(run)
    assert run.events.filter(pl.col("kind") == "step")["count"].sum() == first > 100


def test_events_outside_of_steps_are_folded_too(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    emitter, follow = begun(path), FileTail(path)
    for n in range(5000):
        emitter.event("kernel", f"load {n % 4}", t=n, dur=n, lens="wall")
    emitter.flush()
    follow.poll()
    (run,) = follow.build_runs()
    assert run.events.height < 3 * NEWEST
    assert run.events["dur"].sum() == sum(range(5000))
    assert run.events["count"].fill_null(1).sum() == 5000


def test_runs_of_one_file_share_the_room(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    follow = FileTail(path)
    for n in range(4):
        emitter = Emitter(path)
        emitter.run("again", {}, id=f"run {n}")
        emitter.plan({"id": i, "name": f"op {i}", "lens": "wall"} for i in range(OPS))
        for step in made(200):
            write(emitter, step)
        emitter.end()
        follow.poll()
        follow.build_runs()
    runs = follow.build_runs()
    assert len(runs) == 4
    assert all(run.events.filter(pl.col("kind") == "kernel").height < NEWEST for run in runs)


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    sums = pl.DataFrame({"flops": [1.0, None], "bytes": [1.0, 2.0]}).select(
        compaction._sum_if_complete("flops"), compaction._sum_if_complete("bytes")
    )
    assert sums.rows() == [(None, 3.0)]
