"""Load tensors as matrices, one layer at a time, so that few weights are in memory twice."""

from collections.abc import Sequence
from typing import Final

import torch

from engines.layer import LayerWeights
from engines.models.spec import Experts, Spec, map_norm_names
from engines.moe import Expert, MixtureWeights
from engines.weights.checkpoint import WeightSource
from engines.weights.low_bit import PackedMatrix, join_packed
from engines.weights.matrix_storage import EmbeddingTable, Matrix, Storage, Weight, unpack_weight

_ROTATED_TENSORS: Final = ("q_proj", "k_proj", "q_norm", "k_norm")


class WeightLoader:
    """Reads tensors from a source and has a storage build matrices."""

    def __init__(
        self, spec: Spec, source: WeightSource, storage: Storage, device: torch.device, *, fused: bool
    ) -> None:
        self._spec, self._source, self._storage, self._device = spec, source, storage, device
        self._fused = fused
        self._scratch = torch.empty(0)  # for tensors that are joined and not kept: memory is slow to come by

    def load_layer(self, number: int) -> LayerWeights:
        prefix = f"model.layers.{number}."
        qkv = [f"{prefix}self_attn.{n}_proj" for n in "qkv"]
        gate_up = [f"{prefix}mlp.{n}_proj" for n in ("gate", "up")]
        matrices = self._load_matrices("qkv", ("q", "k", "v"), qkv) | {
            "o": self._load_matrix([f"{prefix}self_attn.o_proj"])
        }
        if not self._spec.find_experts(number):
            matrices |= self._load_matrices("gate_up", ("gate", "up"), gate_up)
            matrices["down"] = self._load_matrix([f"{prefix}mlp.down_proj"])
        bias = torch.cat([self._load_vector(f"{n}.bias") for n in qkv]) if self._spec.qkv_bias else None
        out_bias = self._load_vector(f"{prefix}self_attn.o_proj.bias") if self._spec.out_bias else None
        sinks = self._load_vector(f"{prefix}self_attn.sinks") if self._spec.has_sinks else None
        sinks = sinks if sinks is None else sinks.view(self._spec.kv_heads, -1)
        return LayerWeights(self._spec, matrices, self._load_norms(prefix), bias, out_bias, sinks)

    def load_mixture(self, number: int) -> MixtureWeights | None:
        """Return the experts of a layer; None if its feed-forward is dense."""
        mixture = self._spec.find_experts(number)
        if mixture is None:
            return None
        prefix = f"model.layers.{number}.mlp"
        bias = self._load_vector(f"{prefix}.gate.bias") if mixture.has_bias else None
        experts = tuple(self._load_expert(f"{prefix}.experts.{i}", mixture) for i in range(mixture.count))
        return MixtureWeights(mixture, self._load_vector(f"{prefix}.gate.weight"), bias, experts)

    def _load_expert(self, name: str, mixture: Experts) -> Expert:
        gate_up, down = [f"{name}.gate_proj", f"{name}.up_proj"], f"{name}.down_proj"
        matrices = self._load_matrix(gate_up), self._load_matrix([down])
        if not mixture.has_bias:
            return Expert(*matrices)
        bias = torch.cat([self._load_vector(f"{part}.bias") for part in gate_up])
        return Expert(*matrices, bias, self._load_vector(f"{down}.bias"))

    def load_norm(self, name: str) -> torch.Tensor:
        return self._load_vector(name) + (1.0 if self._spec.unit_offset else 0.0)

    def load_embedding_and_head(self) -> tuple[EmbeddingTable, Matrix]:
        head = None if self._spec.tied else self._read_weight("lm_head.weight")
        table = self._read_weight("model.embed_tokens.weight")
        return self._storage.build_embedding_and_head(table, head, self._device)

    def _load_matrices(self, joined: str, parts: Sequence[str], names: list[str]) -> dict[str, Matrix]:
        if self._fused:
            return {joined: self._load_matrix(names)}
        return {part: self._load_matrix([name]) for part, name in zip(parts, names, strict=True)}

    def _load_matrix(self, names: list[str]) -> Matrix:
        parts = [self._order_rotary_rows(f"{n}.weight", self._read_weight(f"{n}.weight")) for n in names]
        weight = parts[0] if len(parts) == 1 else self._concatenate(parts)
        return self._storage.build_matrix(weight, self._device)

    def _read_weight(self, name: str) -> Weight:
        """Return a matrix packed if source and storage share the format, else as numbers."""
        packed = self._source.read_packed(name) if self._storage.format else None
        return packed if packed and packed.format == self._storage.format else self._source.read(name)

    def _concatenate(self, weights: list[Weight]) -> Weight:
        packed = [part for part in weights if isinstance(part, PackedMatrix)]
        if len(packed) == len(weights):
            return join_packed(packed)
        parts = [unpack_weight(part) for part in weights]
        if self._storage.shares_tensors:
            return torch.cat(parts)
        size = sum(part.numel() for part in parts)
        if self._scratch.numel() < size or self._scratch.dtype != parts[0].dtype:
            self._scratch = torch.empty(size, dtype=parts[0].dtype)
        return torch.cat(parts, out=self._scratch[:size].view(-1, parts[0].shape[1]))

    def _order_rotary_rows(self, name: str, weight: Weight) -> Weight:
        """Return a matrix with its rows in the order of `RotaryEmbedding`."""
        if isinstance(weight, PackedMatrix):
            return weight.map_parts(lambda rows: self._interleave_halves(name, rows))
        return self._interleave_halves(name, weight)

    def _interleave_halves(self, name: str, rows: torch.Tensor) -> torch.Tensor:
        """Return rows with the halves of each query and key head interleaved into rotary pairs."""
        if name.split(".")[-2] not in _ROTATED_TENSORS:
            return rows
        dim = self._spec.rotary_dim
        heads: torch.Tensor = rows.unflatten(0, (-1, self._spec.head_dim))
        pairs = heads[:, :dim].unflatten(1, (2, dim // 2)).transpose(1, 2).flatten(1, 2)
        ordered = torch.cat((pairs, heads[:, dim:]), 1) if dim < heads.shape[1] else pairs
        return ordered.flatten(0, 1)

    def _load_vector(self, name: str) -> torch.Tensor:
        return self._interleave_halves(name, self._source.read(name)).to(self._device, torch.float32)

    def _load_norms(self, prefix: str) -> dict[str, torch.Tensor]:
        norms = {
            norm: self.load_norm(f"{prefix}{name}.weight")
            for norm, name in map_norm_names(self._spec).items()
        }
        if self._spec.norms_all_heads:
            norms |= {f"{n}_norm": self.load_norm(f"{prefix}self_attn.{n}_norm.weight") for n in ("q", "k")}
        elif self._spec.qk_norm:
            q, k = (self.load_norm(f"{prefix}self_attn.{n}_norm.weight") for n in ("q", "k"))
            heads, kv_heads = self._spec.heads, self._spec.kv_heads
            norms["qk_norm"] = torch.cat((q.expand(heads, -1), k.expand(kv_heads, -1)))
        return norms
