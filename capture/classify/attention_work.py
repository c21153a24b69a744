"""The work of attention: over dense batches, and over a paged cache by the sums of its step."""

import math

from capture.classify.annotations import StepAnnotation, Sums
from capture.classify.calls import Call, Work, dtype_of


def ragged_attention(call: Call) -> Work | None:
    """Attention over a paged cache: the cache's shape is the whole pool, so the step's sums are needed."""
    queries = call.operand(0, 3)
    width = call.width(0)
    sums = _step_sums(call.step)
    heads = _kv_heads(call)
    if queries is None or width is None or sums is None or heads is None:
        return None
    _, query_heads, size = queries
    kv_heads, cache_width = heads
    keys = sum(s.keys or 0 for s in sums)
    new = sum(s.queries or 0 for s in sums)
    pairs = sum(_pairs(s, prompt=s is call.step.prefill if call.step else False) for s in sums)
    own = 2 * new * query_heads * size * width + 2 * new * kv_heads * size * width
    cached = 2 * (keys - new) * kv_heads * size * cache_width
    shape = f"q={new} k={keys} h={query_heads}/{kv_heads} d={size}"
    return Work(4.0 * query_heads * size * pairs, own + cached, shape, dtype_of(call.types[0]))


def _pairs(sums: Sums, *, prompt: bool) -> float:
    """Return how many query-key pairs are computed: a causal mask leaves out half of a prompt's square."""
    left_out = (sums.queries_squared or 0) / 2 if prompt else 0.0
    return (sums.queries_keys or 0) - left_out


def _step_sums(step: StepAnnotation | None) -> list[Sums] | None:
    """Return the sums of a step's prompts and of its decoding requests; None unless all are stated."""
    parts = [s for s in (step.prefill, step.decode) if s is not None] if step else []
    stated = bool(parts) and all(s.queries_keys is not None and s.keys is not None for s in parts)
    return parts if stated else None


def _kv_heads(call: Call) -> tuple[int, float] | None:
    """Return the number of key heads and the bytes of a cached element.

    The cache is the operand of the largest first size with the query's head size; else the new keys tell.
    """
    queries = call.dims[0]
    caches = [(i, d) for i, d in call.tensors() if len(d) >= 4 and d[-1] == queries[-1]]
    if caches:
        place, dims = caches[0]
        return dims[-2], call.width(place) or call.width(0) or 2.0
    keys = call.operand(1, 3)
    return (keys[1], call.width(1) or 2.0) if keys and keys[2] == queries[2] else None


def dense_attention(call: Call) -> Work | None:
    """Attention of dense batches, (b, h, q, d) with (b, h, k, d); a causal mask halves a square."""
    q, k, v = call.operand(0, 4), call.operand(1, 4), call.operand(2, 4)
    width = call.width(0)
    if q is None or k is None or v is None or width is None:
        return None
    if "attention_forward" in call.name:  # the inner operators: positions stand before heads
        q, k, v = ((d[0], d[2], d[1], d[3]) for d in (q, k, v))
    batch, heads, rows, size = q
    pairs = rows * k[2] / (2 if "True" in call.values and rows == k[2] else 1)
    flops = 2.0 * batch * heads * pairs * (size + v[3])
    moved = (math.prod(q) + math.prod(k) + math.prod(v) + math.prod(q[:3]) * v[3]) * width
    return Work(
        flops, moved, f"b={batch} h={heads}/{k[1]} q={rows} k={k[2]} d={size}", dtype_of(call.types[0])
    )
