"""What is decided before memory is taken, on devices that are played."""

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch

from capture import nvidia
from capture.errors import UsageError
from engines import startup_choices
from engines.token_sampling import GREEDY
from tests.engines import tiny

CUDA, CPU = torch.device("cuda"), torch.device("cpu")


def asked(**given: Any) -> Namespace:
    return Namespace(**{"graph": None, "path": "fused", "slow": [], "device": "auto"} | given)


def decided(device: torch.device, named: str = "auto", **given: Any) -> tuple[str, str]:
    return startup_choices.choose_replay_mode(
        asked(device=named, **given), tiny.SPECS["llama"], GREEDY, device, is_single_rank=True
    )


def test_rocm_decodes_in_graphs_whose_borders_nobody_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup_choices, "explain_refusal", lambda *facts: "")
    assert decided(CUDA) == ("graph", "")
    monkeypatch.setattr(torch.version, "hip", "7.1")
    way, note = decided(CUDA)
    assert way == "graph" and note.startswith("ROCm cannot time layers within a graph")
    assert decided(CUDA, graph=False) == ("launched", "")
    assert decided(CUDA, graph=True) == (way, note)


def played_driver(folder: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """The first line as the kernel module of the driver writes it."""
    head = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64"
    (folder / "version").write_text(f"{head}  {version}  Release Build\nGCC version:  gcc version 12.3.0\n")
    monkeypatch.setattr(nvidia, "_PROC", folder)


@pytest.mark.parametrize(
    ("cuda", "driver", "why"),
    [
        (
            "13.0", "550.54.15",
            "the NVIDIA driver 550.54.15 is too old for torch's CUDA 13.0, which needs 580 or later",
        ),
        ("12.8", "550.54.15", ""),
        ("13.0", "580.65.06", ""),
        (None, "580.65.06", "an NVIDIA driver (580.65.06) is present, but this torch is built without CUDA"),
    ],
)  # fmt: skip
def test_a_driver_that_torch_cannot_use_is_named(
    cuda: str | None, driver: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert nvidia.explain_unused_gpu(cuda) == "", "no driver here"
    played_driver(tmp_path, monkeypatch, driver)
    assert nvidia.explain_unused_gpu(cuda) == why


def test_the_processor_does_not_take_over_in_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played_driver(tmp_path, monkeypatch, "550.54.15")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    way, note = decided(startup_choices.find_device("auto"))
    assert way == "" and note.startswith("the CPU decodes: the NVIDIA driver 550.54.15 is too old")
    assert decided(CPU, named="cpu") == ("", ""), "it was asked for"
    with pytest.raises(UsageError, match=r"no cuda device here: the NVIDIA driver 550\.54\.15 is too old"):
        startup_choices.find_device("cuda")
