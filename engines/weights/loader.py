"""Turn tensors into matrices, one layer at a time, so that little is held twice."""

from collections.abc import Sequence
from typing import Final

import torch

from engines.experts import Expert, MixtureWeights
from engines.layer import LayerWeights
from engines.models.spec import Experts, Spec, norm_names
from engines.weights.low_bit import Packed, joined
from engines.weights.sources import Source
from engines.weights.storage import Matrix, Storage, Table, Weight

_TURNED: Final = ("q_proj", "k_proj", "q_norm", "k_norm")


class Loader:
    """Reads the tensors of a source, and has them stored."""

    def __init__(
        self, spec: Spec, source: Source, packing: Storage, device: torch.device, *, fused: bool
    ) -> None:
        self._spec, self._source, self._packing, self._device = spec, source, packing, device
        self._fused = fused
        self._room = torch.empty(0)  # for tensors that are joined and not kept: memory is slow to come by

    def layer(self, number: int) -> LayerWeights:
        prefix = f"model.layers.{number}."
        qkv = [f"{prefix}self_attn.{n}_proj" for n in "qkv"]
        gate_up = [f"{prefix}mlp.{n}_proj" for n in ("gate", "up")]
        matrices = self._joined("qkv", ("q", "k", "v"), qkv) | {
            "o": self._matrix([f"{prefix}self_attn.o_proj"])
        }
        if not self._spec.experts_of(number):
            matrices |= self._joined("gate_up", ("gate", "up"), gate_up)
            matrices["down"] = self._matrix([f"{prefix}mlp.down_proj"])
        bias = torch.cat([self._vector(f"{n}.bias") for n in qkv]) if self._spec.qkv_bias else None
        out_bias = self._vector(f"{prefix}self_attn.o_proj.bias") if self._spec.out_bias else None
        sinks = self._vector(f"{prefix}self_attn.sinks") if self._spec.sinks else None
        sinks = sinks if sinks is None else sinks.view(self._spec.kv_heads, -1)
        return LayerWeights(self._spec, matrices, self._norms(prefix), bias, out_bias, sinks)

    def mixture(self, number: int) -> MixtureWeights | None:
        """Return the experts of a layer; None where its feed-forward is a single one."""
        mixture = self._spec.experts_of(number)
        if mixture is None:
            return None
        prefix = f"model.layers.{number}.mlp"
        bias = self._vector(f"{prefix}.gate.bias") if mixture.bias else None
        experts = tuple(self._expert(f"{prefix}.experts.{i}", mixture) for i in range(mixture.count))
        return MixtureWeights(mixture, self._vector(f"{prefix}.gate.weight"), bias, experts)

    def _expert(self, name: str, mixture: Experts) -> Expert:
        wide, down = [f"{name}.gate_proj", f"{name}.up_proj"], f"{name}.down_proj"
        matrices = self._matrix(wide), self._matrix([down])
        if not mixture.bias:
            return Expert(*matrices)
        bias = torch.cat([self._vector(f"{part}.bias") for part in wide])
        return Expert(*matrices, bias, self._vector(f"{down}.bias"))

    def norm(self, name: str) -> torch.Tensor:
        return self._vector(name) + (1.0 if self._spec.unit_offset else 0.0)

    def ends(self) -> tuple[Table, Matrix]:
        """Return the embedding and the head."""
        head = None if self._spec.tied else self._weight("lm_head.weight")
        return self._packing.ends(self._weight("model.embed_tokens.weight"), head, self._device)

    def _joined(self, whole: str, parts: Sequence[str], names: list[str]) -> dict[str, Matrix]:
        if self._fused:
            return {whole: self._matrix(names)}
        return {part: self._matrix([name]) for part, name in zip(parts, names, strict=True)}

    def _matrix(self, names: list[str]) -> Matrix:
        read = [self._paired(f"{n}.weight", self._weight(f"{n}.weight")) for n in names]
        return self._packing.matrix(read[0] if len(read) == 1 else self._cat(read), self._device)

    def _weight(self, name: str) -> Weight:
        """Return a matrix as its source has packed it, where it can be taken so; else as numbers."""
        packed = self._source.packed(name) if self._packing.form else None
        return packed if packed and packed.form == self._packing.form else self._source.read(name)

    def _cat(self, read: list[Weight]) -> Weight:
        packed = [part for part in read if isinstance(part, Packed)]
        if len(packed) == len(read):
            return joined(packed)
        parts = [part.unpacked() if isinstance(part, Packed) else part for part in read]
        if self._packing.keeps:
            return torch.cat(parts)
        size = sum(part.numel() for part in parts)
        if self._room.numel() < size or self._room.dtype != parts[0].dtype:
            self._room = torch.empty(size, dtype=parts[0].dtype)
        return torch.cat(parts, out=self._room[:size].view(-1, parts[0].shape[1]))

    def _paired(self, name: str, read: Weight) -> Weight:
        """Return a matrix with its rows in the order in which Rope takes them."""
        if isinstance(read, Packed):
            return read.each(lambda rows: self._turned(name, rows))
        return self._turned(name, read)

    def _turned(self, name: str, rows: torch.Tensor) -> torch.Tensor:
        """Return rows as stored, but with the halves of query and key heads put pair by pair."""
        if name.split(".")[-2] not in _TURNED:
            return rows
        dim = self._spec.rotary_dim
        heads: torch.Tensor = rows.unflatten(0, (-1, self._spec.head_dim))
        pairs = heads[:, :dim].unflatten(1, (2, dim // 2)).transpose(1, 2).flatten(1, 2)
        whole = torch.cat((pairs, heads[:, dim:]), 1) if dim < heads.shape[1] else pairs
        return whole.flatten(0, 1)

    def _vector(self, name: str) -> torch.Tensor:
        return self._turned(name, self._source.read(name)).to(self._device, torch.float32)

    def _norms(self, prefix: str) -> dict[str, torch.Tensor]:
        norms = {ours: self.norm(f"{prefix}{name}.weight") for ours, name in norm_names(self._spec).items()}
        if self._spec.whole_qk_norm:
            norms |= {f"{n}_norm": self.norm(f"{prefix}self_attn.{n}_norm.weight") for n in ("q", "k")}
        elif self._spec.qk_norm:
            q, k = (self.norm(f"{prefix}self_attn.{n}_norm.weight") for n in ("q", "k"))
            heads, kv_heads = self._spec.heads, self._spec.kv_heads
            norms["qk_norm"] = torch.cat((q.expand(heads, -1), k.expand(kv_heads, -1)))
        return norms
