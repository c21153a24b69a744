"""A recording in parts is the recording in one file: read, followed, and by several writers."""

import os
from pathlib import Path

import pytest

from capture.load_runs import load, load_all
from capture.native import emit
from capture.native.emit import Emitter
from capture.native.parts import SIZE_VARIABLE, build_part_path, list_earlier_parts, parse_part_count
from capture.native.tail import FileTail
from capture.run import Run

OPS = 12
SIZE = 1 << 16
STEPS = 2000
PLAN = [{"id": i, "name": f"op {i}", "layer": i, "lens": "gpu"} for i in range(OPS)]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SIZE_VARIABLE, str(SIZE))
    monkeypatch.setattr(emit, "PART_CHECK_INTERVAL_NS", 0)


def writer(path: Path, rank: int | None = None, meta: str = "tiny") -> Emitter:
    emitter = Emitter(path, rank=rank)
    emitter.run("long", {"model": meta}, id="one")
    emitter.plan(PLAN)
    return emitter


def write(emitter: Emitter, steps: range) -> None:
    for step in steps:
        starts = [step * 10**6 + i * 10 for i in range(OPS)]
        emitter.columns(range(OPS), starts, [step + i for i in range(OPS)], step=step)
        if step % 10 == 9:
            emitter.flush()


def parts(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def rows(run: Run) -> list[tuple[int, int, str]]:
    kernels = run.events.filter(run.events["kind"] == "kernel").sort("t", "layer")
    return list(zip(kernels["t"], kernels["dur"], kernels["name"].cast(str), strict=True))


def truth(steps: int) -> list[tuple[int, int, str]]:
    return [(s * 10**6 + i * 10, s + i, f"op {i}") for s in range(steps) for i in range(OPS)]


def recorded(folder: Path, steps: int = STEPS) -> Path:
    path = folder / "prof.jsonl"
    emitter = writer(path)
    write(emitter, range(steps))
    emitter.end()
    return path


def test_parts_open_as_one_recording(tmp_path: Path) -> None:
    path = recorded(tmp_path)
    names = parts(tmp_path)
    assert len(names) > 4 and names[:2] == ["prof.1.jsonl", "prof.2.jsonl"] and names[-1] == "prof.jsonl"
    assert all(p.stat().st_size < SIZE + 8192 for p in tmp_path.iterdir())
    (run,) = load(path)
    assert rows(run) == truth(STEPS) and run.log.dropped == 0 and run.log.notices == ()
    assert run.meta["model"] == "tiny"
    (again,) = load_all([tmp_path])
    assert rows(again) == truth(STEPS)
    named = [tmp_path / name for name in reversed(names)]
    (third,) = load_all(named)
    assert rows(third) == truth(STEPS)


def test_a_part_opens_alone_and_a_missing_one_is_told(tmp_path: Path) -> None:
    path = recorded(tmp_path)
    (first,) = load(tmp_path / "prof.1.jsonl")
    assert rows(first) == truth(len(rows(first)) // OPS) and 0 < len(rows(first)) < STEPS * OPS
    (tmp_path / "prof.2.jsonl").unlink()
    (run,) = load(path)
    kept = rows(run)
    assert set(kept) < set(truth(STEPS)) and kept[0] == truth(1)[0] and kept[-1] == truth(STEPS)[-1]
    (actual,) = (n for n in run.log.notices if n.id == "missing_part")
    assert (actual.count, actual.severity) == (1, "data_loss")


def test_a_reader_that_sleeps_over_some_parts_misses_none(tmp_path: Path) -> None:
    path = tmp_path / "prof.jsonl"
    emitter, follow = writer(path), FileTail(path)
    emitter.flush()
    for begin in range(0, STEPS, 100):
        write(emitter, range(begin, begin + 100))
        if begin % 700 == 0:
            follow.poll()
    emitter.end()
    while follow.poll():
        pass
    (run,) = follow.build_runs()
    assert run.log.dropped == 0 and follow.state == "ended"
    assert run.events.filter(run.events["kind"] == "kernel")["dur"].sum() == sum(
        d for _, d, _ in truth(STEPS)
    )


def test_a_reader_that_comes_late_reads_the_parts_before(tmp_path: Path) -> None:
    path = recorded(tmp_path, 600)
    follow = FileTail(path)
    while follow.poll():
        pass
    (run,) = follow.build_runs()
    assert rows(run) == truth(600)


def test_all_writers_of_a_file_go_on_together(tmp_path: Path) -> None:
    path = tmp_path / "prof.jsonl"
    one, other = writer(path, rank=0), writer(path, rank=1)
    sampler = Emitter(path, reports_cost=False)
    for begin in range(0, 800, 10):
        write(one, range(begin, begin + 10))
        write(other, range(begin, begin + 10))
        sampler.counter("power", float(begin), "W")
        sampler.flush()
    one.end(), other.end(), sampler.close()
    assert len(parts(tmp_path)) > 3
    (run,) = load(path)
    for rank in ("rank 0", "rank 1"):
        mine = run.events.filter((run.events["track"] == rank) & (run.events["kind"] == "kernel"))
        assert mine["dur"].sum() == sum(d for _, d, _ in truth(800)) and mine.height == 800 * OPS
    power = run.events.filter(run.events["name"] == "power")
    assert sorted(power["value"]) == [float(b) for b in range(0, 800, 10)]
    last = load(tmp_path / "prof.1.jsonl")
    assert {str(t) for t in last[0].events["track"].drop_nulls()} == {"rank 0", "rank 1"}


def test_what_cannot_be_moved_goes_on_in_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refused)
    path = recorded(tmp_path)
    assert parts(tmp_path) == ["prof.jsonl"]
    (run,) = load(path, cache=False)
    assert rows(run) == truth(STEPS)


def test_another_recording_of_that_name_is_no_part(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    recorded(tmp_path / "a", 50).rename(tmp_path / "prof.1.jsonl")
    emitter = Emitter(tmp_path / "prof.jsonl")
    emitter.run("other", id="two")
    emitter.event("kernel", "k", t=1, dur=7)
    emitter.end()
    (run,) = load(tmp_path / "prof.jsonl")
    assert run.name == "other" and run.events["dur"].to_list() == [7]
    assert len(load_all([tmp_path])) == 2


@pytest.mark.parametrize(
    ("line", "count"),
    [(b'{"kind":"run","part":3}', 3), (b'{"kind":"run","part":-1}', 0), (b'{"kind":"run","part":true}', 0),
     (b'{"part":', 0), (b'["part": 1]', 0), (b'{"kind":"run"}', 0), (b'{"part":99999999999}', 0)],
)  # fmt: skip
def test_how_many_parts_came_before(line: bytes, count: int) -> None:
    assert parse_part_count(line) == count


def test_parts_are_named_by_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.b.jsonl"
    for number in (1, 3):
        Path(build_part_path(path, number)).touch()
    assert [Path(p).name for p in list_earlier_parts(path, b'{"part":3}')] == ["a.b.1.jsonl", "a.b.3.jsonl"]
    assert list_earlier_parts(path, b'{"part":3}', after=3) == []


@pytest.mark.parametrize("link", [False, True])
def test_a_foreign_file_at_the_path_is_left_alone(tmp_path: Path, link: bool) -> None:
    """The user moves the recording away, and puts another file or a link there, while it is written."""
    path, other = tmp_path / "prof.jsonl", tmp_path / "other"
    other.write_text('{"traceEvents": []}\n')
    emitter, sampler = writer(path), Emitter(path, reports_cost=False)
    write(emitter, range(20))
    sampler.counter("power", 1.0)
    sampler.flush()
    path.rename(tmp_path / "kept.jsonl")
    if link:
        path.symlink_to(other)
    else:
        other.rename(path)
    for each in (emitter, sampler):
        write(each, range(20, 40))
        each.end()
    assert path.read_text() == '{"traceEvents": []}\n'
    (run,) = load(tmp_path / "kept.jsonl")
    assert {"power", "op 0"} <= set(run.events["name"].cast(str))
    assert run.events.filter(run.events["kind"] == "kernel").height == 2 * 40 * OPS - 20 * OPS


def test_another_run_at_the_path_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "prof.jsonl"
    emitter = writer(path)
    write(emitter, range(20))
    path.rename(tmp_path / "kept.jsonl")
    second = Emitter(path)
    second.run("second", id="two")
    second.flush()
    before = path.read_bytes()
    write(emitter, range(20, 400))
    assert path.read_bytes() == before


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_the_parameters_of_ranks_the_most_count(tmp_path: Path, order: tuple[int, int]) -> None:
    """Stages of a pipeline have parts of the model, and either may write first."""
    for rank in order:
        emitter = Emitter(tmp_path / "prof.jsonl", rank=rank)
        emitter.run("pipe", {"model": "Stage", "parameters": 1000 + rank}, id="one")
        emitter.plan(PLAN)
        write(emitter, range(10))
        emitter.close()
    (run,) = load(tmp_path / "prof.jsonl", cache=False)
    assert run.meta["parameters"] == 1001
