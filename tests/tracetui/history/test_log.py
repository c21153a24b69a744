"""`tracetui log`: what a part holds, that nothing is added twice or lost, and what damaged ones say."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import polars as pl
import pytest

from capture.export_runs import export
from capture.load_runs import load
from capture.native.schema import UNWATCHED_NAME
from tests.conftest import shared
from tests.tracetui.in_process import tracetui
from tests.tracetui.process.test_engine_process import until
from tests.tracetui.runs import decode, made
from tracetui.history import part_index
from tracetui.history.git import Commit, find_commit
from tracetui.history.part import COLUMNS, PART_SCHEMA, build_part, encode_part
from tracetui.history.part_index import read_log
from tracetui.history.run_log import RunLog
from tracetui.samples import find_sample

SMALL_BYTES = 200_000  # of a part of 300 steps


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    export([decode()], tmp_path / "a.jsonl", overwrite=True)
    return tmp_path / "a.jsonl"


def test_part_holds_medians_of_steps_after_the_warm_up() -> None:
    run = decode(steps=300)
    part = build_part(run)
    row = part.row(by_predicate=(pl.col("name") == "ffn_down") & (pl.col("phase") == "decode"), named=True)
    # 4 layers of 400 µs in a step of 2 tokens
    assert (row["median_ns"], row["per"], row["steps"], row["launches"]) == (800_000, "token", 300, 1200)
    attention = part.row(
        by_predicate=(pl.col("name") == "attention") & (pl.col("phase") == "decode"), named=True
    )
    contexts = 10 + 2 * np.arange(1, 301)
    np.testing.assert_allclose(attention["median_ns"], np.median((100 + 10 * contexts) * 4 * 1000 / 2))
    assert attention["context"] == np.median(contexts)
    power = part.row(by_predicate=pl.col("name") == "power", named=True)
    assert (power["kind"], power["value"], power["unit"]) == ("machine", 250.0, "W")
    assert part.filter(pl.col("kind") == "step").height == 301
    assert len(encode_part(part)) < SMALL_BYTES


def test_steps_without_records_of_their_rows_are_no_zeros() -> None:
    rows: list[dict[str, Any]] = []
    for step in range(1, 41):
        facts = {"step": step, "phase": "decode", "t": 1000 * step, "lens": "wall", "op": "host", "tokens": 1}
        is_watched = step % 5 > 0
        row = {"kind": "kernel", "name": "mlp"} if is_watched else {"kind": "span", "name": UNWATCHED_NAME}
        rows += [{**facts, "kind": "step", "name": "decode", "dur": 900}, {**facts, **row, "dur": 600}]
        rows.append({**facts, "kind": "kernel", "name": "sampling", "t": 1000 * step + 700, "dur": 100})
    part = build_part(made(rows))
    lines = {(kind, name): stats for kind, name, *stats in part.select(
        "kind", "name", "steps", "min_ns", "p05_ns", "mean_ns", "median_ns"
    ).iter_rows()}  # fmt: skip
    assert lines["row", "mlp"] == [32, 600, 600, 600, 600]
    assert lines["row", "sampling"] == [32, 100, 100, 100, 100]
    assert lines["phase", "kernels"] == [32, 700, 700, 700, 700]
    assert lines["phase", "step"][0] == 40


def test_part_of_real_recording_is_small() -> None:
    part = build_part(load(shared("samples/repeats_mixed/qa1.jsonl.gz"))[0])
    assert len(encode_part(part)) < SMALL_BYTES / 5
    assert part["started"][0].year == 2026 and part["versions"][0] == "torch 2.13.0+cpu, python 3.11.7"


def test_same_run_in_another_file_adds_nothing(recording: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert "1 runs added" in tracetui("log", "add", recording, "--to", log).stderr
    other = tmp_path / "b.parquet"
    export([load(recording)[0]], other, overwrite=True)
    again = tracetui("log", "add", other, "--to", log)
    assert again.returncode == 0 and "0 runs added" in again.stderr and "1 already there" in again.stderr
    assert len(list(log.iterdir())) == 1


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    log = RunLog(str(tmp_path / "log"))
    parts = [build_part(decode(steps=8 + i)) for i in range(6)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(log.add, parts * 3))
    assert len(log.list_parts()) == 6
    assert sum(is_new for _, is_new in results) == 6


@pytest.mark.slow
def test_kills_of_log_add_lose_no_part_and_leave_none_half(tmp_path: Path, kills: int = 4) -> None:
    old, log, random = tmp_path / "old", RunLog(str(tmp_path / "log")), Random(1)
    old.mkdir()
    for i in range(24):
        export([decode(steps=8 + i)], old / f"{i}.jsonl", overwrite=True)
    command = [sys.executable, "-m", "tracetui", "log", "add", str(old), "--to", log.address]
    parts: dict[str, bytes] = {}
    for _ in range(kills):
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as adding:
            if random.random() < 0.5 and len(parts) < 24:  # while it writes
                until(lambda: adding.poll() is not None or len(list_parts(log)) > len(parts), 60)
                time.sleep(random.uniform(0, 0.1))
            else:
                time.sleep(random.uniform(0, 1))
            adding.kill()
        names = list_parts(log)
        assert {*parts} <= {*names}
        for name in names:
            assert log.read(name).height
            content = (Path(log.address) / name).read_bytes()
            assert parts.setdefault(name, content) == content
        if len(parts) == 24:  # from new
            for name in parts:
                log.remove(name)
            parts.clear()
    subprocess.run(command, check=True, capture_output=True)
    assert read_log(log).runs.height == len(log.list_parts()) == 24


def list_parts(log: RunLog) -> list[str]:
    return log.list_parts() if Path(log.address).exists() else []


def test_folder_is_taken_in_with_progress_and_damaged_file_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    for i in range(3):
        export([decode(steps=8 + i)], folder / f"{i}.jsonl", overwrite=True)
    (folder / "broken.jsonl").write_text("no profile\n")
    done = tracetui("log", "add", folder, "--to", tmp_path / "log")
    assert done.returncode == 0
    assert "3 runs added" in done.stderr
    listed = json.loads(tracetui("log", "--log", tmp_path / "log", "--format", "json").stdout)
    assert [row["model"] for row in listed["rows"]] == ["toy-1b"] * 3


def test_tags_select_runs(recording: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    tracetui("log", "add", recording, "--to", log, "--tag", "nightly=yes")
    assert "toy-1b" in tracetui("log", "--log", log, "--tag", "nightly=yes").stdout
    assert "toy-1b" not in tracetui("log", "--log", log, "--tag", "nightly=no").stdout
    assert tracetui("log", "--log", log, "--tag", "nightly").returncode == 2


def test_run_is_shown_and_removed_by_start_of_its_name(recording: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    tracetui("log", "add", recording, "--to", log)
    run = json.loads(tracetui("log", "--log", log, "--format", "json").stdout)["rows"][0]["run"]
    assert "ffn_down" in tracetui("log", "show", run[:6], "--log", log).stdout
    unknown = tracetui("log", "rm", "zz", "--log", log)
    assert unknown.returncode == 2 and "no run begins with 'zz'" in unknown.stderr
    assert tracetui("log", "rm", run[:6], "--log", log).returncode == 0
    assert not list(log.iterdir())


def test_bad_part_gets_a_sentence_and_the_others_are_listed(recording: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    tracetui("log", "add", recording, "--to", log)
    newer = build_part(decode(steps=9)).with_columns(schema=pl.lit(PART_SCHEMA + 1, pl.Int32))
    newer.write_parquet(log / "newer.parquet")
    (log / "torn.parquet").write_bytes(encode_part(build_part(decode(steps=10)))[:900])
    pl.DataFrame({"a": [1]}).write_parquet(log / "other.parquet")
    listed = tracetui("log", "--log", log)
    assert listed.returncode == 0 and "1 runs in" in listed.stdout
    lines = listed.stderr.splitlines()
    assert len(lines) == 3
    assert "newer.parquet: has schema 2, newer than 1; update tracetui" in lines[0]
    assert "other.parquet: is no part of a log" in lines[1] and "torn.parquet: is a damaged part" in lines[2]
    assert tracetui("log", "--log", log, "--strict").returncode == 4
    assert tracetui("log", "show", "torn", "--log", log).returncode == 3
    for name in log.glob("2*"):
        name.unlink()
    for name in log.glob("und*"):
        name.unlink()
    assert tracetui("log", "--log", log).returncode == 3


def test_missing_log_is_a_question_of_usage(tmp_path: Path) -> None:
    done = tracetui("log", "--log", tmp_path / "none")
    assert done.returncode == 2 and "there is no log" in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_read_only_folder_is_said(recording: Path, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir(mode=0o500)
    done = tracetui("log", "add", recording, "--to", tmp_path / "log")
    assert done.returncode == 3 and "cannot be written (permission denied)" in done.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs sysfs")
def test_file_system_that_takes_no_files_is_said(recording: Path) -> None:
    """In sysfs nobody makes a folder, not even root."""
    done = tracetui("log", "add", recording, "--to", "/sys/log")
    assert done.returncode == 3 and "/sys/log: cannot be written (" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_path_that_is_a_file_is_said(recording: Path) -> None:
    done = tracetui("log", "add", recording, "--to", recording)
    assert done.returncode == 3 and "cannot be written" in done.stderr


def test_leftover_of_killed_writer_is_no_run_and_is_removed(recording: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    tracetui("log", "add", recording, "--to", log)
    leftover = log / ".20260101T000000-00.parquet.abcdef"
    leftover.write_bytes(b"half")
    os.utime(leftover, (0, 0))
    assert "1 runs in" in tracetui("log", "--log", log).stdout
    assert "1 unfinished files removed; 1 runs" in tracetui("log", "gc", "--log", log).stderr
    assert not leftover.exists()


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "repository"
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    folder.mkdir()
    (folder / "f").write_text("1")
    for words in (["init", "-q"], ["add", "f"], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *words], check=True)
    yield folder


def test_commit_is_that_of_the_current_folder_for_younger_files(
    repository: Path, recording: Path, tmp_path: Path
) -> None:
    commit = find_commit(repository)
    assert isinstance(commit, Commit) and len(commit.name) == 40 and not commit.is_changed_tree
    log, old = tmp_path / "log", tmp_path / "old.jsonl"
    export([decode(steps=9)], old, overwrite=True)
    os.utime(old, (0, 0))
    tracetui("log", "add", recording, old, "--to", log, cwd=repository)
    tables = read_log(RunLog(str(log)))
    assert set(tables.runs["commit"]) == {None, commit.name}
    assert find_commit(tmp_path) is None


@pytest.mark.slow
def test_recorder_adds_its_run(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = tmp_path / "p.py"
    program.write_text(
        "import torch\nmodel = torch.nn.Linear(8, 8)\nfor _ in range(4):\n    model(torch.zeros(1, 8))\n"
    )
    log = tmp_path / "log"
    words = [
        "record",
        "-o",
        str(tmp_path / "r.jsonl"),
        "--to-log",
        str(log),
        "--",
        sys.executable,
        str(program),
    ]
    done = subprocess.run([sys.executable, "-m", "tracetui", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "1 runs added" in done.stderr and len(list(log.iterdir())) == 1


def test_index_gives_what_the_parts_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = RunLog(str(tmp_path / "log"))
    for i in range(20):
        part = build_part(decode(steps=8 + i))
        log.add(part.with_columns(started=pl.lit(datetime(2026, 1, 1 + i, tzinfo=UTC), COLUMNS["started"])))
    with monkeypatch.context() as without_cache:
        without_cache.setattr("tracetui.history.part_index._find_folder", lambda _: None)
        plain = read_log(log)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first, second = read_log(log), read_log(log)
    assert not plain.chunks and len(second.chunks) == 1
    files = plain.runs["file"].to_list()[3:7]
    for tables in (first, second):
        assert tables.runs.equals(plain.runs)
        assert tables.read_lines(files).equals(plain.read_lines(files))
    lines = part_index._name_lines(second.chunks[0])
    pl.read_parquet(lines).drop("context").write_parquet(lines)  # as before parts had one
    older = second.read_lines(files)
    assert older["context"].null_count() == older.height
    assert older.drop("context").equals(plain.read_lines(files).drop("context"))
    log.remove(files[0])
    log.add(build_part(decode(steps=50)))
    after = read_log(log)
    assert after.runs.height == 20 and files[0] not in after.runs["file"]


def test_index_of_many_parts_has_full_chunks_and_a_growing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tracetui.history.part_index.CHUNK_PARTS", 24)
    log, part = RunLog(str(tmp_path / "log")), build_part(decode(steps=8))
    for i in range(40):
        log.add(
            part.with_columns(
                run=pl.lit(f"{i:04}"),
                started=pl.lit(datetime(2026, 1, 1, i // 2, tzinfo=UTC), COLUMNS["started"]),
            )
        )
        if i in (19, 39):
            tables = read_log(log)
    assert tables.runs.height == 40 and len(tables.chunks) == 2
    files = tables.runs["file"].to_list()
    assert sorted(tables.read_lines(files)["file"].unique()) == sorted(set(files))
    files = tables.runs["file"].to_list()
    assert set(tables.read_lines(files)["file"]) == set(files)
    assert tables.read_lines(files).height == part.filter(pl.col("kind") != "step").height * 40


def test_sample_can_be_added(tmp_path: Path) -> None:
    assert find_sample("decode")
    assert tracetui("log", "add", "sample:decode", "--to", tmp_path / "log").returncode == 0


@pytest.mark.slow
def test_log_in_a_bucket(recording: Path) -> None:
    from tests.capture.served import object_store

    with object_store() as system:
        address = "s3://bucket/log"
        for expected in ("1 runs added", "1 already there"):
            done = tracetui("log", "add", recording, "--to", address)
            assert done.returncode == 0 and expected in done.stderr, done.stderr
        assert len(system.ls("bucket/log")) == 1
        listed = json.loads(tracetui("log", "--log", address, "--format", "json").stdout)["rows"]
        assert [row["model"] for row in listed] == ["toy-1b"]
        assert tracetui("log", "rm", listed[0]["run"], "--log", address).returncode == 0
        for address in ("s3://bucket/log", "s3://nobucket/log"):
            none = tracetui("log", "--log", address)
            assert none.returncode == 2 and f"{address}: there is no log" in none.stderr
        absent = tracetui("log", "add", recording, "--to", "s3://nobucket/log")
        assert absent.returncode == 3 and "s3://nobucket/log" in absent.stderr
