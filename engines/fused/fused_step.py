"""A decode step in fused kernels: few kernels do the many ops of the plan.

Token and position stay on the device and advance there, so that a step can be captured as a graph and
replayed without the host. What follows a product within a layer (its norm, the addition to the residual
stream, the next norm) is done at its end: a layer takes six kernels.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from itertools import groupby
from typing import Any, Final

import torch

from engines import kernels
from engines.decoder import Decoder
from engines.host.op_runners import Op
from engines.kernels import load_kernel
from engines.layer import DecoderLayer
from engines.models.spec import Spec
from engines.plan import Plan, PlannedOp
from engines.token_sampling import SamplingOptions
from engines.weights import matrix_storage, quantised_storage
from engines.weights.matrix_storage import Matrix

CONTEXT_CLASSES: Final = (512, 2048, 8192, 1 << 31)  # up to how many positions keys are split as finely
_PRODUCTS_WITH_EPILOGUE: Final = frozenset({"attn.out", "mlp.down"})
_SMALL_OPS: Final = frozenset({"norm", "attn.rope", "attn.kv", "residual"})


class KernelWeight:
    """A plain or packed matrix; its products come in `split` parts, added when their rows are finished."""

    def __init__(self, matrix: Matrix) -> None:
        """Prepare a matrix for the kernels. Raise TypeError for a kind of matrix that no kernel reads."""
        self._scales: torch.Tensor | None = None
        if isinstance(matrix, quantised_storage.TritonMatrix):
            packed = matrix.packed
            product = quantised_storage.load_packed_kernel(packed)
            self._weight, self._scales, self._gate_up = packed.codes, packed.scales, product.gate_up
        elif isinstance(matrix, matrix_storage.PlainMatrix):
            product = load_kernel("gemv")
            self._weight, self._gate_up = matrix.weight, load_kernel("gate_up_act").launch
        else:
            raise TypeError(f"no kernel reads a {type(matrix).__name__}")
        many_rows = load_kernel("rows_product")
        self._multiply, self._multiply_rows = product.launch, many_rows.launch
        self._is_one_by_one = many_rows.is_one_by_one
        self.rows = self._weight.shape[0]
        self.split: int = product.choose_split(self.rows)

    def multiply_into(
        self,
        x: torch.Tensor,
        out: torch.Tensor,
        bias: torch.Tensor | None = None,
        finish: Any = None,
    ) -> None:
        """Write the product of x and this matrix to `out`; with a `ProductFinish` also norm its rows."""
        launch = self._multiply if self._is_one_by_one(x) else self._multiply_rows
        launch(x, self._weight, out, scales=self._scales, bias=bias, finish=finish)

    def multiply_gate_up(self, x: torch.Tensor, out: torch.Tensor, *, gelu: bool) -> None:
        """Write act(x·gate) · (x·up) to `out`; this matrix is gate above up."""
        launch = self._gate_up if self._is_one_by_one(x) else self._multiply_rows
        launch(x, self._weight, out, scales=self._scales, gelu=gelu)


def explain_refusal(spec: Spec, options: SamplingOptions, device: torch.device) -> str:
    """Return why these kernels cannot do a step; empty if they can."""
    if why := kernels.explain_refusal(device.type):
        return why
    features = {
        "a mixture of experts": spec.experts is not None,
        "attention sinks": spec.has_sinks,
        "norms over all query heads": spec.norms_all_heads,
        "layers without pre-norm": not spec.pre_norm,
        "an output bias of attention": spec.out_bias,
    }
    if unsupported := " and ".join(name for name, is_needed in features.items() if is_needed):
        return f"kernels do not support {unsupported}"
    if not load_kernel("sampling").is_supported(options.temperature, options.top_k, spec.vocab):
        return "kernels draw from at most 64 tokens; choose a smaller --top-k"
    return ""


def find_context_class(position: int) -> int:
    """Return the context class of a position, named by its limit; each class has its own step."""
    return next(limit for limit in CONTEXT_CLASSES if position < limit)


class DeviceState:
    """What a step leaves on the device for the next one."""

    def __init__(self, decoder: Decoder) -> None:
        batch, device, spec = decoder.state.batch, decoder.state.ids.device, decoder.spec
        self.token = torch.zeros(batch, dtype=torch.long, device=device)
        self.position = torch.zeros(batch, dtype=torch.int32, device=device)
        self.stream = torch.empty(batch, spec.hidden, device=device)
        self.logits = torch.empty(batch, spec.vocab, device=device)
        self.sampling_scratch = load_kernel("sampling").allocate_scratch(batch, spec.vocab, device)

    def set_input(self, token: torch.Tensor, position: int) -> None:
        """Set the token of each sequence for the next step, and its position."""
        self.token.copy_(token)
        self.position.fill_(position - 1)  # the first kernel of a step moves it on

    def undo_draws(self, steps: int) -> None:
        """Take back the random draws of `steps` discarded steps; `set_input` resets the rest."""
        self.sampling_scratch.step.sub_(steps)

    @contextmanager
    def rehearse(self) -> Iterator[Callable[[], None]]:
        """Undo what steps change within this context; call the yielded function between two of them.

        Only the keys of the current position stay written, and the next real step writes the same.
        """
        tensors = (self.token, self.position, self.sampling_scratch.step, self.sampling_scratch.cut)
        saved = [tensor.clone() for tensor in tensors]

        def restore() -> None:
            for tensor, copy in zip(tensors, saved, strict=True):
                tensor.copy_(copy)

        yield restore
        restore()


class FusedStep:
    """The step of one context class; it owns its buffers and shares the decoder's weights."""

    def __init__(self, decoder: Decoder, state: DeviceState, options: SamplingOptions, context: int) -> None:
        self._decoder, self._spec, self._state, self._options = decoder, decoder.spec, state, options
        self._context, self._dtype = context, decoder.stream_dtype
        self._batch, self._device = len(state.token), state.token.device
        names = ("embed", "add_rmsnorm", "qknorm_rope_append", "decode_attention", "sampling")
        self._embed, self._norm, self._rope, self._attend, self._sampling = map(load_kernel, names)
        self.plan = build_fused_plan(decoder.spec, decoder.plan_step(), self._batch * self._dtype.itemsize)
        self.ops: tuple[Op, ...] = tuple(self._build_ops())

    def _build_ops(self) -> Iterator[Op]:
        """Iterate over the ops, one per row of `build_fused_plan`, in order."""
        spec, state, layers = self._spec, self._state, self._decoder.layers
        gelu = spec.activation == "gelu_tanh"
        yield self._make_embed_op()
        h = self._allocate_buffer(spec.hidden)
        yield partial(self._norm.launch, state.stream, layers[0].weights.norms["attn_norm"], spec.eps, h)
        for layer, next_layer in zip(layers, (*layers[1:], None), strict=True):
            matrices, norms = layer.weights.matrices, layer.weights.norms
            post_attn, post_ffn = norms.get("post_attn_norm"), norms.get("post_ffn_norm")
            qkv = self._allocate_buffer(spec.query_width + 2 * spec.kv_width)
            yield partial(KernelWeight(matrices["qkv"]).multiply_into, h, qkv, layer.weights.bias)
            q, mixed = self._allocate_buffer(spec.query_width), self._allocate_buffer(spec.query_width)
            yield self._make_rope_op(layer, qkv, q)
            yield self._make_attention_op(layer, q, mixed)
            yield self._make_finished_product_op(matrices["o"], mixed, norms["ffn_norm"], h, post_attn)
            gated = self._allocate_buffer(spec.ffn)
            yield partial(KernelWeight(matrices["gate_up"]).multiply_gate_up, h, gated, gelu=gelu)
            next_norm = next_layer.weights.norms["attn_norm"] if next_layer else self._decoder.final
            yield self._make_finished_product_op(matrices["down"], gated, next_norm, h, post_ffn)
        yield partial(KernelWeight(self._decoder.head).multiply_into, h, state.logits)
        options = asdict(self._options)
        yield partial(self._sampling.launch, state.logits, state.token, state.sampling_scratch, **options)

    def _make_embed_op(self) -> Op:
        state, table, scale = self._state, self._decoder.table, self._decoder.embedding_scale
        if isinstance(table, matrix_storage.PlainEmbedding):
            return partial(self._embed.launch, table.weight, state.token, state.position, state.stream, scale)

        def embed_unpacked() -> None:
            torch.mul(table(state.token), scale, out=state.stream)
            state.position += 1

        return embed_unpacked

    def _make_finished_product_op(
        self, matrix: Matrix, x: torch.Tensor, norm: torch.Tensor, h: torch.Tensor, post: torch.Tensor | None
    ) -> Op:
        """Make a product that is added to the stream, whose norm the next kernel reads from `h`."""
        weight, stream = KernelWeight(matrix), self._state.stream
        arrived = torch.zeros(self._batch, dtype=torch.int32, device=self._device)
        finish = self._norm.ProductFinish(stream, norm, h, arrived, self._spec.eps, post)
        parts = () if weight.split == 1 else (weight.split,)  # in which the product is computed
        product = torch.empty((*parts, self._batch, weight.rows), dtype=torch.float32, device=self._device)
        return partial(weight.multiply_into, x, product, finish=finish)

    def _make_rope_op(self, layer: DecoderLayer, qkv: torch.Tensor, q: torch.Tensor) -> Op:
        tables, norm = layer.rotary.tables, layer.weights.norms.get("qk_norm")
        heads, out = (t.view(self._batch, -1, self._spec.head_dim) for t in (qkv, q))
        caches = *layer.cache.all_slots, self._state.position
        return partial(self._rope.launch, heads, out, *caches, tables, norm, self._spec.eps)

    def _make_attention_op(self, layer: DecoderLayer, q: torch.Tensor, out: torch.Tensor) -> Op:
        keys, values = layer.cache.all_slots
        heads, mixed = (t.view(self._batch, -1, self._spec.head_dim) for t in (q, out))
        scratch = self._attend.allocate_scratch(heads, min(self._context, keys.shape[2]))
        scale, position = self._spec.attention_scale, self._state.position
        return partial(self._attend.launch, heads, keys, values, position, mixed, scratch, scale)

    def _allocate_buffer(self, width: int) -> torch.Tensor:
        return torch.empty(self._batch, width, dtype=self._dtype, device=self._device)


def build_fused_plan(spec: Spec, planned: Sequence[PlannedOp], row_bytes: int) -> Plan:
    """Join the ops of a plan that one kernel does; what stays within a kernel moves no bytes.

    `row_bytes` is the size of one number of the stream, for all sequences.
    """
    return tuple(_join_ops(spec, group, row_bytes) for group in _group_ops_by_kernel(planned))


def _group_ops_by_kernel(planned: Sequence[PlannedOp]) -> Iterator[list[PlannedOp]]:
    """Group consecutive small ops; the activation joins its product, the sampling phases each other.

    What follows a product that is added to the stream is done at its end.
    """

    def classify(row: PlannedOp) -> str:
        return "small" if row.op in _SMALL_OPS else {"mlp.act": "mlp.gate_up"}.get(row.op, row.op)

    unfinished: list[PlannedOp] = []
    for _, rows in groupby(planned, key=classify):
        group = unfinished + list(rows)
        unfinished = group if group[-1].op in _PRODUCTS_WITH_EPILOGUE else []
        if not unfinished:
            yield group


def _join_ops(spec: Spec, group: list[PlannedOp], row_bytes: int) -> PlannedOp:
    first = group[0]
    if len(group) == 1:
        return first
    handed_on = sum(_count_handed_on(spec, row) for row in group[:-1])
    return replace(
        first,
        name="+".join(row.name for row in group),
        op=first.op if first.op != "residual" else "norm",
        flops=(sum(r.flops[0] for r in group), 0.0),
        bytes=(sum(r.bytes[0] for r in group) - 2 * row_bytes * handed_on, 0.0),
    )


def _count_handed_on(spec: Spec, row: PlannedOp) -> int:
    """Count the numbers per sequence that an op passes to the next one."""
    if row.op == "attn.rope":
        return spec.kv_width
    if row.op == "mlp.gate_up":
        return 2 * spec.ffn
    if row.op == "sample":
        return 0
    return spec.query_width + spec.kv_width if row.name == "qk_norm" else spec.hidden
