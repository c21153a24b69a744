"""Rotary position embedding: tables of rotations, and frequencies scaled for long contexts."""

import math

import torch
from torch.nn import functional

from engines.models.spec import RopeScaling, Spec


class RotaryEmbedding:
    """Rotary tables of one base, one row per position; the two numbers of a pair are adjacent.

    A pair is a complex number and its rotation one product. Some devices and dtypes have no complex numbers:
    there the cosine, twice, and the signed sine do the same.
    """

    def __init__(
        self, spec: Spec, capacity: int, dtype: torch.dtype, device: torch.device, *, is_windowed: bool
    ) -> None:
        has_own_theta = is_windowed and spec.theta_local > 0
        theta, scaling = (spec.theta_local, None) if has_own_theta else (spec.theta, spec.scaling)
        frequencies = _compute_frequencies(theta, spec.rotary_dim, scaling, capacity)
        angles = torch.arange(capacity, dtype=torch.float32)[:, None] * frequencies
        magnitude = scaling.magnitude if scaling else 1.0
        unrotated_pairs = (spec.head_dim - spec.rotary_dim) // 2
        cos = functional.pad(angles.cos() * magnitude, (0, unrotated_pairs), value=1.0).to(device, dtype)
        sin = functional.pad(angles.sin() * magnitude, (0, unrotated_pairs)).to(device, dtype)
        self.tables = cos, sin
        self._complex = _can_use_complex(cos)
        if self._complex:
            parts = [torch.complex(cos, sin)]
        else:
            parts = [torch.stack((cos, cos), -1), torch.stack((-sin, sin), -1)]
        self._rotations = [part[:, None] for part in parts]
        self.select_positions(0, 1)

    def select_positions(self, position: int, tokens: int) -> None:
        """Select the rows for `tokens` positions from one on."""
        self._selected = [rotations[position : position + tokens] for rotations in self._rotations]

    def rotate(self, pairs: torch.Tensor) -> None:
        """Rotate pairs in place; `pairs` are heads as `view_as_pairs` returns them."""
        if self._complex:
            pairs.mul_(self._selected[0])
        else:
            torch.addcmul(pairs * self._selected[0], pairs.flip(-1), self._selected[1], out=pairs)


def view_as_pairs(heads: torch.Tensor) -> torch.Tensor:
    """View heads [batch, tokens, heads, head_dim] as rotary pairs."""
    pairs = heads.unflatten(-1, (-1, 2))
    return torch.view_as_complex(pairs) if _can_use_complex(heads) else pairs


def _can_use_complex(real: torch.Tensor) -> bool:
    return real.is_cpu and real.dtype == torch.float32


def _compute_frequencies(theta: float, dim: int, scaling: RopeScaling | None, capacity: int) -> torch.Tensor:
    """Return the radians per position by which each of dim / 2 pairs rotates."""
    plain = 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    if scaling is None:
        return plain
    if scaling.kind == "linear":
        return plain / scaling.factor
    if scaling.kind in ("stated", "longrope"):
        is_long = scaling.kind == "longrope" and capacity > scaling.original
        return plain / torch.tensor(scaling.long_factors if is_long else scaling.factors)
    weights = (
        _compute_llama3_weights(plain, scaling)
        if scaling.kind == "llama3"
        else _compute_yarn_weights(theta, dim, scaling)
    )
    return (1 - weights) * plain / scaling.factor + weights * plain


def _compute_llama3_weights(plain: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    """Return the unscaled share of each frequency, by its rotations within the original context."""
    turns = scaling.original * plain / (2 * math.pi)
    return ((turns - scaling.low) / (scaling.high - scaling.low)).clamp(0.0, 1.0)


def _compute_yarn_weights(theta: float, dim: int, scaling: RopeScaling) -> torch.Tensor:
    """Return the unscaled share of each frequency as in YaRN: linear in its index, between two bounds.

    https://arxiv.org/abs/2309.00071
    """

    def find_index(turns: float) -> float:
        return dim * math.log(scaling.original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = find_index(scaling.high), find_index(scaling.low)
    if scaling.rounds_bounds:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = (torch.arange(dim // 2, dtype=torch.float32) - low) / ((high - low) or 0.001)
    return 1 - ramp.clamp(0.0, 1.0)
