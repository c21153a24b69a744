"""Estimate the work of mixtures of experts, from operators and from kernels of grouped products."""

import re
from collections.abc import Sequence
from typing import Final

from capture.classify.operator_call import STORED_BYTES, OperatorCall, OperatorWork, shorten_dtype

EXPERTS_KERNEL: Final = "_matmul_ogs_"  # grouped products of triton_kernels
_COMBINE, _CHOICE = "_finalize_matmul", "_topk_forward"
_SORT: Final = ("_sum_bitmatrix_rows", "_combined_routing")
EXPERTS_KERNELS: Final = (EXPERTS_KERNEL, _COMBINE, _CHOICE, *_SORT)  # starts of their names
SORTED_BYTES: Final = 8.0  # at least, for each choice that is sorted: an index read and one written
_EXPERTS_KERNEL_NAME: Final = re.compile(
    EXPERTS_KERNEL
    + r"[NT]+_(?P<result>\w+?)x(?P<left>[a-z]+\d+)x(?P<weight>[a-z]+\d+)_[\dx]+(?P<gate>_swiglu)?"
)


def estimate_experts_touched(experts: int, chosen: int, tokens: int) -> float:
    """Estimate how many experts are used by any token, if each token chooses `chosen` of them evenly."""
    return experts * (1.0 - (1.0 - chosen / experts) ** tokens)


def estimate_grouped_product(
    tokens: int, chosen: int, experts: int, k: int, n: int, widths: Sequence[float], dtype: str, *,
    scattered: bool, ranks: int = 1,
) -> OperatorWork:  # fmt: skip
    """Estimate a grouped product: each token passes through `chosen` of the experts' (k, n) weights.

    `widths` are bytes per element of activations, weights and result. Activations come once per token, or
    once per choice if `scattered`; the result is the other way round. Of several ranks that share the
    experts, each has an even part of the choices.
    """
    activation, weight, result = widths
    rows = tokens * chosen / ranks
    weights = estimate_experts_touched(experts, chosen, tokens) / ranks * k * n * weight
    moved = weights + (rows if scattered else tokens) * k * activation
    moved += (tokens if scattered else rows) * n * result
    shape = f"m={tokens} n={n} k={k} e={experts}/{chosen}"
    return OperatorWork(2.0 * rows * n * k, moved, shape, dtype)


def estimate_experts(call: OperatorCall) -> OperatorWork | None:
    """`fused_experts(hidden, w1, w2, choice weights, choice ids, …)`: both products.

    The weights are (experts, n, hidden) and (experts, hidden, inner), perhaps with two 4-bit numbers per
    byte. None if no operand shows how many experts a token chooses.
    """
    hidden, weights, width = call.find_dims(0, 2), call.list_tensors(3)[:2], call.find_width(0)
    if hidden is None or len(weights) < 2 or width is None:
        return None
    tokens, size = hidden
    (first, (experts, n, packed_size)), (_, (experts_down, size_down, inner)) = weights
    packing, weight_width = size // max(1, packed_size), call.find_width(first)
    chosen = _count_chosen_experts(call, tokens, experts)
    fits = experts == experts_down and size == size_down == packed_size * packing and packing in (1, 2)
    if not fits or chosen is None or weight_width is None:
        return None
    widths, inner = (width, weight_width / packing, width), inner * packing
    dtype = shorten_dtype(call.types[first]) if packing == 1 else "fp4"
    up = estimate_grouped_product(tokens, chosen, experts, size, n, widths, dtype, scattered=False)
    down = estimate_grouped_product(tokens, chosen, experts, inner, size, widths, dtype, scattered=True)
    return OperatorWork(up.flops + down.flops, up.bytes + down.bytes, up.shape, dtype)


def estimate_moving_kernel(call: OperatorCall) -> OperatorWork | None:
    """A kernel of triton_kernels that chooses experts, sorts by them, or adds up what they return.

    Operands are those of `moe_forward(hidden, router logits, …)`, then the number of experts per token.
    """
    hidden, logits, width = call.find_dims(0, 2), call.find_dims(1, 2), call.find_width(0)
    chosen = int(call.values[-1])
    if hidden is None or logits is None or width is None or not 0 < chosen <= logits[1]:
        return None
    (tokens, size), experts, dtype = hidden, logits[1], shorten_dtype(call.types[0])
    shape = f"m={tokens} e={experts}/{chosen}"
    if _COMBINE in call.name:
        return estimate_combination(tokens, chosen, size, width, dtype)
    if _CHOICE in call.name:
        return OperatorWork(0.0, tokens * experts * (call.find_width(1) or width), shape, dtype)
    return OperatorWork(0.0, tokens * chosen * SORTED_BYTES, shape, dtype)


def estimate_combination(tokens: int, chosen: int, size: int, width: float, dtype: str) -> OperatorWork:
    """Estimate adding up what `chosen` experts return for each token."""
    rows = tokens * chosen
    return OperatorWork(float(rows * size), (rows + tokens) * size * width, f"m={rows} n={size}", dtype)


def estimate_experts_kernel(call: OperatorCall) -> OperatorWork | None:
    """A grouped product of triton_kernels in `moe_forward(hidden, router logits, …)`, without its weights.

    The kernel's name has the formats of result, activations and weights, and whether the gate is fused (the
    first product). The last value is the number of experts per token. The inner size is taken to be the
    hidden size, as in gpt-oss, the model that is served by these kernels.
    """
    formats, hidden, logits = (
        _EXPERTS_KERNEL_NAME.search(call.name),
        call.find_dims(0, 2),
        call.find_dims(1, 2),
    )
    if formats is None or hidden is None or logits is None:
        return None
    (tokens, size), experts, is_first = hidden, logits[1], bool(formats["gate"])
    chosen = int(call.values[-1])
    result, left, weight = (STORED_BYTES.get(formats[part], 0.0) for part in ("result", "left", "weight"))
    if not 0 < chosen <= experts or not result * left * weight:
        return None
    dtype = formats["weight"] if weight > left else formats["left"]
    widths = (left, weight, result / 2 if is_first else result)  # the gate halves what is written
    n = 2 * size if is_first else size
    return estimate_grouped_product(tokens, chosen, experts, size, n, widths, dtype, scattered=not is_first)


def _count_chosen_experts(call: OperatorCall, tokens: int, experts: int) -> int | None:
    """Count the experts that each token chooses: the columns of the choice; None if no operand has it."""
    choices = (dims[1] for _, dims in call.list_tensors(2)[1:] if dims[0] == tokens and dims[1] < experts)
    return next(choices, None)
