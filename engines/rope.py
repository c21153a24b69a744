"""How positions rotate queries and keys: the tables, and the frequencies, stretched for long contexts."""

import math

import torch
from torch.nn import functional

from engines.models.spec import Scaling, Spec


class Rope:
    """Rotary tables of one base, a row for every position; numbers that rotate together lie side by side.

    Such a pair is a complex number and its rotate one product. Not every device and dtype has them: there the
    cosine, twice, and the signed sine do the same.
    """

    def __init__(
        self, spec: Spec, capacity: int, dtype: torch.dtype, device: torch.device, *, local: bool
    ) -> None:
        own = local and spec.theta_local > 0
        theta, scaling = (spec.theta_local, None) if own else (spec.theta, spec.scaling)
        turning = _frequencies(theta, spec.rotary_dim, scaling, capacity)
        angle = torch.arange(capacity, dtype=torch.float32)[:, None] * turning
        magnitude = scaling.magnitude if scaling else 1.0
        still = (spec.head_dim - spec.rotary_dim) // 2
        cos = functional.pad(angle.cos() * magnitude, (0, still), value=1.0).to(device, dtype)
        sin = functional.pad(angle.sin() * magnitude, (0, still)).to(device, dtype)
        self.tables = cos, sin
        self._complex = _has_complex(cos)
        parts = (torch.complex(cos, sin),) if self._complex else (_beside(cos, cos), _beside(-sin, sin))
        self._rotations = [part[:, None] for part in parts]
        self.seek(0, 1)

    def seek(self, at: int, tokens: int) -> None:
        """Select the rows for so many positions from one on."""
        self._now = [rotations[at : at + tokens] for rotations in self._rotations]

    def rotate(self, pairs: torch.Tensor) -> None:
        """Rotate the numbers of each pair in place; `pairs` are heads as `as_pairs` views them."""
        if self._complex:
            pairs.mul_(self._now[0])
        else:
            torch.addcmul(pairs * self._now[0], pairs.flip(-1), self._now[1], out=pairs)


def as_pairs(heads: torch.Tensor) -> torch.Tensor:
    """Return a view of heads [batch, tokens, heads, head_dim] in which what rotates together is one pair."""
    pairs = heads.unflatten(-1, (-1, 2))
    return torch.view_as_complex(pairs) if _has_complex(heads) else pairs


def _has_complex(real: torch.Tensor) -> bool:
    return real.is_cpu and real.dtype == torch.float32


def _beside(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return torch.stack((first, second), -1)


def _frequencies(theta: float, dim: int, scaling: Scaling | None, capacity: int) -> torch.Tensor:
    """Return the radians a position by which each pair of `dim` numbers rotates."""
    plain = 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    if scaling is None:
        return plain
    if scaling.kind == "linear":
        return plain / scaling.factor
    if scaling.kind in ("stated", "longrope"):
        long = scaling.kind == "longrope" and capacity > scaling.original
        return plain / torch.tensor(scaling.long_factors if long else scaling.factors)
    kept = _kept_by_wavelength(plain, scaling) if scaling.kind == "llama3" else _kept(theta, dim, scaling)
    return (1 - kept) * plain / scaling.factor + kept * plain


def _kept_by_wavelength(plain: torch.Tensor, scaling: Scaling) -> torch.Tensor:
    """Return how much of each frequency is kept, in proportion to how often it turns in the first context."""
    turns = scaling.original * plain / (2 * math.pi)
    return ((turns - scaling.low) / (scaling.high - scaling.low)).clamp(0.0, 1.0)


def _kept(theta: float, dim: int, scaling: Scaling) -> torch.Tensor:
    """Return the same as YaRN has it: in proportion to the number of the frequency, between two bounds.

    https://arxiv.org/abs/2309.00071
    """

    def number(turns: float) -> float:
        return dim * math.log(scaling.original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first, last = number(scaling.high), number(scaling.low)
    if scaling.whole:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    ramp = (torch.arange(dim // 2, dtype=torch.float32) - first) / ((last - first) or 0.001)
    return 1 - ramp.clamp(0.0, 1.0)
