"""rocprof's CSVs beside a plain reading of them, line by line, whatever stands in the cells."""

import csv
import re
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
from hypothesis import example, given
from hypothesis import strategies as st

from capture.loaders.rocprof.csv_tables import load
from capture.source import Source

HEADER = "Kind,Agent_Id,Queue_Id,Stream_Id,Kernel_Name,Start_Timestamp,End_Timestamp"
TIMES = st.one_of(
    st.integers(0, 3 * 10**18).map(str),
    st.sampled_from(
        ["", "8.1097E+14", " 7", "+7", "-7", "1.5", "1e3", "x", "9" * 19, "9" * 20, "٣", "1_000"]
    ),
)
WORDS = st.text("abA4 ,\"'\t\r\né", max_size=5)
AGENTS = st.sampled_from(["1", "Agent 2", "", '"Agent 4"', " Agent"])
QUOTED = WORDS.map(lambda word: '"' + word.replace('"', '""') + '"')
REGULAR = st.tuples(
    st.just("K"), AGENTS, st.sampled_from(["", "0"]), st.sampled_from(["", "3"]), QUOTED, TIMES, TIMES
)
LINES = st.one_of(*[REGULAR.map(",".join)] * 3, st.lists(st.one_of(WORDS, QUOTED), max_size=9).map(",".join))


def plain_reading(text: str) -> tuple[list[dict[str, Any]], int, int]:
    """Return the rows of a kernel trace, how many lines were read, and how many of them were dropped."""
    rows, read, dropped = [], 0, 0
    for line in text.replace("\r\n", "\n").split("\n"):
        if not line.strip():
            continue
        read += 1
        try:
            cells = next(csv.reader([line], strict=True))
        except csv.Error:
            cells = []
        row = timed(cells) if len(cells) == 7 else None
        dropped += row is None
        rows += [row] if row else []
    return rows, read, dropped


def timed(cells: list[str]) -> dict[str, Any] | None:
    """Return a row of the events, None for one without times."""
    _, agent, queue, stream, name, begin, end = cells
    lane = f"/stream{stream}" if stream else f"/queue{queue}" if queue else ""
    row = {"name": name, "track": f"gpu{(agent or '?').removeprefix('Agent').strip()}{lane}"}
    if any(re.fullmatch(r"\s*\d+([.,]\d+)?[eE]\+?\d+\s*", time, re.ASCII) for time in (begin, end)):
        return row | {"t": None, "dur": None}
    times = [
        int(time) if re.fullmatch(r"\s*-?\d{1,19}\s*", time, re.ASCII) else None for time in (begin, end)
    ]
    start, stop = (
        None if time is None or len(str(time)) > 19 or abs(time) > 1 << 62 else time for time in times
    )
    return None if start is None or stop is None else row | {"t": start, "dur": stop - start}


@given(st.lists(LINES, max_size=8), st.sampled_from(["\n", "\r\n"]))
@example(["K,1,0,3,k,5,9", "K,1,0,3,k,8.1E+14,9", "K,1,0,3,k,5", 'K,1,0,3,"k<a, ""b"">",5,9', ""], "\n")
@example(["K,1,0,3,k,5,9", "K,1,0,,k\rl,5,9"], "\n")
def test_a_kernel_trace_equals_a_plain_reading(lines: list[str], end: str) -> None:
    text = end.join(lines)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel_trace.csv"
        path.write_bytes(f"{HEADER}{end}{text}".encode())
        (run,) = load(Source.from_path(path))
    expected, read, dropped = plain_reading(text)
    expected = [row for row in expected if row["dur"] is None or row["dur"] >= 0]
    events = run.events.filter(run.events["kind"].cast(pl.String) == "kernel")
    missing = [c for c in ("t", "dur", "track") if c not in events.columns]
    actual = events.with_columns(pl.lit(None).alias(c) for c in missing).select("name", "track", "t", "dur")
    assert actual["t"].to_list() == [row["t"] for row in expected]
    assert actual["dur"].to_list() == [row["dur"] for row in expected]
    assert actual["track"].to_list() == [row["track"] for row in expected]
    assert (run.log.read, run.log.read - run.log.retained) == (read, read - len(expected))
    assert run.log.dropped >= dropped


COUNTED = """\
"Dispatch_Id","Agent_Id","Kernel_Name","Counter_Name","Counter_Value","Start_Timestamp","End_Timestamp"
1,"Agent 4","add(float*)","SQ_WAVES",16384.0,1000,51000
1,"Agent 4","add(float*)","FETCH_SIZE",8192.0,1000,51000
2,"Agent 4","divide(float*)","SQ_WAVES",16384.0,60000,90000
"""


def test_a_dispatch_counts_once_however_many_counters_its_file_has(tmp_path: Path) -> None:
    path = tmp_path / "counter_collection.csv"
    path.write_text(COUNTED)
    kernels = load(Source.from_path(path))[0].events.filter(kind="kernel").sort("dur")
    assert kernels.select(pl.col("name").cast(pl.String), "dur").rows() == [
        ("divide(float*)", 30_000), ("add(float*)", 50_000),
    ]  # fmt: skip


def test_rocprof_before_its_third_version_has_a_column_per_counter(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    path.write_text(
        "Index,KernelName,gpu-id,queue-id,queue-index,pid,tid,grd,wgr,lds,scr,arch_vgpr,accum_vgpr,sgpr,"
        "wave_size,sig,obj,Wavefronts,FetchSize,DispatchNs,BeginNs,EndNs,CompleteNs\n"
        '0,"bodyForce(Body*, float, int) [clone .kd]",1,2,0,36,36,65536,256,0,0,20,4,16,64,0x0,0x7f2b,'
        "2048.0,65536.0,4556288436792544,4556288440165491,4556288440211571,4556288440226587\n"
    )
    (run,) = load(Source.from_path(path))
    events = run.events.with_columns(pl.col("name", "track").cast(pl.String))
    assert events.select("name", "track", "dur").rows() == [
        ("bodyForce(Body*, float, int) [clone .kd]", "gpu1/queue2", 4556288440211571 - 4556288440165491)
    ]
    counters = run.tables["counters"].select("counter_name", "counter_value").rows()
    assert counters == [("wavefronts", "2048.0"), ("fetchsize", "65536.0")]
