"""The roofs that the engine measures, and which of them a run is told."""

import json
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from capture import roofs as kept_roofs
from capture.errors import UsageError
from capture.roofs import Roof
from engines.host import roof_watch, roofs
from engines.weights import fastest
from tests.engines.test_engine import main, of_kind, recorded

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures of tiny matrices and copies, in a cache of their own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, value in {
        "COPY_BYTES": 1 << 16,
        "SIDE": 32,
        "QUICK_SIDE": 32,
        "LAUNCHES": 10,
        "LONG_S": 0.0,
    }.items():
        monkeypatch.setattr(roofs, name, value)
    monkeypatch.setattr(roofs, "read_passes", lambda: [1e10, 3e10, 4e10])


def ticking(seconds: float) -> Callable[[], float]:
    """A clock that moves on by so much at each look."""
    now = 0.0

    def look() -> float:
        nonlocal now
        now += seconds
        return now

    return look


def test_rates_are_work_over_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofs.time, "perf_counter", ticking(0.5))
    with torch.inference_mode():
        roof = roofs.measure(CPU, lambda _: None)
    assert (roof.read_bytes_per_s, roof.read_low, roof.read_high) == (3e10, 1e10, 4e10)
    assert roof.copy_bytes_per_s == 2 * (1 << 16) / 0.5
    assert roof.flop_per_s["fp32"] == 2 * 32**3 / 0.5
    assert roof.floor_ns == pytest.approx(0.5e9 / 10)
    assert roof.source == "measured" and roof.cache == "cache" and roof.torch == torch.__version__


def test_reading_goes_over_several_gigabytes_and_keeps_its_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    """A field of 4 kB, 8 kB in all; the clock says that each pass takes twice as long as the one before."""
    seconds = iter((1.0, 2.0, 3.0, 5.0, 6.0, 10.0))  # passes of 1, 2 and 4 seconds
    monkeypatch.setattr(fastest, "FIELD", 1024)
    monkeypatch.setattr(fastest, "READ_BYTES", 3 * 4096)
    monkeypatch.setattr(fastest.time, "perf_counter", lambda: next(seconds))
    assert fastest.read_passes() == [4096.0, 2048.0, 1024.0]
    seconds = iter((1.0, 2.0, 3.0, 5.0, 6.0, 10.0))
    assert fastest.read_rate() == 2048.0
    assert (4 << 30) / (1 << 28) >= 16, "sixteen passes as it is"


def test_memory_is_read_again_in_the_pauses_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes of 40, 20 and 60 ms of a played clock: the fastest is told, the next is 30 s later."""
    clock, passes = {"now": 0}, cycle((40_000_000, 20_000_000, 60_000_000))
    told: list[tuple[str, float, str]] = []

    class Field:
        def numel(self) -> int:
            return 1000

        def element_size(self) -> int:
            return 4

        def sum(self) -> None:
            clock["now"] += next(passes)

    emitter = SimpleNamespace(counter=lambda *facts: told.append(facts))
    monkeypatch.setattr(roof_watch, "now", lambda: clock["now"])
    pause = roof_watch.RoofWatch(emitter, Field()).pause  # type: ignore[arg-type]
    taken = []
    for _ in range(400):  # steps of 0.1 s
        clock["now"] += 100_000_000
        taken.append(pause())
    assert [n for n, read in enumerate(taken) if read] == [0, 299], "at 0.1 s and at 30.1 s"
    assert told == [("memory_read", 4000 / 0.02, "B/s")] * 2


@pytest.mark.parametrize(("device", "bare"), [("cuda", False), ("cpu", True)])
def test_where_nothing_is_to_be_read_no_memory_is_taken(
    device: str, bare: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roof_watch, "RoofWatch", None)
    assert not roof_watch.watch(SimpleNamespace(), torch.device(device), bare=bare)()  # type: ignore[arg-type]


def test_a_gpu_multiplies_in_three_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter((1.0, 4.0, 2.0))
    allowed = []

    def clock(work: Callable[[], object]) -> float:
        allowed.append(torch.backends.cuda.matmul.allow_tf32)
        work()
        return next(seconds)

    monkeypatch.setattr(roofs, "_best_on_gpu", clock)
    work = 2 * 32**3
    assert roofs._rates_on_gpu(CPU, 32) == {"bf16": work, "fp32": work / 4, "tf32": work / 2}
    assert allowed == [False, False, True] and not torch.backends.cuda.matmul.allow_tf32


def test_what_was_measured_before_is_told_and_nothing_measured_again() -> None:
    roof = Roof(roofs.device_name(CPU), "measured", 5e9, torch=str(torch.__version__))
    kept_roofs.keep(roof)
    assert roofs.roof_of(CPU) == roof


def test_under_another_torch_it_is_measured_at_the_start() -> None:
    kept_roofs.keep(Roof(roofs.device_name(CPU), "measured", 5e9, torch="1.0"))
    roof = roofs.roof_of(CPU)
    assert roof and roof.source == "measured at the start of the run" and roof.read_bytes_per_s == 3e10
    assert roof.compute("float32") == roof.flop_per_s["fp32"] > 0


def played_gpu(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A GPU that copies 1 MB in a microsecond; its products and launches take two."""
    monkeypatch.setattr(roofs, "device_name", lambda device: name)
    monkeypatch.setattr(roofs, "_identity", lambda device: ("GPU-1", "580.1", "2.13.0"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (4_000_000, 8_000_000))
    monkeypatch.setattr(roofs, "_copy_rate", lambda device, size, best: 2 * size / 1e-6)
    monkeypatch.setattr(roofs, "_matmul_rate", lambda device, dtype, side, best: 2 * side**3 / 2e-6)
    monkeypatch.setattr(roofs, "_graph_launch_ns", lambda device: 2e3)


@pytest.mark.parametrize("name", ["NVIDIA H200", "NVIDIA H200 MIG 1g.18gb", "NVIDIA of tomorrow"])
def test_a_gpu_is_measured_at_the_start(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of it never has the figures of the whole, and an unknown one is not without any."""
    played_gpu(monkeypatch, name)
    roof = roofs.roof_of(torch.device("cuda"))
    assert roof and roof.source == "measured at the start of the run" and roof.device == name
    assert roof.memory == 2e12 and roof.flop_per_s["bf16"] == 4096**3 / 1e-6 and roof.floor_ns == 2e3


@pytest.mark.parametrize(("name", "memory"), [("NVIDIA H200", 4.8e12), ("NVIDIA H200 MIG 1g.18gb", None)])
def test_a_gpu_without_room_has_the_figures_of_its_maker(
    name: str, memory: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    played_gpu(monkeypatch, name)

    def full(device: torch.device, size: int, best: object) -> float:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(roofs, "_copy_rate", full)
    roof = roofs.roof_of(torch.device("cuda"))
    assert (roof and (roof.source, roof.memory)) == (memory and ("table", memory))


def test_through_the_door_the_roofs_stand_in_the_meta(tmp_path: Path) -> None:
    out = tmp_path / "roofs.jsonl"
    assert main(["--tell", "roofs", "--device", "cpu", "--out", str(out)]) == 0
    told = {k: v for run in of_kind(recorded(out), "run") for k, v in run["meta"].items()}
    roof = kept_roofs.from_meta(told["roof"])
    assert roof and roof.source == "measured" and roof.memory >= 3e10
    assert "model" not in told


def test_a_device_that_cannot_be_measured_is_named() -> None:
    with pytest.raises(UsageError, match="roofs of a meta device are not measured"):
        roofs.measure(torch.device("meta"), lambda _: None)


def test_a_run_carries_its_roof(tmp_path: Path) -> None:
    from tests.engines import folders, tiny

    kept_roofs.keep(Roof(roofs.device_name(CPU), "measured", 5e9, torch=str(torch.__version__)))
    model = folders.write(tmp_path / "m", folders.OLD_GEMMA, tiny.weights(tiny.SPECS["gemma3"]))
    out = tmp_path / "a.jsonl"
    assert main(["--model", "g", "--weights", str(model), "--out", str(out), "--dtype", "fp32",
                 "--device", "cpu", "--threads", "1", "--steps", "1"]) == 0  # fmt: skip
    metas = [run["meta"] for run in of_kind(recorded(out), "run")]
    assert metas[1]["roof"]["read_bytes_per_s"] == 5e9
    assert json.dumps(metas[1]["roof"])
