"""The emitter: what it writes is read back, whatever happens to the disk, the process or its neighbours."""

import json
import os
import stat
import subprocess
import sys
import threading
from itertools import accumulate
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import capture.native.emit
from capture.load_runs import load
from capture.native.emit import Emitter, now, read_clock_pair
from capture.native.schema import is_intact
from capture.run import Run
from tests.capture._storm import ACK, OPS, durations, starts


def read(path: Path) -> Run:
    (run,) = load(path, cache=False)
    return run


def text(run: Run, column: str = "name") -> list[str]:
    return run.events[column].cast(pl.String).to_list()


def test_what_is_emitted_is_read(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    emitter = Emitter(path)
    emitter.run("mine", {"model": "tiny"})
    emitter.plan([{"id": 3, "name": "attention", "layer": 1, "lens": "gpu"}, {"id": 9, "name": "mlp.down"}])
    emitter.columns([3, 9, 3], [100, 250, 240], [50, 60, 70], step=4, phase="decode", context=7)
    emitter.step(4, 90, 300, tokens=1, context=7)
    emitter.counter("power", 71.5, "W", track="gpu 0")
    emitter.mark("hello")
    emitter.end()
    emitter.mark("after the end nothing is written")
    run = read(path)
    assert run.name == "mine" and run.meta["model"] == "tiny" and len(run.meta["clock"]) == 2
    assert run.log.notices == () and run.log.read == 6
    assert run.events.filter(kind="kernel").select("name", "t", "dur", "step", "layer").rows() == [
        ("attention", 100, 50, 4, 1), ("mlp.down", 250, 60, 4, None), ("attention", 240, 70, 4, 1),
    ]  # fmt: skip
    assert run.events.filter(kind="step").select("dur", "tokens", "context").rows() == [(300, 1, 7)]
    assert run.events.filter(kind="counter").select("name", "value", "unit").rows() == [("power", 71.5, "W")]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("rank", [None, 3])
@pytest.mark.parametrize("rows", [[], [0, 100, 5, 1, 110, 20]])
@pytest.mark.parametrize(
    "facts",
    [
        {"phase": None, "track": None, "tokens": None, "batch": None, "context": None, "shape": None},
        {"phase": "decode", "track": None, "tokens": 1, "batch": 2, "context": 3, "shape": None},
        {"phase": 'for%s"é', "track": "gpu 0 / 1", "tokens": None, "batch": 8, "context": 0, "shape": "8x3"},
    ],
)
def test_a_step_with_rows_is_the_two_records_that_it_stands_for(
    facts: dict[str, Any], rows: list[int], rank: int | None, tmp_path: Path
) -> None:
    written = []
    for way in ("one call", "two calls"):
        emitter = Emitter(tmp_path / way, rank=rank)
        emitter.run("one", id="1")
        if way == "one call":
            began = now()
            lines = emitter.encoder.encode_step(rows, step=7, start=100, duration=30, name="s%d", **facts)
            emitter.steps(lines, began)
        else:
            emitter.columns(rows[::3], rows[1::3], rows[2::3], step=7, phase=facts["phase"])
            emitter.event("step", "s%d", t=100, dur=30, step=7, **facts)
        emitter.end()
        lines = (tmp_path / way).read_bytes().splitlines(keepends=True)[1:]
        assert all(map(is_intact, lines))
        written.append([{**json.loads(line), "crc": None} for line in lines])
    assert written[0] == written[1] and len(written[0]) == 2 + bool(rows)


def test_the_clock_pair_is_one_instant() -> None:
    mono, unix = read_clock_pair()
    other_mono, other_unix = read_clock_pair()
    assert mono <= now()
    assert abs((other_unix - unix) - (other_mono - mono)) < 50_000_000


def test_lines_wait_at_most_a_tenth_of_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.jsonl"
    clock = iter(range(0, 10**12, 20_000_000))
    monkeypatch.setattr(capture.native.emit, "now", lambda: next(clock))
    emitter = Emitter(path)
    emitter.run("mine")
    sizes = []
    for n in range(20):
        emitter.mark(f"{n}")
        sizes.append(path.stat().st_size)
    assert 3 < len(set(sizes)) < 20, "some calls write, others wait"
    emitter.end()


class Disk:
    """A disk that refuses after so many bytes, until it is freed."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.write = os.write

    def __call__(self, fd: int, data: bytes) -> int:
        if self.room <= 0:
            raise OSError(28, "No space left on device")
        done = self.write(fd, data[: self.room])
        self.room -= done
        return done


def emit_steps(emitter: Emitter) -> None:
    emitter.run("mine", id="one")
    emitter.plan([{"id": i, "name": f"op {i}"} for i in range(OPS)])
    for step in range(10):
        emitter.columns(range(OPS), starts(step), durations(step), step=step)
        emitter.flush()


def rooms(path: Path) -> list[int]:
    """Sizes at which a disk fills within a line, right before its end, and right after it."""
    emit_steps(Emitter(path))
    ends = list(accumulate(len(line) for line in path.read_bytes().splitlines(keepends=True)))
    return [0, 1, *(end + d for end in ends[:4] for d in (-40, -1, 0, 1))]


@pytest.mark.parametrize("kept", [0, 1 << 20])
def test_a_full_disk_costs_events_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    for room in rooms(tmp_path / "dry.jsonl"):
        path = tmp_path / f"{room}.jsonl"
        disk = Disk(room)
        with monkeypatch.context() as patched:
            patched.setattr(capture.native.emit.os, "write", disk)
            patched.setattr(capture.native.emit, "MAX_WAITING_BYTES", kept)
            emitter = Emitter(path)
            emit_steps(emitter)
            disk.room = 1 << 30
            emitter.flush()
            emitter.end()
        check_after_full_disk(read(path), emitter.lost, lossy=kept == 0)


def test_a_disk_that_fills_up_in_the_last_write_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that is cut short is no error yet: what it left out must not pass for written."""
    emitter = Emitter(tmp_path / "out.jsonl")
    monkeypatch.setattr(capture.native.emit.os, "write", Disk(100))
    emitter.columns(range(OPS), starts(0), durations(0), step=0)
    emitter.end()
    assert emitter.unwritten == f"{OPS} events could not be written: no space left on device"


@pytest.mark.parametrize("missing", [1, 20])
def test_another_writer_behind_a_line_without_its_newline_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    """The line of the first writer lacks its newline, or more; the other does not know that and goes on."""
    path = tmp_path / "out.jsonl"
    first, other = Emitter(path, writer=1), Emitter(path, writer=2)
    first.run("mine", id="one")
    other.mark("before")
    for emitter in (first, other):
        emitter.flush()
    first.mark("cut")
    with monkeypatch.context() as patched:
        dry = Emitter(tmp_path / "dry.jsonl", writer=1)
        dry.mark("cut")
        dry.flush()
        patched.setattr(
            capture.native.emit.os, "write", Disk((tmp_path / "dry.jsonl").stat().st_size - missing)
        )
        first.flush()
    other.mark("behind")
    other.flush()
    first.mark("later")
    for emitter in (first, other):
        emitter.end()
    run = read(path)
    assert sorted(text(run)) == ["before", "behind", "cut", "later"]
    assert run.log.dropped == (missing > 1)  # the torn piece, of which the whole comes later


def test_a_line_of_many_records_is_read_at_once(tmp_path: Path) -> None:
    """Each part is tried once, whatever lacks its newline: no count of lines in one is too large."""
    path, count = tmp_path / "out.jsonl", 3_000
    emitter = Emitter(path, writer=1)
    emitter.run("mine", id="one")
    for number in range(count):
        emitter.mark(f"mark {number}")
    emitter.flush()
    head, *lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(head + b"".join(lines).replace(b"\n", b"") + b"\n")
    run = read(path)
    assert len(text(run)) == count and run.log.dropped == 0


def check_after_full_disk(run: Run, lost: int, *, lossy: bool) -> None:
    kernels = run.events.filter(kind="kernel")
    assert kernels.height + lost == 10 * OPS and (lost > 0) == lossy
    truth = {(f"op {i}", d) for step in range(10) for i, d in enumerate(durations(step))}
    kept = {(row["name"], row["dur"]) for row in kernels.iter_rows(named=True)}
    assert kept <= truth and len(kept) == kernels.height
    said = [name for name in text(run) if "could not be written" in name]
    assert said == ([f"{lost} events could not be written: no space left on device"] if lossy else [])
    assert {n.id: n.count for n in run.log.notices}.get("lost_by_writer", 0) == lost


def test_a_file_that_ends_within_a_line_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b'{"kind":"run","schema":1,"id":"x"}\n{"kind":"kern')
    emitter = Emitter(path)
    emitter.run("second")
    emitter.event("kernel", "k", dur=1)
    emitter.end()
    runs = load(path, cache=False)
    assert [run.name for run in runs] == ["out", "second"]
    assert runs[1].events.height == 1


def test_threads_share_an_emitter(tmp_path: Path) -> None:
    emitter = Emitter(tmp_path / "out.jsonl")
    emitter.run("mine")

    def work(n: int) -> None:
        for i in range(500):
            emitter.event("kernel", f"k{n}", dur=i, t=i)
            if i % 50 == 0:
                emitter.flush()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    emitter.end()
    run = read(tmp_path / "out.jsonl")
    assert run.log.notices == ()
    assert sorted(run.events.select("name", "dur").rows()) == [
        (f"k{n}", i) for n in range(4) for i in range(500)
    ]


PROGRAM = """
import os, sys
from capture.native.emit import Emitter
rank = int(sys.argv[2])
emitter = Emitter(sys.argv[1], rank=rank)
emitter.run("shared", id="one")
emitter.plan([{"id": 0, "name": f"op of {rank}"}])
for step in range(2000):
    emitter.columns([0, 0], [step, step + 1], [step, rank], step=step)
    if step % 20 == 0:
        emitter.flush()
    if step == 1000 and os.fork() == 0:
        emitter.mark("a forked child has no say")
        emitter.end()
        os._exit(0)
emitter.end()
"""


def test_writers_and_their_forks_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    command = [sys.executable, "-c", PROGRAM, str(path)]
    writers = [subprocess.Popen([*command, str(rank)]) for rank in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    run = read(path)
    assert run.log.notices == () and run.events.height == 3 * 4000
    for rank in range(3):
        mine = run.events.filter(pl.col("track") == f"rank {rank}")
        assert set(text(Run("", {}, mine, run.log))) == {f"op of {rank}"}
        assert mine["dur"].to_list() == [x for step in range(2000) for x in (step, rank)]


@pytest.mark.slow
def test_kill_9_at_any_moment_costs_at_most_a_tenth_of_a_second(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "tests.capture._storm", str(tmp_path), "200"], check=True)
    survivors = 0
    for n in range(200):
        acks = Path(f"{tmp_path}/{n}.jsonl.acks").read_bytes()
        actual = [ACK.unpack_from(acks, at) for at in range(0, len(acks) - ACK.size + 1, ACK.size)]
        if actual[-1][1] - actual[0][1] < 100_000_000:
            continue
        survivors += 1
        run = read(tmp_path / f"{n}.jsonl")
        last = actual[-1][1]
        kernels = run.events.filter(kind="kernel")
        promised = {step for step, at in actual if at < last - 100_000_000}
        steps = {step: frame for (step,), frame in kernels.group_by("step", maintain_order=True)}
        assert promised <= steps.keys()
        for step, frame in steps.items():
            assert frame["t"].to_list() == starts(step) and frame["dur"].to_list() == durations(step)
        assert run.log.dropped <= 1
    assert survivors > 60


def test_a_disk_that_stays_full_leaves_the_loss_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk has room only for what is taken away."""
    for room in [room for room in rooms(tmp_path / "dry.jsonl") if room > 700]:
        path = tmp_path / f"{room}.jsonl"
        disk = Disk(room)

        def truncate(fd: int, size: int, disk: Disk = disk) -> None:
            disk.room += os.fstat(fd).st_size - size
            os.truncate(fd, size)

        with monkeypatch.context() as patched:
            patched.setattr(capture.native.emit.os, "write", disk)
            patched.setattr(capture.native.emit.os, "ftruncate", truncate)
            emitter = Emitter(path)
            emit_steps(emitter)
            emitter.end()
        run = read(path)
        assert run.events.filter(kind="kernel").height + emitter.lost == 10 * OPS
        assert {n.id: n.count for n in run.log.notices} == {"lost_by_writer": emitter.lost}
        assert emitter.unwritten == f"{emitter.lost} events could not be written: no space left on device"


def test_a_removed_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    emitter = Emitter(tmp_path / "out.jsonl")
    emit_steps(emitter)
    (tmp_path / "out.jsonl").unlink()
    assert emitter.unwritten == ""
    emitter.end()
    assert emitter.unwritten == f"{10 * OPS} events could not be written: the file was removed"
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("takes_number", [True, False])
def test_a_file_that_the_program_closed_is_opened_again_and_its_own_left_alone(
    takes_number: bool, tmp_path: Path
) -> None:
    """Daemons close all that they inherited; the number may then be a file of theirs."""
    out, own = tmp_path / "prof.jsonl", tmp_path / "own.txt"
    emitter = Emitter(out)
    emitter.run("one")
    os.close(emitter._fd)
    number = os.open(own, os.O_WRONLY | os.O_CREAT) if takes_number else -1
    if takes_number:
        os.dup2(number, emitter._fd)
    emitter.step(1, 100, 5)
    emitter.end()
    assert [json.loads(line)["kind"] for line in out.read_text().splitlines()] == ["run", "step", "end"]
    assert not takes_number or (not own.stat().st_size and os.write(number, b"mine"))


def test_a_file_has_a_number_that_no_file_of_the_program_has(tmp_path: Path) -> None:
    with (tmp_path / "first").open("w") as first:
        emitter = Emitter(tmp_path / "prof.jsonl")
        with (tmp_path / "second").open("w") as second:
            assert second.fileno() < emitter._fd and first.fileno() < emitter._fd
        assert not os.get_inheritable(emitter._fd)
        emitter.end()


def test_the_clock_goes_on_though_the_program_has_stopped_its_own() -> None:
    code = """
import time
time.perf_counter_ns = time.time_ns = time.time = lambda: 5
from capture.native.emit import now, read_clock_pair
before = now()
print(now() > before > 5, read_clock_pair()[1] > 1e18, time.perf_counter_ns(), time.time_ns())
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "True True 5 5\n"
