"""How near a kernel must come to its reference."""

import torch

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
