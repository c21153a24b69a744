"""Which captures of graphs are found, read and kept apart: names, folders, sizes, the cache."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from capture import cache as parsed_cache
from capture.errors import UnreadableError
from capture.graphs import capture_files, replay_attribution
from capture.graphs.capture_files import NO_CAPTURE
from capture.load_runs import expand_inputs, load
from capture.run import Run
from tests.capture.graphs import _graphs
from tests.capture.graphs._graphs import TRACE
from tests.capture.graphs._replays import files

__all__ = ["files"]  # a fixture


def test_captures_are_found_where_engines_write_them(tmp_path: Path) -> None:
    """In their folders, by their names; of the trace's own rank; never what another name says."""
    _graphs.write(tmp_path)
    for name in ("capture_bs_2_rank0.json.gz", "capture_traces/bs_4_rank1.json", "bs_4.json", "capture.txt"):
        shutil.copy(tmp_path / "capture_traces/bs_4_rank0.json", tmp_path / name)
    (tmp_path / "graph_capture_profile").mkdir()
    shutil.copy(tmp_path / TRACE, tmp_path / "graph_capture_profile/cuda_graph_capture-Runner-TP-0.json.gz")
    names = [
        path.relative_to(tmp_path).as_posix()
        for path in capture_files.find_adjacent_captures(tmp_path / TRACE)
    ]
    assert names == [
        "graph_capture_profile/cuda_graph_capture-Runner-TP-0.json.gz", "capture_bs_2_rank0.json.gz",
        "capture_traces/bs_4_rank0.json", "capture_traces/bs_8_rank0.json", "capture_traces/bs_64_rank0.json",
    ]  # fmt: skip
    other = capture_files.find_adjacent_captures(tmp_path / TRACE.replace("TP-0", "TP-1"))
    assert [path.name for path in other] == ["bs_4_rank1.json"]


def test_a_large_file_that_is_found_is_not_read_and_named(
    files: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_attribution, "MAX_ADJACENT_BYTES", 1000)
    run = files()
    assert "captured" not in run.meta
    (note,) = (n for n in run.log.notices if n.id == "capture_large")
    assert "--capture" in note.message
    run = files(capture=str(tmp_path / "capture_traces"))
    assert "83 of 83 kernels aligned" in run.meta["captured"]


def test_a_folder_that_is_named_may_hold_the_trace_itself(files: Callable[..., Run], tmp_path: Path) -> None:
    """Then its captures are told by their names, or by what is in them where no name says it."""
    assert "83 of 83 kernels aligned" in files(capture=str(tmp_path)).meta["captured"]
    for path in (tmp_path / "capture_traces").iterdir():
        path.rename(tmp_path / path.name)
    (run,) = load(tmp_path / TRACE, cache=False, capture=str(tmp_path))
    assert "83 of 83 kernels aligned" in run.meta["captured"]


@pytest.mark.parametrize("name", ["no_such_file", "empty", TRACE])
def test_a_capture_that_was_named_and_is_none_is_an_error(
    files: Callable[..., Run], tmp_path: Path, name: str
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnreadableError) as actual:
        files(capture=str(tmp_path / name))
    assert name in str(actual.value) and "\n" not in str(actual.value)


def test_a_capture_that_cannot_be_read_and_was_found_is_passed_over(
    files: Callable[..., Run], tmp_path: Path
) -> None:
    (tmp_path / "capture_broken.json").write_text("{")
    (tmp_path / "capture_other.json").write_text(json.dumps({"traceEvents": [{"ph": "X", "name": 5}]}))
    assert "83 of 83 kernels aligned" in files().meta["captured"]


def test_a_folder_shows_its_traces_and_no_capture_of_theirs(tmp_path: Path) -> None:
    _graphs.write(tmp_path)
    assert [Path(path).name for path in expand_inputs([tmp_path])] == [TRACE]
    assert len(expand_inputs([tmp_path / "capture_traces"])) == 3


def test_another_capture_is_another_entry_of_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv(parsed_cache.OFF_VARIABLE, raising=False)
    monkeypatch.setattr(parsed_cache, "MIN_INPUT_BYTES", 1)
    _graphs.write(tmp_path)
    (first,) = load(tmp_path / TRACE)
    assert "captured" in first.meta and "captured" not in load(tmp_path / TRACE, capture=NO_CAPTURE)[0].meta
    shutil.rmtree(tmp_path / "capture_traces")
    (again,) = load(tmp_path / TRACE)
    assert "captured" not in again.meta


def test_captures_of_a_trace_without_a_rank_are_those_of_the_lowest() -> None:
    files = [Path(f"bs_8_rank{rank}.json.gz") for rank in (3, 1, 2)]
    assert capture_files._select_rank([*files, Path("bs_8.json.gz")], None) == [
        files[1],
        Path("bs_8.json.gz"),
    ]
    assert capture_files._select_rank(files, 2) == [files[2]]
