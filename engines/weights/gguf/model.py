"""A GGUF file as a model: how it is decoded, and where its tensors lie. Torch is not imported for it."""

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from capture.errors import EngineError
from engines.models.gguf import EMBEDDING, HEAD, ROPE_FACTORS, of_metadata, tensor_name
from engines.models.spec import Spec, tensors
from engines.weights.gguf.header import Header, StoredTensor, read_header

SUFFIX: Final = ".gguf"
MOST_FACTORS: Final = 1024
# by `general.file_type`: what most of a file's matrices are stored as, in the words of its makers
_MIXTURES: Final = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S",
    12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K",
    32: "BF16",
}  # fmt: skip


@dataclass(frozen=True)
class GgufModel:
    """A model in one file."""

    header: Header
    spec: Spec
    pairs: bool  # what rotates together lies side by side in query and key heads

    @property
    def path(self) -> Path:
        return self.header.path

    @property
    def stored_as(self) -> str:
        """What the file's matrices are stored as, in the words of llama.cpp: Q4_K_M."""
        named = _MIXTURES.get(self.header.fields.get("general.file_type", -1))
        if named:
            return named
        sizes: dict[str, int] = {}
        for tensor in self.header.tensors.values():
            sizes[tensor.type.name] = sizes.get(tensor.type.name, 0) + tensor.size
        return max(sizes, key=sizes.__getitem__)

    @property
    def layer_types(self) -> set[str]:
        """The types of all matrices within layers."""
        stored = self.header.tensors.items()
        return {t.type.name for name, t in stored if name.startswith("blk.") and len(t.shape) > 1}

    @property
    def end_types(self) -> set[str]:
        """The types of the embedding and of the head."""
        return {self.header.tensors[n].type.name for n in (EMBEDDING, HEAD) if n in self.header.tensors}

    def stored(self, name: str) -> StoredTensor:
        """Return where a tensor lies, by its name in a checkpoint."""
        return self.header.tensors[tensor_name(self.spec, name)]


def read_model(path: Path, name: str = "") -> GgufModel:
    """Return the model in a GGUF file, called by its file where it has no other name.

    Raise EngineError for what is damaged, not decoded, or not whole.
    """
    header = read_header(path)
    parts = header.fields.get("split.count", 1)
    if parts not in (0, 1):
        todo = "join them: llama-gguf-split --merge FIRST OUT"
        raise EngineError(f"is one of {parts!r:.20} parts", where=str(path), todo=todo)
    shapes = {name: tensor.shape for name, tensor in header.tensors.items()}
    spec, pairs = of_metadata(header.fields, shapes, _rope_factors(header), name or path.stem, str(path))
    _check(header, spec)
    return GgufModel(header, spec, pairs)


def _rope_factors(header: Header) -> tuple[float, ...]:
    """Return the factors of the rotary frequencies; none where the file has none."""
    tensor = header.tensors.get(ROPE_FACTORS)
    if tensor is None:
        return ()
    count = math.prod(tensor.shape)
    if tensor.type.name != "F32" or count > MOST_FACTORS:
        raise EngineError(f"holds {ROPE_FACTORS} as no short row of F32", where=str(header.path))
    try:
        with header.path.open("rb") as file:
            file.seek(tensor.start)
            return struct.unpack(f"<{count}f", file.read(tensor.size))
    except (OSError, struct.error) as e:
        raise EngineError("cannot be read", where=str(header.path), why=str(e)[:200]) from None


def _check(header: Header, spec: Spec) -> None:
    """Raise EngineError unless the file holds the model's tensors in their shapes, and no others."""
    wanted = {tensor_name(spec, name): shape for name, shape in tensors(spec).items()}
    for name, shape in wanted.items():
        stored = header.tensors.get(name)
        if stored is None:
            raise EngineError(f"lacks the tensor {name}", where=str(header.path))
        if stored.shape != shape:
            what = f"holds {name} as {list(stored.shape)}, its fields ask for {list(shape)}"
            raise EngineError(what, where=str(header.path))
    if extra := sorted(header.tensors.keys() - wanted.keys() - {ROPE_FACTORS}):
        why = ", ".join(extra[:3])
        raise EngineError("holds tensors that are not decoded here", where=str(header.path), why=why[:300])
