"""What lies between the products of a step, in compiled code: norms, gates, attention of one position."""

from typing import Final

import torch

from engines.processor import kinds, module

_TO: Final = frozenset((torch.float32, torch.bfloat16))  # dtypes that are written
VECTOR: Final = 16  # numbers of fp32, of which a head is to be whole ones


def taken(*tensors: torch.Tensor) -> bool:
    """Return whether compiled code is there and takes these: rows of fp32 on the processor, without gaps."""
    return bool(kinds()) and all(
        t.is_cpu and t.dtype == torch.float32 and t.is_contiguous() and t.numel() for t in tensors
    )


def norm(x: torch.Tensor, weight: torch.Tensor, eps: float, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return rows of `taken` tensors by their root mean square, in `out` if that is of fp32 or bf16.

    The weight is one for all rows, [n], or one for each, as many.
    """
    n = x.shape[-1]
    if out is None or out.dtype not in _TO:
        out = torch.empty_like(x)
    m, stride = x.numel() // n, 0 if weight.dim() == 1 else n
    brain = out.dtype == torch.bfloat16
    module().norm(x.data_ptr(), weight.data_ptr(), out.data_ptr(), n, m, stride, brain, eps)
    return out


def gate(gate_up: torch.Tensor, out: torch.Tensor | None, *, gelu: bool) -> torch.Tensor:
    """Return act(gate) · up of taken rows that have both, in `out` if that is of fp32 or bf16."""
    m, n = gate_up.shape[0], gate_up.shape[1] // 2
    if out is None or out.dtype not in _TO:
        out = torch.empty(m, n)
    module().gate(gate_up.data_ptr(), out.data_ptr(), n, m, gelu, out.dtype == torch.bfloat16)
    return out


def attends(q: torch.Tensor, keys: torch.Tensor) -> bool:
    """Return whether `attend` takes them: the keys of a head without gaps."""
    dim = q.shape[-1]
    return taken(q) and keys.dtype == torch.float32 and dim % VECTOR == 0 and keys.stride()[2:] == (dim, 1)


def attend(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the attention of q [batch, heads, sharing, dim] to keys and values [batch, heads, count, dim].

    Both are cut from one cache, so that their strides are the same. It is in `out`, as many numbers without
    gaps, if that is of fp32 or bf16; else in the shape of q.
    """
    steps = keys.stride()
    assert steps == values.stride()
    batch, heads, shared, dim = q.shape
    if out is None or out.dtype not in _TO:
        out = torch.empty_like(q)
    at = q.data_ptr(), keys.data_ptr(), values.data_ptr(), out.data_ptr()
    sizes = batch, heads, shared, keys.shape[2], dim, torch.get_num_threads(), steps[0], steps[1]
    module().attend(*at, *sizes, out.dtype == torch.bfloat16, scale)
    return out


def total(x: torch.Tensor) -> float:
    """Return the sum of numbers, read as products read weights where compiled code takes them."""
    if not taken(x):
        return float(x.sum())
    result: float = module().sum(x.data_ptr(), x.numel(), torch.get_num_threads())
    return result
