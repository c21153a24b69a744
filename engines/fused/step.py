"""A decode step in fused kernels: what the plan does in many ops is done in few.

Token and position stay on the device and move on there, so that a step can be captured in a graph and
replayed without the host. What lies between two products of a layer, the norm of the first, the addition to
the residual stream and the norm for the second, is done at the end of the first: six kernels are a layer.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import torch

from engines import kernels
from engines.decoder import Decoder
from engines.fused.rows import fused_rows
from engines.fused.weights import Finish, kernel_weight
from engines.host.trace import Op
from engines.kernels import kernel
from engines.layer import LayerParts
from engines.models.spec import Spec
from engines.sample import SamplingOptions
from engines.weights import storage
from engines.weights.storage import Matrix

CONTEXTS: Final = (512, 2048, 8192, 1 << 31)  # up to how many positions keys are split as finely


def refusal(spec: Spec, options: SamplingOptions, device: torch.device) -> str:
    """Return why a step cannot be done in these kernels; empty when it can."""
    if why := kernels.refusal(device.type):
        return why
    if features := _without_kernels(spec):
        return f"no kernel does {' and '.join(features)}"
    if not kernel("sampling").supported(options.temperature, options.top_k, spec.vocab):
        return "the kernels draw from 64 tokens at most; choose a smaller --top-k"
    return ""


def _without_kernels(spec: Spec) -> list[str]:
    """Return what of a model these kernels do not do."""
    wanted = {
        "a mixture of experts": spec.experts is not None,
        "attention with sinks": spec.sinks,
        "a norm over all queries": spec.whole_qk_norm,
        "layers without a norm before them": not spec.pre_norm,
        "a bias on what attention adds": spec.out_bias,
    }
    return [name for name, needed in wanted.items() if needed]


def context_class(position: int) -> int:
    """Return the class of contexts that a position belongs to, by its end; each has a step of its own."""
    return next(end for end in CONTEXTS if position < end)


class DeviceState:
    """Holds what one step leaves on the device for the next."""

    def __init__(self, decoder: Decoder) -> None:
        batch, device, spec = decoder.state.batch, decoder.state.ids.device, decoder.spec
        self.token = torch.zeros(batch, dtype=torch.long, device=device)
        self.position = torch.zeros(batch, dtype=torch.int32, device=device)
        self.stream = torch.empty(batch, spec.hidden, device=device)
        self.logits = torch.empty(batch, spec.vocab, device=device)
        self.drawn = kernel("sampling").scratch(batch, spec.vocab, device)

    def place(self, token: torch.Tensor, at: int) -> None:
        """Let the next step take this token of each sequence, at a position."""
        self.token.copy_(token)
        self.position.fill_(at - 1)  # the first kernel of a step moves it on

    def undo(self, steps: int) -> None:
        """Let the next draw be the one that so many steps have made in vain; `place` sets the rest anew."""
        self.drawn.step.sub_(steps)

    @contextmanager
    def rehearsal(self) -> Iterator[Callable[[], None]]:
        """Undo what steps within this context change; call what it yields between two of them.

        Only the keys of the current position stay written, and the next real step writes the same.
        """
        state = (self.token, self.position, self.drawn.step, self.drawn.cut)
        before = [tensor.clone() for tensor in state]

        def restore() -> None:
            for tensor, old in zip(state, before, strict=True):
                tensor.copy_(old)

        yield restore
        restore()


class FusedStep:
    """The step of one class of contexts; it owns its buffers and shares the decoder's weights."""

    def __init__(self, decoder: Decoder, state: DeviceState, options: SamplingOptions, context: int) -> None:
        self._spec, self._parts, self._state, self._options = (
            decoder.spec,
            decoder.parts,
            state,
            options,
        )
        self._context, self._dtype = context, decoder.stream
        self._batch, self._device = len(state.token), state.token.device
        names = ("embed", "add_rmsnorm", "qknorm_rope_append", "decode_attention", "sampling")
        self._embed, self._norm, self._rope, self._attend, self._sampling = map(kernel, names)
        self.rows = fused_rows(decoder.spec, decoder.rows(), self._batch * self._dtype.itemsize)
        self.ops: tuple[Op, ...] = tuple(self._build_ops())

    def _build_ops(self) -> Iterator[Op]:
        """Yield one op for every row of `fused_rows`, in their order."""
        layers = self._parts.layers
        yield self._embed_token
        h = self._buffer(self._spec.hidden)
        yield self._norm_op(self._state.stream, layers[0].weights.norms["attn_norm"], h)
        for layer, following in zip(layers, (*layers[1:], None), strict=True):
            norms = layer.weights.norms
            qkv = self._buffer(self._spec.query_width + 2 * self._spec.kv_width)
            yield self._product_op(layer.weights.matrices["qkv"], h, qkv, layer.weights.bias)
            q = self._buffer(self._spec.query_width)
            yield self._rope_op(layer, qkv, q)
            yield self._attention_op(layer, q, mixed := self._buffer(self._spec.query_width))
            finish = self._finish(norms["ffn_norm"], h, norms.get("post_attn_norm"))
            yield self._finished_op(layer.weights.matrices["o"], mixed, finish)
            yield self._gate_up_op(layer.weights.matrices["gate_up"], h, wide := self._buffer(self._spec.ffn))
            then = following.weights.norms["attn_norm"] if following else self._parts.final
            finish = self._finish(then, h, norms.get("post_ffn_norm"))
            yield self._finished_op(layer.weights.matrices["down"], wide, finish)
        yield self._product_op(self._parts.head, h, self._state.logits)
        yield self._sample

    def _embed_token(self) -> None:
        c, table = self._state, self._parts.table
        if isinstance(table, storage.Embedding):
            self._embed.launch(table.weight, c.token, c.position, c.stream, self._parts.scale)
        else:
            torch.mul(table(c.token), self._parts.scale, out=c.stream)
            c.position += 1

    def _norm_op(self, x: torch.Tensor, norm: torch.Tensor, out: torch.Tensor) -> Op:
        return lambda: self._norm.launch(x, norm, self._spec.eps, out)

    def _finish(self, norm: torch.Tensor, out: torch.Tensor, post: torch.Tensor | None) -> Finish:
        """Return what becomes of a product: it is added to the stream, whose norm the next kernel reads."""
        arrived = torch.zeros(self._batch, dtype=torch.int32, device=self._device)
        finish: Finish = self._norm.Finish(self._state.stream, norm, out, arrived, self._spec.eps, post)
        return finish

    def _finished_op(self, matrix: Matrix, x: torch.Tensor, finish: Finish) -> Op:
        stored, product = kernel_weight(matrix), self._product_buffer(matrix)
        return lambda: stored.into(x, product, finish=finish)

    def _product_op(
        self, matrix: Matrix, x: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None = None
    ) -> Op:
        stored = kernel_weight(matrix)
        return lambda: stored.into(x, out, bias)

    def _gate_up_op(self, matrix: Matrix, x: torch.Tensor, out: torch.Tensor) -> Op:
        stored, gelu = kernel_weight(matrix), self._spec.activation == "gelu_tanh"
        return lambda: stored.gate_up(x, out, gelu=gelu)

    def _rope_op(self, layer: LayerParts, qkv: torch.Tensor, q: torch.Tensor) -> Op:
        dim = self._spec.head_dim
        tables = self._rope.Tables(*layer.rope.tables)
        keys, values = layer.cache.all
        norm = layer.weights.norms.get("qk_norm")
        heads, out = qkv.view(self._batch, -1, dim), q.view(self._batch, -1, dim)
        return lambda: self._rope.launch(
            heads, out, keys, values, self._state.position, tables, norm, self._spec.eps
        )

    def _attention_op(self, layer: LayerParts, q: torch.Tensor, out: torch.Tensor) -> Op:
        keys, values = layer.cache.all
        heads, mixed = (t.view(self._batch, -1, self._spec.head_dim) for t in (q, out))
        between = self._attend.scratch(heads, min(self._context, keys.shape[2]))
        scale = self._spec.attention_scale
        return lambda: self._attend.launch(heads, keys, values, self._state.position, mixed, between, scale)

    def _sample(self) -> None:
        c, t = self._state, self._options
        self._sampling.launch(
            c.logits,
            c.token,
            c.drawn,
            temperature=t.temperature,
            top_k=t.top_k,
            top_p=t.top_p,
            seed=t.seed,
        )

    def _buffer(self, width: int) -> torch.Tensor:
        return torch.empty(self._batch, width, dtype=self._dtype, device=self._device)

    def _product_buffer(self, matrix: Matrix) -> torch.Tensor:
        """Return room for a product that is not finished yet, in as many parts as it is computed in."""
        stored = kernel_weight(matrix)
        shape = (self._batch, stored.rows) if stored.split == 1 else (stored.split, self._batch, stored.rows)
        return torch.empty(shape, dtype=torch.float32, device=self._device)
