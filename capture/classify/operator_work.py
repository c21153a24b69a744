"""Estimate FLOPs and bytes of an operator call from the shapes and types of its operands.

A work model computes, from one call, the floating-point operations and the bytes that memory must move at
least once (operands read, results written). If the call lacks what a model needs, there is no estimate.
"""

import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from typing import Final

from msgspec.structs import replace

from capture.classify.experts_work import (
    EXPERTS_KERNEL,
    EXPERTS_KERNELS,
    estimate_experts,
    estimate_experts_kernel,
    estimate_moving_kernel,
)
from capture.classify.operator_call import Dims, OperatorCall, OperatorWork, shorten_dtype
from capture.classify.step_annotations import AttentionSums, StepAnnotation


def estimate_work(call: OperatorCall) -> OperatorWork | None:
    """Estimate the work of a call by the first model whose pattern matches its name; None without one."""
    for model_id, pattern, model in WORK_MODELS:
        if pattern.search(call.name):
            try:
                work = model(call)
            except (IndexError, ValueError, OverflowError):
                return None
            return None if work is None else replace(work, model=model_id)
    return None


def has_work_model(name: str) -> bool:
    """Whether operators of this name have a work model."""
    return any(pattern.search(name) for _, pattern, _ in WORK_MODELS)


# matrix products


def estimate_product(
    m: int, n: int, k: int, widths: Sequence[float], dtype: str, *, batch: int = 1, bias: bool = False
) -> OperatorWork:
    """Estimate batch × (m, k) × (k, n); `widths` are bytes per element of left, right and result.

    A bias counts in the bytes only: FLOPs are those of the multiply-adds, as torch's own counter has them.
    """
    left, right, result = widths
    flops = batch * 2.0 * m * n * k
    moved = batch * (m * k * left + k * n * right + m * n * result) + (n * result if bias else 0)
    shape = f"m={m} n={n} k={k}" + (f" b={batch}" if batch > 1 else "")
    return OperatorWork(flops, moved, shape, dtype)


def _estimate_linear(call: OperatorCall) -> OperatorWork | None:
    """`linear(x, weight, bias)`: x of any rank, weight (n, k)."""
    return _estimate_operand_product(call, 0, 1, transposed=True, bias=call.find_dims(2, 1) is not None)


def _estimate_library_product(call: OperatorCall) -> OperatorWork | None:
    """A product of a library, whose second operand may be transposed: the inner sizes decide."""
    right = call.find_dims(1, 2)
    if right is None or not call.dims[0]:
        return None
    bias = call.find_dims(2, 1)
    transposed = right[1] == call.dims[0][-1]
    has_bias = bias is not None and bias[0] == right[0 if transposed else 1]
    return _estimate_operand_product(call, 0, 1, transposed=transposed, bias=has_bias)


def _estimate_operand_product(
    call: OperatorCall, left: int, right: int, *, transposed: bool = False, bias: bool = False
) -> OperatorWork | None:
    """Estimate the product of two operands, supplied by index; the right one is (k, n), or (n, k)."""
    a, b = call.dims[left], call.find_dims(right, 2)
    width_a, width_b = call.find_width(left), call.find_width(right)
    if b is None or len(a) < 2 or width_a is None or width_b is None or min(a) <= 0:
        return None
    n, k = b if transposed else b[::-1]
    if k != a[-1]:
        return None
    narrow = 4.0 if "_int_mm" in call.name else 2.0  # of a product of 8-bit numbers
    result = max(width_a, width_b, 1.0) if width_a != 1.0 else narrow
    widths = (width_a, width_b, result)
    return estimate_product(math.prod(a[:-1]), n, k, widths, shorten_dtype(call.types[left]), bias=bias)


def _estimate_into_output(call: OperatorCall) -> OperatorWork | None:
    """`onednn_mm(out, x, bias, …)`, `weight_packed_linear(out, x, weight, …)`: weights in their own layout.

    The weights are taken to have the format of x; results and x give the sizes.
    """
    out, left, widths = call.dims[0], call.dims[1], (call.find_width(0), call.find_width(1))
    if len(out) < 2 or len(left) < 2 or min(*out, *left) <= 0 or out[:-1] != left[:-1]:
        return None
    if widths[0] is None or widths[1] is None:
        return None
    has_bias = any(dims == out[-1:] for dims in call.dims[2:])
    rows, dtype = math.prod(out[:-1]), shorten_dtype(call.types[1])
    return estimate_product(rows, out[-1], left[-1], (widths[1], widths[1], widths[0]), dtype, bias=has_bias)


def _estimate_scaled_product(call: OperatorCall) -> OperatorWork | None:
    """`_scaled_mm(a, b, scale_a, scale_b, bias, …)`: the scales, of any block size, are read as well."""
    work = _estimate_operand_product(call, 0, 1)
    if work is None:
        return None
    extra = [math.prod(dims) * (call.find_width(i) or 0.0) for i, dims in call.list_tensors() if i > 1]
    return replace(work, bytes=work.bytes + sum(extra))


def _estimate_bmm(call: OperatorCall) -> OperatorWork | None:
    """`bmm(a, b)` and `baddbmm(bias, a, b)`: (b, m, k) × (b, k, n)."""
    first = 1 if "baddbmm" in call.name else 0
    a, b = call.find_dims(first, 3), call.find_dims(first + 1, 3)
    widths = call.find_width(first), call.find_width(first + 1)
    if a is None or b is None or widths[0] is None or widths[1] is None or a[2] != b[1]:
        return None
    dtype = shorten_dtype(call.types[first])
    work = estimate_product(a[1], b[2], a[2], (widths[0], widths[1], widths[0]), dtype, batch=a[0])
    added = math.prod(call.dims[0]) * widths[0] if first else 0.0
    return replace(work, bytes=work.bytes + added)


def flatten_batch(left: list[int], right: list[int], result: list[int]) -> tuple[list[int], list[int]]:
    """Return operands of a product of many matrices, as of attention, as (b, m, k) and (b, k, n).

    Either may be transposed: the result tells. Others are returned as they are.
    """
    if min(map(len, (left, right, result))) < 3 or min(*left, *right, *result) <= 0:
        return left, right
    *batch, rows, columns = result
    count = math.prod(batch)
    inner, rest = divmod(math.prod(left), count * rows)
    is_equal = left[:-2] == right[:-2] == batch and math.prod(right) == count * inner * columns
    return (left, right) if rest or not is_equal else ([count, rows, inner], [count, inner, columns])


def _estimate_node_product(call: OperatorCall) -> OperatorWork | None:
    """A product of onnxruntime, of weights or of many matrices as of attention."""
    return _estimate_bmm(call) or _estimate_library_product(call)


def _estimate_convolution(
    call: OperatorCall, stride: int, padding: int, dilation: int
) -> OperatorWork | None:
    """A convolution of (b, c, *sizes) with (c_out, c / groups, *kernel); its settings are values."""
    x, weight, width = call.dims[0], call.dims[1], call.find_width(0)
    kernel = weight[2:]
    if width is None or len(x) != len(weight) or not kernel or min(*x, *weight) <= 0:
        return None
    if "convolution" in call.name and "True" in call.values[6:7]:  # transposed
        return None
    strides, paddings = (_read_sizes(call, i) for i in (stride, padding))
    dilations = _read_sizes(call, dilation) if dilation < len(call.values) else [1]
    outs = [
        (size + 2 * paddings[i % len(paddings)] - dilations[i % len(dilations)] * (kernel[i] - 1) - 1)
        // strides[i % len(strides)]
        + 1
        for i, size in enumerate(x[2:])
    ]
    results = x[0] * weight[0] * math.prod(outs)
    bias = weight[0] if weight[:1] in call.dims[2:4] else 0
    moved = (math.prod(x) + math.prod(weight) + bias + results) * width
    shape = f"{_format_dims(x)} * {_format_dims(weight)}"
    return OperatorWork(2.0 * results * math.prod(weight[1:]), moved, shape, shorten_dtype(call.types[0]))


def _read_sizes(call: OperatorCall, index: int) -> list[int]:
    """Read a value that is a list of sizes, such as `[1, 1]`."""
    return [int(size) for size in call.values[index].strip("[]").split(",")]


# elementwise operators, norms and caches


def _estimate_norm(call: OperatorCall) -> OperatorWork | None:
    """A norm over the last dimension; one that adds a residual first reads and writes two tensors."""
    tensors = call.list_tensors()
    if not tensors or len(tensors[0][1]) < 2:
        return None
    index, dims = tensors[0]
    width = call.find_width(index)
    if width is None:
        return None
    elements, rows, adds = math.prod(dims), math.prod(dims[:-1]), bool(_ADDING.search(call.name))
    weight = dims[-1] * (call.find_width(tensors[-1][0]) or width)
    moved = (4 if adds else 2) * elements * width + weight
    flops = (5.0 if adds else 4.0) * elements + 2 * rows
    return OperatorWork(flops, moved, _format_dims(dims), shorten_dtype(call.types[index]))


def _estimate_rope(call: OperatorCall) -> OperatorWork | None:
    """`rotary_embedding(positions, query, key, …)`: both rotated in place, three operations per element."""
    query, key = call.find_dims(1, 2), call.find_dims(2, 2)
    width = call.find_width(1)
    if query is None or width is None:
        return None
    elements = math.prod(query) + (math.prod(key) if key else 0)
    return OperatorWork(3.0 * elements, 2 * elements * width, f"{elements}", shorten_dtype(call.types[1]))


def _estimate_gated_activation(call: OperatorCall) -> OperatorWork | None:
    """`silu_and_mul(out, gate_and_up)` and similar: gate and up are the halves of one operand."""
    matrices = call.list_tensors(2)
    if len(matrices) < 2:
        return None
    (a, small), (b, large) = sorted(matrices[:2], key=lambda m: math.prod(m[1]))
    widths = call.find_width(a), call.find_width(b)
    if widths[0] is None or widths[1] is None or math.prod(large) != 2 * math.prod(small):
        return None
    moved = math.prod(small) * widths[0] + math.prod(large) * widths[1]
    return OperatorWork(5.0 * math.prod(small), moved, _format_dims(small), shorten_dtype(call.types[b]))


def _estimate_kv_store(call: OperatorCall) -> OperatorWork | None:
    """New keys and values copied into the cache: both read once and written once."""
    tensors = call.list_tensors()
    if len(tensors) < 2 or tensors[0][1] != tensors[1][1]:
        return None
    index, dims = tensors[0]
    width = call.find_width(index)
    if width is None:
        return None
    moved = 4 * math.prod(dims) * width
    return OperatorWork(0.0, moved, _format_dims(dims), shorten_dtype(call.types[index]))


def _estimate_pointwise(call: OperatorCall) -> OperatorWork | None:
    """An elementwise operator: operands read once, one result of their common shape written."""
    sized = _list_sized_tensors(call)
    if not sized:
        return None
    is_copy = "copy" in call.name
    rows = zip_longest(*(reversed(dims) for dims, _ in sized), fillvalue=1)
    shape = tuple(map(max, rows))[::-1]
    width = 1.0 if _COMPARING.search(call.name) else max(sized, key=lambda t: math.prod(t[0]))[1]
    sizes = [math.prod(d) * w for d, w in sized]
    is_in_place = is_copy or (call.name.endswith("_") and len(sized) > 1)
    written = sizes[0] if is_in_place else math.prod(shape) * width
    read = sum(sizes) - (sizes[0] if is_copy else 0)
    flops = 0.0 if is_copy or "clone" in call.name else float(math.prod(shape))
    return OperatorWork(flops, read + written, _format_dims(shape), shorten_dtype(call.types[0]))


def _estimate_reduction(call: OperatorCall) -> OperatorWork | None:
    """A mean, sum or extreme: the operand is read once, one operation per element.

    The result, whose size is known where a list of axes is stated, is taken to have the operand's format.
    """
    dims, width = call.dims[0], call.find_width(0)
    if not dims or width is None or min(dims) <= 0:
        return None
    elements, results = math.prod(dims), 0
    if len(call.values) > 1 and call.values[1].startswith("[") and call.values[1] != "[]":
        results = elements // math.prod(dims[axis] for axis in _read_sizes(call, 1))
    moved = (elements + results) * width
    return OperatorWork(float(elements), moved, _format_dims(dims), shorten_dtype(call.types[0]))


def _estimate_embedding(call: OperatorCall) -> OperatorWork | None:
    """`embedding(table, ids, …)`: a row of the table per id, read and written."""
    table, ids, width = call.find_dims(0, 2), call.dims[1], call.find_width(0)
    if table is None or width is None or not ids or min(ids) <= 0:
        return None
    rows = math.prod(ids)
    moved = 2 * rows * table[1] * width + rows * (call.find_width(1) or 8.0)
    return OperatorWork(0.0, moved, f"{rows}×{table[1]}", shorten_dtype(call.types[0]))


def _estimate_generated(call: OperatorCall) -> OperatorWork | None:
    """A kernel that Inductor generated: each operand is read or written, all of it.

    None unless the loop, whose sizes are the last values, covers the largest operand: else parts are used.
    """
    sized, loop = _list_sized_tensors(call), 1
    largest = max((math.prod(dims) for dims, _ in sized), default=0)
    for value in reversed(call.values):
        if not value.isdecimal():
            return None
        loop *= int(value)
        if loop == largest:
            break
    moved = sum(math.prod(dims) * width for dims, width in sized)
    return OperatorWork(0.0, moved, f"{largest}", shorten_dtype(call.types[0])) if loop == largest else None


def _list_sized_tensors(call: OperatorCall) -> list[tuple[Dims, float]]:
    """List dims and bytes per element of every tensor; empty if any of them is unknown."""
    tensors = [(dims, call.find_width(i)) for i, dims in call.list_tensors()]
    sized = [(dims, width) for dims, width in tensors if width is not None and min(dims) > 0]
    return sized if len(sized) == len(tensors) else []


def _format_dims(dims: Dims) -> str:
    return "×".join(map(str, dims))


# attention


def _estimate_ragged_attention(call: OperatorCall) -> OperatorWork | None:
    """Attention over a paged cache: its shape is that of the complete pool, so the step's sums are needed."""
    queries, width = call.find_dims(0, 3), call.find_width(0)
    sums, kv = _list_step_sums(call.step), _find_kv_heads(call)
    if queries is None or width is None or sums is None or kv is None:
        return None
    _, query_heads, size = queries
    kv_heads, cache_width = kv
    keys, new = sum(s.keys or 0 for s in sums), sum(s.queries or 0 for s in sums)
    prompt = call.step.prefill if call.step else None
    pairs = sum(_count_attention_pairs(s, is_causal=s is prompt) for s in sums)
    heads, dtype = (query_heads, kv_heads, size), shorten_dtype(call.types[0])
    return estimate_paged_attention(heads, new, keys, pairs, (width, cache_width), dtype)


def estimate_paged_attention(
    heads: tuple[int, int, int], new: int, keys: int, pairs: float, widths: tuple[float, float], dtype: str
) -> OperatorWork:
    """Estimate attention of `new` queries to `keys` cached ones of all requests, in `pairs` of both.

    `heads` are query heads, key heads and their size; `widths` the bytes per number of queries and cache.
    """
    (query_heads, kv_heads, size), (width, cache_width) = heads, widths
    moved = 2 * new * query_heads * size * width + 2 * new * kv_heads * size * width
    moved += 2 * (keys - new) * kv_heads * size * cache_width
    shape = f"q={new} k={keys} h={query_heads}/{kv_heads} d={size}"
    return OperatorWork(4.0 * query_heads * size * pairs, moved, shape, dtype)


def _count_attention_pairs(sums: AttentionSums, *, is_causal: bool) -> float:
    """Count the computed query-key pairs; a causal mask leaves out half of a prompt's square."""
    masked = (sums.queries_squared or 0) / 2 if is_causal else 0.0
    return (sums.queries_keys or 0) - masked


def _list_step_sums(step: StepAnnotation | None) -> list[AttentionSums] | None:
    """List the sums of prefill and decode of a step; None if any of them is incomplete."""
    sums = [s for s in (step.prefill, step.decode) if s is not None] if step else []
    is_complete = all(s.queries_keys is not None and s.keys is not None for s in sums)
    return sums if sums and is_complete else None


def _find_kv_heads(call: OperatorCall) -> tuple[int, float] | None:
    """Find the number of key heads, and the bytes per cached element.

    The cache is the first tensor of rank 4 or more with the head size of the queries; without one, the new
    keys are used. Heads come after the positions of a block; on processors before them, and None is returned
    if a window leaves out keys.
    """
    queries, axis = call.dims[0], -2
    if "cpu_attention" in call.name:
        axis = -3
        if call.values[9] != "-1":
            return None
    caches = [(i, d) for i, d in call.list_tensors() if len(d) >= 4 and d[-1] == queries[-1]]
    if caches:
        index, dims = caches[0]
        return dims[axis], call.find_width(index) or call.find_width(0) or 2.0
    keys = call.find_dims(1, 3)
    return (keys[1], call.find_width(1) or 2.0) if keys and keys[2] == queries[2] else None


def _estimate_dense_attention(call: OperatorCall) -> OperatorWork | None:
    """Attention of dense batches, (b, h, q, d) with (b, h, k, d); a causal mask halves a square."""
    q, k, v = call.find_dims(0, 4), call.find_dims(1, 4), call.find_dims(2, 4)
    width = call.find_width(0)
    if q is None or k is None or v is None or width is None:
        return None
    if "attention_forward" in call.name:  # the inner operators have positions before heads
        q, k, v = ((d[0], d[2], d[1], d[3]) for d in (q, k, v))
    batch, heads, rows, size = q
    pairs = rows * k[2] / (2 if "True" in call.values and rows == k[2] else 1)
    flops = 2.0 * batch * heads * pairs * (size + v[3])
    moved = (math.prod(q) + math.prod(k) + math.prod(v) + math.prod(q[:3]) * v[3]) * width
    shape = f"b={batch} h={heads}/{k[1]} q={rows} k={k[2]} d={size}"
    return OperatorWork(flops, moved, shape, shorten_dtype(call.types[0]))


WorkModel = Callable[[OperatorCall], OperatorWork | None]
_COMPARING: Final = re.compile(r"^aten::([lg][te]|eq|ne|logical_\w+)$")  # the result is of bool
_ADDING: Final = re.compile(r"add|residual|fused", re.IGNORECASE)

# (id, pattern of the operator's name, model); the first match decides
WORK_MODELS: Final[tuple[tuple[str, re.Pattern[str], WorkModel], ...]] = tuple(
    (model_id, re.compile(pattern), model)
    for model_id, pattern, model in (
        ("generated", r"^triton_(poi|red|per)_fused", _estimate_generated),
        ("addmm", r"^aten::addmm", partial(_estimate_operand_product, left=1, right=2, bias=True)),
        ("bmm", r"^aten::(baddbmm|bmm)", _estimate_bmm),
        ("scaled-mm", r"^aten::_scaled_mm\b", _estimate_scaled_product),
        ("into-output", r"^_C::(onednn_mm|weight_packed_linear)\b", _estimate_into_output),
        ("convolution", r"^aten::(mkldnn|miopen)_(depthwise_)?convolution\b",
         partial(_estimate_convolution, stride=4, padding=3, dilation=5)),
        ("convolution", r"^aten::cudnn_convolution\b",
         partial(_estimate_convolution, stride=3, padding=2, dilation=4)),
        ("convolution", r"^aten::(_slow_conv|thnn_conv|_?conv_depthwise|slow_conv_dilated)\dd",
         partial(_estimate_convolution, stride=4, padding=5, dilation=6)),
        ("convolution", r"^aten::(_?convolution|conv\dd)\b",
         partial(_estimate_convolution, stride=3, padding=4, dilation=5)),
        ("embedding", r"^aten::embedding\b", _estimate_embedding),
        ("reduction", r"^aten::(mean|sum|amax|amin|argmax|argmin|max|min|prod|logsumexp|topk|any|all)\b"
                      r"|^_C::greedy_argmax\b", _estimate_reduction),
        ("mm", r"^aten::(mm|_int_mm)\b", partial(_estimate_operand_product, left=0, right=1)),
        ("linear", r"^aten::linear\b", _estimate_linear),
        ("onnx", r"(MatMul|Gemm)\w*\)?$", _estimate_node_product),
        ("attention", r"^aten::.*scaled_dot_product.*attention|^aten::_(flash|efficient)_attention",
         _estimate_dense_attention),
        ("ragged-attention", r"paged_attention|unified_attention|attention_with_output|attention_ragged|"
                             r"cpu_attention_with|flash_attn_with_kvcache|flash_attn_varlen",
         _estimate_ragged_attention),
        ("experts-kernel", EXPERTS_KERNEL, estimate_experts_kernel),
        ("experts-move", f"/ ({'|'.join(EXPERTS_KERNELS)})", estimate_moving_kernel),
        ("experts", r"fused_experts|fused_moe|moe_forward", estimate_experts),
        ("kv-store", r"store_cache|store_kv|reshape_and_cache|unified_kv_cache_update", _estimate_kv_store),
        ("rope", r"rotary_embedding|apply_rope", _estimate_rope),
        ("norm", r"rms_?norm|layer_?norm", _estimate_norm),
        ("gated", r"(silu|gelu|swiglu)\w*_and_mul", _estimate_gated_activation),
        ("product", r"gemm|matmul", _estimate_library_product),
        ("pointwise", r"^aten::(add|sub|mul|div|neg|exp|rsqrt|sigmoid|silu|gelu|relu|tanh|pow|where|clamp|"
                      r"copy|_to_copy|cos|sin|sqrt|abs|fill|square|clone|_softmax|_log_softmax|softplus|log|"
                      r"masked_fill|cumsum|tril|triu|bitwise_\w+|logical_\w+|[lg][te]|eq|ne)_?$",
         _estimate_pointwise),
    )
)  # fmt: skip
