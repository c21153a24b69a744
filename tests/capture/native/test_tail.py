"""Following a file: what is seen in the end is what the file holds, whatever befell it."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import capture.native.tail
from capture.errors import UnreadableError
from capture.loaders import native
from capture.native.schema import seal_record
from capture.native.tail import FileTail
from capture.run import Run
from capture.source import Source
from tests.capture.test_export_runs import same


def lines(run: str, steps: Sequence[int], *, end: bool = True, rank: int | None = None) -> list[bytes]:
    who: dict[str, Any] = {} if rank is None else {"rank": rank}
    plan = [{"id": i, "name": f"op {i}", "layer": i, "flops": [i, 2]} for i in range(5)]
    records: list[dict[str, Any]] = [
        {"kind": "run", "schema": 1, "id": run, "name": run, "meta": {"a": 1}, "clock": [0, 10], **who},
        {"kind": "plan", "ops": plan, **who},
    ]
    for step in steps:
        records.append({"kind": "columns", "step": step, "phase": "decode", "context": step, "t": 1000 * step,
                        "op": [0, 1, 2, 3, 4], "dt": [1] * 5, "dur": [step] * 5, **who})  # fmt: skip
        records.append({"kind": "step", "name": "decode", "step": step, "t": 1000 * step, "dur": 9, **who})
        if step % 3 == 0:
            records.append({"kind": "counter", "name": "power", "value": 1.0 * step, "unit": "W", **who})
    return [
        seal_record(r)
        for r in (*records, *([{"kind": "end", "events": 6 * len(steps), **who}] if end else []))
    ]


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def same_as_file(follow: FileTail, path: Path) -> None:
    found, truth = follow.build_runs(is_final=True), native.load(Source.from_path(path))
    assert len(found) == len(truth)
    for one, other in zip(found, truth, strict=True):
        log = other.log.as_dict() | {"format": "native"}
        assert one.log.as_dict() | {"source": ""} == log | {"source": ""}
        same(Run(one.name, one.meta, one.events, other.log, one.tables), other)


def kernels(follow: FileTail) -> int:
    return sum(run.events.filter(kind="kernel").height for run in follow.build_runs())


@pytest.mark.parametrize("seed", range(8))
def test_bytes_in_any_portions_give_the_file(tmp_path: Path, seed: int) -> None:
    path, rng = tmp_path / "live.jsonl", random.Random(seed)
    whole = b"".join([*lines("a", range(30)), b"torn {\n", *lines("b", range(20), end=seed % 2 == 0)])
    whole += b'{"kind":"kern' * (seed % 3)
    follow, at = FileTail(path), 0
    assert follow.state == "waiting" and not follow.poll() and follow.build_runs() == []
    while at < len(whole):
        size = rng.choice([1, 7, 300, 5000])
        append(path, whole[at : at + size])
        at += size
        follow.poll()
        if rng.random() < 0.5:
            follow.build_runs()
    follow.poll()
    same_as_file(follow, path)


def test_a_step_is_seen_as_soon_as_its_line_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    all_lines = lines("a", range(4))
    follow, seen = FileTail(path), []
    for line in all_lines:
        append(path, line[:20])
        assert follow.poll()
        append(path, line[20:])
        assert follow.poll()
        seen.append(kernels(follow))
    assert seen == [0, 0, 5, 5, 5, 10, 10, 15, 15, 20, 20, 20, 20]
    assert follow.state == "ended" and not follow.poll()


def test_writers_of_one_file(tmp_path: Path) -> None:
    path, rng = tmp_path / "live.jsonl", random.Random(3)
    queues = [lines("a", range(12), rank=rank) for rank in range(3)]
    follow = FileTail(path)
    while any(queues):
        append(path, rng.choice([q for q in queues if q]).pop(0))
        follow.poll()
        assert (
            follow.state != "ended" or not any(queues) or len(queues[0]) + len(queues[1]) + len(queues[2]) > 0
        )
    same_as_file(follow, path)
    (run,) = follow.build_runs()
    assert set(run.events["track"].cast(pl.String)) == {"rank 0", "rank 1", "rank 2"}


def test_a_file_that_is_cut_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    path.write_bytes(b"".join(lines("a", range(9))))
    follow = FileTail(path)
    follow.poll()
    path.write_bytes(b"".join(lines("b", range(2))))
    assert follow.poll() and "truncated" in follow.notice
    same_as_file(follow, path)


def test_a_cut_is_seen_even_when_the_file_has_grown_past_it(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    path.write_bytes(b"".join(lines("a", range(2))))
    follow = FileTail(path)
    follow.poll()
    with path.open("r+b") as file:
        file.truncate()
        file.write(b"".join(lines("b", range(9))))
    follow.poll()
    same_as_file(follow, path)


def test_a_rotated_file_goes_on_in_its_successor(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    all_lines = lines("a", range(9))
    append(path, b"".join(all_lines[:6]))
    follow = FileTail(path)
    follow.poll()
    append(path, all_lines[6])
    path.rename(tmp_path / "live.jsonl.1")
    append(path, b"".join(all_lines[7:]))
    follow.poll()
    (run,) = follow.build_runs()
    whole = tmp_path / "whole.jsonl"
    whole.write_bytes(b"".join(all_lines))
    (truth,) = native.load(Source.from_path(whole))
    assert run.events.equals(truth.events)


def test_a_successor_that_says_all_again_is_not_counted_twice(tmp_path: Path) -> None:
    path, other = tmp_path / "live.jsonl", tmp_path / "other"
    path.write_bytes(b"".join(lines("a", range(9), end=False)))
    follow = FileTail(path)
    follow.poll()
    other.write_bytes(b"".join(lines("a", range(12))))
    other.rename(path)
    follow.poll()
    same_as_file(follow, path)
    assert kernels(follow) == 60


def test_a_deleted_file_is_read_to_its_end_and_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    path.write_bytes(b"".join(lines("a", range(3), end=False)))
    follow = FileTail(path)
    follow.poll()
    path.unlink()
    follow.poll()
    assert follow.state == "deleted" and kernels(follow) == 15 and "deleted" in follow.state_message
    path.write_bytes(b"".join(lines("b", range(2))))
    assert follow.poll()
    assert [run.name for run in follow.build_runs()] == ["a", "b"] and follow.state == "ended"


def test_silence_is_said(tmp_path: Path) -> None:
    path, clock = tmp_path / "live.jsonl", [0.0]
    path.write_bytes(b"".join(lines("a", range(3), end=False)))
    follow = FileTail(path, clock=lambda: clock[0])
    follow.poll()
    clock[0] = 29.0
    follow.poll()
    assert follow.state == "growing" and follow.state_message == ""
    clock[0] = 31.4
    follow.poll()
    assert follow.state == "quiet" and follow.state_message == "no data for 31 s"
    append(path, lines("a", range(3, 4), end=False)[2])
    follow.poll()
    assert follow.state == "growing"


def test_any_fate_of_the_file_ends_in_what_it_holds(tmp_path: Path) -> None:
    """A thousand random events: appends, half lines, cuts, replacements, deletions."""
    path, rng = tmp_path / "live.jsonl", random.Random(11)
    follow, run, pending = FileTail(path), 0, lines("run 0", range(8))
    for _ in range(1000):
        fate = rng.random()
        if fate < 0.9 and pending:
            append(path, pending.pop(0))
        elif fate < 0.93:
            run += 1
            path.write_bytes(b"")
            pending = lines(f"run {run}", range(8))
            follow.poll()
        elif fate < 0.96 and path.exists():
            run += 1
            new = tmp_path / "new"
            new.write_bytes(b"")
            new.rename(path)
            follow = FileTail(path) if rng.random() < 0.5 else follow
            pending = lines(f"run {run}", range(8))
            if rng.random() < 0.5:
                follow.poll()
        elif not pending:
            run += 1
            pending = lines(f"run {run}", range(8))
        if rng.random() < 0.3:
            follow.poll()
    append(path, b"".join(pending))
    follow.poll()
    truth = {r.name: r.events for r in native.load(Source.from_path(path))}
    actual = {r.name: r.events for r in follow.build_runs(is_final=True)}
    assert truth.keys() <= actual.keys()
    assert all(actual[name].equals(events) for name, events in truth.items())


def test_what_is_not_native_cannot_be_followed(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": []}\n')
    with pytest.raises(UnreadableError, match="cannot be followed"):
        FileTail(path).poll()
    with pytest.raises(UnreadableError, match="is not a regular file"):
        FileTail(tmp_path).poll()


def test_an_endless_line_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture.native.tail, "MAX_LINE_BYTES", 2000)
    path = tmp_path / "live.jsonl"
    path.write_bytes(b"".join(lines("a", range(2), end=False)))
    follow = FileTail(path)
    follow.poll()
    for _ in range(30):
        append(path, b"x" * 1000)
        follow.poll()
    append(path, b"\n" + lines("a", range(2, 3))[2])
    follow.poll()
    (run,) = follow.build_runs()
    assert kernels(follow) == 15 and {n.id: n.count for n in run.log.notices} == {"endless_line": 1}


def test_a_writer_that_stops_is_missed_though_counters_go_on(tmp_path: Path) -> None:
    now, path = 100.0, tmp_path / "live.jsonl"
    follow = FileTail(path, clock=lambda: now)
    append(path, b"".join(lines("a", range(1, 3), end=False)))
    append(path, seal_record({"kind": "mark", "name": "capturing", "path": "heartbeat", "t": 1}))
    assert follow.poll() and follow.silence_warning == ""
    counter = seal_record({"kind": "counter", "name": "power", "value": 1.0, "t": 2})
    for seconds, output in ((9.0, ""), (12.0, "the engine has been silent for 12 s")):
        now = 100.0 + seconds
        append(path, counter)
        assert follow.poll() and follow.silence_warning == output
    append(path, seal_record({"kind": "mark", "name": "capturing", "path": "heartbeat", "t": 3}))
    assert follow.poll() and follow.silence_warning == ""
    now += 30.0
    assert follow.silence_warning != ""
    follow.reset_silence_timer()  # another engine is started
    assert follow.silence_warning == ""


def test_a_writer_without_a_pulse_is_given_longer(tmp_path: Path) -> None:
    now, path = 0.0, tmp_path / "live.jsonl"
    follow = FileTail(path, clock=lambda: now)
    append(path, b"".join(lines("a", range(2), end=False)))
    follow.poll()
    now = 29.0
    assert follow.silence_warning == ""
    now = 31.0
    assert follow.silence_warning == "the engine has been silent for 31 s"
