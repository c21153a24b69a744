"""The decoder: one method for every row of the plan, bound to a state that they hand on.

The residual stream is fp32 on the CPU and wherever the weights are fp16: Gemma's exceeds fp16.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch.nn import functional

from engines.cache import LayerCache
from engines.packing import Matrix, Packing
from engines.plan import Load, Row, device_rows
from engines.sample import GREEDY, Sampler, Taste
from engines.spec import Spec, norm_names, parameters
from engines.weights import Source

Op = Callable[[], None]
CHUNK = 512  # positions of a prompt that are taken at once


@dataclass(slots=True)
class State:
    """What one op leaves for the next. Rows of `x` and `h` are positions, sequence by sequence."""

    batch: int
    ids: torch.Tensor
    at: int = 0  # position of the first id
    tokens: int = 1
    x: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    h: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    qkv: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    qk: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    gate_up: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    keys: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    values: torch.Tensor = field(default_factory=lambda: torch.empty(0))

    @property
    def rows(self) -> int:
        return self.batch * self.tokens


class Rope:
    """Rotary tables of one base, cosine and signed sine, a row for every position."""

    def __init__(self, spec: Spec, capacity: int, device: torch.device, *, local: bool) -> None:
        own = local and spec.theta_local > 0
        frequencies = _frequencies(spec, spec.theta_local if own else spec.theta, scaled=not own)
        angle = torch.arange(capacity, dtype=torch.float32)[:, None] * frequencies
        cos, sin = angle.cos(), angle.sin()
        self._cos = torch.cat((cos, cos), -1)[:, None].to(device)
        self._sin = torch.cat((-sin, sin), -1)[:, None].to(device)

    def turn(self, heads: torch.Tensor, at: int, tokens: int) -> torch.Tensor:
        """Each half of a head turned against the other: [batch, tokens, heads, head_dim]."""
        cos, sin = self._cos[at : at + tokens], self._sin[at : at + tokens]
        return torch.addcmul(heads * cos, heads.roll(heads.shape[-1] // 2, -1), sin)


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
        self._q, self._turned = self._spec.query_width, self._spec.heads + self._spec.kv_heads
        self._gelu = self._spec.activation == "gelu_tanh"

    def attn_norm(self) -> None:
        self._s.h = self._normed(self._s.x, "attn_norm")

    def qkv_proj(self) -> None:
        s = self._s
        s.qkv = self._biased(self._w.matrices["qkv"](s.h), self._w.bias)
        self._split()

    def q_proj(self) -> None:
        self._s.qkv = self._s.h.new_empty(self._s.rows, self._q + 2 * self._spec.kv_width)
        self._project("q", 0, self._q)

    def k_proj(self) -> None:
        self._project("k", self._q, self._q + self._spec.kv_width)

    def v_proj(self) -> None:
        self._project("v", self._q + self._spec.kv_width, self._q + 2 * self._spec.kv_width)
        self._split()

    def qk_norm(self) -> None:
        s, dim = self._s, (self._spec.head_dim,)
        s.qk = (functional.rms_norm(s.qk.float(), dim, None, self._spec.eps) * self._w.norms["qk_norm"]).to(
            s.x.dtype
        )

    def rope(self) -> None:
        s = self._s
        s.qk = self._rope.turn(s.qk, s.at, s.tokens).to(s.x.dtype)

    def kv_append(self) -> None:
        s, heads = self._s, self._spec.heads
        keys = s.qk[:, :, heads:].transpose(1, 2)
        values = self._by_head()[:, :, self._turned :].transpose(1, 2)
        s.keys, s.values = self._cache.append(keys, values, s.at)

    def attention(self) -> None:
        s = self._s
        q = s.qk[:, :, : self._spec.heads]
        seen = self._one(q) if s.tokens == 1 else self._many(q)
        s.h = seen.reshape(s.rows, self._q).to(s.x.dtype)

    def o_proj(self) -> None:
        self._s.h = self._w.matrices["o"](self._s.h)

    def post_attn_norm(self) -> None:
        self._s.h = self._normed(self._s.h, "post_attn_norm")

    def attn_residual(self) -> None:
        self._s.x = self._s.x + self._s.h

    def ffn_norm(self) -> None:
        self._s.h = self._normed(self._s.x, "ffn_norm")

    def ffn_gate_up(self) -> None:
        self._s.gate_up = self._w.matrices["gate_up"](self._s.h)

    def ffn_gate(self) -> None:
        s, ffn = self._s, self._spec.ffn
        s.gate_up = s.h.new_empty(s.rows, 2 * ffn)
        s.gate_up[:, :ffn] = self._w.matrices["gate"](s.h)

    def ffn_up(self) -> None:
        self._s.gate_up[:, self._spec.ffn :] = self._w.matrices["up"](self._s.h)

    def ffn_act(self) -> None:
        gate, up = self._s.gate_up.chunk(2, -1)
        self._s.h = (functional.gelu(gate, approximate="tanh") if self._gelu else functional.silu(gate)) * up

    def ffn_down(self) -> None:
        self._s.h = self._w.matrices["down"](self._s.h)

    def post_ffn_norm(self) -> None:
        self._s.h = self._normed(self._s.h, "post_ffn_norm")

    def ffn_residual(self) -> None:
        self._s.x = self._s.x + self._s.h

    def _normed(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return _rms_norm(x, self._w.norms[name], self._spec.eps)

    def _biased(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return x if bias is None else x + bias

    def _project(self, name: str, start: int, end: int) -> None:
        s, bias = self._s, self._w.bias
        product = self._w.matrices[name](s.h)
        s.qkv[:, start:end] = self._biased(product, None if bias is None else bias[start:end])

    def _by_head(self) -> torch.Tensor:
        s = self._s
        return s.qkv.view(s.batch, s.tokens, -1, self._spec.head_dim)

    def _split(self) -> None:
        self._s.qk = self._by_head()[:, :, : self._turned]

    def _one(self, q: torch.Tensor) -> torch.Tensor:
        """One position of each sequence: the heads that share keys become rows of one product."""
        s, spec = self._s, self._spec
        grouped = q.reshape(s.batch, spec.kv_heads, -1, spec.head_dim).to(s.keys.dtype)
        return functional.scaled_dot_product_attention(grouped, s.keys, s.values, scale=spec.attention_scale)

    def _many(self, q: torch.Tensor) -> torch.Tensor:
        s, spec = self._s, self._spec
        seen = functional.scaled_dot_product_attention(
            q.transpose(1, 2).to(s.keys.dtype), s.keys, s.values,
            attn_mask=self._visible(), scale=spec.attention_scale, enable_gqa=spec.heads != spec.kv_heads,
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


class Loader:
    """Turns a source's tensors into matrices, one layer at a time, so that little is held twice."""

    def __init__(
        self, spec: Spec, source: Source, packing: Packing, device: torch.device, *, fused: bool
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

    def table(self, name: str) -> torch.Tensor:
        return self._source.read(name).to(self._packing.dtype).to(self._device)

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
        self, spec: Spec, source: Source, packing: Packing, device: torch.device, *,
        taste: Taste = GREEDY, fused: bool = True, batch: int = 1, capacity: int = 1024,
    ) -> None:  # fmt: skip
        self.spec, self.packing, self.capacity = spec, packing, capacity
        self.stream = stream_dtype(packing.dtype, device)
        self.fused, self._taste = fused, taste
        self.state = State(batch, torch.zeros(batch, 1, dtype=torch.long, device=device))
        self.sampler = Sampler(taste, device)
        self._loader = Loader(spec, source, packing, device, fused=fused)
        self._load_ends(device)
        ropes = {local: Rope(spec, capacity, device, local=local) for local in {False, *spec.local}}
        self.caches = [self._cache(i, device) for i in range(spec.layers)]
        self._layers = [
            Layer(i, self._loader.layer(i), self.caches[i], ropes[spec.window_of(i) is not None], self.state)
            for i in range(spec.layers)
        ]
        self.ops: tuple[Op, ...] = tuple(self._bound(row) for row in self.rows())

    def rows(self, tokens: int = 1, start: int = 0) -> tuple[Row, ...]:
        """The plan of a step that takes so many positions."""
        stream = self.stream.itemsize
        load = Load(self.state.batch, tokens, start, self.fused, self.packing.dtype.itemsize, stream, stream)
        return device_rows(self.spec, load, self._taste.phases)

    def place(self, ids: torch.Tensor, at: int) -> None:
        """Sets what the next pass over the ops takes: [batch, tokens] ids from a position on."""
        self.state.ids, self.state.at, self.state.tokens = ids, at, ids.shape[1]

    def embed(self) -> None:
        s = self.state
        x = functional.embedding(s.ids.reshape(-1), self._table).to(self.stream)
        s.x = x * self._scale if self.spec.embed_scale else x

    def final_norm(self) -> None:
        s = self.state
        last = s.x.view(s.batch, s.tokens, -1)[:, -1]
        s.h = _rms_norm(last, self._final, self.spec.eps)

    def lm_head(self) -> None:
        self.sampler.logits = self._head(self.state.h)

    def _load_ends(self, device: torch.device) -> None:
        self._table = self._loader.table("model.embed_tokens.weight")
        head = self._table if self.spec.tied else self._loader.table("lm_head.weight")
        self._head = self.packing.make(head)
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
        op: Op = getattr(owner, row.name)
        return op


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return functional.rms_norm(x.float(), weight.shape, weight, eps).to(x.dtype)


def stream_dtype(weights: torch.dtype, device: torch.device) -> torch.dtype:
    """The dtype of the residual stream and of the cache."""
    if device.type == "cpu" or weights == torch.float16:
        return torch.float32
    return weights


def bytes_needed(spec: Spec, weight_bytes: float, *, apart: bool, batch: int, capacity: int) -> int:
    """Memory of a decoder before it is built; `apart`: the head is packed beside the embedding table."""
    ends = spec.vocab * spec.hidden
    stored = (parameters(spec) + (ends if apart and spec.tied else 0)) * weight_bytes
    kept = sum(min(spec.window_of(i) or capacity, capacity) for i in range(spec.layers))
    cache = 2 * kept * batch * spec.kv_width * 4
    passing = ends * weight_bytes + (256 << 20)  # one tensor on its way, and what torch itself takes
    return int(stored + cache + passing)
