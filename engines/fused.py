"""A decode step in Triton kernels: what the plan does in small pieces is done in few.

Token and position stay on the device and move on there, so that a step can be captured in a graph and
replayed without a word from the host. Between two products of a layer lies one kernel: the norm of the
one, the addition to the residual stream, the norm for the next.
"""

import os
import shutil
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Final, Protocol

import torch
from torch.nn import functional

from engines import kernels
from engines.decoder import Decoder
from engines.host.trace import Op
from engines.layer import LayerParts
from engines.models.spec import Spec
from engines.plan import Row
from engines.sample import Taste
from engines.weights import low_bit, packed_matrices, storage
from engines.weights.storage import Matrix

CONTEXTS: Final = (512, 2048, 8192, 1 << 31)  # up to how many positions keys are split as finely
_SMALL: Final = frozenset({"norm", "attn.rope", "attn.kv", "residual"})


def refusal(spec: Spec, taste: Taste, device: torch.device) -> str:
    """Why a step cannot be done in these kernels; nothing when it can."""
    if not kernels.available():
        return "Triton is not installed"
    if device.type != "cuda" and not _interpreted():
        return f"the kernels are for CUDA and ROCm, not for {device.type}"
    if not _interpreted() and (missing := unbuilt()):
        return f"Triton has no {missing} to build what launches its kernels"
    if not kernels.load("sampling").supported(taste.temperature, taste.top_k, spec.vocab):
        return "the kernels draw from 64 tokens at most; choose a smaller --top-k"
    return ""


def _interpreted() -> bool:
    from triton import knobs

    return bool(knobs.runtime.interpret)


def unbuilt() -> str:
    """What Triton needs and does not find where no ready-made parts of it lie about."""
    if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        return "C compiler"
    scheme = sysconfig.get_default_scheme().replace("posix_local", "posix_prefix")
    header = Path(sysconfig.get_path("include", scheme), "Python.h")
    return "" if header.exists() else f"{header}"


def context_class(position: int) -> int:
    """The class of contexts that a position belongs to, by its end: each has a step of its own."""
    return next(end for end in CONTEXTS if position < end)


class Carried:
    """What one step leaves on the device for the next."""

    def __init__(self, decoder: Decoder) -> None:
        batch, device, spec = decoder.state.batch, decoder.state.ids.device, decoder.spec
        self.token = torch.zeros(batch, dtype=torch.long, device=device)
        self.position = torch.zeros(batch, dtype=torch.int32, device=device)
        self.stream = torch.empty(batch, spec.hidden, device=device)
        self.logits = torch.empty(batch, spec.vocab, device=device)
        self.drawn = kernels.load("sampling").scratch(batch, spec.vocab, device)

    def place(self, token: torch.Tensor, at: int) -> None:
        """The next step takes this token of each sequence, at a position."""
        self.token.copy_(token)
        self.position.fill_(at - 1)  # the first kernel of a step moves it on

    @contextmanager
    def rehearsal(self) -> Iterator[Callable[[], None]]:
        """Steps within it leave no trace, if what is given is called between them.

        Each writes the keys of the position at hand alone, as the step to come will.
        """
        state = (self.token, self.position, self.drawn.step, self.drawn.cut)
        before = [tensor.clone() for tensor in state]

        def again() -> None:
            for tensor, old in zip(state, before, strict=True):
                tensor.copy_(old)

        yield again
        again()


class Weight(Protocol):
    """A matrix as the kernels read it; `split` parts of a product are left for the next kernel to add."""

    rows: int
    split: int

    def into(self, x: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None = None) -> None: ...

    def gate_up(self, x: torch.Tensor, out: torch.Tensor, *, gelu: bool) -> None: ...


class Plain:
    """A weight in its own dtype."""

    def __init__(self, weight: torch.Tensor) -> None:
        self._weight = weight
        self._gemv, self._gate_up = kernels.load("gemv"), kernels.load("gate_up_act")
        self.rows = weight.shape[0]
        self.split: int = self._gemv.split_of(self.rows)

    def into(self, x: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self._gemv.gemv(x, self._weight, out, bias=bias)

    def gate_up(self, x: torch.Tensor, out: torch.Tensor, *, gelu: bool) -> None:
        self._gate_up.gate_up_act(x, self._weight, out, gelu=gelu)


class Coded:
    """A weight in four or eight bits, unpacked on its way into the product."""

    def __init__(self, packed: low_bit.Packed) -> None:
        self._packed = packed
        self._four = packed.form.bits == 4
        self._module = kernels.load("w4a16_gemv" if self._four else "int8_gemv")
        self._product = self._module.w4a16_gemv if self._four else self._module.int8_gemv
        self.rows = packed.rows
        self.split: int = self._module.split_of(self.rows)

    def into(self, x: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self._product(x, self._packed.codes, self._packed.scales, out)
        if bias is not None:
            out += bias

    def gate_up(self, x: torch.Tensor, out: torch.Tensor, *, gelu: bool) -> None:
        if self._four:
            self._module.w4a16_gate_up(x, self._packed.codes, self._packed.scales, out, gelu=gelu)
            return
        both = x.new_empty(len(x), self.rows)
        self.into(x, both)
        gate, up = both.chunk(2, -1)
        torch.mul(functional.gelu(gate, approximate="tanh") if gelu else functional.silu(gate), up, out=out)


def weight(matrix: Matrix) -> Weight:
    """What the kernels read of a matrix that torch multiplies otherwise."""
    if isinstance(matrix, packed_matrices.Kernel):
        return Coded(matrix.packed)
    if isinstance(matrix, storage.Plain):
        return Plain(matrix.weight)
    raise TypeError(f"no kernel reads a {type(matrix).__name__}")


class FusedStep:
    """The step of one class of contexts. Buffers are made once and are its own; weights are the decoder's."""

    def __init__(self, decoder: Decoder, carried: Carried, taste: Taste, context: int) -> None:
        self._spec, self._parts, self._carried, self._taste = decoder.spec, decoder.parts, carried, taste
        self._context, self._dtype = context, decoder.stream
        self._batch, self._device = len(carried.token), carried.token.device
        names = ("embed", "add_rmsnorm", "qknorm_rope_append", "decode_attention", "sampling")
        self._embed, self._norm, self._turn, self._attend, self._sampling = map(kernels.load, names)
        self.rows = fused_rows(decoder.spec, decoder.rows(), self._batch * self._dtype.itemsize)
        self.ops: tuple[Op, ...] = tuple(self._all())

    def _all(self) -> Iterator[Op]:
        """One op for every row of `fused_rows`, in their order."""
        layers = self._parts.layers
        yield self._start
        h = self._room(self._spec.hidden)
        yield self._normed(self._carried.stream, layers[0].weights.norms["attn_norm"], h)
        for layer, following in zip(layers, (*layers[1:], None), strict=True):
            norms = layer.weights.norms
            qkv = self._room(self._spec.query_width + 2 * self._spec.kv_width)
            yield self._multiplied(layer.weights.matrices["qkv"], h, qkv, layer.weights.bias)
            q = self._room(self._spec.query_width)
            yield self._turned(layer, qkv, q)
            yield self._attended(layer, q, seen := self._room(self._spec.query_width))
            product = self._product(layer.weights.matrices["o"])
            yield self._multiplied(layer.weights.matrices["o"], seen, product)
            yield self._normed(product, norms["ffn_norm"], h, norms.get("post_attn_norm"), add=True)
            yield self._gated(layer.weights.matrices["gate_up"], h, wide := self._room(self._spec.ffn))
            product = self._product(layer.weights.matrices["down"])
            yield self._multiplied(layer.weights.matrices["down"], wide, product)
            then = following.weights.norms["attn_norm"] if following else self._parts.final
            yield self._normed(product, then, h, norms.get("post_ffn_norm"), add=True)
        yield self._multiplied(self._parts.head, h, self._carried.logits)
        yield self._sample

    def _start(self) -> None:
        c, table = self._carried, self._parts.table
        if isinstance(table, storage.Embedding):
            self._embed.embed(table.weight, c.token, c.position, c.stream, self._parts.scale)
        else:
            torch.mul(table(c.token), self._parts.scale, out=c.stream)
            c.position += 1

    def _normed(
        self, x: torch.Tensor, norm: torch.Tensor, out: torch.Tensor,
        post: torch.Tensor | None = None, *, add: bool = False,
    ) -> Op:  # fmt: skip
        stream = self._carried.stream if add else None
        return lambda: self._norm.add_rmsnorm(x, norm, self._spec.eps, out, stream=stream, post=post)

    def _multiplied(
        self, matrix: Matrix, x: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None = None
    ) -> Op:
        stored = weight(matrix)
        return lambda: stored.into(x, out, bias)

    def _gated(self, matrix: Matrix, x: torch.Tensor, out: torch.Tensor) -> Op:
        stored, gelu = weight(matrix), self._spec.activation == "gelu_tanh"
        return lambda: stored.gate_up(x, out, gelu=gelu)

    def _turned(self, layer: LayerParts, qkv: torch.Tensor, q: torch.Tensor) -> Op:
        dim = self._spec.head_dim
        tables = self._turn.Tables(*layer.rope.tables)
        keys, values = layer.cache.all
        norm = layer.weights.norms.get("qk_norm")
        heads, out = qkv.view(self._batch, -1, dim), q.view(self._batch, -1, dim)
        return lambda: self._turn.qknorm_rope_append(
            heads, out, keys, values, self._carried.position, tables, norm, self._spec.eps
        )

    def _attended(self, layer: LayerParts, q: torch.Tensor, out: torch.Tensor) -> Op:
        keys, values = layer.cache.all
        heads, seen = (t.view(self._batch, -1, self._spec.head_dim) for t in (q, out))
        between = self._attend.scratch(heads, min(self._context, keys.shape[2]))
        scale = self._spec.attention_scale
        return lambda: self._attend.decode_attention(
            heads, keys, values, self._carried.position, seen, between, scale
        )

    def _sample(self) -> None:
        c, t = self._carried, self._taste
        self._sampling.sample(
            c.logits, c.token, c.drawn,
            temperature=t.temperature, top_k=t.top_k, top_p=t.top_p, seed=t.seed,
        )  # fmt: skip

    def _room(self, width: int) -> torch.Tensor:
        return torch.empty(self._batch, width, dtype=self._dtype, device=self._device)

    def _product(self, matrix: Matrix) -> torch.Tensor:
        """Room for a product that the next kernel reads, in as many parts as it is made in."""
        stored = weight(matrix)
        shape = (self._batch, stored.rows) if stored.split == 1 else (stored.split, self._batch, stored.rows)
        return torch.empty(shape, dtype=torch.float32, device=self._device)


def fused_rows(spec: Spec, planned: Sequence[Row], row_bytes: int) -> tuple[Row, ...]:
    """The plan's rows, those joined that one kernel does; what stays within a kernel is not moved.

    `row_bytes` is what one number of the stream takes for all sequences.
    """
    return tuple(_joined(spec, group, row_bytes) for group in _groups(planned))


def _groups(planned: Sequence[Row]) -> Iterator[list[Row]]:
    """Runs of small ops; the activation goes with its product, the phases of sampling with each other."""

    def kind(row: Row) -> str:
        return "small" if row.op in _SMALL else {"mlp.act": "mlp.gate_up"}.get(row.op, row.op)

    return (list(group) for _, group in groupby(planned, key=kind))


def _joined(spec: Spec, group: list[Row], row_bytes: int) -> Row:
    first = group[0]
    if len(group) == 1:
        return first
    within = sum(_handed_on(spec, row) for row in group[:-1])
    return replace(
        first,
        name="+".join(row.name for row in group),
        op=first.op if first.op != "residual" else "norm",
        flops=(sum(r.flops[0] for r in group), 0.0),
        bytes=(sum(r.bytes[0] for r in group) - 2 * row_bytes * within, 0.0),
    )


def _handed_on(spec: Spec, row: Row) -> int:
    """Numbers of a sequence that an op leaves for the next one."""
    if row.op == "attn.rope":
        return spec.kv_width
    if row.op == "mlp.gate_up":
        return 2 * spec.ffn
    if row.op == "sample":
        return 0
    return spec.query_width + spec.kv_width if row.name == "qk_norm" else spec.hidden
