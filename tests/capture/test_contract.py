"""One contract at every edge of reading: what no loader was written for is one sentence and exit 3."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest

from capture import loaders
from capture.errors import UnforeseenError, UnreadableError
from capture.export_runs import export
from capture.graphs.capture_files import NO_CAPTURE
from capture.import_log import Log
from capture.load_runs import expand_inputs, load, load_all
from capture.run import Run, build_run
from tests.conftest import FIXTURES
from tracetui.cli import main


class Broken(ModuleType):
    """A loader that raises what it was told to."""

    FORMAT = "broken"

    def __init__(self, raised: BaseException) -> None:
        self._raised = raised

    def load(self, source: object) -> list[Run]:
        raise self._raised


@pytest.mark.parametrize("raised", [KeyError("x"), pl.exceptions.PanicException("x"), AssertionError()])
def test_a_fault_of_a_loader_is_one_sentence(
    tmp_path: Path,
    raised: BaseException,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(loaders, "find_loaders", lambda head, suffix, log: [Broken(raised)])
    path = tmp_path / "x.json"
    path.write_text("{}")
    assert main(["report", "kernels", str(path)]) == 3
    actual = capsys.readouterr()
    assert (actual.out, actual.err.count("\n")) == ("", 1)
    assert f"{path}: cannot be read as broken" in actual.err and "please report it" in actual.err
    (crash,) = (tmp_path / "tracetui").glob("crash-*.txt")
    assert type(raised).__name__ in crash.read_text() and str(crash) in actual.err
    with pytest.raises(UnforeseenError) as error:
        load(path, cache=False)
    assert error.value.__cause__ is raised


def read(tmp_path: Path, document: Any, name: str = "x.json") -> Run:
    path = tmp_path / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    (run,) = load(path, cache=False, capture=NO_CAPTURE)
    return run


def test_proton_times_that_are_none_are_counted(tmp_path: Path) -> None:
    """2 of 5 nodes have a time; one has none, one has a text, one has more than 64 bits."""
    times = (5, 2**64 - 1, "x", 0, 7)
    nodes = [{"frame": {"name": f"k{t}"}, "metrics": {"time (ns)": t}, "children": []} for t in times]
    devices = {"CUDA": {"0": {"arch": "90", "num_sms": {"": []}}, "1": {"arch": "90", "num_sms": 132}}}
    tree = {"frame": {"name": "ROOT"}, "metrics": {}, "children": nodes}
    run = read(tmp_path, [tree, devices])
    assert run.events["dur"].to_list() == [5, 7]
    assert (run.log.read, run.log.dropped) == (4, 2)
    assert run.tables["devices"]["sms"].to_list() == [None, 132]


def test_ids_of_rocprof_that_are_no_ids_find_nothing(tmp_path: Path) -> None:
    record = {"start_timestamp": 10, "end_timestamp": 15, "dst_agent_id": {"handle": {}}, "kind": []}
    kernel = {"start_timestamp": 20, "end_timestamp": 27, "dispatch_info": {"kernel_id": []}}
    process = {
        "kernel_symbols": [{"kernel_id": [], "kernel_name": "k"}],
        "strings": {"buffer_records": [{"operations": 5}]},
        "buffer_records": {"memory_copy": [record], "kernel_dispatch": [kernel]},
    }
    run = read(tmp_path, {"rocprofiler-sdk-tool": [process]})
    assert sorted(run.events["dur"].to_list()) == [5, 7]


def test_a_figure_of_doppler_that_is_none_is_left_out(tmp_path: Path) -> None:
    run = read(tmp_path, {"suite": "s", "modelId": "m", "timing": {"prefillMs": True}, "memory": {"used": 6}})
    assert run.events.height == 1


def test_starts_that_no_clock_shows_are_left_out_and_counted() -> None:
    """The time from the first of them to the end of the last would be no number of 64 bits."""
    log, starts, durations = Log(read=4), [-(1 << 62), 1 << 62, 7, 8], [5, 5, 5, 1 << 62]
    run = build_run("x", {}, pl.DataFrame({"name": ["a", "b", "c", "d"], "t": starts, "dur": durations}), log)
    assert run.events.select("name", "t", "dur").rows() == [("a", None, 5), ("b", None, 5), ("c", 7, 5)]
    assert (run.log.repaired, run.log.dropped) == (2, 1)


def test_a_row_without_a_name_gets_one_and_is_counted() -> None:
    log = Log(read=2)
    run = build_run("x", {}, pl.DataFrame({"name": ["a", None], "dur": [1, 2]}), log)
    assert run.events["name"].to_list() == ["a", "unnamed"] and run.log.repaired == 1


def test_a_phase_that_a_source_does_not_tell_is_no_fault_of_the_diff(tmp_path: Path) -> None:
    """Steps without phases: marks of steps have a duration, and no column says what phase they are of."""
    path = tmp_path / "x.jsonl"
    mark = {"kind": "step", "name": "step", "t": 0, "dur": 9, "step": 0}
    kernel = {"kind": "kernel", "name": "k", "t": 1, "dur": 5, "step": 0}
    head = {"kind": "run", "schema": 1, "name": "x", "meta": {}}
    path.write_text("".join(json.dumps(line) + "\n" for line in (head, mark, kernel)))
    for view in ("diff", "waterfall"):
        assert main(["report", view, str(path), str(path), "--phase", "decode"]) == 0


def folder_of(tmp_path: Path, **files: str) -> Path:
    for name, content in files.items():
        (tmp_path / f"{name}.csv").write_text(content)
    return tmp_path


GOOD = "name,duration_ns\nk,5\n"
NO_EVENT = "name,duration_ns\n,\n"  # is claimed, and holds nothing


def test_a_damaged_file_of_a_folder_costs_itself_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(tmp_path, a=NO_EVENT, b=GOOD, c=GOOD, d=NO_EVENT)
    runs = load_all([folder], cache=False)
    assert [run.events["dur"].sum() for run in runs] == [5, 5]
    (notice,) = [n for n in runs[0].log.notices if n.id == "unreadable_file"]
    assert notice.severity == "data_loss" and notice.count == 2
    assert str(folder / "a.csv") in notice.message and str(folder / "d.csv") in notice.message
    assert not [n for n in runs[1].log.notices if n.id == "unreadable_file"]
    assert main(["report", "kernels", str(folder), "--no-cache"]) == 0
    assert str(folder / "a.csv") in capsys.readouterr().err
    assert main(["report", "kernels", str(folder), "--no-cache", "--strict"]) == 4


def test_a_damaged_file_that_was_named_is_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, a=NO_EVENT, b=GOOD)
    with pytest.raises(UnreadableError, match=r"a\.csv"):
        load_all([folder / "a.csv", folder / "b.csv"], cache=False)


def test_a_folder_of_which_nothing_can_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match=r"a\.csv"):
        load_all([folder_of(tmp_path, a=NO_EVENT, b=NO_EVENT)], cache=False)


def test_nothing_is_cut_at_two_thousand_files(tmp_path: Path) -> None:
    for number in range(2003):
        (tmp_path / f"{number:04}.csv").write_text("name,duration_ns\nk,1\n")
    assert len(expand_inputs([tmp_path])) == 2003


HUGE, HALF = 2**64, "\ud800"
VLLM = {"entry": {"name": HALF, "cuda_time_us": 1e300}, "children": []}
DOPPLER_STEP = {"label": HALF, "timings": {HALF: HUGE, "k": 1.5}, "totalMs": HUGE, "stepCount": HUGE}

BAD_CELLS = {
    "proton": ([{"frame": {"name": HALF}, "metrics": {"time (ns)": 5, "count": HUGE, "device_id": []}}], 5),
    "vllm": ({"context": {"batch_size": HUGE}, "prefill": {"summary_stats": [VLLM], "model_stats": [VLLM]}},
             None),
    "vllm step": ({"context": {}, "prefill": {"summary_stats": []}, f"decode_{10**30}": {}}, None),
    "chrome": ({"schemaVersion": HALF, "deviceProperties": [{"id": HUGE, "name": HALF}],
                "traceEvents": [{"ph": "X", "cat": "kernel", "name": HALF, "pid": HUGE, "tid": [], "ts": 1,
                                 "dur": 5}]},
               5000),
    "chrome args": ({"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 5, "args":
                     {"stream": HUGE, "device": [], "correlation": {}, "External id": HUGE, "grid": HUGE}}]},
                    5000),
    "doppler": ({"suite": HALF, "modelId": [], "timing": {"prefillMs": HUGE, "decodeMs": HALF},
                 "metrics": {"decodeProfileSteps": [DOPPLER_STEP, {}, 5]}}, 1_500_000),
    "native": ({"kind": "kernel", "name": "k", "dur": 5, "t": HUGE}, None),
}  # fmt: skip


@pytest.mark.corpus
@pytest.mark.parametrize("kind", BAD_CELLS)
def test_a_bad_cell_costs_itself(tmp_path: Path, kind: str) -> None:
    """Integers beyond 64 bits, half characters, lists and objects where a number or a name should stand."""
    document, total = BAD_CELLS[kind]
    try:
        run = read(tmp_path, document)
    except UnforeseenError:
        raise
    except UnreadableError:
        assert total is None
        return
    assert total is None or run.events.filter(kind="kernel")["dur"].sum() == total
    for view in ("kernels", "summary", "tree", "import"):
        assert main(["report", view, str(tmp_path / "x.json"), "--no-cache", "--format", "json"]) == 0


def test_a_column_of_cs336_may_stand_twice(tmp_path: Path) -> None:
    text = (FIXTURES / "cs336" / "report.md").read_text()
    wider, above = "", ""
    for line in text.splitlines():
        last = line.strip("|").split("|")[-1].strip()
        cell = "" if not line.startswith("|") else last if not above.startswith("|") else "x"
        cell = "---" if cell and set(line) <= set("|-: ") else cell
        wider, above = f"{wider}{line}{cell and f' {cell} |'}\n", line
    assert "(2)" not in text
    for name, content in (("x", wider), ("y", text)):
        (tmp_path / f"{name}.md").write_text(content)
    runs, same = (load(tmp_path / f"{name}.md", cache=False) for name in "xy")
    assert len(runs) == len(same) > 0 and runs[0].log.dropped == same[0].log.dropped
    assert [run.events.height for run in runs] == [run.events.height for run in same]


DUPLICATE = {
    "plain": "name,duration_ns,name\nk,5,j\n",
    "rocprof": '"Name","Calls","TotalDurationNs","AverageNs","Percentage","Name"\n"k",1,5,5,100,"j"\n',
}


@pytest.mark.parametrize("kind", DUPLICATE)
def test_a_column_of_a_table_may_stand_twice(tmp_path: Path, kind: str) -> None:
    run = read(tmp_path, DUPLICATE[kind], "x.csv")
    assert run.events["dur"].to_list() == [5]


def test_a_damaged_parquet_prints_nothing_of_its_library(tmp_path: Path) -> None:
    """300 flips and cuts in one process of its own, whose standard error is looked at."""
    code = """
import random, sys
from pathlib import Path
from capture.errors import UnreadableError
from capture.load_runs import load
whole, place, draw = Path(sys.argv[1]).read_bytes(), Path(sys.argv[2]), random.Random(14)
refused = 0
for n in range(300):
    at = draw.randrange(4, len(whole)) if n % 2 else draw.randrange(len(whole) - 1200, len(whole) - 8)
    place.write_bytes(whole[:at] if n % 5 == 0 else whole[:at] + draw.randbytes(3) + whole[at + 3:])
    try:
        load(place, cache=False)
    except UnreadableError as e:
        refused += 1
        assert "\\n" not in str(e) and ".rs" not in str(e), e
print(refused)
"""
    command = [
        sys.executable,
        "-c",
        code,
        str(FIXTURES / "exported_parquet" / "columns.parquet"),
        str(tmp_path / "x.parquet"),
    ]
    result = subprocess.run(command, capture_output=True, text=True, cwd=FIXTURES.parent.parent, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert int(result.stdout) > 100


def test_a_row_without_a_kind_is_a_kernel() -> None:
    frame = pl.DataFrame({"kind": ["span", None], "name": ["a", "b"], "dur": [1, 2]})
    assert build_run("x", {}, frame, Log(read=2)).events["kind"].to_list() == ["span", "kernel"]


def test_columns_of_a_table_that_clean_to_one_name_are_told_apart() -> None:
    long = "x" * 250
    table = pl.DataFrame([[1], [2], [3], [4], [5]], schema=["a\tb", "a b", "a\nb", long, f"{long}y"])
    run = build_run("x", {}, pl.DataFrame({"name": ["k"], "dur": [5]}), Log(read=1), {"t": table})
    assert run.tables["t"].columns == ["a b", "a b (2)", "a b (3)", "x" * 200, f"{'x' * 190} (2)"]
    assert run.tables["t"].row(0) == (1, 2, 3, 4, 5)


def test_a_total_that_no_file_has_is_a_wrong_value(tmp_path: Path) -> None:
    """Three lines with counts beyond 2**53; what is left is written and read back with the same account."""
    runs = load(FIXTURES / "native" / "huge_totals.jsonl")
    assert [run.events["dur"].sum() for run in runs] == [400, 42]
    assert [(run.log.read, run.log.dropped) for run in runs] == [(6, 3)] * len(runs)
    export(runs, tmp_path / "again.jsonl")
    assert [run.log for run in load(tmp_path / "again.jsonl")] == [run.log for run in runs]
