"""Every record of an input is read or counted as lost, in whatever order and length it is written."""

import json
from pathlib import Path
from typing import Any

import pytest

from capture.errors import UnreadableError
from capture.load_runs import expand_inputs, load, load_all
from tests.tracetui.in_process import tracetui


def event(number: int, name: str = "k") -> dict[str, Any]:
    args = {"grid": [1, 2, 3], "stream": 7}
    row = {"cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": number * 10, "dur": 5}
    return {"ph": "X", **row, "args": args}


def trace(count: int = 4) -> str:
    return json.dumps({"traceEvents": [event(i) for i in range(count)]})


@pytest.fixture
def ranks(tmp_path: Path) -> Path:
    """Four ranks, and those that a crash left: an empty file, noise, a dangling link, half a header."""
    for rank in range(4):
        (tmp_path / f"rank{rank}.json").write_text(trace())
    (tmp_path / "rank4.json").touch()
    (tmp_path / "rank5.json").write_bytes(bytes(range(256)) * 8)
    (tmp_path / "rank6.json").symlink_to(tmp_path / "gone.json")
    (tmp_path / "rank7.json").write_text('{"schemaVersion": 1, "devi')
    (tmp_path / "config.json").write_text('{"hidden_size": 64}')
    (tmp_path / "notes.txt").touch()
    return tmp_path


DAMAGED = {f"rank{rank}.json" for rank in range(4, 8)}


def test_damaged_files_of_a_folder_are_among_its_files(ranks: Path) -> None:
    assert {Path(str(p)).name for p in expand_inputs([ranks])} == {f"rank{n}.json" for n in range(8)}


def test_an_empty_file_with_the_suffix_of_a_profile_counts(tmp_path: Path) -> None:
    (tmp_path / "trace.json.gz").write_text(trace())
    (tmp_path / "host.json.gz").touch()
    (tmp_path / "empty.json").touch()
    assert [Path(str(p)).name for p in expand_inputs([tmp_path])] == ["host.json.gz", "trace.json.gz"]


@pytest.mark.parametrize("merge", [False, True])
def test_damaged_files_of_a_folder_are_named(ranks: Path, merge: bool) -> None:
    runs = load_all([ranks], cache=False, merge=merge)
    [notice] = [n for n in runs[0].log.notices if n.id == "unreadable_file"]
    assert notice.count == 4 and notice.severity == "data_loss"
    assert all(name in notice.message for name in DAMAGED)


@pytest.mark.corpus
@pytest.mark.parametrize("way", [["--merge"], ["--on", "local:1"], []])
def test_damaged_files_of_a_folder_end_a_strict_report(ranks: Path, way: list[str]) -> None:
    result = tracetui("report", "kernels", ranks, "--no-cache", "--strict", *way)
    assert result.returncode == 4 and all(name in result.stderr for name in DAMAGED)


def test_an_empty_word_is_no_file() -> None:
    for words in (["report", "kernels", ""], ["diff", "sample:decode", ""], [""]):
        result = tracetui(*words)
        assert result.returncode == 2 and "empty word" in result.stderr


def events(count: int = 16, name: str = "k", **first: Any) -> list[dict[str, Any]]:
    return [first | event(i, name) for i in range(count)]


def document(**members: Any) -> str:
    return json.dumps(members)


LONG = 300_000  # longer than what a loader sees at first
LISTS = {
    "sorted keys": json.dumps(events(), sort_keys=True),
    "brackets": json.dumps(events(name="void k<float[4]>(int)")),
    "operands first": json.dumps(events(args={"Input Dims": [[1, 2], [3]]})),
    "long text first": json.dumps(events(id="k" * 9000)),
    "very long text first": json.dumps(events(id="k" * LONG)),
    "many keys before": document(stackFrames="x" * LONG, traceEvents=events()),
    "two lists": json.dumps(events(8)) + "\n" + json.dumps(events(8)),
    "two keys": document(traceEvents=events(8))[:-1] + ", " + document(traceEvents=events(8))[1:],
}


@pytest.mark.parametrize("how", LISTS)
def test_all_events_of_a_list_are_read(how: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(LISTS[how])
    [run] = load(path, cache=False)
    assert run.events.height == run.log.read == 16
    assert any(n.id == "several_lists" for n in run.log.notices) == how.startswith("two")


def test_text_after_a_list_is_a_loss(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([event(i) for i in range(16)]) + '\n{"more": 1}')
    [run] = load(path, cache=False)
    assert run.events.height == 16 and run.log.lost_data


def test_json_of_another_kind_is_refused_with_a_long_head_too(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.json"
    path.write_text(json.dumps({f"token {i}": i for i in range(30_000)}))
    with pytest.raises(UnreadableError, match="no known profiler"):
        load(path, cache=False)
