"""What is kept of the pieces of a growing run is what all of its events say, however they came."""

import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import capture.native.tail
from capture.native.schema import seal_record
from capture.native.tail import FileTail
from capture.run import Run, list_chunks
from tracetui.analysis.frames import run_memo
from tracetui.analysis.kernels import compute_kernel_table, compute_total_tables
from tracetui.analysis.time.step_table import compute_step_totals
from tracetui.look import Look

OPS = 6
BY = ("name", "category", "layer")
LOOKS = (
    Look(),
    Look(group="op", lens="wall"),
    Look(group="layer", per="token", lens="wall"),
    Look(group="step"),
    Look(phase="decode", group="phase"),
    Look(filter="0"),
    Look(window=(3, 90), lens="wall"),
)

Line = dict[str, Any]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few events are held one by one that short runs are folded."""
    monkeypatch.setattr(capture.native.tail, "RECENT_EVENTS", 300)


def head(run: str, **more: Any) -> list[Line]:
    plan = [
        {
            "id": i,
            "name": f"op {i % 4}",
            "op": ("norm", "matmul")[i % 2],
            "layer": i,
            "lens": "wall",
            "flops": [10 * i, 2],
            "bytes": [8, 0],
        }
        for i in range(OPS)
    ]
    begin = {"kind": "run", "schema": 1, "id": run, "name": run, "clock": [0, 10], **more}
    return [begin, {"kind": "plan", "ops": plan, **more}]


def recorded(seed: int, run: str, steps: int) -> Iterator[Line]:
    """Lines of a run of one writer, or of two: steps come late, a run line again, columns in the middle."""
    rng, other = random.Random(seed), {"rank": 1} if seed else {}
    yield from head(run)
    yield from head(run, **other) if other else ()
    late: list[tuple[int, Line]] = []
    for n in range(steps):
        phase = "prefill" if n % 30 == 0 else "decode"
        count = rng.randrange(1, OPS + 1)
        work: Line = {
            "kind": "columns", "step": n, "phase": phase, "context": n, "t": 1000 * n,
            "op": [rng.randrange(OPS) for _ in range(count)], "dt": [7] * count,
            "dur": [rng.randrange(900) for _ in range(count)],
        }  # fmt: skip
        if n > steps // 3 and n % 4 == 0:
            work["count"] = [rng.choice([None, 1, 3]) for _ in range(count)]
        yield work
        yield {
            "kind": "step",
            "name": phase,
            "step": n,
            "t": 1000 * n,
            "dur": 990,
            "tokens": 1,
            "phase": phase,
        }
        yield {"kind": "counter", "name": "power", "value": float(rng.randrange(99)), "t": 1000 * n}
        late.append((n + rng.choice([0, 1, 2, 70]), work | other))
        for due in [each for each in late if each[0] <= n]:
            late.remove(due)
            yield due[1]
        if n == steps // 2:
            yield from head(run)
            yield {"kind": "kernel", "name": "alone", "dur": 5, "bytes": 8, "lens": "gpu"}
    yield from (work for _, work in late)


def checked(run: Run) -> None:
    """Hold what is told of a run, with its pieces, to the same run without, and to sums made row by row."""
    own, plain = list_chunks(run), run.with_events(run.events)
    every = pl.concat([piece.events for piece in own], how="diagonal")
    assert_frame_equal(every.select(run.events.columns), run.events)
    for look in LOOKS:
        assert_frame_equal(compute_kernel_table(run, look), compute_kernel_table(plain, look))
        tables = zip(compute_total_tables(run, look, BY), compute_total_tables(plain, look, BY), strict=True)
        for ours, theirs in tables:
            assert_frame_equal(ours, theirs)
    for lens in (None, "wall"):
        ours, theirs = (compute_step_totals(one, Look(), lens).sort("step") for one in (run, plain))
        assert_frame_equal(ours, theirs)
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    kernels = list(run.events.filter(pl.col("kind") == "kernel").iter_rows(named=True))
    lens = "gpu" if any(row["lens"] == "gpu" for row in kernels) else "wall"
    for row in (row for row in kernels if row["lens"] == lens):
        sums[row["name"]][0] += row.get("count") or 1
        sums[row["name"]][1] += row["dur"]
    told = compute_kernel_table(run, Look()).select("name", "count", "total_ns").rows()
    assert {name: [count, total] for name, count, total in told} == sums


def fed(path: Path, follow: FileTail, lines: list[bytes], rng: random.Random) -> Iterator[Run]:
    """Append lines in portions that end anywhere, and yield a snapshot after each."""
    data, at = b"".join(lines), 0
    while at < len(data):
        size = rng.choice([1, 50, 1000, 4000])
        with path.open("ab") as file:
            file.write(data[at : at + size])
        at += size
        follow.poll()
        yield from (run for run in follow.build_runs() if run.has("dur"))


@pytest.mark.corpus
@pytest.mark.parametrize("seed", range(3))
def test_sums_of_pieces_are_those_of_all_events(tmp_path: Path, seed: int) -> None:
    path, rng = tmp_path / "live.jsonl", random.Random(seed)
    follow = FileTail(path)
    folded = 0
    for i, run in enumerate(fed(path, follow, [seal_record(line) for line in recorded(seed, "a", 150)], rng)):
        folded += "folded" in run.meta
        if i % 5 == 0:
            checked(run)
    assert folded > 3


@pytest.mark.slow
def test_a_file_that_is_cut_replaced_or_goes_on_in_parts_keeps_nothing_that_is_gone(tmp_path: Path) -> None:
    path, rng = tmp_path / "live.jsonl", random.Random(5)
    follow = FileTail(path)
    lines = [seal_record(line) for line in recorded(1, "a", 60)]
    assert list(fed(path, follow, lines, rng))
    path.rename(tmp_path / "live.1.jsonl")
    path.write_bytes(seal_record({**head("a")[0], "part": 1}) + seal_record(head("a")[1]))
    for run in fed(path, follow, [seal_record(line) for line in list(recorded(2, "a", 90))[300:]], rng):
        checked(run)
    path.write_bytes(b"")
    follow.poll()
    for run in fed(path, follow, [seal_record(line) for line in recorded(3, "b", 20)], rng):
        checked(run)
    assert run.name == "b"


def test_what_an_earlier_snapshot_had_is_not_found_again(tmp_path: Path) -> None:
    path, asked = tmp_path / "live.jsonl", [0]

    def found(events: pl.DataFrame) -> int:
        asked[0] += events.height
        return events.height

    follow, seen = FileTail(path), 0
    for run in fed(path, follow, [seal_record(line) for line in recorded(4, "a", 300)], random.Random(4)):
        assert sum(run_memo.map_chunks(run, "rows", found)) == run.events.height
        seen += run.events.height
    assert asked[0] < seen / 4
