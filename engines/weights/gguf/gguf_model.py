"""A GGUF file as a model: its spec and its tensors. Needs no torch."""

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from capture.errors import EngineError
from engines.models.gguf_config import EMBEDDING, HEAD, ROPE_FACTORS, map_tensor_name, read_metadata
from engines.models.spec import Spec, list_tensors
from engines.weights.gguf.gguf_header import GgufHeader, StoredTensor, read_gguf_header

SUFFIX: Final = ".gguf"
MAX_ROPE_FACTORS: Final = 1024
# by `general.file_type`: what most of a file's matrices are stored as, in the words of its makers
_FILE_TYPES: Final = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S",
    12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K",
    32: "BF16",
}  # fmt: skip


@dataclass(frozen=True)
class GgufModel:
    """A model in one file."""

    header: GgufHeader
    spec: Spec
    has_adjacent_pairs: bool  # what rotates together lies side by side in query and key heads

    @property
    def path(self) -> Path:
        return self.header.path

    @property
    def stored_as(self) -> str:
        """Quantisation of the file in the words of llama.cpp, such as Q4_K_M."""
        name = _FILE_TYPES.get(self.header.fields.get("general.file_type", -1))
        if name:
            return name
        sizes: dict[str, int] = {}
        for tensor in self.header.tensors.values():
            sizes[tensor.type.name] = sizes.get(tensor.type.name, 0) + tensor.size
        return max(sizes, key=sizes.__getitem__)

    @property
    def layer_types(self) -> set[str]:
        """Types of all matrices within layers."""
        stored = self.header.tensors.items()
        return {t.type.name for name, t in stored if name.startswith("blk.") and len(t.shape) > 1}

    @property
    def embedding_types(self) -> set[str]:
        """Types of the embedding and of the head."""
        return {self.header.tensors[n].type.name for n in (EMBEDDING, HEAD) if n in self.header.tensors}

    def find_stored(self, name: str) -> StoredTensor:
        """Return the location of a tensor by its name in a checkpoint."""
        return self.header.tensors[map_tensor_name(self.spec, name)]


def read_gguf_model(path: Path, name: str = "") -> GgufModel:
    """Read the model in a GGUF file, named after the file by default.

    Raise EngineError for a damaged, unsupported or incomplete file.
    """
    header = read_gguf_header(path)
    parts = header.fields.get("split.count", 1)
    if parts not in (0, 1):
        todo = "join them: llama-gguf-split --merge FIRST OUT"
        raise EngineError(f"one of {parts!r:.20} parts of a model", where=str(path), todo=todo)
    shapes = {name: tensor.shape for name, tensor in header.tensors.items()}
    factors = _read_rope_factors(header)
    spec, pairs = read_metadata(header.fields, shapes, factors, name or path.stem, str(path))
    _check_gguf_tensors(header, spec)
    return GgufModel(header, spec, pairs)


def _read_rope_factors(header: GgufHeader) -> tuple[float, ...]:
    """Return the factors of the rotary frequencies; empty if the file has none."""
    tensor = header.tensors.get(ROPE_FACTORS)
    if tensor is None:
        return ()
    count = math.prod(tensor.shape)
    if tensor.type.name != "F32" or count > MAX_ROPE_FACTORS:
        message = f"{ROPE_FACTORS} must be at most {MAX_ROPE_FACTORS} numbers of F32"
        raise EngineError(message, where=str(header.path))
    try:
        with header.path.open("rb") as file:
            file.seek(tensor.start)
            return struct.unpack(f"<{count}f", file.read(tensor.size))
    except (OSError, struct.error) as e:
        raise EngineError("cannot be read", where=str(header.path), why=str(e)[:200]) from None


def _check_gguf_tensors(header: GgufHeader, spec: Spec) -> None:
    """Raise EngineError unless the file has exactly the model's tensors in their shapes."""
    shapes = {map_tensor_name(spec, name): shape for name, shape in list_tensors(spec).items()}
    for name, shape in shapes.items():
        stored = header.tensors.get(name)
        if stored is None:
            raise EngineError(f"tensor {name} is missing", where=str(header.path))
        if stored.shape != shape:
            message = f"tensor {name} has shape {list(stored.shape)}, its metadata requires {list(shape)}"
            raise EngineError(message, where=str(header.path))
    if extra := sorted(header.tensors.keys() - shapes.keys() - {ROPE_FACTORS}):
        why = ", ".join(extra[:3])
        raise EngineError("contains unsupported tensors", where=str(header.path), why=why[:300])
