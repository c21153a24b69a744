"""Inputs of kernel tests, and how close a kernel must come to its reference."""

import torch
from torch.nn import functional

DTYPES = [torch.float32, torch.float16]


def rand(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(dtype)


def close(actual: torch.Tensor, wanted: torch.Tensor) -> None:
    """Within the rounding of what the kernel stores, against the largest value."""
    tolerance = 2e-3 if actual.dtype == torch.float16 else 3e-6
    assert actual.shape == wanted.shape
    assert torch.isfinite(actual).all()
    difference = (actual.float() - wanted.float()).abs().max()
    assert difference <= tolerance * wanted.abs().max().clamp(min=1.0), float(difference)


def activated(product: torch.Tensor, *, gelu: bool) -> torch.Tensor:
    """act(gate) · up of rows that hold both."""
    gate, up = product.chunk(2, -1)
    return (functional.gelu(gate, approximate="tanh") if gelu else functional.silu(gate)) * up
