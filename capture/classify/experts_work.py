"""The work of a mixture of experts: of one grouped product, and of an operator that runs all of them."""

from collections.abc import Sequence

from capture.classify.calls import Call, Work, dtype_of


def experts_touched(experts: int, chosen: int, tokens: int) -> float:
    """Return how many experts some token is expected to use, when each takes `chosen` of them evenly."""
    return experts * (1.0 - (1.0 - chosen / experts) ** tokens)


def grouped_product(
    tokens: int, chosen: int, experts: int, k: int, n: int, widths: Sequence[float], dtype: str, *,
    scattered: bool,
) -> Work:  # fmt: skip
    """Return the work of a mixture's product: each token goes through `chosen` of the experts' (k, n).

    `widths` are of activations, weights and result. A scattered result is one row a token, else one a choice.
    """
    activation, weight, result = widths
    rows = tokens * chosen
    weights = experts_touched(experts, chosen, tokens) * k * n * weight
    moved = weights + (rows if scattered else tokens) * k * activation
    moved += (tokens if scattered else rows) * n * result
    shape = f"m={tokens} n={n} k={k} e={experts}/{chosen}"
    return Work(2.0 * rows * n * k, moved, shape, dtype)


def experts(call: Call) -> Work | None:
    """`fused_experts(hidden, w1, w2, weights of the choice, numbers of the choice, …)`: both products.

    The weights are (experts, n, hidden) and (experts, hidden, inner), of two 4-bit numbers a byte where that
    fits. Where no operand tells how many experts a token takes, there is no answer.
    """
    hidden, weights, own = call.operand(0, 2), call.tensors(3)[:2], call.width(0)
    if hidden is None or len(weights) < 2 or own is None:
        return None
    tokens, size = hidden
    (first, (number, wide, inner_of_first)), (_, (other, back, inner)) = weights
    packed, width = size // max(1, inner_of_first), call.width(first)
    chosen = _chosen(call, tokens, number)
    fits = number == other and size == back == inner_of_first * packed and packed in (1, 2)
    if not fits or chosen is None or width is None:
        return None
    widths = (own, width / packed, own)
    dtype = dtype_of(call.types[first]) if packed == 1 else "fp4"
    up = grouped_product(tokens, chosen, number, size, wide, widths, dtype, scattered=False)
    down = grouped_product(tokens, chosen, number, inner * packed, size, widths, dtype, scattered=True)
    return Work(up.flops + down.flops, up.bytes + down.bytes, up.shape, dtype)


def _chosen(call: Call, tokens: int, number: int) -> int | None:
    """Return how many of the experts each token takes: the columns of the choice; None where none is told."""
    choices = (dims[1] for _, dims in call.tensors(2)[1:] if dims[0] == tokens and dims[1] < number)
    return next(choices, None)
