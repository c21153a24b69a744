"""One device of several: its rows and those of the host are left, and what is asked of it is its own."""

from typing import Any

import pytest

from capture.devices import group_tracks_by_device, select_device
from capture.errors import UsageError
from capture.run import Run
from tests.tracetui.runs import made


def kernel(track: str, dur: int, **more: Any) -> dict[str, Any]:
    return {"kind": "kernel", "name": f"k{dur}", "t": 0, "dur": dur, "lens": "gpu", "track": track, **more}


def two() -> Run:
    host = {"kind": "span", "name": "aten::mm", "t": 0, "dur": 9, "lens": "host", "track": "thread 1"}
    step = {"kind": "step", "name": "step", "t": 0, "dur": 50, "step": 1}
    rows = [kernel("gpu0/stream7", 1), kernel("gpu0/stream9", 2), kernel("gpu1/stream7", 4)]
    return made([*rows, kernel("rank 3 / gpu0/7", 8), host, step])


def test_the_devices_are_those_that_work() -> None:
    assert group_tracks_by_device(two()) == {
        "gpu0": ["gpu0/stream7", "gpu0/stream9"], "gpu1": ["gpu1/stream7"], "rank 3": ["rank 3 / gpu0/7"],
    }  # fmt: skip


@pytest.mark.parametrize(("name", "left"), [("gpu0", [1, 2]), ("gpu1", [4]), ("rank 3", [8])])
def test_a_run_of_one_device_keeps_the_host(name: str, left: list[int]) -> None:
    rows = select_device(two(), name).events
    assert rows.filter(rows["kind"] == "kernel")["dur"].to_list() == left
    assert sorted(rows.filter(rows["kind"] != "kernel")["kind"].cast(str)) == ["span", "step"]


def test_a_name_that_no_device_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError) as refused:
        select_device(two(), "gpu7")
    assert "gpu0, gpu1, rank 3" in str(refused.value)


def test_a_run_of_one_device_is_as_it_was() -> None:
    run = made([kernel("gpu0/stream7", 1), kernel("gpu0/stream9", 2)])
    assert select_device(run, "gpu0") is run
