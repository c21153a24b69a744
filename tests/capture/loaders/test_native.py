"""The native format: what its lines mean, and that no wrong line is ever taken for a right one."""

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capture.errors import UnreadableError
from capture.loaders import native
from capture.native.line_types import BadLineError, EventLine, decode_line
from capture.native.schema import COLUMNS, seal_record
from capture.run import Run
from capture.source import Head, Source

RUN = {"kind": "run", "schema": 1, "id": "a", "name": "mine", "meta": {"model": "tiny"}, "clock": [5, 1005]}
PLAN = {
    "kind": "plan",
    "ops": [
        {"id": 0, "name": "q_proj", "layer": 0, "op": "attn.q", "category": "matmul", "lens": "wall",
         "shape": "m=1 n=1024 k=1152", "flops": [100, 0], "bytes": 64},
        {"id": 7, "name": "attention", "layer": 3, "lens": "wall",
         "flops": [10, 2], "bytes": [1, 4], "window": 16},
    ],
}  # fmt: skip
STEP = {"kind": "columns", "step": 5, "phase": "decode", "context": 17, "t": 1000,
        "op": [0, 7, 0], "dt": [5, 40, 60], "dur": [30, 50, 20]}  # fmt: skip
END = {"kind": "end", "events": 3}


def read(tmp_path: Path, *lines: dict[str, Any] | bytes) -> list[Run]:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(b"".join(x if isinstance(x, bytes) else seal_record(x) for x in lines))
    return native.load(Source.from_path(path))


def columns(run: Run, *names: str) -> list[tuple[Any, ...]]:
    return run.events.select(names).rows()


def notices(run: Run) -> dict[str, int]:
    return {n.id: n.count for n in run.log.notices}


def test_a_step_of_columns_is_its_events(tmp_path: Path) -> None:
    (run,) = read(tmp_path, RUN, PLAN, STEP, END)
    assert (run.name, run.meta) == ("mine", {"model": "tiny", "clock": [5, 1005]})
    assert columns(run, "name", "t", "dur", "step", "phase", "layer", "lens") == [
        ("q_proj", 1005, 30, 5, "decode", 0, "wall"),
        ("attention", 1045, 50, 5, "decode", 3, "wall"),
        ("q_proj", 1105, 20, 5, "decode", 0, "wall"),
    ]
    assert run.log.as_dict() | {"source": ""} == {
        "source": "", "format": "", "read": 3, "kept": 3, "repaired": 0, "dropped": 0, "notices": [],
    }  # fmt: skip


def test_laws_follow_the_context_up_to_the_window(tmp_path: Path) -> None:
    (run,) = read(tmp_path, RUN, PLAN, {**STEP, "context": 10}, STEP)
    assert columns(run, "flops", "bytes") == [
        (100, 64), (10 + 2 * 10, 1 + 4 * 10), (100, 64),
        (100, 64), (10 + 2 * 16, 1 + 4 * 16), (100, 64),
    ]  # fmt: skip


def test_a_law_without_a_context_is_unknown_not_small(tmp_path: Path) -> None:
    (run,) = read(tmp_path, RUN, PLAN, {k: v for k, v in STEP.items() if k != "context"})
    assert columns(run, "flops") == [(100.0,), (None,), (100.0,)]


def test_flat_lines_and_column_lines_mean_the_same(tmp_path: Path) -> None:
    flat = [
        {"kind": "kernel", "name": n, "t": t, "dur": d, "step": 5, "phase": "decode", "layer": layer,
         "lens": "wall", "op": op, "category": cat, "shape": shape, "flops": f, "bytes": b}
        for n, t, d, layer, op, cat, shape, f, b in (
            ("q_proj", 1005, 30, 0, "attn.q", "matmul", "m=1 n=1024 k=1152", 100, 64),
            ("attention", 1045, 50, 3, "attn.core", "attention", None, 42, 65),
            ("q_proj", 1105, 20, 0, "attn.q", "matmul", "m=1 n=1024 k=1152", 100, 64),
        )
    ]  # fmt: skip
    (one,) = read(tmp_path, RUN, PLAN, STEP, END)
    (other,) = read(tmp_path, RUN, *flat, END)
    assert one.events.equals(other.events)


def test_lines_by_hand_need_no_checksum_and_no_run_line(tmp_path: Path) -> None:
    (run,) = read(tmp_path, b'{"kind": "kernel", "name": "gemm", "dur": 12}\n{"name":"a","kind":"mark"}')
    assert (run.name, columns(run, "kind", "name", "dur")) == (
        "mine", [("kernel", "gemm", 12), ("mark", "a", None)],
    )  # fmt: skip
    assert run.log.notices == ()


def test_a_run_without_its_end_says_so_and_loses_nothing(tmp_path: Path) -> None:
    (run,) = read(tmp_path, RUN, PLAN, STEP)
    assert notices(run) == {"no_end": 1} and not run.log.lost_data


def test_writers_are_told_apart_and_each_ends_by_itself(tmp_path: Path) -> None:
    second = {**RUN, "rank": 1, "clock": [5, 1005 + 10**9]}
    lines = (RUN, PLAN, STEP, second, {**PLAN, "rank": 1}, {**STEP, "rank": 1}, END)
    (run,) = read(tmp_path, *lines)
    assert run.events["track"].cast(pl.String).to_list() == [None] * 3 + ["rank 1"] * 3
    assert run.events["t"].to_list()[3] == 1005 + 10**9, "another host's clock is moved onto the first's"
    assert notices(run) == {"no_end": 1}
    (run,) = read(tmp_path, *lines, {**END, "rank": 1})
    assert notices(run) == {}


def test_appended_runs_are_apart(tmp_path: Path) -> None:
    runs = read(tmp_path, RUN, PLAN, STEP, END, {**RUN, "id": "b", "name": "next"}, {**PLAN}, STEP, STEP, END)
    assert [(run.name, run.events.height) for run in runs] == [("mine", 3), ("next", 6)]


def test_counters_before_the_run_line_belong_to_the_run(tmp_path: Path) -> None:
    counter = {"kind": "counter", "name": "power", "t": 1, "value": 70.5, "unit": "W"}
    (run,) = read(tmp_path, counter, RUN, PLAN, STEP, END)
    assert run.name == "mine" and run.events.height == 4


def test_what_a_writer_could_not_write_is_a_loss(tmp_path: Path) -> None:
    (run,) = read(tmp_path, RUN, PLAN, STEP, {"kind": "end", "events": 5, "lost": 4, "reason": "disk full"})
    assert notices(run) == {"missing_events": 2, "lost_by_writer": 4} and run.log.lost_data
    assert "disk full" in run.log.notices[1].message


@pytest.mark.parametrize(
    ("line", "id", "dropped"),
    [
        (seal_record(STEP)[:60] + b"\n", "torn_line", 1),
        (seal_record(STEP).replace(b"[30,", b"[31,"), "corrupt_line", 1),
        (seal_record({**STEP, "dur": [1, 2]}), "uneven_line", 3),
        (seal_record({**STEP, "op": [0, 9, 0]}), "unknown_op", 1),
        (seal_record({**STEP, "dur": [1, -2, 3]}), "bad_duration", 1),
        (seal_record({**STEP, "dur": [1, "2", 3]}), "bad_line", 1),
        (seal_record({**STEP, "dur": [1, 2**63, 3]}), "bad_line", 1),
        (seal_record({"kind": "kernel", "name": "k", "dur": 1, "lens": "magnifying"}), "bad_line", 1),
        (seal_record({"kind": "kernel", "name": "k", "dur": -1}), "bad_duration", 1),
        (seal_record({"kind": "dance", "name": "k"}), "unknown_kind", 1),
        (b"\xff\xfe\x00\n", "torn_line", 1),
        (b"[" * 100_000 + b"\n", "unknown_kind", 1),
        (b'{"kind":"run","schema":1,"meta":{"a":' + b"[" * 100_000 + b"\n", "torn_line", 1),
        (seal_record({"kind": "plan", "ops": [{"id": 0, "name": "other"}]}), "op_twice", 1),
        (seal_record({"kind": "plan", "ops": [{"id": 1}]}), "bad_op", 1),
    ],
)
def test_a_bad_line_costs_itself_only(tmp_path: Path, line: bytes, id: str, dropped: int) -> None:
    (run,) = read(tmp_path, RUN, PLAN, STEP, line, STEP, END)
    assert notices(run) == {id: dropped} and run.log.lost_data
    kept = columns(run, "name", "t", "dur")
    for good in (("q_proj", 1005, 30), ("attention", 1045, 50), ("q_proj", 1105, 20)):
        assert kept.count(good) >= 2
    assert run.log.retained == len(kept)


def test_a_hostile_distance_bends_no_other_line(tmp_path: Path) -> None:
    (run,) = read(tmp_path, RUN, PLAN, {**STEP, "dt": [2**63 - 1, 2**63 - 1, 5]}, STEP)
    assert run.events["t"].to_list()[3:] == [1005, 1045, 1105]


def test_unknown_keys_are_counted(tmp_path: Path) -> None:
    (run,) = read(tmp_path, RUN, PLAN, {**STEP, "mood": "good"}, END)
    assert notices(run) == {"unknown_keys": 1} and run.events.height == 3
    assert "mood" in run.log.notices[0].message


def test_a_newer_schema_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match=r"version 2 of the format; this tracetui reads 1; update"):
        read(tmp_path, {**RUN, "schema": 2})


def test_tables_come_in_pieces(tmp_path: Path) -> None:
    piece = {"kind": "table", "name": "paths", "types": {"n": "Int64", "w": "List(Float64)"}}
    (run,) = read(
        tmp_path, RUN, PLAN, STEP, {**piece, "columns": {"n": [1], "w": [[1.5]]}},
        {**piece, "columns": {"n": [2, None], "w": [[], None]}}, END,
    )  # fmt: skip
    assert run.tables["paths"].rows() == [(1, [1.5]), (2, []), (None, None)]


def test_no_text_of_the_file_gets_past_the_door(tmp_path: Path) -> None:
    """An escape in any place where a line may hold text comes out as nothing that a terminal obeys."""
    bad = "a\x1b[2Jb\u202e"
    texts = dict.fromkeys(("name", "op", "track", "path", "shape", "unit", "phase"), bad)
    types = {"s": "String", "c": "Categorical", "l": "List(String)", bad: "Int64"}
    notice = {"id": bad, "severity": "notice", "count": 1, "message": bad}
    saved = {"source": bad, "format": bad, "read": 1, "repaired": 0, "dropped": 0, "notices": [notice]}
    (run,) = read(
        tmp_path,
        {**RUN, "name": bad, "meta": {bad: [bad, {bad: bad}]}},
        {"kind": "plan", "ops": [{"id": 0, **texts}, {"id": 1, "name": "x"}], bad: 1},
        {"kind": "log", "log": saved},
        {**STEP, "op": [0, 1, 0], "phase": bad},
        {"kind": "kernel", "dur": 1, **texts, bad: 2},
        {"kind": "table", "name": bad, "types": types,
         "columns": {"s": [bad], "c": [bad], "l": [[bad]], bad: [1]}},
        {"kind": "end", "lost": 1, "reason": bad},
    )  # fmt: skip
    frames = [run.events, *run.tables.values()]
    shown = repr([run.name, run.meta, run.log, list(run.tables), [(f.columns, f.rows()) for f in frames]])
    assert "\\x1b" not in shown and "\u202e" not in shown and "\\u202e" not in shown
    assert shown.count("a�[2Jb") > 20


def test_a_cut_anywhere_gives_every_whole_line(tmp_path: Path) -> None:
    lines = [seal_record(x) for x in (RUN, PLAN, STEP, {**STEP, "step": 6}, END)]
    whole = b"".join(lines)
    ends = [sum(map(len, lines[: i + 1])) for i in range(len(lines))]
    around = {end + d for end in ends for d in (-2, -1, 0, 1)}
    for cut in sorted({*range(ends[1], len(whole), 9), *around} - {len(whole), len(whole) + 1}):
        if cut < ends[1]:
            continue
        (run,) = read(tmp_path, whole[:cut])
        steps = sum(cut >= end - 1 for end in ends[2:4])  # the newline itself is not missed
        assert run.events.height == 3 * steps
        assert run.log.lost_data == (cut not in ends and cut + 1 not in ends)


@pytest.mark.slow
def test_no_flipped_bit_is_taken_for_truth(tmp_path: Path) -> None:
    """Of 250 files with four flipped bits each, every event that is kept is one that was written."""
    steps = [{**STEP, "step": i, "t": 1000 * i, "context": None} for i in range(6)]
    whole = b"".join(map(seal_record, (RUN, PLAN, *steps, {"kind": "end", "events": 18})))
    (run,) = read(tmp_path, whole)
    truth = set(run.events.drop("flops", "bytes").rows())
    rng = random.Random(7)
    for _ in range(250):
        flipped = bytearray(whole)
        for _ in range(4):
            flipped[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        (run,) = read(tmp_path, bytes(flipped))
        kept = run.events.drop("flops", "bytes", strict=False)
        assert set(kept.rows()) <= truth
        assert kept.height == 18 or run.log.lost_data or run.log.notices


def test_a_flat_line_has_the_columns_of_the_schema() -> None:
    words = {"kind": "kernel", "category": "matmul", "lens": "gpu"}
    values = {"cat": "word", "i64": 1 << 40, "i32": 7, "f64": 0.5}
    fields = {column.name: values[column.type] for column in COLUMNS} | words
    line, unknown = decode_line(seal_record(fields))
    assert isinstance(line, EventLine) and not unknown
    assert {column.name: getattr(line, column.name) for column in COLUMNS} == fields
    for column in COLUMNS:
        with pytest.raises(BadLineError):
            decode_line(seal_record({**fields, column.name: [1]}))


def test_a_shell_is_enough_to_write_lines(tmp_path: Path) -> None:
    """Any program in any language that appends such lines is an engine."""
    path = tmp_path / "shell.jsonl"
    script = Path(__file__).parent / "native_writer.sh"
    subprocess.run(
        ["sh", str(script)], env={"TRACETUI_OUT": str(path), "PATH": os.environ["PATH"]}, check=True
    )
    (run,) = native.load(Source.from_path(path))
    assert run.name == "shell" and run.log.notices == ()
    kernels = run.events.filter(kind="kernel")
    assert kernels.group_by("step", maintain_order=True).len().rows() == [(1, 2), (2, 2), (3, 2)]
    assert run.events.filter(kind="step")["tokens"].to_list() == [1, 1, 1]
    assert (kernels["dur"] >= 0).all()


def test_only_our_lines_are_claimed() -> None:
    def claims(*lines: str) -> bool:
        return native.sniff(Head("\n".join(lines).encode(), True))

    assert claims(json.dumps(RUN))
    assert claims('{"kind":"kernel","name":"a","dur":1}')
    assert claims(seal_record(RUN).decode()[:20], json.dumps(STEP)), "a torn first line is no reason"
    assert not claims('{"name":"a","dur":1}')
    assert not claims('{"ph":"X","name":"a","dur":1}')
    assert not claims('{"kind":"other","name":"a"}')
    assert not claims('[{"kind":"kernel","name":"a","dur":1}]')
    assert not claims("")
