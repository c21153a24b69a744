"""Gauges are of the GPUs that the program sees: gpu 0 is its first, by whatever name it was chosen."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from capture.record.counters.gpu_counters import find_gpu_handles, parse_visible_devices

HERE = Path(__file__).parent


class Log:
    """Takes the marks of an emitter."""

    def __init__(self) -> None:
        self.marks: list[str] = []

    def mark(self, text: str, path: str = "note") -> None:
        self.marks.append(text)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two GPUs, of which the first is divided."""
    monkeypatch.syspath_prepend(str(HERE / "fake_nvml"))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    import pynvml

    yield pynvml
    sys.modules.pop("pynvml", None)


@pytest.mark.parametrize(
    ("visible", "handles"),
    [
        (None, {"gpu 0": 0, "gpu 1": 1}),
        ("1", {"gpu 0": 1}),
        ("1,0", {"gpu 0": 1, "gpu 1": 0}),
        ("", {}),
        ("-1", {}),
        ("1,5,0", {"gpu 0": 1}),
        ("1,1", {}),
        ("GPU-bbbb-1", {"gpu 0": 1}),
        ("GPU-bb", {"gpu 0": 1}),
        ("MIG-cccc-0", {"gpu 0": 7}),
        ("MIG-cc", {"gpu 0": 7}),
    ],
)
def test_gauges_are_of_the_gpus_that_the_program_sees(
    nvml: Any, visible: str | None, handles: dict[str, int]
) -> None:
    assert find_gpu_handles(nvml, Log(), visible) == handles  # type: ignore[arg-type]


def test_a_uuid_of_another_machine_is_named(nvml: Any) -> None:
    log = Log()
    assert find_gpu_handles(nvml, log, "GPU-dddd") == {}  # type: ignore[arg-type]
    assert log.marks == ["gpu 0 cannot be measured: Not Found"]


def test_the_tenth_gpu_is_the_tenth() -> None:
    assert parse_visible_devices(None, 12)[10] == 10 and parse_visible_devices("11,10", 12) == [11, 10]
