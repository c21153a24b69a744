"""Exports: what is written reads back as the same run, whole or not at all."""

import csv
import json
import os
import stat
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from capture.errors import CaptureError, UnreadableError, UsageError
from capture.export_runs import export
from capture.import_log import Log
from capture.load_runs import load
from capture.native.schema import KINDS, LENSES
from capture.run import DTYPES, Run, build_run

BIG = 1 << 53


def same(one: Run, other: Run) -> None:
    assert_frame_equal(one.events, other.events, categorical_as_str=True)
    assert one.name == other.name and one.meta == other.meta
    assert one.log == other.log
    assert one.tables.keys() == other.tables.keys()
    for name, table in one.tables.items():
        assert_frame_equal(table, other.tables[name])


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
whole = st.none() | st.integers(-(2**63), 2**63 - 1)
small = st.none() | st.integers(-(2**31), 2**31 - 1)
real = st.none() | st.floats(allow_nan=False, allow_infinity=False)
of_type = {pl.Categorical(): st.none() | words, pl.Int64(): whole, pl.Int32(): small, pl.Float64(): real}
special: dict[str, Any] = {
    "kind": st.sampled_from(KINDS),
    "name": words,
    "lens": st.none() | st.sampled_from(LENSES),
    "category": st.none() | st.sampled_from(["matmul", "other"]),
}
columns_of_a_row = st.fixed_dictionaries(
    {n: special[n] if n in special else of_type[t] for n, t in DTYPES.items()}
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    events=st.lists(columns_of_a_row, max_size=8),
    meta=st.dictionaries(words, words | st.integers(-BIG, BIG) | st.booleans() | st.lists(words, max_size=2)),
    cells=st.lists(st.tuples(words, whole, real, st.lists(st.integers(-5, 5), max_size=3)), max_size=4),
)
@pytest.mark.slow
def test_any_run_reads_back_the_same(
    tmp_path: Path, events: list[dict[str, Any]], meta: dict[str, Any], cells: list[tuple[Any, ...]]
) -> None:
    schema = {n: pl.String() if t == pl.Categorical() else t for n, t in DTYPES.items()}
    types = {"a": pl.String(), "b": pl.Int64(), "c": pl.Float64(), "d": pl.List(pl.Int64())}
    table = pl.DataFrame(cells, schema=types, orient="row")
    log = Log("there", "theirs", read=9)
    log.drop("odd", "odd records", count=2, at=7)
    run = build_run("a run", meta, pl.DataFrame(events, schema=schema), log, {"cells": table})
    for suffix in (".jsonl", ".parquet"):
        out = tmp_path / f"out{suffix}"
        export([run], out, overwrite=True)
        (back,) = load(out, cache=False)
        same(run, back)


def small() -> Run:
    events = pl.DataFrame(
        {
            "kind": ["kernel", "kernel", "counter", "mark", "kernel"],
            "name": ["=gemm()", "attention", "power", "note", "sum of a table"],
            "t": [1_669_329_643_132_548_123, 5_000, 6_001, 7, None],
            "dur": [1_001, 2_500, None, None, 9],
            "value": [None, None, 70.5, None, None],
            "unit": [None, None, "W", None, None],
            "track": ["gpu 0", "gpu 0", None, None, None],
        }
    )
    return build_run("mine", {"model": "tiny"}, events, Log())


def test_chrome_trace_by_value(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert export([small()], out) == ["1 rows have no start and are not in the trace"]
    assert '"ts":1669329643132548.123' in out.read_text(), "no float ever rounds a time"
    events = json.loads(out.read_text())["traceEvents"]
    x = {e["name"]: e for e in events if e["ph"] == "X"}
    assert x["attention"]["ts"] == 5.0 and x["attention"]["dur"] == 2.5
    (counter,) = (e for e in events if e["ph"] == "C")
    assert counter["args"] == {"W": 70.5} and counter["ts"] == 6.001
    lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert lanes[x["attention"]["tid"]] == "gpu 0 kernel"
    assert [e["name"] for e in events if e["ph"] == "i"] == ["note"]


def test_chrome_trace_reads_back(tmp_path: Path) -> None:
    export([small()], tmp_path / "out.json")
    (back,) = load(tmp_path / "out.json", cache=False)
    timed = back.events.filter(pl.col("dur").is_not_null()).sort("t", descending=True)
    assert timed.select("name", "dur").rows() == [("=gemm()", 1_001), ("attention", 2_500)]
    apart = timed["t"][0] - timed["t"][1]
    assert apart == 1_669_329_643_132_548_123 - 5_000


def test_csv_is_safe_in_a_spreadsheet(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    assert export([small()], out) == ["CSV contains only the events, not meta"]
    with out.open() as file:
        actual = list(csv.DictReader(file))
    assert [r["name"] for r in actual[:2]] == ["'=gemm()", "attention"]
    assert actual[0]["t"] == "1669329643132548123"


def test_a_file_that_is_there_stays_unless_asked(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("precious")
    with pytest.raises(UsageError, match="already exists"):
        export([small()], out)
    (tmp_path / "link.csv").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="already exists"):
        export([small()], tmp_path / "link.csv")
    assert out.read_text() == "precious"
    export([small()], out, overwrite=True)
    assert "gemm" in out.read_text() and stat.S_IMODE(out.stat().st_mode) == 0o600


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CaptureError, match="cannot be written \\(no space left on device\\)"):
        export([small()], tmp_path / "out.jsonl")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CaptureError, match="no such file or directory"):
        export([small()], tmp_path / "nowhere" / "out.jsonl")


def test_parquet_holds_one_run_and_refuses_strangers(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="one run, not 2"):
        export([small(), small()], tmp_path / "out.parquet")
    other = tmp_path / "other.parquet"
    pl.DataFrame({"a": [1]}).write_parquet(other)
    with pytest.raises(UnreadableError, match="Parquet file that tracetui did not write"):
        load(other, cache=False)


def test_cut_parquet_is_one_sentence(tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    export([small()], out)
    whole_file = out.read_bytes()
    for cut in range(4, len(whole_file), 41):
        out.write_bytes(whole_file[:cut])
        with pytest.raises(UnreadableError):
            load(out, cache=False)
