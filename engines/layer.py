"""One layer of the decoder: a method for every row of the plan, and the state that they share."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch.nn import functional

from engines.cache import LayerCache
from engines.models.spec import Spec
from engines.processor import rows
from engines.rope import Rope, as_pairs
from engines.weights.storage import Matrix


class State:
    """What one op leaves for the next; rows of `x` and `h` are positions, sequence by sequence.

    Buffers and the views of them are made once for each shape: a decode step makes no view of its own.
    """

    def __init__(self, spec: Spec, batch: int, dtype: torch.dtype, device: torch.device) -> None:
        self.batch, self.dtype = batch, dtype
        self.at = 0  # position of the first id
        self.tokens = 0
        self.keys = self.values = self.x = self.h = torch.empty(0)
        self._spec = spec
        self._single: dict[tuple[int, torch.dtype], torch.Tensor] = {}
        self.place(torch.zeros(batch, 1, dtype=torch.long, device=device), 0)

    def place(self, ids: torch.Tensor, at: int) -> None:
        """Set what the next pass takes: [batch, tokens] ids from a position on."""
        self.ids, self.at = ids, at
        if ids.shape[1] != self.tokens:
            self.tokens = ids.shape[1]
            self._shape()

    @property
    def rows(self) -> int:
        return self.batch * self.tokens

    def single(self, width: int, dtype: torch.dtype | None) -> torch.Tensor:
        """Return the buffer for the row that a matrix multiplies next, in the dtype that it takes."""
        kind = width, dtype or self.dtype
        if kind not in self._single:
            self._single[kind] = torch.empty(1, width, dtype=kind[1], device=self.ids.device)
        return self._single[kind]

    def _shape(self) -> None:
        spec, q, kv = self._spec, self._spec.query_width, self._spec.kv_width
        self.qkv = torch.empty(self.rows, q + 2 * kv, dtype=self.dtype, device=self.ids.device)
        self.parts = {"q": self.qkv[:, :q], "k": self.qkv[:, q : q + kv], "v": self.qkv[:, q + kv :]}
        heads = self.qkv.view(self.batch, self.tokens, -1, spec.head_dim)
        self.rotated = heads[:, :, : spec.heads + spec.kv_heads]
        self.pairs = as_pairs(self.rotated)
        self.kv = heads[:, :, spec.heads :].transpose(1, 2)
        self.q = heads[:, :, : spec.heads].transpose(1, 2)
        if self.tokens == 1:  # the heads that share keys become rows of one product
            self.q = self.parts["q"].view(self.batch, spec.kv_heads, -1, spec.head_dim)
        self.gate_up = torch.empty(self.rows, 2 * spec.ffn, dtype=self.dtype, device=self.ids.device)
        self.gate, self.up = self.gate_up.chunk(2, -1)


@dataclass(frozen=True)
class LayerWeights:
    """A layer's matrices and norms, ready to multiply."""

    spec: Spec
    matrices: dict[str, Matrix]
    norms: dict[str, torch.Tensor]
    bias: torch.Tensor | None
    out_bias: torch.Tensor | None = None
    sinks: torch.Tensor | None = None  # [heads of keys, heads that share them]


class LayerParts(NamedTuple):
    """What a layer is made of: the fused step shares it."""

    weights: LayerWeights
    cache: LayerCache
    rope: Rope


class Layer:
    """One transformer layer; every public method is an op."""

    def __init__(
        self, number: int, weights: LayerWeights, cache: LayerCache, rope: Rope, state: State
    ) -> None:
        self._spec, self._w, self._cache, self._rope, self._s = weights.spec, weights, cache, rope, state
        self._window = self._spec.window_of(number)
        self._gelu = self._spec.activation == "gelu_tanh"
        self._gqa = self._spec.heads != self._spec.kv_heads
        self._folds = self._gqa and state.ids.device.type != "cpu"
        self._after_attn_norm = self._single(self._spec.hidden, "qkv", "q")
        self._after_attention = self._single(self._spec.query_width, "o")
        self._after_ffn_norm = self._single(self._spec.hidden, "gate_up", "gate")
        self._after_act = self._single(self._spec.ffn, "down")

    @property
    def parts(self) -> "LayerParts":
        return LayerParts(self._w, self._cache, self._rope)

    def attn_norm(self) -> None:
        self._s.h = self._normed(self._s.x, "attn_norm", self._after_attn_norm)

    def qkv_proj(self) -> None:
        self._project("qkv", self._s.qkv, 0)

    def q_proj(self) -> None:
        self._project("q", self._s.parts["q"], 0)

    def k_proj(self) -> None:
        self._project("k", self._s.parts["k"], self._spec.query_width)

    def v_proj(self) -> None:
        self._project("v", self._s.parts["v"], self._spec.query_width + self._spec.kv_width)

    def qk_norm(self) -> None:
        if self._spec.whole_qk_norm:
            for part in ("q", "k"):
                self._s.parts[part].copy_(self._normed(self._s.parts[part], f"{part}_norm"))
            return
        rotated, dim = self._s.rotated, (self._spec.head_dim,)
        if rows.taken(rotated):
            rows.norm(rotated, self._w.norms["qk_norm"], self._spec.eps, rotated)
            return
        normed = torch.rms_norm(rotated.float(), dim, None, self._spec.eps)
        torch.mul(normed, self._w.norms["qk_norm"], out=rotated)

    def rope(self) -> None:
        self._rope.rotate(self._s.pairs)

    def kv_append(self) -> None:
        s = self._s
        s.keys, s.values = self._cache.append(s.kv, s.at)

    def attention(self) -> None:
        s = self._s
        if self._w.sinks is not None:
            mixed = self._beside_sinks(self._w.sinks)
        else:
            mixed = self._one() if s.tokens == 1 else self._many()
        s.h = mixed.reshape(s.rows, self._spec.query_width)

    def o_proj(self) -> None:
        self._s.h = self._w.matrices["o"](self._s.h)
        if self._w.out_bias is not None:
            self._s.h = self._s.h + self._w.out_bias

    def post_attn_norm(self) -> None:
        self._s.h = self._normed(self._s.h, "post_attn_norm")

    def attn_residual(self) -> None:
        self._add()

    def ffn_norm(self) -> None:
        self._s.h = self._normed(self._s.x, "ffn_norm", self._after_ffn_norm)

    def ffn_gate_up(self) -> None:
        self._s.gate_up = self._w.matrices["gate_up"](self._s.h).to(self._s.dtype)

    def ffn_gate(self) -> None:
        self._s.gate.copy_(self._w.matrices["gate"](self._s.h))

    def ffn_up(self) -> None:
        self._s.up.copy_(self._w.matrices["up"](self._s.h))

    def ffn_act(self) -> None:
        if rows.taken(self._s.gate_up):
            single = self._after_act if self._s.rows == 1 else None
            self._s.h = rows.gate(self._s.gate_up, single, gelu=self._gelu)
            return
        gate, up = self._s.gate_up.chunk(2, -1)
        bent = functional.gelu(gate, approximate="tanh") if self._gelu else functional.silu(gate)
        self._s.h = torch.mul(bent, up, out=self._after_act) if self._s.rows == 1 else bent * up

    def ffn_down(self) -> None:
        self._s.h = self._w.matrices["down"](self._s.h)

    def post_ffn_norm(self) -> None:
        self._s.h = self._normed(self._s.h, "post_ffn_norm")

    def ffn_residual(self) -> None:
        self._add()

    def _add(self) -> None:
        """Add to the residual stream; the next product takes it as it is where no norm stands before it."""
        self._s.x += self._s.h
        self._s.h = self._s.x

    def _normed(self, x: torch.Tensor, name: str, single: torch.Tensor | None = None) -> torch.Tensor:
        return rms_norm(x, self._w.norms[name], self._spec.eps, self._s.dtype, single)

    def _project(self, name: str, part: torch.Tensor, start: int) -> None:
        bias = None if self._w.bias is None else self._w.bias[start : start + part.shape[1]]
        self._w.matrices[name].into(self._s.h, part, bias)

    def _single(self, width: int, *names: str) -> torch.Tensor:
        """Return the buffer of a row for the first of these matrices that the layer has."""
        there = (self._w.matrices[name].takes for name in names if name in self._w.matrices)
        return self._s.single(width, next(there, None))

    def _one(self) -> torch.Tensor:
        s = self._s
        if rows.attends(s.q, s.keys):
            single = self._after_attention if s.rows == 1 else None
            return rows.attend(s.q, s.keys, s.values, self._spec.attention_scale, single)
        return functional.scaled_dot_product_attention(
            s.q, s.keys, s.values, scale=self._spec.attention_scale
        )

    def _many(self) -> torch.Tensor:
        s = self._s
        if self._folds:
            return folded_attention(s.q, s.keys, s.values, self._visible(), self._spec.attention_scale)
        mixed = functional.scaled_dot_product_attention(
            s.q,
            s.keys,
            s.values,
            attn_mask=self._visible(),
            scale=self._spec.attention_scale,
            enable_gqa=self._gqa,
        )
        return mixed.transpose(1, 2)

    def _beside_sinks(self, sinks: torch.Tensor) -> torch.Tensor:
        """Return the same where each head may look at nothing: the score of that takes its share of one."""
        s, groups = self._s, sinks.shape
        q = s.q.reshape(s.batch, *groups, s.tokens, self._spec.head_dim)
        scores = (q @ s.keys[:, :, None].mT) * self._spec.attention_scale
        if s.tokens > 1:
            scores = scores.masked_fill(~self._visible(), -torch.inf)
        nothing = sinks[None, :, :, None, None].expand(*scores.shape[:-1], 1).to(scores.dtype)
        shares = torch.cat((scores, nothing), -1).softmax(-1)[..., :-1]
        mixed = shares @ s.values[:, :, None]
        return mixed.flatten(1, 2).transpose(1, 2)

    def _visible(self) -> torch.Tensor:
        s = self._s
        end, count = s.at + s.tokens, s.keys.shape[2]
        keys = torch.arange(end - count, end, device=s.keys.device)
        distance = torch.arange(s.at, end, device=s.keys.device)[:, None] - keys
        return (distance >= 0) & (distance < (self._window or end))


def folded_attention(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, visible: torch.Tensor, scale: float
) -> torch.Tensor:
    """Return attention [batch, positions, heads, head_dim] with the heads that share keys as rows of one.

    No kernel of a GPU takes a mask and shared keys at once: torch would keep every score in memory.
    """
    batch, heads, tokens, dim = q.shape
    shared = heads // keys.shape[1]
    rows = q.reshape(batch, keys.shape[1], shared * tokens, dim)
    mask = visible.repeat(shared, 1)
    mixed = functional.scaled_dot_product_attention(rows, keys, values, attn_mask=mask, scale=scale)
    return mixed.view(batch, heads, tokens, dim).transpose(1, 2)


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    dtype: torch.dtype,
    single: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the normed rows, computed in fp32; a single row on a processor goes to `single` if given."""
    if rows.taken(x):
        return rows.norm(x, weight, eps, single if x.shape[0] == 1 else None)
    if x.shape[0] == 1 and x.is_cpu:
        return _rms_norm_of_one(x, weight, eps, single)
    return torch.rms_norm(x.float(), weight.shape, weight, eps).to(dtype)


def _rms_norm_of_one(
    x: torch.Tensor, weight: torch.Tensor, eps: float, out: torch.Tensor | None
) -> torch.Tensor:
    """Return the same for one row in half the calls: its scale is one number, computed here."""
    length = float(torch.linalg.vector_norm(x, dtype=torch.float32))
    return torch.mul(x * weight, (length * length / weight.numel() + eps) ** -0.5, out=out)
