"""The decoder: one method for every row of the plan, bound to a state that they hand on.

The residual stream is fp32 on the CPU and wherever the weights are fp16: Gemma's exceeds fp16.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch.nn import functional

from engines.cache import LayerCache
from engines.packing import Matrix, Storage, Table
from engines.plan import Load, Row, device_rows
from engines.sample import GREEDY, Sampler, Taste
from engines.spec import Spec, norm_names, parameters
from engines.team import Collectives, Team
from engines.weights import Source

Op = Callable[[], None]
CHUNK = 512  # positions of a prompt that are taken at once


class State:
    """What one op leaves for the next. Rows of `x` and `h` are positions, sequence by sequence.

    Buffers and the views of them are made once for each shape: a decode step makes no view of its own.
    """

    def __init__(self, spec: Spec, batch: int, dtype: torch.dtype, device: torch.device) -> None:
        self.batch, self.dtype = batch, dtype
        self.at = 0  # position of the first id
        self.tokens = 0
        self.keys = self.values = self.x = self.h = torch.empty(0)
        self._spec = spec
        self.place(torch.zeros(batch, 1, dtype=torch.long, device=device), 0)

    def place(self, ids: torch.Tensor, at: int) -> None:
        """What the next pass takes: [batch, tokens] ids from a position on."""
        self.ids, self.at = ids, at
        if ids.shape[1] != self.tokens:
            self.tokens = ids.shape[1]
            self._shape()

    @property
    def rows(self) -> int:
        return self.batch * self.tokens

    def _shape(self) -> None:
        spec, q, kv = self._spec, self._spec.query_width, self._spec.kv_width
        self.qkv = torch.empty(self.rows, q + 2 * kv, dtype=self.dtype, device=self.ids.device)
        self.parts = {"q": self.qkv[:, :q], "k": self.qkv[:, q : q + kv], "v": self.qkv[:, q + kv :]}
        heads = self.qkv.view(self.batch, self.tokens, -1, spec.head_dim)
        self.turned = heads[:, :, : spec.heads + spec.kv_heads]
        self.kv = heads[:, :, spec.heads :].transpose(1, 2)
        self.q = heads[:, :, : spec.heads].transpose(1, 2)
        if self.tokens == 1:  # the heads that share keys become rows of one product
            self.q = self.parts["q"].view(self.batch, spec.kv_heads, -1, spec.head_dim)
        self.gate_up = torch.empty(self.rows, 2 * spec.ffn, dtype=self.dtype, device=self.ids.device)
        self.gate, self.up = self.gate_up.chunk(2, -1)


class Rope:
    """Rotary tables of one base, cosine and signed sine, a row for every position."""

    def __init__(
        self, spec: Spec, capacity: int, dtype: torch.dtype, device: torch.device, *, local: bool
    ) -> None:
        own = local and spec.theta_local > 0
        frequencies = _frequencies(spec, spec.theta_local if own else spec.theta, scaled=not own)
        angle = torch.arange(capacity, dtype=torch.float32)[:, None] * frequencies
        cos, sin = angle.cos(), angle.sin()
        self._cos = torch.cat((cos, cos), -1)[:, None].to(device, dtype)
        self._sin = torch.cat((-sin, sin), -1)[:, None].to(device, dtype)
        self.seek(0, 1)

    def seek(self, at: int, tokens: int) -> None:
        """The rows for so many positions from one on."""
        self._now = self._cos[at : at + tokens], self._sin[at : at + tokens]

    @property
    def halves(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine of every position, [positions, head_dim / 2]."""
        half = self._cos.shape[-1] // 2
        return self._cos[:, 0, :half], self._sin[:, 0, half:]

    def turn(self, heads: torch.Tensor) -> None:
        """Each half of a head turned against the other, in place: [batch, tokens, heads, head_dim]."""
        cos, sin = self._now
        torch.addcmul(heads * cos, heads.roll(heads.shape[-1] // 2, -1), sin, out=heads)


def _frequencies(spec: Spec, theta: float, *, scaled: bool) -> torch.Tensor:
    dim = spec.head_dim
    plain = 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    s = spec.scaling
    if s is None or not scaled:
        return plain
    if s.kind == "linear":
        return plain / s.factor
    turns = s.original * plain / (2 * math.pi)  # in the context that the model was first trained on
    share = ((turns - s.low) / (s.high - s.low)).clamp(0.0, 1.0)
    return (1 - share) * plain / s.factor + share * plain


class Layer:
    """One transformer layer; every public method is an op."""

    def __init__(
        self, number: int, weights: "LayerWeights", cache: LayerCache, rope: Rope, state: State
    ) -> None:
        self._spec, self._w, self._cache, self._rope, self._s = weights.spec, weights, cache, rope, state
        self._window = self._spec.window_of(number)
        self._gelu = self._spec.activation == "gelu_tanh"
        self._gqa = self._spec.heads != self._spec.kv_heads

    @property
    def parts(self) -> "LayerParts":
        return LayerParts(self._w, self._cache, self._rope)

    def attn_norm(self) -> None:
        self._s.h = self._normed(self._s.x, "attn_norm")

    def qkv_proj(self) -> None:
        self._w.matrices["qkv"].into(self._s.h, self._s.qkv)
        if self._w.bias is not None:
            self._s.qkv += self._w.bias

    def q_proj(self) -> None:
        self._project("q", 0)

    def k_proj(self) -> None:
        self._project("k", self._spec.query_width)

    def v_proj(self) -> None:
        self._project("v", self._spec.query_width + self._spec.kv_width)

    def qk_norm(self) -> None:
        turned, dim = self._s.turned, (self._spec.head_dim,)
        normed = torch.rms_norm(turned.float(), dim, None, self._spec.eps)
        torch.mul(normed, self._w.norms["qk_norm"], out=turned)

    def rope(self) -> None:
        self._rope.turn(self._s.turned)

    def kv_append(self) -> None:
        s = self._s
        s.keys, s.values = self._cache.append(s.kv, s.at)

    def attention(self) -> None:
        s = self._s
        seen = self._one() if s.tokens == 1 else self._many()
        s.h = seen.reshape(s.rows, self._spec.query_width)

    def o_proj(self) -> None:
        self._s.h = self._w.matrices["o"](self._s.h)

    def post_attn_norm(self) -> None:
        self._s.h = self._normed(self._s.h, "post_attn_norm")

    def attn_residual(self) -> None:
        self._s.x = self._s.x + self._s.h

    def ffn_norm(self) -> None:
        self._s.h = self._normed(self._s.x, "ffn_norm")

    def ffn_gate_up(self) -> None:
        self._w.matrices["gate_up"].into(self._s.h, self._s.gate_up)

    def ffn_gate(self) -> None:
        self._w.matrices["gate"].into(self._s.h, self._s.gate)

    def ffn_up(self) -> None:
        self._w.matrices["up"].into(self._s.h, self._s.up)

    def ffn_act(self) -> None:
        gate, up = self._s.gate, self._s.up
        self._s.h = (functional.gelu(gate, approximate="tanh") if self._gelu else functional.silu(gate)) * up

    def ffn_down(self) -> None:
        self._s.h = self._w.matrices["down"](self._s.h)

    def post_ffn_norm(self) -> None:
        self._s.h = self._normed(self._s.h, "post_ffn_norm")

    def ffn_residual(self) -> None:
        self._s.x = self._s.x + self._s.h

    def _normed(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return _rms_norm(x, self._w.norms[name], self._spec.eps)

    def _project(self, name: str, start: int) -> None:
        part = self._s.parts[name]
        self._w.matrices[name].into(self._s.h, part)
        if self._w.bias is not None:
            part += self._w.bias[start : start + part.shape[1]]

    def _one(self) -> torch.Tensor:
        s = self._s
        return functional.scaled_dot_product_attention(
            s.q, s.keys, s.values, scale=self._spec.attention_scale
        )

    def _many(self) -> torch.Tensor:
        s = self._s
        seen = functional.scaled_dot_product_attention(
            s.q, s.keys, s.values,
            attn_mask=self._visible(), scale=self._spec.attention_scale, enable_gqa=self._gqa,
        )  # fmt: skip
        return seen.transpose(1, 2)

    def _visible(self) -> torch.Tensor:
        s = self._s
        end, count = s.at + s.tokens, s.keys.shape[2]
        keys = torch.arange(end - count, end, device=s.keys.device)
        distance = torch.arange(s.at, end, device=s.keys.device)[:, None] - keys
        return (distance >= 0) & (distance < (self._window or end))


@dataclass(frozen=True)
class LayerWeights:
    """A layer's matrices and norms, ready to multiply."""

    spec: Spec
    matrices: dict[str, Matrix]
    norms: dict[str, torch.Tensor]
    bias: torch.Tensor | None


class LayerParts(NamedTuple):
    """What a layer is made of, for another way to do the same."""

    weights: LayerWeights
    cache: LayerCache
    rope: Rope


class Parts(NamedTuple):
    """What a decoder is made of."""

    table: Table
    scale: float
    layers: tuple[LayerParts, ...]
    final: torch.Tensor
    head: Matrix


class Loader:
    """Turns a source's tensors into matrices, one layer at a time, so that little is held twice."""

    def __init__(
        self, spec: Spec, source: Source, packing: Storage, device: torch.device, *, fused: bool
    ) -> None:
        self._spec, self._source, self._packing, self._device = spec, source, packing, device
        self._fused = fused

    def layer(self, number: int) -> LayerWeights:
        prefix = f"model.layers.{number}."
        qkv = [f"{prefix}self_attn.{n}_proj" for n in "qkv"]
        gate_up = [f"{prefix}mlp.{n}_proj" for n in ("gate", "up")]
        matrices = {
            **self._joined("qkv", ("q", "k", "v"), qkv),
            **self._joined("gate_up", ("gate", "up"), gate_up),
            "o": self._matrix([f"{prefix}self_attn.o_proj"]),
            "down": self._matrix([f"{prefix}mlp.down_proj"]),
        }
        bias = torch.cat([self._vector(f"{n}.bias") for n in qkv]) if self._spec.qkv_bias else None
        return LayerWeights(self._spec, matrices, self._norms(prefix), bias)

    def norm(self, name: str) -> torch.Tensor:
        return self._vector(name) + (1.0 if self._spec.unit_offset else 0.0)

    def ends(self) -> tuple[Table, Matrix]:
        """The embedding and the head."""
        head = None if self._spec.tied else self._source.read("lm_head.weight")
        return self._packing.ends(self._source.read("model.embed_tokens.weight"), head, self._device)

    def _joined(self, whole: str, parts: Sequence[str], names: list[str]) -> dict[str, Matrix]:
        if self._fused:
            return {whole: self._matrix(names)}
        return {part: self._matrix([name]) for part, name in zip(parts, names, strict=True)}

    def _matrix(self, names: list[str]) -> Matrix:
        read = [self._source.read(f"{n}.weight") for n in names]
        return self._packing.matrix(torch.cat(read) if len(read) > 1 else read[0], self._device)

    def _vector(self, name: str) -> torch.Tensor:
        return self._source.read(name).to(self._device, torch.float32)

    def _norms(self, prefix: str) -> dict[str, torch.Tensor]:
        norms = {ours: self.norm(f"{prefix}{name}.weight") for ours, name in norm_names(self._spec).items()}
        if self._spec.qk_norm:
            q, k = (self.norm(f"{prefix}self_attn.{n}_norm.weight") for n in ("q", "k"))
            heads, kv_heads = self._spec.heads, self._spec.kv_heads
            norms["qk_norm"] = torch.cat((q.expand(heads, -1), k.expand(kv_heads, -1)))
        return norms


class Decoder:
    """A model, its cache and its sampler; `ops` are the plan's rows as calls."""

    def __init__(
        self, spec: Spec, source: Source, packing: Storage, device: torch.device, *,
        taste: Taste = GREEDY, fused: bool = True, batch: int = 1, capacity: int = 1024,
        team: Team | None = None,
    ) -> None:  # fmt: skip
        """Of a team's model the spec and the source are this rank's share."""
        self.spec, self.packing, self.capacity = spec, packing, capacity
        self.stream = stream_dtype(packing.dtype, device)
        self.fused, self._taste = fused, taste
        self.state = State(spec, batch, self.stream, device)
        self.sampler = Sampler(taste, device)
        self._ranks = team.rank.size if team else 1
        self._collectives = Collectives(team, self.sampler, self.state, spec.vocab) if team else None
        self._loader = Loader(spec, source, packing, device, fused=fused)
        self._load_ends(device)
        self._ropes = {
            local: Rope(spec, capacity, self.stream, device, local=local) for local in {False, *spec.local}
        }
        self.caches = [self._cache(i, device) for i in range(spec.layers)]
        self._layers = [
            Layer(
                i,
                self._loader.layer(i),
                self.caches[i],
                self._ropes[spec.window_of(i) is not None],
                self.state,
            )
            for i in range(spec.layers)
        ]
        self.ops: tuple[Op, ...] = tuple(self._bound(row) for row in self.rows())

    @property
    def parts(self) -> Parts:
        layers = tuple(layer.parts for layer in self._layers)
        scale = self._scale if self.spec.embed_scale else 1.0
        return Parts(self._table, scale, layers, self._final, self._head)

    def rows(self, tokens: int = 1, start: int = 0) -> tuple[Row, ...]:
        """The plan of a step that takes so many positions."""
        stream = self.stream.itemsize
        way = self.packing
        load = Load(
            self.state.batch, tokens, start, self.fused, way.weight_bytes, stream, stream, way.fusion,
            self._ranks,
        )  # fmt: skip
        return device_rows(self.spec, load, self._taste.phases)

    def place(self, ids: torch.Tensor, at: int) -> None:
        """What the next pass over the ops takes: [batch, tokens] ids from a position on."""
        self.state.place(ids, at)
        for rope in self._ropes.values():
            rope.seek(at, ids.shape[1])

    def embed(self) -> None:
        s = self.state
        x = self._table(s.ids.reshape(-1)).to(self.stream)
        s.x = x * self._scale if self.spec.embed_scale else x

    def final_norm(self) -> None:
        s = self.state
        last = s.x.view(s.batch, s.tokens, -1)[:, -1]
        s.h = _rms_norm(last, self._final, self.spec.eps)

    def lm_head(self) -> None:
        self.sampler.logits = self._head(self.state.h)

    def _load_ends(self, device: torch.device) -> None:
        self._table, self._head = self._loader.ends()
        self._final = self._loader.norm("model.norm.weight")
        # the models were trained with the factor in bf16
        rounding = torch.float32 if self.packing.dtype == torch.float32 else torch.bfloat16
        self._scale = float(torch.tensor(self.spec.hidden**0.5).to(rounding))

    def _cache(self, layer: int, device: torch.device) -> LayerCache:
        return LayerCache(
            self.state.batch, self.spec.kv_heads, self.capacity, self.spec.head_dim,
            window=self.spec.window_of(layer), dtype=self.stream, device=device,
        )  # fmt: skip

    def _bound(self, row: Row) -> Op:
        owner: object = self if row.layer is None else self._layers[row.layer]
        if row.op == "sample":
            owner = self.sampler
        elif row.op == "comm":
            owner = self._collectives
        op: Op = getattr(owner, row.method)
        return op


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    if x.shape[0] == 1 and x.is_cpu:
        return _rms_norm_of_one(x, weight, eps)
    return torch.rms_norm(x.float(), weight.shape, weight, eps).to(x.dtype)


def _rms_norm_of_one(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """The same for a single row in half the calls: its scale is one number, worked out here."""
    length = float(torch.linalg.vector_norm(x))
    return (x * weight).mul_((length * length / weight.numel() + eps) ** -0.5)


def stream_dtype(weights: torch.dtype, device: torch.device) -> torch.dtype:
    """The dtype of the residual stream and of the cache."""
    if device.type == "cpu" or weights == torch.float16:
        return torch.float32
    return weights


def bytes_needed(spec: Spec, way: Storage, *, batch: int, capacity: int) -> int:
    """Memory of a decoder before it is built."""
    ends = spec.vocab * spec.hidden
    stored = parameters(spec) * way.held + spec.tied * ends * way.beside
    kept = sum(min(spec.window_of(i) or capacity, capacity) for i in range(spec.layers))
    cache = 2 * kept * batch * spec.kv_width * 4
    passing = ends * way.passing + (256 << 20)  # one tensor on its way, and what torch itself takes
    return int(stored + cache + passing)
