"""Blocks of a GGUF as the numbers they stand for: [rows, bytes] in, [rows, numbers] in fp32 out.

What a block looks like is defined in ggml-common.h, what it means in ggml-quants.c of llama.cpp.
"""

from collections.abc import Callable
from typing import Final

import torch

Blocks = torch.Tensor  # [blocks, bytes of one]


def _half(raw: Blocks) -> torch.Tensor:
    """Return pairs of bytes as the numbers of 16 bits that they are, in fp32."""
    return raw.contiguous().view(torch.float16).float()


def _bits(raw: Blocks, width: int, run: int) -> torch.Tensor:
    """Return the fields of `width` bits of each byte: of `run` bytes first all lowest ones, and so on."""
    shifts = torch.arange(0, 8, width, dtype=torch.uint8)[:, None]
    fields = (raw.reshape(len(raw), -1, 1, run) >> shifts) & ((1 << width) - 1)
    return fields.flatten(1)


def _high_bits(raw: Blocks) -> torch.Tensor:
    """Return the 32 bits of four bytes, the lowest first."""
    return ((raw[:, :, None] >> torch.arange(8, dtype=torch.uint8)) & 1).flatten(1)


def _q4_0(b: Blocks) -> torch.Tensor:
    return (_bits(b[:, 2:], 4, 16).float() - 8) * _half(b[:, :2])


def _q4_1(b: Blocks) -> torch.Tensor:
    return _bits(b[:, 4:], 4, 16).float() * _half(b[:, :2]) + _half(b[:, 2:4])


def _q5_0(b: Blocks) -> torch.Tensor:
    codes = _bits(b[:, 6:], 4, 16) | _high_bits(b[:, 2:6]) << 4
    return (codes.float() - 16) * _half(b[:, :2])


def _q5_1(b: Blocks) -> torch.Tensor:
    codes = _bits(b[:, 8:], 4, 16) | _high_bits(b[:, 4:8]) << 4
    return codes.float() * _half(b[:, :2]) + _half(b[:, 2:4])


def _q8_0(b: Blocks) -> torch.Tensor:
    return b[:, 2:].contiguous().view(torch.int8).float() * _half(b[:, :2])


def _q2_k(b: Blocks) -> torch.Tensor:
    scales = (b[:, :16] & 15).float() * _half(b[:, 80:82])
    lowest = (b[:, :16] >> 4).float() * _half(b[:, 82:84])
    return _grouped(_bits(b[:, 16:80], 2, 32), scales, lowest)


def _q3_k(b: Blocks) -> torch.Tensor:
    codes = _bits(b[:, 32:96], 2, 32).float() - 4 * (1 - _bits(b[:, :32], 1, 32).float())
    low, high = _bits(b[:, 96:104], 4, 8), _bits(b[:, 104:108], 2, 4)
    scales = ((low | high << 4).float() - 32) * _half(b[:, 108:110])
    return _grouped(codes, scales)


def _q4_k(b: Blocks) -> torch.Tensor:
    return _grouped(_bits(b[:, 16:144], 4, 32), *_scales_and_lowest(b))


def _q5_k(b: Blocks) -> torch.Tensor:
    codes = _bits(b[:, 48:176], 4, 32) | _bits(b[:, 16:48], 1, 32) << 4
    return _grouped(codes, *_scales_and_lowest(b))


def _q6_k(b: Blocks) -> torch.Tensor:
    codes = _bits(b[:, :128], 4, 64) | _bits(b[:, 128:192], 2, 32) << 4
    scales = b[:, 192:208].contiguous().view(torch.int8).float() * _half(b[:, 208:210])
    return _grouped(codes.float() - 32, scales)


def _grouped(codes: torch.Tensor, scales: torch.Tensor, lowest: torch.Tensor | None = None) -> torch.Tensor:
    """Return codes times the scale of their group, less what the group begins at."""
    values = codes.view(*scales.shape, -1).float() * scales[..., None]
    return (values if lowest is None else values - lowest[..., None]).flatten(1)


def _scales_and_lowest(b: Blocks) -> tuple[torch.Tensor, torch.Tensor]:
    """Return eight scales and eight lowest values: six bits each, in twelve bytes from the fifth on."""
    first, second, rest = b[:, 4:8], b[:, 8:12], b[:, 12:16]
    scales = torch.cat((first & 63, (rest & 15) | (first >> 6) << 4), 1)
    lowest = torch.cat((second & 63, (rest >> 4) | (second >> 6) << 4), 1)
    return scales.float() * _half(b[:, :2]), lowest.float() * _half(b[:, 2:4])


PLAIN: Final = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}

UNPACKERS: Final[dict[str, Callable[[Blocks], torch.Tensor]]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}


def unpacked(raw: torch.Tensor, type: str, size: int) -> torch.Tensor:
    """Return rows of blocks, `size` bytes each, as fp32."""
    return UNPACKERS[type](raw.reshape(-1, size)).view(raw.shape[0], -1)
