"""Weights from a folder, a GGUF file, or random numbers. Never from the network."""

import math
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from capture.errors import EngineError, UsageError
from engines.models.catalogue import PRESETS, find_preset
from engines.models.spec import Spec, count_parameters, list_tensors
from engines.weights.checkpoint import Checkpoint, WeightSource
from engines.weights.gguf.gguf_model import GgufModel, read_gguf_model
from engines.weights.gguf.gguf_source import GgufSource
from engines.weights.hub_cache import read_spec
from engines.weights.model_names import resolve_model

RANDOM_BLOCK: Final = 1 << 23  # numbers drawn; most matrices are slices of them
RANDOM_STD: Final = 0.02
UNKNOWN_BYTES: Final = 1 << 62


@dataclass(frozen=True)
class ModelChoice:
    """A model, and the folder or file with its weights; neither: random weights."""

    spec: Spec
    folder: Path | None = None
    gguf: GgufModel | None = None

    @property
    def path(self) -> Path | None:
        return self.gguf.path if self.gguf else self.folder

    @property
    def stored_as(self) -> str | None:
        """Quantisation of a GGUF file; None for other weights."""
        return self.gguf.stored_as if self.gguf else None


def choose_model(model: str, weights: str) -> ModelChoice:
    """Resolve `--model` and `--weights` on this machine."""
    if weights == "random":
        return ModelChoice(resolve_model(model).preset or find_preset(model))
    if weights == "auto":
        resolved = resolve_model(model)
        if resolved.path is None:
            return ModelChoice(resolved.preset or find_preset(model))
        path, name, file_name = resolved.path, resolved.name, resolved.name
    else:
        path, name, file_name = Path(weights).expanduser(), model, ""
    if path.is_file():
        gguf = read_gguf_model(path, file_name)
        return ModelChoice(gguf.spec, gguf=gguf)
    if not path.is_dir():
        todo = "or use auto or random"
        raise UsageError(f"--weights {weights}: no such file or folder", todo=todo)
    return ModelChoice(read_spec(path, name), path)


class RandomWeights(WeightSource):
    """Weights of the real shapes, drawn from one normal block, each tensor at its own offset.

    Slices of one block, repeated for larger tensors, take a fraction of the time of drawing every value, and
    are as slow to multiply as real weights, unlike zeros. Values are exact in bf16 and in the dtype of the
    storage, because converting them would take longer than copying.
    """

    def __init__(self, spec: Spec, seed: int, dtype: torch.dtype = torch.bfloat16) -> None:
        self._shapes = list_tensors(spec)
        self._norm = 0.0 if spec.unit_offset else 1.0
        generator = torch.Generator().manual_seed(seed)
        block = torch.empty(RANDOM_BLOCK).normal_(0.0, RANDOM_STD, generator=generator).to(torch.bfloat16)
        self._block = torch.cat((block, block)).to(dtype)

    def read(self, name: str) -> torch.Tensor:
        shape = self._shapes[name]
        if name.endswith("norm.weight"):
            return torch.full(shape, self._norm, dtype=self._block.dtype)
        start = zlib.crc32(name.encode()) % RANDOM_BLOCK
        if (count := math.prod(shape)) <= RANDOM_BLOCK:
            return self._block[start : start + count].view(shape)
        out = torch.empty(shape, dtype=self._block.dtype)
        flat = out.view(-1)
        for first in range(0, flat.numel(), RANDOM_BLOCK):
            chunk = flat[first : first + RANDOM_BLOCK]
            chunk.copy_(self._block[start : start + chunk.numel()])
        return out


def open_source(choice: ModelChoice, seed: int, dtype: torch.dtype = torch.bfloat16) -> WeightSource:
    """Open the weights: a checkpoint in its own dtype, random weights and GGUF blocks in `dtype`."""
    if choice.gguf:
        return GgufSource(choice.gguf, dtype)
    if choice.folder:
        return Checkpoint(choice.folder, choice.spec)
    return RandomWeights(choice.spec, seed, dtype)


class WeightTally:
    """Counts finished weights of a model and reports their share."""

    def __init__(self, spec: Spec, progress: Callable[[float], None]) -> None:
        self._progress = progress
        self._left = self._total = count_parameters(spec)

    def add(self, count: int) -> None:
        self._left -= count
        self._progress(1 - max(self._left, 0) / self._total)


class CountedSource(WeightSource):
    """Wraps a source and counts every weight read."""

    def __init__(self, source: WeightSource, tally: WeightTally) -> None:
        self._source, self._tally = source, tally

    def read(self, name: str) -> torch.Tensor:
        tensor = self._source.read(name)
        self._tally.add(tensor.numel())
        return tensor


def read_free_memory() -> int:
    """Return the available bytes of memory, or what the control group allows if less."""
    free, group = UNKNOWN_BYTES, Path("/sys/fs/cgroup")
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    with suppress(OSError, ValueError):
        limit = int((group / "memory.max").read_text())
        free = min(free, limit - int((group / "memory.current").read_text()))
    return max(free, 0)


def read_free_bytes(device: torch.device) -> int:
    """Return the free bytes of a device; a huge number if unknown."""
    if device.type == "cpu":
        return read_free_memory()
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return UNKNOWN_BYTES


def check_memory(
    spec: Spec,
    needed: int,
    free: int,
    estimate: Callable[[Spec], int],
    alternatives: Mapping[str, int] | None = None,
) -> None:
    """Raise EngineError if `needed` exceeds `free`, naming ways to run the model, and models, that fit."""
    if needed <= free:
        return
    smaller = sorted((s for s in PRESETS.values() if estimate(s) <= free), key=estimate, reverse=True)
    fitting = [(way, size) for way, size in (alternatives or {}).items() if size <= free]
    fitting += [(s.name, estimate(s)) for s in smaller[:3]]
    fits = ", ".join(f"{name} ({_format_gb(size)})" for name, size in fitting)
    todo = f"these fit: {fits}" if fits else "no known model fits"
    raise EngineError(f"{spec.name} needs {_format_gb(needed)}, {_format_gb(free)} are free", todo=todo)


def _format_gb(n: int) -> str:
    return f"{n / 1e9:.1f} GB"
