"""A decoder as the papers write it: no cache, no fusion, every position from the start each time."""

import math

import torch

from engines.models.spec import Spec


def forward(spec: Spec, w: dict[str, torch.Tensor], ids: list[int]) -> torch.Tensor:
    """The logits [positions, vocab] of one sequence, in fp64."""
    w = {k: v.double() for k, v in w.items()}
    x = torch.stack([w["model.embed_tokens.weight"][i] for i in ids])
    if spec.embed_scale:
        x = x * float(torch.tensor(math.sqrt(spec.hidden), dtype=torch.float32))
    for layer in range(spec.layers):
        own = {k.split(f"layers.{layer}.")[1]: v for k, v in w.items() if f"layers.{layer}." in k}
        x = x + attention(spec, own, norm(spec, x, own["input_layernorm.weight"]), layer)
        before = "pre_feedforward_layernorm" if spec.sandwich else "post_attention_layernorm"
        x = x + feed_forward(spec, own, norm(spec, x, own[before + ".weight"]))
    x = norm(spec, x, w["model.norm.weight"])
    return x @ w["model.embed_tokens.weight" if spec.tied else "lm_head.weight"].T


def norm(spec: Spec, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    scale = 1 / torch.sqrt((x * x).mean(-1, keepdim=True) + spec.eps)
    return x * scale * (weight + 1 if spec.unit_offset else weight)


def attention(spec: Spec, w: dict[str, torch.Tensor], h: torch.Tensor, layer: int) -> torch.Tensor:
    count, dim = len(h), spec.head_dim
    q, k, v = (
        (h @ w[f"self_attn.{n}_proj.weight"].T + w.get(f"self_attn.{n}_proj.bias", 0)).view(count, -1, dim)
        for n in "qkv"
    )
    if spec.qk_norm:
        q, k = norm(spec, q, w["self_attn.q_norm.weight"]), norm(spec, k, w["self_attn.k_norm.weight"])
    out = torch.zeros(count, spec.heads, dim, dtype=h.dtype)
    for position in range(count):
        first = max(0, position + 1 - (spec.find_window(layer) or count))
        for head in range(spec.heads):
            shared = head // (spec.heads // spec.kv_heads)
            turned = rotate(spec, q[position, head], position, layer)
            keys = [rotate(spec, k[i, shared], i, layer) for i in range(first, position + 1)]
            scores = torch.stack([turned @ key for key in keys]) * spec.attention_scale
            out[position, head] = torch.softmax(scores, 0) @ v[first : position + 1, shared]
    out = out.reshape(count, -1) @ w["self_attn.o_proj.weight"].T
    return norm(spec, out, w["post_attention_layernorm.weight"]) if spec.sandwich else out


def rotate(spec: Spec, x: torch.Tensor, position: int, layer: int) -> torch.Tensor:
    local = spec.find_window(layer) is not None and spec.theta_local > 0
    half = spec.head_dim // 2
    out = x.clone()
    for i in range(half):
        frequency = (spec.theta_local if local else spec.theta) ** (-2 * i / spec.head_dim)
        if spec.scaling and not local:
            frequency = stretched(spec, frequency, i)
        c, s = math.cos(position * frequency), math.sin(position * frequency)
        out[i] = x[i] * c - x[half + i] * s
        out[half + i] = x[half + i] * c + x[i] * s
    return out


def stretched(spec: Spec, frequency: float, i: int) -> float:
    scaling = spec.scaling
    assert scaling
    if scaling.kind == "stated":
        return frequency / scaling.factors[i]
    if scaling.kind == "linear":
        return frequency / scaling.factor
    wavelength = 2 * math.pi / frequency
    if wavelength < scaling.original / scaling.high:
        return frequency
    if wavelength > scaling.original / scaling.low:
        return frequency / scaling.factor
    smooth = (scaling.original / wavelength - scaling.low) / (scaling.high - scaling.low)
    return (1 - smooth) * frequency / scaling.factor + smooth * frequency


def feed_forward(spec: Spec, w: dict[str, torch.Tensor], h: torch.Tensor) -> torch.Tensor:
    gate, up = h @ w["mlp.gate_proj.weight"].T, h @ w["mlp.up_proj.weight"].T
    if spec.activation == "silu":
        gate = gate / (1 + torch.exp(-gate))
    else:
        gate = 0.5 * gate * (1 + torch.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)))
    out = (gate * up) @ w["mlp.down_proj.weight"].T
    return norm(spec, out, w["post_feedforward_layernorm.weight"]) if spec.sandwich else out
