"""Model folders as people have them: a config.json and safetensors, written here byte by byte."""

import json
from pathlib import Path
from typing import Any

import torch

from engines.models.spec import Spec
from tests.engines import tiny

DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}

OLD_GEMMA: dict[str, Any] = {
    "model_type": "gemma3_text", "vocab_size": 301, "hidden_size": 48, "intermediate_size": 80,
    "num_hidden_layers": 7, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 16,
    "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6, "rope_theta": 1000000,
    "rope_local_base_freq": 10000, "sliding_window": 8, "sliding_window_pattern": 6,
    "query_pre_attn_scalar": 16, "max_position_embeddings": 512, "eos_token_id": [1, 106], "bos_token_id": 2,
}  # fmt: skip

NEW_GEMMA: dict[str, Any] = {
    **{k: v for k, v in OLD_GEMMA.items() if not k.startswith("rope") and k != "sliding_window_pattern"},
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    },
    "layer_types": ["sliding_attention"] * 5 + ["full_attention", "sliding_attention"],
}

OLD_LLAMA: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 301, "hidden_size": 48, "intermediate_size": 80,
    "num_hidden_layers": 7, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": True,
    "rope_scaling": tiny.LLAMA3, "max_position_embeddings": 512, "eos_token_id": 128001,
}  # fmt: skip


def safetensors(tensors: dict[str, torch.Tensor]) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, tensor in tensors.items():
        raw = tensor.contiguous().view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [len(body), len(body) + len(raw)]}  # fmt: skip
        body += raw
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + body


def write(folder: Path, config: dict[str, Any], table: dict[str, torch.Tensor], shards: int = 1) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if shards == 1:
        (folder / "model.safetensors").write_bytes(safetensors(table))
        return folder
    names = list(table)
    files = {f"model-{i:05}-of-{shards:05}.safetensors": names[i::shards] for i in range(shards)}
    for file, own in files.items():
        (folder / file).write_bytes(safetensors({n: table[n] for n in own}))
    index = {"weight_map": {n: file for file, own in files.items() for n in own}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def gemma(folder: Path, dtype: torch.dtype = torch.float32, shards: int = 1) -> tuple[Path, Spec]:
    spec = tiny.SPECS["gemma3"]
    table = {k: v.to(dtype) for k, v in tiny.weights(spec).items()}
    return write(folder, OLD_GEMMA, table, shards), spec
