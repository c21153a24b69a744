"""Unpack blocks of a GGUF file: [rows, bytes] in, [rows, numbers] in fp32 out.

The layout of blocks is defined in ggml-common.h, their meaning in ggml-quants.c of llama.cpp.
"""

from collections.abc import Callable
from typing import Final

import torch

Blocks = torch.Tensor  # [blocks, bytes of one]


def _read_fp16(raw: Blocks) -> torch.Tensor:
    """Return pairs of bytes as fp16 numbers, in fp32."""
    return raw.contiguous().view(torch.float16).float()


def _extract_fields(raw: Blocks, width: int, run: int) -> torch.Tensor:
    """Return the bit fields of bytes: per `run` bytes first the lowest fields of all, and so on."""
    shifts = torch.arange(0, 8, width, dtype=torch.uint8)[:, None]
    fields = (raw.reshape(len(raw), -1, 1, run) >> shifts) & ((1 << width) - 1)
    return fields.flatten(1)


def _extract_bits(raw: Blocks) -> torch.Tensor:
    """Return the 32 bits of four bytes, the lowest first."""
    return ((raw[:, :, None] >> torch.arange(8, dtype=torch.uint8)) & 1).flatten(1)


def _unpack_q4_0(b: Blocks) -> torch.Tensor:
    return (_extract_fields(b[:, 2:], 4, 16).float() - 8) * _read_fp16(b[:, :2])


def _unpack_q4_1(b: Blocks) -> torch.Tensor:
    return _extract_fields(b[:, 4:], 4, 16).float() * _read_fp16(b[:, :2]) + _read_fp16(b[:, 2:4])


def _unpack_q5_0(b: Blocks) -> torch.Tensor:
    codes = _extract_fields(b[:, 6:], 4, 16) | _extract_bits(b[:, 2:6]) << 4
    return (codes.float() - 16) * _read_fp16(b[:, :2])


def _unpack_q5_1(b: Blocks) -> torch.Tensor:
    codes = _extract_fields(b[:, 8:], 4, 16) | _extract_bits(b[:, 4:8]) << 4
    return codes.float() * _read_fp16(b[:, :2]) + _read_fp16(b[:, 2:4])


def _unpack_q8_0(b: Blocks) -> torch.Tensor:
    return b[:, 2:].contiguous().view(torch.int8).float() * _read_fp16(b[:, :2])


def _unpack_q2_k(b: Blocks) -> torch.Tensor:
    scales = (b[:, :16] & 15).float() * _read_fp16(b[:, 80:82])
    minima = (b[:, :16] >> 4).float() * _read_fp16(b[:, 82:84])
    return _scale_groups(_extract_fields(b[:, 16:80], 2, 32), scales, minima)


def _unpack_q3_k(b: Blocks) -> torch.Tensor:
    codes = _extract_fields(b[:, 32:96], 2, 32).float() - 4 * (1 - _extract_fields(b[:, :32], 1, 32).float())
    low, high = _extract_fields(b[:, 96:104], 4, 8), _extract_fields(b[:, 104:108], 2, 4)
    scales = ((low | high << 4).float() - 32) * _read_fp16(b[:, 108:110])
    return _scale_groups(codes, scales)


def _unpack_q4_k(b: Blocks) -> torch.Tensor:
    return _scale_groups(_extract_fields(b[:, 16:144], 4, 32), *_extract_scales_and_minima(b))


def _unpack_q5_k(b: Blocks) -> torch.Tensor:
    codes = _extract_fields(b[:, 48:176], 4, 32) | _extract_fields(b[:, 16:48], 1, 32) << 4
    return _scale_groups(codes, *_extract_scales_and_minima(b))


def _unpack_q6_k(b: Blocks) -> torch.Tensor:
    codes = _extract_fields(b[:, :128], 4, 64) | _extract_fields(b[:, 128:192], 2, 32) << 4
    scales = b[:, 192:208].contiguous().view(torch.int8).float() * _read_fp16(b[:, 208:210])
    return _scale_groups(codes.float() - 32, scales)


def _scale_groups(
    codes: torch.Tensor, scales: torch.Tensor, minima: torch.Tensor | None = None
) -> torch.Tensor:
    """Return codes times the scale of their group, minus the group's minimum."""
    values = codes.view(*scales.shape, -1).float() * scales[..., None]
    return (values if minima is None else values - minima[..., None]).flatten(1)


def _extract_scales_and_minima(b: Blocks) -> tuple[torch.Tensor, torch.Tensor]:
    """Return eight scales and eight minima: six bits each, in twelve bytes from the fifth on."""
    first, second, rest = b[:, 4:8], b[:, 8:12], b[:, 12:16]
    scales = torch.cat((first & 63, (rest & 15) | (first >> 6) << 4), 1)
    minima = torch.cat((second & 63, (rest >> 4) | (second >> 6) << 4), 1)
    return scales.float() * _read_fp16(b[:, :2]), minima.float() * _read_fp16(b[:, 2:4])


PLAIN_DTYPES: Final = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}

UNPACKERS: Final[dict[str, Callable[[Blocks], torch.Tensor]]] = {
    "Q4_0": _unpack_q4_0,
    "Q4_1": _unpack_q4_1,
    "Q5_0": _unpack_q5_0,
    "Q5_1": _unpack_q5_1,
    "Q8_0": _unpack_q8_0,
    "Q2_K": _unpack_q2_k,
    "Q3_K": _unpack_q3_k,
    "Q4_K": _unpack_q4_k,
    "Q5_K": _unpack_q5_k,
    "Q6_K": _unpack_q6_k,
}


def unpack_blocks(raw: torch.Tensor, type: str, size: int) -> torch.Tensor:
    """Unpack rows of blocks of `size` bytes to fp32."""
    return UNPACKERS[type](raw.reshape(-1, size)).view(raw.shape[0], -1)
