"""One decoder layer, a method per op of the plan, and the state that ops share."""

from typing import NamedTuple

import torch
from torch.nn import functional

from engines.kv_cache import LayerCache
from engines.models.spec import Spec
from engines.processor import row_ops
from engines.rope import RotaryEmbedding, view_as_pairs
from engines.weights.matrix_storage import Matrix


class StepState:
    """What one op leaves for the next; rows of `x` and `h` are positions, sequence by sequence.

    Buffers and views are made once per shape: a decode step makes no view of its own.
    """

    def __init__(self, spec: Spec, batch: int, dtype: torch.dtype, device: torch.device) -> None:
        self.batch, self.dtype = batch, dtype
        self.position = 0  # position of the first id
        self.tokens = 0
        self.keys = self.values = self.x = self.h = torch.empty(0)
        self._spec = spec
        self._row_buffers: dict[tuple[int, torch.dtype], torch.Tensor] = {}
        self.set_input(torch.zeros(batch, 1, dtype=torch.long, device=device), 0)

    def set_input(self, ids: torch.Tensor, position: int) -> None:
        """Set the input of the next pass: [batch, tokens] ids from a position on."""
        self.ids, self.position = ids, position
        if ids.shape[1] != self.tokens:
            self.tokens = ids.shape[1]
            self._allocate()

    @property
    def row_count(self) -> int:
        return self.batch * self.tokens

    def reserve_row(self, width: int, dtype: torch.dtype | None) -> torch.Tensor:
        """Return the buffer for the row that a matrix multiplies next, in the dtype it takes."""
        key = width, dtype or self.dtype
        if key not in self._row_buffers:
            self._row_buffers[key] = torch.empty(1, width, dtype=key[1], device=self.ids.device)
        return self._row_buffers[key]

    def _allocate(self) -> None:
        spec, q, kv = self._spec, self._spec.query_width, self._spec.kv_width
        self.qkv = torch.empty(self.row_count, q + 2 * kv, dtype=self.dtype, device=self.ids.device)
        self.qkv_parts = {"q": self.qkv[:, :q], "k": self.qkv[:, q : q + kv], "v": self.qkv[:, q + kv :]}
        heads = self.qkv.view(self.batch, self.tokens, -1, spec.head_dim)
        self.query_key_heads = heads[:, :, : spec.heads + spec.kv_heads]
        self.rotary_pairs = view_as_pairs(self.query_key_heads)
        self.kv = heads[:, :, spec.heads :].transpose(1, 2)
        self.q = heads[:, :, : spec.heads].transpose(1, 2)
        if self.tokens == 1:  # the heads that share keys become rows of one product
            self.q = self.qkv_parts["q"].view(self.batch, spec.kv_heads, -1, spec.head_dim)
        self.gate_up = torch.empty(self.row_count, 2 * spec.ffn, dtype=self.dtype, device=self.ids.device)
        self.gate, self.up = self.gate_up.chunk(2, -1)


class LayerWeights(NamedTuple):
    """Matrices and norms of a layer, ready to multiply."""

    spec: Spec
    matrices: dict[str, Matrix]
    norms: dict[str, torch.Tensor]
    bias: torch.Tensor | None
    out_bias: torch.Tensor | None = None
    sinks: torch.Tensor | None = None  # [heads of keys, heads that share them]


class DecoderLayer:
    """One transformer layer; every public method is an op. The fused step shares its public attributes."""

    def __init__(
        self, number: int, weights: LayerWeights, cache: LayerCache, rope: RotaryEmbedding, state: StepState
    ) -> None:
        self.weights, self.cache, self.rotary = weights, cache, rope
        self._spec, self._s = weights.spec, state
        self._window = self._spec.find_window(number)
        self._gelu = self._spec.activation == "gelu_tanh"
        self._shares_keys = self._spec.heads != self._spec.kv_heads
        self._folds_heads = self._shares_keys and state.ids.device.type != "cpu"
        self._after_attn_norm = self._reserve_row(self._spec.hidden, "qkv", "q")
        self._after_attention = self._reserve_row(self._spec.query_width, "o")
        self._after_ffn_norm = self._reserve_row(self._spec.hidden, "gate_up", "gate")
        self._after_act = self._reserve_row(self._spec.ffn, "down")

    def attn_norm(self) -> None:
        self._s.h = self._norm_rows(self._s.x, "attn_norm", self._after_attn_norm)

    def qkv_proj(self) -> None:
        self._project("qkv", self._s.qkv, 0)

    def q_proj(self) -> None:
        self._project("q", self._s.qkv_parts["q"], 0)

    def k_proj(self) -> None:
        self._project("k", self._s.qkv_parts["k"], self._spec.query_width)

    def v_proj(self) -> None:
        self._project("v", self._s.qkv_parts["v"], self._spec.query_width + self._spec.kv_width)

    def qk_norm(self) -> None:
        if self._spec.norms_all_heads:
            for part in ("q", "k"):
                self._s.qkv_parts[part].copy_(self._norm_rows(self._s.qkv_parts[part], f"{part}_norm"))
            return
        rotated, dim = self._s.query_key_heads, (self._spec.head_dim,)
        if row_ops.can_compute(rotated):
            row_ops.norm_rows(rotated, self.weights.norms["qk_norm"], self._spec.eps, rotated)
            return
        normed = torch.rms_norm(rotated.float(), dim, None, self._spec.eps)
        torch.mul(normed, self.weights.norms["qk_norm"], out=rotated)

    def rope(self) -> None:
        self.rotary.rotate(self._s.rotary_pairs)

    def kv_append(self) -> None:
        self._s.keys, self._s.values = self.cache.append(self._s.kv, self._s.position)

    def attention(self) -> None:
        s = self._s
        if self.weights.sinks is not None:
            attended = self._attend_with_sinks(self.weights.sinks)
        else:
            attended = self._attend_one_position() if s.tokens == 1 else self._attend_many_positions()
        s.h = attended.reshape(s.row_count, self._spec.query_width)

    def o_proj(self) -> None:
        self._s.h = self.weights.matrices["o"](self._s.h)
        if self.weights.out_bias is not None:
            self._s.h = self._s.h + self.weights.out_bias

    def post_attn_norm(self) -> None:
        self._s.h = self._norm_rows(self._s.h, "post_attn_norm")

    def attn_residual(self) -> None:
        """Add to the residual stream; without a norm in between, the next product takes the stream itself."""
        self._s.x += self._s.h
        self._s.h = self._s.x

    def ffn_norm(self) -> None:
        self._s.h = self._norm_rows(self._s.x, "ffn_norm", self._after_ffn_norm)

    def ffn_gate_up(self) -> None:
        self._s.gate_up = self.weights.matrices["gate_up"](self._s.h).to(self._s.dtype)

    def ffn_gate(self) -> None:
        self._s.gate.copy_(self.weights.matrices["gate"](self._s.h))

    def ffn_up(self) -> None:
        self._s.up.copy_(self.weights.matrices["up"](self._s.h))

    def ffn_act(self) -> None:
        buffer = self._after_act if self._s.row_count == 1 else None
        if row_ops.can_compute(self._s.gate_up):
            self._s.h = row_ops.gate_rows(self._s.gate_up, buffer, gelu=self._gelu)
            return
        gate, up = self._s.gate_up.chunk(2, -1)
        activated = functional.gelu(gate, approximate="tanh") if self._gelu else functional.silu(gate)
        self._s.h = torch.mul(activated, up, out=buffer)

    def ffn_down(self) -> None:
        self._s.h = self.weights.matrices["down"](self._s.h)

    def post_ffn_norm(self) -> None:
        self._s.h = self._norm_rows(self._s.h, "post_ffn_norm")

    def ffn_residual(self) -> None:
        self.attn_residual()

    def _norm_rows(self, x: torch.Tensor, name: str, out: torch.Tensor | None = None) -> torch.Tensor:
        return apply_rms_norm(x, self.weights.norms[name], self._spec.eps, self._s.dtype, out)

    def _project(self, name: str, out: torch.Tensor, start: int) -> None:
        bias = None if self.weights.bias is None else self.weights.bias[start : start + out.shape[1]]
        self.weights.matrices[name].multiply_into(self._s.h, out, bias)

    def _reserve_row(self, width: int, *names: str) -> torch.Tensor:
        """Return the row buffer for the first of these matrices that the layer has."""
        dtypes = (self.weights.matrices[name].input_dtype for name in names if name in self.weights.matrices)
        return self._s.reserve_row(width, next(dtypes, None))

    def _attend_one_position(self) -> torch.Tensor:
        s, scale = self._s, self._spec.attention_scale
        if row_ops.can_attend(s.q, s.keys):
            buffer = self._after_attention if s.row_count == 1 else None
            return row_ops.attend(s.q, s.keys, s.values, scale, buffer)
        return functional.scaled_dot_product_attention(s.q, s.keys, s.values, scale=scale)

    def _attend_many_positions(self) -> torch.Tensor:
        s, mask, scale = self._s, self._build_visibility_mask(), self._spec.attention_scale
        if self._folds_heads:
            return attend_with_folded_heads(s.q, s.keys, s.values, mask, scale)
        attended = functional.scaled_dot_product_attention(
            s.q, s.keys, s.values, attn_mask=mask, scale=scale, enable_gqa=self._shares_keys
        )
        return attended.transpose(1, 2)

    def _attend_with_sinks(self, sinks: torch.Tensor) -> torch.Tensor:
        """Attend with sinks: each head may attend to nothing, at a learnt score."""
        s, groups = self._s, sinks.shape
        q = s.q.reshape(s.batch, *groups, s.tokens, self._spec.head_dim)
        scores = (q @ s.keys[:, :, None].mT) * self._spec.attention_scale
        if s.tokens > 1:
            scores = scores.masked_fill(~self._build_visibility_mask(), -torch.inf)
        sink_scores = sinks[None, :, :, None, None].expand(*scores.shape[:-1], 1).to(scores.dtype)
        shares = torch.cat((scores, sink_scores), -1).softmax(-1)[..., :-1]
        attended = shares @ s.values[:, :, None]
        return attended.flatten(1, 2).transpose(1, 2)

    def _build_visibility_mask(self) -> torch.Tensor:
        s = self._s
        end, count = s.position + s.tokens, s.keys.shape[2]
        keys = torch.arange(end - count, end, device=s.keys.device)
        distance = torch.arange(s.position, end, device=s.keys.device)[:, None] - keys
        return (distance >= 0) & (distance < (self._window or end))


def attend_with_folded_heads(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, visible: torch.Tensor, scale: float
) -> torch.Tensor:
    """Return attention [batch, positions, heads, head_dim]; heads that share keys are rows of one product.

    No GPU kernel takes a mask and shared keys at once: torch would keep every score in memory.
    """
    batch, heads, tokens, dim = q.shape
    group = heads // keys.shape[1]
    rows = q.reshape(batch, keys.shape[1], group * tokens, dim)
    mask = visible.repeat(group, 1)
    attended = functional.scaled_dot_product_attention(rows, keys, values, attn_mask=mask, scale=scale)
    return attended.view(batch, heads, tokens, dim).transpose(1, 2)


def apply_rms_norm(
    x: torch.Tensor, weight: torch.Tensor, eps: float, dtype: torch.dtype, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Return normed rows, computed in fp32; a single row on the CPU is written to `out` if given."""
    if row_ops.can_compute(x):
        return row_ops.norm_rows(x, weight, eps, out if x.shape[0] == 1 else None)
    if x.shape[0] == 1 and x.is_cpu:  # in half the calls: the scale of one row is one number
        length = float(torch.linalg.vector_norm(x, dtype=torch.float32))
        return torch.mul(x * weight, (length * length / weight.numel() + eps) ** -0.5, out=out)
    return torch.rms_norm(x.float(), weight.shape, weight, eps).to(dtype)
