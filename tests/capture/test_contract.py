"""One contract at every edge of reading: what no loader was written for is one sentence and exit 3."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest

from capture import open as opening
from capture.captures import NONE
from capture.errors import UnforeseenError
from capture.importlog import Log
from capture.open import load
from capture.run import Run, build
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
    monkeypatch.setattr(opening, "recognise", lambda head, suffix: [Broken(raised)])
    path = tmp_path / "x.json"
    path.write_text("{}")
    assert main(["report", "kernels", str(path)]) == 3
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert f"{path}: could not be read as broken" in told.err and "please report it" in told.err
    (crash,) = (tmp_path / "tracetui").glob("crash-*.txt")
    assert type(raised).__name__ in crash.read_text() and str(crash) in told.err
    with pytest.raises(UnforeseenError) as error:
        load(path, cache=False)
    assert error.value.__cause__ is raised


def read(tmp_path: Path, document: Any, name: str = "x.json") -> Run:
    path = tmp_path / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    (run,) = load(path, cache=False, capture=NONE)
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
    run = build("x", {}, pl.DataFrame({"name": ["a", "b", "c", "d"], "t": starts, "dur": durations}), log)
    assert run.events.select("name", "t", "dur").rows() == [("a", None, 5), ("b", None, 5), ("c", 7, 5)]
    assert (run.log.repaired, run.log.dropped) == (2, 1)


def test_a_phase_that_a_source_does_not_tell_is_no_fault_of_the_diff(tmp_path: Path) -> None:
    """Steps without phases: marks of steps have a duration, and no column says what phase they are of."""
    path = tmp_path / "x.jsonl"
    mark = {"kind": "step", "name": "step", "t": 0, "dur": 9, "step": 0}
    kernel = {"kind": "kernel", "name": "k", "t": 1, "dur": 5, "step": 0}
    head = {"kind": "run", "schema": 1, "name": "x", "meta": {}}
    path.write_text("".join(json.dumps(line) + "\n" for line in (head, mark, kernel)))
    for view in ("diff", "waterfall"):
        assert main(["report", view, str(path), str(path), "--phase", "decode"]) == 0
