"""Any table with a name and a duration: guesses by heading, units, and what other loaders keep."""

import random
import re
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from capture.load_runs import load
from capture.loaders.plain import generic_table
from capture.loaders.plain import generic_table as plain_table
from capture.loaders.plain.table_layout import TableLayout, detect_layout, match_headings
from capture.run import Run
from capture.source import Head
from tests.conftest import FIXTURES


def table(tmp_path: Path, text: str) -> Run:
    path = tmp_path / "table.csv"
    path.write_text(text, newline="")
    (run,) = load(path, cache=False)
    return run


@pytest.mark.parametrize(
    ("heading", "ns"),
    [
        ("duration_ns", 2), ("dur_us", 2_000), ("Time (ms)", 2_000_000), ("Total Time [us]", 2_000),
        ("elapsed s", 2_000_000_000), ("ms", 2_000_000), ("durationUs", 2_000), ("latency_µs", 2_000),
    ],
)  # fmt: skip
def test_units_stand_in_the_heading(heading: str, ns: int, tmp_path: Path) -> None:
    run = table(tmp_path, f"name,{heading}\nk,2\n")
    assert run.events["dur"].to_list() == [ns]
    assert any(heading in guess for guess in run.meta["guess"])
    assert not any("unknown" in guess for guess in run.meta["guess"])


def test_a_unit_that_is_not_told_is_said(tmp_path: Path) -> None:
    run = table(tmp_path, "kernel,dur\nk,2.5\n")
    assert run.events["dur"].to_list() == [2500]
    assert any("microseconds" in guess for guess in run.meta["guess"])
    assert [n.id for n in run.log.notices] == ["guessed_columns"]


def test_further_columns(tmp_path: Path) -> None:
    run = table(
        tmp_path,
        "Kernel Name,start_ns,duration_ns,calls,layer,step,phase,op,bytes,flops,device,stream,colour\n"
        '"gemm<a,b>",1000,50,3,7,2,decode,mlp.down,4096,1e9,0,7,red\n'
        "norm,1100,20,1,,2,decode,norm,,,0,7,\n",
    )
    first = run.events.row(0, named=True)
    stated = {
        "name": "gemm<a,b>", "t": 0, "dur": 50, "count": 3, "layer": 7, "step": 2, "phase": "decode",
        "op": "mlp.down", "bytes": 4096.0, "flops": 1e9, "track": "device 0 stream 7",
    }  # fmt: skip
    assert {k: first[k] for k in stated} == stated
    assert run.events["t"].to_list() == [0, 100]


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_separators_and_decimal_commas(separator: str, tmp_path: Path) -> None:
    run = table(tmp_path, f"name{separator}time_ms\nk{separator}1.234,5\nk{separator}0,25\n")
    assert run.events["dur"].to_list() == [1_234_500_000, 250_000]


def test_json_lines(tmp_path: Path) -> None:
    lines = '{"op_name":"k","duration_us":1.5,"layer":3}\n{"op_name":"\\u001bx","duration_us":true}\nnot\n'
    run = table(tmp_path, lines)
    assert run.events["dur"].to_list() == [1500, None]
    assert run.events["name"].to_list() == ["k", "�x"]
    assert run.log.dropped == 1


def test_durations_that_are_none_enter_no_sum(tmp_path: Path) -> None:
    bad = ("nan", "inf", "-inf", "1_000", "٣", "1e300", "", "x", "0x10", "--1")
    rows = "".join(f"k,{value}\n" for value in bad)
    run = table(tmp_path, f"name,dur_ns\nk,5\n{rows}k,-3\nk,7\n")
    assert run.events["dur"].sum() == 12
    assert {n.id: n.count for n in run.log.notices if n.severity == "data_loss"}["bad_duration"] == len(
        bad
    ) + 1


@pytest.mark.parametrize(
    "header",
    [
        "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name",
        '"Kind","Agent_Id","Queue_Id","Kernel_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"',
        '"ID","Process ID","Process Name","Kernel Name","Context","Stream","Metric Name","Metric Value"',
        "cycle,pid,hostname,beta_pct,alpha",
        "Function Name,Metric Name,Device,Suspicion Score",
        '{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":2}',
        '{"kind":"kernel","name":"k","t":1,"dur":2}',
        '{"timestamp":"2025-12-23T10:15:30Z","event":{"type":"GpuOpCompleted","data":{"op_name":"x"}}}',
        "hello world",
        "calls,names",
    ],
)  # fmt: skip
def test_what_belongs_to_others_is_left(header: str) -> None:
    assert not plain_table.sniff(Head(f"{header}\n1,2,3,4,5,6,7,8,9\n".encode(), True))


def test_words_that_end_in_s_are_no_seconds() -> None:
    assert match_headings(["name", "calls"]) is None
    actual = match_headings(["name", "s"])
    assert actual is not None
    assert actual["dur"].unit == 1_000_000_000


def test_sums_equal_those_of_the_cells(tmp_path: Path) -> None:
    cells = [(f"k{i % 7}", i * 37 % 1000 / 8) for i in range(2000)]
    run = table(tmp_path, "name,time_us\n" + "".join(f"{n},{us}\n" for n, us in cells))
    totals = run.events.group_by(pl.col("name").cast(pl.String)).agg(pl.col("dur").sum())
    expected = {n: sum(int(us * 1000) for m, us in cells if m == n) for n, _ in cells}
    assert dict(totals.rows()) == expected


VALUES = (
    "7", "0", "-0", "12.5", "0.0005", "0.0015", "123456789.123456", "1669329643132548.123", "1e3", "-3",
    "null",
    "true", '"12.5"', '" 1,250 "', '""', '"k"', '"a \\u00e9"', '"µ"', "[1]", '{"a": 1}', "123456789012345678",
    "99999999999999999999", "1.", "01", '"\\u001bx"', "12.", "-", "0.1000000000000000055", "999999999999.999",
)  # fmt: skip


def test_json_lines_at_once_are_those_read_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines laid out as the first are cut by a pattern; with no pattern each is read for itself."""
    dice = random.Random(5)
    first = (
        '{"name": "k", "start_us": 1.5, "duration_us": 2.25, "step": 1, "note": 3, "stream": 7, "bytes": 1.5}'
    )
    lines = [first]
    for number in range(3000):
        line = first.replace("1.5,", f"{number}.{dice.randrange(1000):03d},")
        for _ in range(dice.choice((0, 0, 0, 0, 1, 2))):
            key = dice.choice(("name", "start_us", "duration_us", "step", "note", "stream", "bytes"))
            line = re.sub(rf'("{key}": )[^,}}]*', lambda m: m[1] + dice.choice(VALUES), line)
        if dice.random() < 0.03:
            line = dice.choice(
                (line[:-9], "", "  ", line + ",", "not", line.replace(": ", ":"), "\t" + line + " ")
            )
        lines.append(line)
    text = "\n".join([*lines, '{"name": "cut'])
    cut = generic_table.split_regular_objects(pl.Series(lines), _layout(first))
    assert cut.cells.height > 1800 and len(cut.irregular) > 300
    run = table(tmp_path, text)
    monkeypatch.setattr(generic_table, "_build_object_pattern", lambda layout: None)
    slow = table(tmp_path, text)
    assert_frame_equal(run.events, slow.events, categorical_as_str=True)
    assert {n.id: n for n in run.log.notices} == {n.id: n for n in slow.log.notices}
    assert (run.log.read, run.log.dropped) == (slow.log.read, slow.log.dropped)
    assert run.log.dropped > 20


def _layout(line: str) -> TableLayout:
    found = detect_layout([line])
    assert found is not None
    return found


def test_a_json_list_is_a_table_and_a_count_of_its_own_is_that_of_all() -> None:
    """The rows of TensorRT's trtexec --exportProfile."""
    (run,) = load(FIXTURES / "plain" / "trtexec.json", cache=False)
    names = run.events["name"].cast(pl.String).to_list()
    assert names[1] == "Conv_0 + PWN(Clip_3)"
    assert run.events["dur"].to_list() == [36_684_400, 41_423_200, 0, 165_750_000]
    assert run.events["count"].to_list() == [625] * 4
    assert run.events["p50"].to_list() == [58_600, 66_200, 0, 265_100]
    assert run.events["category"].cast(pl.String).to_list() == ["copy", "conv", "elementwise", "other"]
    assert "layer" not in run.events.columns or run.events["layer"].null_count() == 4


@pytest.mark.parametrize("separator", [",", ",\n", "\n  , "])
def test_a_list_equals_its_lines_and_says_what_it_lost(separator: str, tmp_path: Path) -> None:
    objects = [f'{{"name": "k{i}", "dur_us": {i}.5, "note": [1, {{"a": "]"}}]}}' for i in range(60)]
    lines = table(tmp_path, "\n".join(objects) + "\n")
    whole = table(tmp_path, f"[\n{separator.join(objects)}\n]\n")
    assert_frame_equal(whole.events, lines.events)
    assert whole.log.dropped == 0
    torn = table(tmp_path, f'[{separator.join(objects[:59])}{separator}7{separator}{{"name": "k5')
    assert torn.events.height == 59
    assert torn.log.dropped == 2
    ended = table(tmp_path, f"[{separator.join(objects)}{separator}")
    assert (ended.events.height, ended.log.dropped) == (60, 1)


def test_units_may_stand_below_the_headings(tmp_path: Path) -> None:
    run = table(tmp_path, '"Start","Duration","Size","Name"\ns,ms,MB,\n0.5,1.25,,"gemm"\n0.75,2,3.5,"copy"\n')
    assert run.events["dur"].to_list() == [1_250_000, 2_000_000]
    assert run.events["t"].to_list() == [0, 250_000_000]
    assert (run.log.read, run.log.dropped) == (2, 0)
    plain = table(tmp_path, "name,duration\ns,7\nms,8\n")
    assert plain.events["name"].cast(pl.String).to_list() == ["s", "ms"]
