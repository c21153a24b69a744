"""GGUF files as llama.cpp's converter writes them, and what their blocks mean, number by number.

Everything here follows the definitions of ggml (gguf.md, ggml-common.h, ggml-quants.c) and shares nothing
with the product: blocks are random bytes with small scales, and read back one number at a time.
"""

import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engines.models.spec import Spec, list_tensors

SIZES = {
    "F32": (0, 1, 4), "F16": (1, 1, 2), "BF16": (30, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20),
    "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34), "Q2_K": (10, 256, 84),
    "Q3_K": (11, 256, 110), "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210),
    "IQ4_NL": (20, 32, 18),
}  # fmt: skip
# where the 16-bit scales of a block lie; all other bytes may be anything
SCALES = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82),
    "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,),
}  # fmt: skip
# about how large a code times its inner scale is, so that a matrix of blocks has a deviation of about 0.1
LARGE = {"Q4_0": 8, "Q4_1": 8, "Q5_0": 16, "Q5_1": 16, "Q8_0": 74, "Q2_K": 16, "Q3_K": 36, "Q4_K": 300,
         "Q5_K": 600, "Q6_K": 1400, "IQ4_NL": 60}  # fmt: skip

Stored = tuple[str, tuple[int, ...], bytes]


def half(raw: bytes, at: int) -> float:
    return float(np.frombuffer(raw[at : at + 2], np.float16)[0])


def random_blocks(kind: str, rows: int, columns: int, seed: int = 0) -> bytes:
    """Rows of blocks whose bits are random and whose scales are small."""
    draw = random.Random(f"{kind} {rows} {columns} {seed}")
    _, numbers, size = SIZES[kind]
    out = bytearray()
    for _ in range(rows * columns // numbers):
        block = bytearray(draw.randbytes(size))
        for at in SCALES[kind]:
            block[at : at + 2] = np.float16(draw.uniform(0.05, 0.2) / LARGE[kind]).tobytes()
        out += block
    return bytes(out)


def one(kind: str, b: bytes, i: int) -> float:
    """The i-th number of a block, as ggml-quants.c computes it: in 32 bits."""
    f = np.float32
    if kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1"):
        at = {"Q4_0": 2, "Q4_1": 4, "Q5_0": 6, "Q5_1": 8}[kind]
        code = b[at + i % 16] >> (4 * (i // 16)) & 15
        if kind[1] == "5":
            code |= (int.from_bytes(b[at - 4 : at], "little") >> i & 1) << 4
        if kind.endswith("_0"):
            return float(f(code - (8 if kind[1] == "4" else 16)) * f(half(b, 0)))
        return float(f(code) * f(half(b, 0)) + f(half(b, 2)))
    if kind == "Q8_0":
        return float(f(struct.unpack("b", b[2 + i : 3 + i])[0]) * f(half(b, 0)))
    if kind == "Q2_K":
        code = b[16 + i // 128 * 32 + i % 32] >> (2 * (i % 128 // 32)) & 3
        scale = b[i // 16]
        return float(f(half(b, 80)) * f(scale & 15) * f(code) - f(half(b, 82)) * f(scale >> 4))
    if kind == "Q3_K":
        return _q3_k(b, i)
    if kind in ("Q4_K", "Q5_K"):
        return _q45_k(kind, b, i)
    assert kind == "Q6_K"
    part, within = i // 128, i % 128
    low = b[64 * part + within % 64] >> (4 * (within // 64)) & 15
    high = b[128 + 32 * part + within % 32] >> (2 * (within // 32)) & 3
    scale = struct.unpack("b", b[192 + i // 16 : 193 + i // 16])[0]
    return float(f(half(b, 208)) * f(scale) * f((low | high << 4) - 32))


def _q3_k(b: bytes, i: int) -> float:
    f, group = np.float32, i // 16
    low = b[32 + i // 128 * 32 + i % 32] >> (2 * (i % 128 // 32)) & 3
    code = low - (0 if b[i % 32] >> (i // 32) & 1 else 4)
    four = b[96 + group % 8] >> (4 * (group // 8)) & 15
    two = b[104 + group % 4] >> (2 * (group // 4)) & 3
    return float(f(half(b, 108)) * f((four | two << 4) - 32) * f(code))


def _q45_k(kind: str, b: bytes, i: int) -> float:
    f, group, packed = np.float32, i // 32, b[4:16]
    if group < 4:
        scale, lowest = packed[group] & 63, packed[group + 4] & 63
    else:
        scale = packed[group + 4] & 15 | packed[group - 4] >> 6 << 4
        lowest = packed[group + 4] >> 4 | packed[group] >> 6 << 4
    at = 16 if kind == "Q4_K" else 48
    code = b[at + i // 64 * 32 + i % 32] >> (4 * (group % 2)) & 15
    if kind == "Q5_K":
        code |= (b[16 + i % 32] >> group & 1) << 4
    return float(f(half(b, 0)) * f(scale) * f(code) - f(half(b, 2)) * f(lowest))


def meaning(kind: str, raw: bytes, rows: int, columns: int) -> torch.Tensor:
    """What blocks stand for, in fp32."""
    _, numbers, size = SIZES[kind]
    blocks = [raw[at : at + size] for at in range(0, len(raw), size)]
    values = [one(kind, block, i) for block in blocks for i in range(numbers)]
    return torch.tensor(values, dtype=torch.float32).view(rows, columns)


def plain(tensor: torch.Tensor, kind: str) -> Stored:
    dtype = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[kind]
    return kind, tuple(tensor.shape), tensor.to(dtype).contiguous().view(torch.uint8).numpy().tobytes()


def string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(v: Any) -> bytes:
    """A field's kind and value; whole numbers are of 32 bits, as converters write them."""
    if isinstance(v, bool):
        return struct.pack("<I?", 7, v)
    if isinstance(v, int):
        return struct.pack("<II", 4, v)
    if isinstance(v, float):
        return struct.pack("<If", 6, v)
    if isinstance(v, str):
        return struct.pack("<I", 8) + string(v)
    inner = [value(item) for item in v]
    kind = inner[0][:4] if inner and not isinstance(v[0], int) else struct.pack("<I", 5)  # ids are signed
    return struct.pack("<I", 9) + kind + struct.pack("<Q", len(inner)) + b"".join(i[4:] for i in inner)


def document(
    fields: dict[str, Any], stored: dict[str, Stored], version: int = 3, alignment: int = 32
) -> bytes:
    if alignment != 32:
        fields = {**fields, "general.alignment": alignment}
    head = b"GGUF" + struct.pack("<IQQ", version, len(stored), len(fields))
    head += b"".join(string(key) + value(v) for key, v in fields.items())
    body = b""
    for name, (kind, shape, raw) in stored.items():
        head += string(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape[::-1])
        head += struct.pack("<IQ", SIZES[kind][0], len(body))
        body += raw + bytes(-len(raw) % alignment)
    return head + bytes(-len(head) % alignment) + body


ARCHITECTURES = {"gemma3_text": "gemma3"}
OUTSIDE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
INSIDE = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip
INSIDE_GEMMA = {
    **INSIDE, "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}  # fmt: skip


def name_of(spec: Spec, name: str) -> str:
    stem, kind = name.rsplit(".", 1)
    if stem in OUTSIDE:
        return f"{OUTSIDE[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{(INSIDE_GEMMA if spec.sandwich else INSIDE)[part]}.{kind}"


def fields_of(spec: Spec) -> dict[str, Any]:
    """The metadata that llama.cpp's converter writes for a model."""
    own = ARCHITECTURES.get(spec.family, spec.family)
    fields = {
        "general.architecture": own, "general.name": spec.name, f"{own}.context_length": spec.max_context,
        f"{own}.embedding_length": spec.hidden, f"{own}.block_count": spec.layers,
        f"{own}.feed_forward_length": spec.ffn, f"{own}.attention.head_count": spec.heads,
        f"{own}.attention.head_count_kv": spec.kv_heads, f"{own}.attention.key_length": spec.head_dim,
        f"{own}.attention.value_length": spec.head_dim, f"{own}.rope.freq_base": float(spec.theta),
        f"{own}.attention.layer_norm_rms_epsilon": float(spec.eps), "tokenizer.ggml.model": "none",
        f"{own}.vocab_size": spec.vocab,
    }  # fmt: skip
    if spec.window:
        fields[f"{own}.attention.sliding_window"] = spec.window
    if own == "llama":
        fields["llama.rope.dimension_count"] = spec.head_dim
    return fields


def in_pairs(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """LlamaModel.permute of the converter: what rotates together is put side by side."""
    return (
        rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
        .swapaxes(1, 2)
        .reshape(rows.shape)
    )


def converted(spec: Spec, table: dict[str, torch.Tensor], kind: str = "F32") -> dict[str, Stored]:
    """A checkpoint as its converter stores it: norms in F32, Gemma's one more, Llama's heads in pairs."""
    out = {}
    for name in list_tensors(spec):
        tensor = table[name]
        if spec.family == "llama" and ("q_proj" in name or "k_proj" in name):
            tensor = in_pairs(tensor, spec.heads if "q_proj" in name else spec.kv_heads)
        if spec.unit_offset and name.endswith("norm.weight"):
            tensor = tensor + 1
        out[name_of(spec, name)] = plain(tensor, kind if tensor.dim() == 2 else "F32")
    return out


def write(path: Path, spec: Spec, stored: dict[str, Stored], **more: Any) -> Path:
    path.write_bytes(document({**fields_of(spec), **more}, stored))
    return path


def vocabulary(size: int) -> dict[str, Any]:
    """Pieces with scores, of which the first 256 after three special ones are bytes."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    tokens = (tokens + [f"w{i}" for i in range(size)])[:size]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [float(-i) for i in range(size)],
        "tokenizer.ggml.token_type": ([2, 3, 3] + [6] * 256 + [1] * size)[:size],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
