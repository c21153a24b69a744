"""Traces of a folder as windows of one recording: every value of theirs, on one clock, steps counted on."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capture.load_runs import load
from capture.run import Run
from capture.watch.folder_watcher import FolderWatcher
from capture.watch.trace_folder import INCOMPLETE_QUIET_S, TraceFolder
from capture.watch.watch_recording import WatchRecording
from tests.conftest import FIXTURES

DECODE = FIXTURES / "chrome" / "torch_decode.json"
BASE_NS = 1_795_000_000_000_000_000


class Watch:
    """A folder that is watched by a clock of the test's own."""

    def __init__(self, path: Path) -> None:
        self.folder, self.out = path / "in", path / "out.jsonl"
        self.folder.mkdir()
        self._now = 0.0
        self.recording = WatchRecording(self.out, "in", {"watched": "folder"})
        self.traces = FolderWatcher(
            TraceFolder(self.folder, excluded=self.out, clock=lambda: self._now), self.recording
        )

    def look(self) -> None:
        """Look into the folder until nothing in it can change any more."""
        self.traces.poll()
        self._now += INCOMPLETE_QUIET_S
        self.traces.poll()

    def run(self) -> Run:
        """What was recorded, as `tracetui open` reads it."""
        self.recording.end()
        (run,) = load(self.out, cache=False)
        return run


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    return Watch(tmp_path)


def trace(
    kernels: list[tuple[str, float, float]], base: int | None = BASE_NS, rank: int | None = None
) -> str:
    """A Chrome trace of kernels as (name, µs, µs), with the clock and the rank that it tells."""
    events = [
        {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": at, "dur": dur}
        for name, at, dur in kernels
    ]
    head: dict[str, Any] = {"schemaVersion": 1}
    head |= {} if base is None else {"baseTimeNanoseconds": base}
    head |= {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": 2}}
    return json.dumps({**head, "traceEvents": events})


def kernels(run: Run) -> pl.DataFrame:
    return run.events.filter(pl.col("kind") == "kernel")


def marks(run: Run, path: str) -> list[str]:
    rows = run.events.filter((pl.col("kind") == "mark") & (pl.col("path") == path))
    return rows["name"].cast(pl.String).to_list()


def unix(run: Run) -> int:
    """What to add to times of a recording for Unix time, as its first line states."""
    mono, epoch = run.meta["clock"]
    return int(epoch - mono)


def test_two_windows_keep_their_distance_on_one_clock(watch: Watch) -> None:
    (watch.folder / "a.json").write_text(trace([("first", 10, 5)]))
    (watch.folder / "b.json").write_text(trace([("second", 10, 5)], BASE_NS + 30 * 10**9))
    watch.look()
    run = watch.run()
    rows = kernels(run).sort("t")
    assert rows["name"].cast(pl.String).to_list() == ["first", "second"]
    assert rows["t"][1] - rows["t"][0] == pytest.approx(30 * 10**9, abs=10**6)
    assert rows["t"][0] + unix(run) == pytest.approx(BASE_NS + 10_000, abs=10**6)
    assert rows["dur"].to_list() == [5000, 5000]


def test_a_window_without_a_clock_ends_when_its_file_was_written(watch: Watch) -> None:
    path = watch.folder / "a.json"
    path.write_text(trace([("one", 10, 5), ("two", 40, 20)], base=None))
    os.utime(path, ns=(BASE_NS, BASE_NS))
    watch.look()
    run = watch.run()
    rows = kernels(run).sort("t")
    assert rows["t"][1] + 20_000 + unix(run) == pytest.approx(BASE_NS, abs=10**6)
    assert rows["t"][1] - rows["t"][0] == 30_000
    assert [n.count for n in run.log.notices if n.id == "clock_untold"] == [1]


def test_the_windows_hold_what_the_files_hold(watch: Watch) -> None:
    """Every column of every event, but for the clock and the numbers of the steps."""
    for name in ("a", "b"):
        (watch.folder / f"{name}.json").write_bytes(DECODE.read_bytes())
    watch.look()
    run = watch.run()
    (alone,) = load(DECODE, cache=False)
    text = [c for c, t in alone.events.schema.items() if t == pl.Categorical]
    columns = [c for c in alone.events.columns if c not in ("t", "launch", "step")]
    expected = alone.events.select(columns).with_columns(pl.col(text).cast(pl.String))
    recorded = run.events.filter(pl.col("kind") != "mark").select(columns)
    recorded = recorded.with_columns(pl.col(text).cast(pl.String))
    assert recorded.sort(columns).equals(pl.concat([expected, expected]).sort(columns))
    first, last = alone.events.select(pl.col("step").min(), pl.col("step").max().alias("last")).row(0)
    count = last - first + 1
    assert sorted(run.events["step"].drop_nulls().unique()) == list(range(2 * count))


def test_ranks_stand_beside_each_other(watch: Watch) -> None:
    for rank in (0, 1):
        (watch.folder / f"rank{rank}.json").write_text(trace([("k", 10, 5)], rank=rank))
    watch.look()
    tracks = kernels(watch.run())["track"].cast(pl.String).to_list()
    assert sorted(tracks) == ["rank 0 / gpu0/stream7", "rank 1 / gpu0/stream7"]


def test_beside_a_device_host_operations_are_no_work_of_one(watch: Watch) -> None:
    host = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 5, "dur": 50}
    document = {"schemaVersion": 1, "baseTimeNanoseconds": BASE_NS, "traceEvents": [host]}
    (watch.folder / "a.json").write_text(trace([("k", 10, 5)]))
    watch.look()
    (watch.folder / "front_end.json").write_text(json.dumps(document))
    watch.look()
    run = watch.run()
    assert kernels(run)["name"].cast(pl.String).to_list() == ["k"]
    assert "aten::mm" in run.events.filter(pl.col("kind") == "span")["name"].cast(pl.String).to_list()


def test_without_a_window_what_lies_there_is_counted(watch: Watch) -> None:
    (watch.folder / "notes.txt").write_text("no trace at all")
    watch.look()
    assert watch.traces.summary == "0 windows, 1 no traces"


def test_what_is_not_shown_is_named_and_counted(watch: Watch) -> None:
    (watch.folder / "torn.json").write_bytes(DECODE.read_bytes()[:9000])
    (watch.folder / "torn.json.gz").write_bytes(gzip.compress(DECODE.read_bytes())[:-9])
    (watch.folder / "hostile\x1b]52;c;AA\x07.json").write_text('{"traceEvents": 5}')
    (watch.folder / "notes.txt").write_text("no trace at all")
    (watch.folder / "good.json").write_bytes(DECODE.read_bytes())
    watch.look()
    run = watch.run()
    actual = " ".join(marks(run, "note"))
    assert "torn.json is not shown: it is cut short; tracetui open " in actual
    assert "torn.json.gz is not shown: it is cut short" in actual
    assert "\x1b" not in actual and "hostile" in actual and "is not shown: " in actual
    assert watch.traces.summary == "1 window, 2 cut short, 1 unreadable"
    assert marks(run, "log") == [next(m for m in marks(run, "log") if m.startswith("window 1: good.json"))]
    assert kernels(run).height == kernels(load(DECODE, cache=False)[0]).height


def test_a_torn_file_that_becomes_whole_is_counted_once(watch: Watch) -> None:
    path = watch.folder / "a.json"
    path.write_bytes(DECODE.read_bytes()[:9000])
    watch.look()
    path.write_bytes(DECODE.read_bytes())
    watch.look()
    run = watch.run()
    assert kernels(run).height == kernels(load(DECODE, cache=False)[0]).height


def test_a_file_that_vanishes_is_named(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    path = watch.folder / "a.json"
    path.write_bytes(DECODE.read_bytes())
    monkeypatch.setattr(TraceFolder, "poll", lambda folder: [folder.path / "gone.json"])
    watch.traces.poll()
    assert "gone.json is not shown: it is gone" in marks(watch.run(), "note")
