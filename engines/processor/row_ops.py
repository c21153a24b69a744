"""What lies between the products of a step, in compiled code: norms, gates, attention of one position."""

from typing import Final

import torch

from engines.processor import list_kinds, load_module

_OUTPUT_DTYPES: Final = frozenset((torch.float32, torch.bfloat16))  # dtypes that are written
VECTOR_NUMBERS: Final = 16  # numbers of fp32, of which a head is to be whole ones


def can_compute(*tensors: torch.Tensor) -> bool:
    """Return whether compiled code exists and takes these tensors: contiguous fp32 on the CPU."""
    return bool(list_kinds()) and all(
        t.is_cpu and t.dtype == torch.float32 and t.is_contiguous() and t.numel() for t in tensors
    )


def norm_rows(
    x: torch.Tensor, weight: torch.Tensor, eps: float, out: torch.Tensor | None = None
) -> torch.Tensor:
    """RMS-norm rows that `can_compute`, into `out` if that is fp32 or bf16.

    The weight is one for all rows, [n], or one per row.
    """
    n = x.shape[-1]
    if out is None or out.dtype not in _OUTPUT_DTYPES:
        out = torch.empty_like(x)
    m, stride = x.numel() // n, 0 if weight.dim() == 1 else n
    is_bf16 = out.dtype == torch.bfloat16
    load_module().norm(x.data_ptr(), weight.data_ptr(), out.data_ptr(), n, m, stride, is_bf16, eps)
    return out


def gate_rows(gate_up: torch.Tensor, out: torch.Tensor | None, *, gelu: bool) -> torch.Tensor:
    """Return act(gate) · up of rows [m, 2·n] that `can_compute`, in `out` if that is fp32 or bf16."""
    m, n = gate_up.shape[0], gate_up.shape[1] // 2
    if out is None or out.dtype not in _OUTPUT_DTYPES:
        out = torch.empty(m, n)
    load_module().gate(gate_up.data_ptr(), out.data_ptr(), n, m, gelu, out.dtype == torch.bfloat16)
    return out


def can_attend(q: torch.Tensor, keys: torch.Tensor) -> bool:
    """Return whether `attend` takes these tensors: the keys of a head must be contiguous."""
    dim = q.shape[-1]
    return (
        can_compute(q)
        and keys.dtype == torch.float32
        and dim % VECTOR_NUMBERS == 0
        and keys.stride()[2:] == (dim, 1)
    )


def attend(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Attend q [batch, heads, sharing, dim] to keys and values [batch, heads, count, dim].

    Both are slices of one cache, so their strides are equal. The result is written to `out`, contiguous, if
    that is fp32 or bf16; else it has the shape of q.
    """
    strides = keys.stride()
    assert strides == values.stride()
    batch, heads, shared, dim = q.shape
    if out is None or out.dtype not in _OUTPUT_DTYPES:
        out = torch.empty_like(q)
    addresses = q.data_ptr(), keys.data_ptr(), values.data_ptr(), out.data_ptr()
    sizes = batch, heads, shared, keys.shape[2], dim, torch.get_num_threads(), strides[0], strides[1]
    load_module().attend(*addresses, *sizes, out.dtype == torch.bfloat16, scale)
    return out


def sum_numbers(x: torch.Tensor) -> float:
    """Sum numbers; compiled code reads them as products read weights."""
    if not can_compute(x):
        return float(x.sum())
    result: float = load_module().sum(x.data_ptr(), x.numel(), torch.get_num_threads())
    return result
