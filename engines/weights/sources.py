"""Where a model's weights come from: a folder, a file, or chance. Never the network."""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import torch

from capture.errors import EngineError, UsageError
from engines.models.catalogue import PRESETS, preset
from engines.models.spec import Spec, tensors
from engines.weights.checkpoint import Checkpoint
from engines.weights.gguf.model import GgufModel, read_model
from engines.weights.gguf.source import GgufSource
from engines.weights.hub import read_spec
from engines.weights.low_bit import Packed
from engines.weights.names import find

BLOCK: Final = 1 << 23  # numbers drawn: most matrices are a piece of them
STD: Final = 0.02
NO_LIMIT: Final = 1 << 62

Progress = Callable[[float], None]


class Source(Protocol):
    """Gives tensors by the names that checkpoints use; they may be shared, so that nobody writes to them."""

    label: str

    def read(self, name: str) -> torch.Tensor: ...

    def packed(self, name: str) -> Packed | None:
        """Return a matrix as it is stored; None where it is stored in no form of ours."""


@dataclass(frozen=True)
class Choice:
    """A model and the folder or the file that its weights lie in; neither: they are drawn by chance."""

    spec: Spec
    folder: Path | None = None
    gguf: GgufModel | None = None

    @property
    def place(self) -> Path | None:
        """Where the weights lie."""
        return self.gguf.path if self.gguf else self.folder

    @property
    def stored_as(self) -> str | None:
        """What a GGUF stores its matrices as; None of other weights."""
        return self.gguf.stored_as if self.gguf else None


def choose(model: str, weights: str) -> Choice:
    """Return what `--model` and `--weights` mean on this machine."""
    if weights == "random":
        return Choice(find(model).preset or preset(model))
    if weights == "auto":
        return _automatic(model)
    place = Path(weights).expanduser()
    if place.is_file():
        return _in_file(place)
    if not place.is_dir():
        todo = "auto and random are the other choices"
        raise UsageError(f"--weights {weights} is no folder and no file", todo=todo)
    return Choice(read_spec(place, model), place)


def _in_file(path: Path, name: str = "") -> Choice:
    model = read_model(path, name)
    return Choice(model.spec, gguf=model)


def _automatic(model: str) -> Choice:
    found = find(model)
    if found.path is None:
        return Choice(found.preset or preset(model))
    if found.path.is_file():
        return _in_file(found.path, found.name)
    return Choice(read_spec(found.path, found.name), found.path)


class RandomWeights:
    """Weights of the real shapes drawn from one normal block, each tensor at an offset of its own.

    One block, lent in pieces and tiled where a tensor is larger, takes a fraction of the time of drawing
    every value, and unlike zeros it is as slow to multiply as real weights. The values are such as bf16
    holds, in the dtype they are to be stored in: to convert them all would take longer than to copy them.
    """

    def __init__(self, spec: Spec, seed: int, dtype: torch.dtype = torch.bfloat16) -> None:
        self.label = "random"
        self._shapes = tensors(spec)
        self._norm = 0.0 if spec.unit_offset else 1.0
        generator = torch.Generator().manual_seed(seed)
        block = torch.empty(BLOCK).normal_(0.0, STD, generator=generator).to(torch.bfloat16)
        self._block = torch.cat((block, block)).to(dtype)

    def read(self, name: str) -> torch.Tensor:
        shape = self._shapes[name]
        if name.endswith("norm.weight"):
            return torch.full(shape, self._norm, dtype=self._block.dtype)
        start = zlib.crc32(name.encode()) % BLOCK
        if _size(shape) <= BLOCK:
            return self._block[start : start + _size(shape)].view(shape)
        out = torch.empty(shape, dtype=self._block.dtype)
        flat = out.view(-1)
        for at in range(0, flat.numel(), BLOCK):
            piece = flat[at : at + BLOCK]
            piece.copy_(self._block[start : start + piece.numel()])
        return out

    def packed(self, name: str) -> None:
        return None


def open_source(choice: Choice, seed: int, dtype: torch.dtype = torch.bfloat16) -> Source:
    """Return a checkpoint in its own dtype; random weights and blocks of a GGUF in the one asked for."""
    if choice.gguf:
        return GgufSource(choice.gguf, dtype)
    if choice.folder:
        return Checkpoint(choice.folder, choice.spec)
    return RandomWeights(choice.spec, seed, dtype)


class Tally:
    """Counts the weights of a model that are done, and reports their share."""

    def __init__(self, spec: Spec, progress: Progress) -> None:
        self._progress = progress
        self._left = self._total = sum(_size(s) for s in tensors(spec).values())

    def add(self, count: int) -> None:
        self._left -= count
        self._progress(1 - max(self._left, 0) / self._total)


class CountedSource:
    """Wraps a source, and counts every weight that is read."""

    def __init__(self, source: Source, tally: Tally) -> None:
        self.label = source.label
        self._source, self._tally = source, tally

    def read(self, name: str) -> torch.Tensor:
        tensor = self._source.read(name)
        self._tally.add(tensor.numel())
        return tensor

    def packed(self, name: str) -> Packed | None:
        return self._source.packed(name)


def _size(shape: tuple[int, ...]) -> int:
    return int(torch.Size(shape).numel())


def free_memory() -> int:
    """Return the bytes that may be taken: what is available, or what a control group allows if less."""
    free = _meminfo("MemAvailable")
    group = Path("/sys/fs/cgroup")
    try:
        limit = int((group / "memory.max").read_text())
        free = min(free, limit - int((group / "memory.current").read_text()))
    except (OSError, ValueError):
        pass
    return max(free, 0)


def free_bytes(device: torch.device) -> int:
    """Return what a device can still give; as good as no limit where it is unknown."""
    if device.type == "cpu":
        return free_memory()
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return NO_LIMIT


def _meminfo(field: str) -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))
    except (OSError, StopIteration, ValueError):
        return NO_LIMIT


def check_memory(
    spec: Spec, needed: int, free: int, needs: Callable[[Spec], int], ways: Mapping[str, int] | None = None
) -> None:
    """Raise EngineError before memory is taken; it names ways to run the model, and models, that fit."""
    if needed <= free:
        return
    smaller = sorted((s for s in PRESETS.values() if needs(s) <= free), key=needs, reverse=True)
    others = [(way, size) for way, size in (ways or {}).items() if size <= free]
    others += [(s.name, needs(s)) for s in smaller[:3]]
    fits = ", ".join(f"{name} ({_gb(size)})" for name, size in others)
    raise EngineError(
        f"{spec.name} needs {_gb(needed)} and {_gb(free)} are free",
        todo=f"these fit: {fits}" if fits else "no known model fits",
    )


def _gb(n: int) -> str:
    return f"{n / 1e9:.1f} GB"
