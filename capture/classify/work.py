"""How much work one call of an operator is, from the shapes and types of its operands.

A model is a function from a call to its floating-point operations and to the bytes that memory must move
at least once: operands read, results written. What a call does not state is not guessed: then there is none.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Final

from capture.classify.attention_work import dense_attention, ragged_attention
from capture.classify.calls import Call, Dims, Work, dtype_of
from capture.classify.experts_work import experts

Model = Callable[[Call], Work | None]


def work_of(call: Call) -> Work | None:
    """Return the work of a call by the first model whose name fits, None where none has an answer."""
    for identifier, pattern, model in MODELS:
        if pattern.search(call.name):
            try:
                work = model(call)
            except (IndexError, ValueError, OverflowError):
                return None
            return None if work is None else Work(work.flops, work.bytes, work.shape, work.dtype, identifier)
    return None


def has_model(name: str) -> bool:
    """Return whether there is a model of the work of operators of this name."""
    return any(pattern.search(name) for _, pattern, _ in MODELS)


def product(
    m: int, n: int, k: int, widths: Sequence[float], dtype: str, *, batch: int = 1, bias: bool = False
) -> Work:
    """Return the work of batch × (m, k) × (k, n); `widths` are of the left, the right, the result."""
    left, right, result = widths
    flops = batch * (2.0 * m * n * k + (m * n if bias else 0))
    moved = batch * (m * k * left + k * n * right + m * n * result) + (n * result if bias else 0)
    shape = f"m={m} n={n} k={k}" + (f" b={batch}" if batch > 1 else "")
    return Work(flops, moved, shape, dtype)


def _mm(call: Call) -> Work | None:
    """`mm(a, b)`: (m, k) × (k, n)."""
    return _two(call, 0, 1, transposed=False)


def _addmm(call: Call) -> Work | None:
    """`addmm(bias, a, b)`."""
    return _two(call, 1, 2, transposed=False, bias=True)


def _linear(call: Call) -> Work | None:
    """`linear(x, weight, bias)`: x of any rank, the weight (n, k)."""
    return _two(call, 0, 1, transposed=True, bias=call.operand(2, 1) is not None)


def _either(call: Call) -> Work | None:
    """A library's product whose second operand may lie either way: the inner sizes decide."""
    right = call.operand(1, 2)
    if right is None or not call.dims[0]:
        return None
    k = call.dims[0][-1]
    bias = call.operand(2, 1)
    if right[1] == k:
        return _two(call, 0, 1, transposed=True, bias=bias is not None and bias[0] == right[0])
    return _two(call, 0, 1, transposed=False, bias=bias is not None and bias[0] == right[1])


def _two(call: Call, left: int, right: int, *, transposed: bool, bias: bool = False) -> Work | None:
    a, b = call.dims[left], call.operand(right, 2)
    widths = (call.width(left), call.width(right))
    if b is None or len(a) < 2 or None in widths or min(a) <= 0:
        return None
    n, k = b if transposed else b[::-1]
    if k != a[-1]:
        return None
    result = max(w for w in (*widths, 1.0) if w is not None) if widths[0] != 1.0 else 2.0
    one, two = (w or 0.0 for w in widths)
    return product(
        math.prod(a[:-1]), n, k, (one, two, result), dtype_of(call.types[left]), batch=1, bias=bias
    )


def _bmm(call: Call) -> Work | None:
    """`bmm(a, b)`: (b, m, k) × (b, k, n)."""
    shift = 1 if "baddbmm" in call.name else 0
    a, b = call.operand(shift, 3), call.operand(shift + 1, 3)
    widths = call.width(shift), call.width(shift + 1)
    if a is None or b is None or widths[0] is None or widths[1] is None or a[2] != b[1]:
        return None
    dtype = dtype_of(call.types[shift])
    return product(a[1], b[2], a[2], (widths[0], widths[1], widths[0]), dtype, batch=a[0])


def _norm(call: Call) -> Work | None:
    """A norm over the last dimension: with a residual added before it, it reads and writes two rows."""
    tensors = call.tensors()
    if not tensors or len(tensors[0][1]) < 2:
        return None
    place, dims = tensors[0]
    width = call.width(place)
    if width is None:
        return None
    elements, rows, adds = math.prod(dims), math.prod(dims[:-1]), bool(_ADDING.search(call.name))
    weight = dims[-1] * (call.width(tensors[-1][0]) or width)
    moved = (4 if adds else 2) * elements * width + weight
    flops = (5.0 if adds else 4.0) * elements + 2 * rows
    return Work(flops, moved, "×".join(map(str, dims)), dtype_of(call.types[place]))


def _rope(call: Call) -> Work | None:
    """`rotary_embedding(positions, query, key, …)`: both turned in place, three operations an element."""
    query, key = call.operand(1, 2), call.operand(2, 2)
    width = call.width(1)
    if query is None or width is None:
        return None
    elements = math.prod(query) + (math.prod(key) if key else 0)
    return Work(3.0 * elements, 2 * elements * width, f"{elements}", dtype_of(call.types[1]))


def _gated(call: Call) -> Work | None:
    """`silu_and_mul(out, both)` and its kin: the gate and the other half lie beside each other."""
    matrices = call.tensors(2)
    if len(matrices) < 2:
        return None
    (a, small), (b, large) = sorted(matrices[:2], key=lambda m: math.prod(m[1]))
    widths = call.width(a), call.width(b)
    if widths[0] is None or widths[1] is None or math.prod(large) != 2 * math.prod(small):
        return None
    moved = math.prod(small) * widths[0] + math.prod(large) * widths[1]
    return Work(5.0 * math.prod(small), moved, "×".join(map(str, small)), dtype_of(call.types[b]))


def _store(call: Call) -> Work | None:
    """New keys and values written into the cache: both read once and written once."""
    tensors = call.tensors()
    if len(tensors) < 2 or tensors[0][1] != tensors[1][1] or call.width(tensors[0][0]) is None:
        return None
    elements = math.prod(tensors[0][1])
    width = call.width(tensors[0][0]) or 0.0
    shape = "×".join(map(str, tensors[0][1]))
    return Work(0.0, 4 * elements * width, shape, dtype_of(call.types[tensors[0][0]]))


def _sized(call: Call) -> list[tuple[Dims, float]]:
    """Return dims and width of every tensor; none at all where one of them is not known."""
    tensors = [(d, call.width(i)) for i, d in call.tensors()]
    sized = [(d, w) for d, w in tensors if w is not None and min(d) > 0]
    return sized if len(sized) == len(tensors) else []


def _pointwise(call: Call) -> Work | None:
    """An operation on each element: every operand read once and one result written, one operation each."""
    sized = _sized(call)
    if not sized:
        return None
    copies = "copy" in call.name
    largest, width = max(sized, key=lambda t: math.prod(t[0]))
    sizes = [math.prod(d) * w for d, w in sized]
    own = copies or (call.name.endswith("_") and len(sized) > 1)
    written = sizes[0] if own else math.prod(largest) * width
    read = sum(sizes) - (sizes[0] if copies else 0)
    flops = 0.0 if copies else float(math.prod(largest))
    return Work(flops, read + written, "×".join(map(str, largest)), dtype_of(call.types[0]))


_ADDING: Final = re.compile(r"add|residual|fused", re.IGNORECASE)

# (id, which operators, model); the first whose name fits answers
MODELS: Final[tuple[tuple[str, re.Pattern[str], Model], ...]] = tuple(
    (identifier, re.compile(pattern), model)
    for identifier, pattern, model in (
        ("addmm", r"^aten::addmm", _addmm),
        ("bmm", r"^aten::(baddbmm|bmm)", _bmm),
        ("mm", r"^aten::(mm|_int_mm|_scaled_mm)\b", _mm),
        ("linear", r"^aten::linear\b", _linear),
        ("attention", r"^aten::.*scaled_dot_product.*attention|^aten::_(flash|efficient)_attention",
         dense_attention),
        ("ragged-attention", r"paged_attention|unified_attention|attention_with_output|attention_ragged|"
                             r"flash_attn_with_kvcache|flash_attn_varlen", ragged_attention),
        ("experts", r"fused_experts|fused_moe|moe_forward", experts),
        ("kv-store", r"store_cache|store_kv|reshape_and_cache", _store),
        ("rope", r"rotary_embedding|apply_rope", _rope),
        ("norm", r"rms_?norm|layer_?norm", _norm),
        ("gated", r"(silu|gelu|swiglu)\w*_and_mul", _gated),
        ("product", r"gemm|matmul", _either),
        ("pointwise", r"^aten::(add|sub|mul|div|neg|exp|rsqrt|sigmoid|silu|gelu|relu|tanh|pow|where|clamp|"
                      r"copy|_to_copy|cos|sin|sqrt|abs|fill|square)_?$", _pointwise),
    )
)  # fmt: skip
