"""The memory of a phase: what the system counts, what an allocator says, and where neither tells."""

import mmap
from collections import OrderedDict
from pathlib import Path

import polars as pl
import pytest
import torch

from engines.training import phase_memory
from engines.training.phase_memory import AllocatorGauge, MemoryGauge, ResidentGauge, make_gauge
from engines.training.trainer import Trainer
from tests.engines.training.test_loop import CPU, PHASES, recorded
from tests.engines.training.test_trainer import TINY

BIG = 200_000_000
NEAR = BIG // 4  # what else may come and go meanwhile


def take_pages() -> None:
    """Take new pages for a moment: an allocator may have some from before, which count already."""
    with mmap.mmap(-1, BIG) as pages:
        for offset in range(0, BIG, mmap.PAGESIZE):
            pages[offset] = 1


class Greedy(Trainer):
    """Takes much for a moment on its way back."""

    def backward(self) -> None:
        super().backward()
        take_pages()


def test_a_peak_is_told_and_forgotten() -> None:
    actual = ResidentGauge()
    before = actual.held_bytes
    actual.reset()
    take_pages()
    reported = actual.read()
    assert reported["peak resident"] - before > BIG - NEAR
    assert reported["resident at the end"] - before < NEAR
    actual.reset()
    assert actual.read()["peak resident"] - before < NEAR


def test_without_the_right_to_reset_there_is_no_peak(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(phase_memory, "_RESET", tmp_path / "not" / "there")
    assert list(ResidentGauge().read()) == ["resident at the end"]
    monkeypatch.setattr(phase_memory, "_STATUS", tmp_path / "none")
    assert (
        type(make_gauge(CPU)) is MemoryGauge
        and make_gauge(CPU).read() == {}
        and make_gauge(CPU).held_bytes is None
    )


def test_an_accelerator_tells_of_its_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"current": 5, "peak": 9}
    stats = OrderedDict({f"allocated_bytes.all.{what}": size for what, size in now.items()})
    monkeypatch.setattr(torch.accelerator, "memory_stats", lambda device: stats)
    monkeypatch.setattr(torch.accelerator, "reset_peak_memory_stats", lambda device: None)
    actual = make_gauge(torch.device("cuda"))
    assert isinstance(actual, AllocatorGauge)
    assert actual.read() == {"peak allocated": 9, "allocated at the end": 5}


def test_an_accelerator_that_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so, or says nothing."""

    def refuse(device: torch.device) -> None:
        raise NotImplementedError

    monkeypatch.setattr(torch.accelerator, "reset_peak_memory_stats", lambda device: None)
    for actual in (refuse, lambda device: OrderedDict()):
        monkeypatch.setattr(torch.accelerator, "memory_stats", actual)
        assert type(make_gauge(torch.device("cuda"))) is MemoryGauge


@pytest.mark.slow
def test_each_phase_of_each_step_has_its_own(tmp_path: Path) -> None:
    rows = recorded(tmp_path / "prof.jsonl", 2, Greedy(TINY, CPU)).filter(kind="memory")
    actual = rows.select("step", pl.col("phase", "name").cast(str), "bytes").rows()
    sizes = {(step, phase, name): size for step, phase, name, size in actual}
    assert set(sizes) == {
        (step, phase, f"{what}, {phase}")
        for step in (1, 2)
        for phase in PHASES
        for what in ("peak resident", "resident at the end")
    }
    peaks = {phase: sizes[2, phase, f"peak resident, {phase}"] for phase in PHASES}
    assert peaks["backward"] - max(peaks["forward"], peaks["optimizer"]) > BIG - NEAR
