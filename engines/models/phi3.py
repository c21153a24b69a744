"""Phi 3 and 4: matrices that are stored side by side, and heads of which only a part may rotate."""

from dataclasses import replace

from engines.models.common import read_decoder, rope_section
from engines.models.config import Config, Family, Piece
from engines.models.spec import Spec
from engines.models.windows import with_windows

MODEL_TYPE = "phi3"


def read(config: Config, name: str) -> Spec:
    """Return the model of a config."""
    rope = rope_section(config)
    spec = read_decoder(config, name, rope, eps=1e-5)
    share = rope.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0))
    window = config.integer("sliding_window", 0)
    spec = replace(spec, rotated=0 if share == 1.0 else int(share * spec.head_dim))
    return with_windows(spec, (window > 0,) * spec.layers, window)


def find_piece(spec: Spec, name: str) -> Piece | None:
    """Return where a checkpoint keeps a matrix of ours that it stores together with others."""
    stem, _, part = name.removesuffix(".weight").rpartition(".")
    q, kv, ffn = spec.query_width, spec.kv_width, spec.ffn
    qkv, gate_up = (f"{stem}.qkv_proj.weight", q + 2 * kv), (f"{stem}.gate_up_proj.weight", 2 * ffn)
    pieces = {
        "q_proj": (*qkv, 0, q),
        "k_proj": (*qkv, q, kv),
        "v_proj": (*qkv, q + kv, kv),
        "gate_proj": (*gate_up, 0, ffn),
        "up_proj": (*gate_up, ffn, ffn),
    }
    if part not in pieces:
        return None
    stored, rows, first, count = pieces[part]
    return Piece(stored, (rows, spec.hidden), slice(first, first + count))


FAMILY = Family(
    MODEL_TYPE,
    read,
    (
        Spec(
            "phi-3-mini", MODEL_TYPE, 32064, 3072, 32, 32, 32, 96, 8192,
            eps=1e-5, theta=1e4, window=2047, local=(True,) * 32, tied=False, max_context=4096,
            eos=(32000, 32007), bos=1, hub=("microsoft/Phi-3-mini-4k-instruct",),
        ),
        Spec(
            "phi-4", MODEL_TYPE, 100352, 5120, 40, 40, 10, 128, 17920,
            eps=1e-5, theta=250000.0, tied=False, max_context=16384,
            eos=(100265,), bos=100257, hub=("microsoft/phi-4",),
        ),
    ),
    find_piece=find_piece,
)  # fmt: skip
