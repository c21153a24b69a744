"""The roofs that the engine measures, and which of them a run is told."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from capture import device_roofs as kept_roofs
from capture.device_roofs import Roof
from capture.errors import UsageError
from engines.host import measure_roofs
from engines.host.measure_roofs import BandwidthProbe
from tests.engines.test_engine import main, of_kind, recorded

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures of tiny matrices and copies, in a cache of their own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, value in {
        "COPY_BYTES": 1 << 16,
        "MATMUL_SIDES": (32, 16),
        "QUICK_MATMUL_SIDES": (32,),
        "LAUNCHES": 10,
        "MIN_TRIES_S": 0.0,
    }.items():
        monkeypatch.setattr(measure_roofs, name, value)
    monkeypatch.setattr(measure_roofs, "BandwidthProbe", Passes)


class Passes:
    """Memory whose passes are known."""

    def __init__(self, *, huge_pages: bool) -> None:
        self.huge_pages = huge_pages

    def measure_passes(self, seconds: float) -> list[float]:
        assert self.huge_pages == (seconds == measure_roofs.FULL_READ_S), (
            "large pages take longer than a start may"
        )
        return [1e10, 3e10, 4e10]


def ticking(seconds: float) -> Callable[[], float]:
    """A clock that moves on by so much at each look."""
    now = 0.0

    def look() -> float:
        nonlocal now
        now += seconds
        return now

    return look


def test_rates_are_work_over_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_roofs.time, "perf_counter", ticking(0.5))
    with torch.inference_mode():
        roof = measure_roofs.measure_roof(CPU, lambda _: None)
    assert (roof.read_bytes_per_s, roof.read_low, roof.read_high) == (3.5e10, 1e10, 4e10)
    assert roof.copy_bytes_per_s == 2 * (1 << 16) / 0.5
    assert roof.flop_per_s["fp32"] == 2 * 32**3 / 0.5
    assert roof.floor_ns == pytest.approx(0.5e9 / 10)
    assert roof.source == "measured" and roof.cache == "cache" and roof.torch == torch.__version__


def test_profiler_cost_is_measured_within_a_factor_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """By another way: the whole time of ops that torch's own profiler counts, with and without it."""
    monkeypatch.setattr(measure_roofs, "LAUNCHES", 1000)
    with torch.inference_mode():
        costs = sorted(measure_roofs.measure_profiler_cost_ns() for _ in range(3))
    assert 50 < costs[0] <= costs[2] < 1.5 * costs[0]


def test_a_pass_is_its_middle_piece_and_the_roof_the_upper_quartile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes of 3 pieces of 4000 bytes, in milliseconds by a played clock; 0.1 s is over after the fifth."""
    took = iter((1, 2, 90, 4, 1, 1, 2, 1, 2, 1, 1, 1, 5, 5, 1))
    clock = {"now": 0.0}

    def read(piece: torch.Tensor) -> float:
        clock["now"] += next(took) / 1000
        return float(piece.sum())

    monkeypatch.setattr(measure_roofs, "READ_NUMBERS", 3000)
    monkeypatch.setattr(measure_roofs, "TIMED_NUMBERS", 1000)
    monkeypatch.setattr(measure_roofs, "sum_numbers", read)
    monkeypatch.setattr(measure_roofs.time, "perf_counter", lambda: clock["now"])
    passes = BandwidthProbe(huge_pages=False).measure_passes(0.11)
    assert passes == pytest.approx([2e6, 4e6, 2e6, 4e6, 0.8e6])
    assert measure_roofs.compute_sustained_rate(passes) == pytest.approx(4e6), "of 0.8, 2, 2, 4, 4 the fourth"
    took = iter((5, 5, 5))
    assert BandwidthProbe(huge_pages=False).measure_passes(0.0) == pytest.approx([0.8e6]), "one pass at least"


def test_a_gpu_multiplies_in_three_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter((1.0, 4.0, 2.0))
    allowed = []

    def clock(work: Callable[[], object]) -> float:
        allowed.append(torch.backends.cuda.matmul.allow_tf32)
        work()
        return next(seconds)

    monkeypatch.setattr(measure_roofs, "_time_best_on_gpu", clock)
    work = 2 * 32**3
    assert measure_roofs._measure_gpu_matmul_rates(CPU, 32) == {
        "bf16": work,
        "fp32": work / 4,
        "tf32": work / 2,
    }
    assert allowed == [False, False, True] and not torch.backends.cuda.matmul.allow_tf32


def test_what_was_measured_before_is_told_and_nothing_measured_again() -> None:
    roof = Roof(measure_roofs.find_device_name(CPU), "measured", 5e9, torch=str(torch.__version__))
    kept_roofs.save_measured_roof(roof)
    assert measure_roofs.find_roof(CPU) == roof


def test_under_another_torch_it_is_measured_at_the_start() -> None:
    kept_roofs.save_measured_roof(Roof(measure_roofs.find_device_name(CPU), "measured", 5e9, torch="1.0"))
    roof = measure_roofs.find_roof(CPU)
    assert roof and roof.source == "measured at the start of the run" and roof.read_bytes_per_s == 3.5e10
    assert roof.find_flop_rate("float32") == roof.flop_per_s["fp32"] > 0


def played_gpu(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A GPU that copies 1 MB in a microsecond; its products and launches take two."""
    monkeypatch.setattr(measure_roofs, "find_device_name", lambda device: name)
    monkeypatch.setattr(measure_roofs, "_read_identity", lambda device: ("GPU-1", "580.1", "2.13.0"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (4_000_000, 8_000_000))
    monkeypatch.setattr(measure_roofs, "_measure_copy_rate", lambda device, size, best: 2 * size / 1e-6)
    monkeypatch.setattr(
        measure_roofs, "_measure_matmul_rate", lambda device, dtype, side, best: 2 * side**3 / 2e-6
    )
    monkeypatch.setattr(measure_roofs, "_measure_graph_launch_ns", lambda device: 2e3)


@pytest.mark.parametrize("name", ["NVIDIA H200", "NVIDIA H200 MIG 1g.18gb", "NVIDIA of tomorrow"])
def test_a_gpu_is_measured_at_the_start(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of it never has the figures of the whole, and an unknown one is not without any."""
    played_gpu(monkeypatch, name)
    roof = measure_roofs.find_roof(torch.device("cuda"))
    assert roof and roof.source == "measured at the start of the run" and roof.device == name
    assert (
        roof.memory_bytes_per_s == 2e12 and roof.flop_per_s["bf16"] == 4096**3 / 1e-6 and roof.floor_ns == 2e3
    )


@pytest.mark.parametrize(("name", "memory"), [("NVIDIA H200", 4.8e12), ("NVIDIA H200 MIG 1g.18gb", None)])
def test_a_gpu_without_room_has_the_figures_of_its_maker(
    name: str, memory: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    played_gpu(monkeypatch, name)

    def full(device: torch.device, size: int, best: object) -> float:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(measure_roofs, "_measure_copy_rate", full)
    roof = measure_roofs.find_roof(torch.device("cuda"))
    assert (roof and (roof.source, roof.memory_bytes_per_s)) == (memory and ("table", memory))


def test_through_the_door_the_roofs_stand_in_the_meta(tmp_path: Path) -> None:
    out = tmp_path / "roofs.jsonl"
    assert main(["--tell", "roofs", "--device", "cpu", "--out", str(out)]) == 0
    actual = {k: v for run in of_kind(recorded(out), "run") for k, v in run["meta"].items()}
    roof = kept_roofs.from_meta(actual["roof"])
    assert roof and roof.source == "measured" and roof.memory_bytes_per_s >= 3e10
    assert "model" not in actual


def test_a_device_that_cannot_be_measured_is_named() -> None:
    with pytest.raises(UsageError, match="roofs of meta devices cannot be measured"):
        measure_roofs.measure_roof(torch.device("meta"), lambda _: None)


def test_a_run_carries_its_roof(tmp_path: Path) -> None:
    from tests.engines import folders, tiny

    kept_roofs.save_measured_roof(
        Roof(measure_roofs.find_device_name(CPU), "measured", 5e9, torch=str(torch.__version__))
    )
    model = folders.write(tmp_path / "m", folders.OLD_GEMMA, tiny.weights(tiny.SPECS["gemma3"]))
    out = tmp_path / "a.jsonl"
    assert main(["--model", "g", "--weights", str(model), "--out", str(out), "--dtype", "fp32",
                 "--device", "cpu", "--threads", "1", "--steps", "1"]) == 0  # fmt: skip
    metas = [run["meta"] for run in of_kind(recorded(out), "run")]
    assert metas[1]["roof"]["read_bytes_per_s"] == 5e9
    assert json.dumps(metas[1]["roof"])
