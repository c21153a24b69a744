"""Sequences of kernels and ops of real models with their true layers and roles, kept beside this module.

`python -m tests.capture.classify._recorded` writes it: of small random models by transformers on a processor,
and of the traces of BERT on two GPUs, whose modules are the truth. Durations are the median of each sort.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl

from capture.load_runs import load
from tests.capture.classify import _traces
from tests.conftest import shared

FILE = Path(__file__).with_name("sequences.parquet")
GPU = {"bert on H100": "bert-small-h100", "bert on MI300": "bert-small-mi300"}

# the modules around a kernel of BERT, the innermost last → its role there
_BERT = {
    "BertSdpaSelfAttention / Linear": "attn.qkv", "BertSdpaSelfAttention": "attn.core",
    "BertSelfOutput / Linear": "attn.out", "BertSelfOutput": "residual",
    "BertSelfOutput / LayerNorm": "attn.post_norm", "BertIntermediate / Linear": "mlp.up",
    "BertIntermediate / GELUActivation": "mlp.act", "BertOutput / Linear": "mlp.down",
    "BertOutput": "residual", "BertOutput / LayerNorm": "mlp.post_norm",
}  # fmt: skip


@dataclass(frozen=True)
class Sequence:
    """Kernels in order, each with its layer (−1 outside), its role (None where unknown) and its pass."""

    names: list[str]
    keys: list[str]
    duration: np.ndarray
    layer: np.ndarray
    role: list[str | None]
    step: np.ndarray


@cache
def _table() -> pl.DataFrame:
    return pl.read_parquet(FILE)


def architectures() -> list[str]:
    """Return what was recorded."""
    return _table()["architecture"].unique(maintain_order=True).cast(pl.String).to_list()


def recorded(architecture: str) -> Sequence:
    """Return the sequence of one architecture."""
    rows = _table().filter(pl.col("architecture") == architecture)
    names, keys, roles = (rows[c].cast(pl.String).to_list() for c in ("name", "key", "role"))
    return Sequence(
        names, keys, rows["dur"].to_numpy(), rows["layer"].to_numpy(), roles, rows["step"].to_numpy()
    )


def of_processor(architecture: str) -> Sequence:
    """Return the sequence of a small random model that runs now."""
    trace = _traces.make(architecture)
    duration = typical(trace.names, trace.keys, trace.duration)
    return Sequence(trace.names, trace.keys, duration, trace.layer, trace.role, trace.step)


def typical(names: list[str], keys: list[str], duration: np.ndarray) -> np.ndarray:
    """Return the median duration of each op's sort: one interrupted op of a busy machine decides nothing."""
    rows = pl.DataFrame({"name": names, "key": keys, "dur": duration})
    return rows.select(pl.col("dur").median().round().cast(pl.Int64).over("name", "key"))["dur"].to_numpy()


def of_gpu(sample: str) -> Sequence:
    """Return the kernels of a trace of BERT; its modules tell layers and roles."""
    (run,) = load(shared(f"samples/chrome_trace/{sample}.json.gz"), cache=False)
    rows = run.events.filter(pl.col("kind") == "kernel").sort("t")
    paths = rows["path"].cast(pl.String).fill_null("").str.replace_all(r"nn\.Module: |_\d+", "")
    layers = rows["path"].cast(pl.String).str.extract(r"BertLayer_(\d+)").cast(pl.Int64).fill_null(-1)
    ends = [path.split(" / ")[-2:] for path in paths]
    roles = [_BERT.get(" / ".join(end)) or _BERT.get(end[-1]) for end in ends]
    roles = [role if layer >= 0 else None for role, layer in zip(roles, layers, strict=True)]
    names, count = rows["name"].cast(pl.String).to_list(), rows.height
    passes = np.ones(count, dtype=np.int64)
    return Sequence(names, [""] * count, rows["dur"].to_numpy(), layers.to_numpy(), roles, passes)


def _frame(architecture: str, sequence: Sequence) -> pl.DataFrame:
    columns = {
        "name": sequence.names, "key": sequence.keys, "dur": sequence.duration, "layer": sequence.layer,
        "role": sequence.role, "step": sequence.step,
    }  # fmt: skip
    return pl.DataFrame({"architecture": [architecture] * len(sequence.names), **columns})


if __name__ == "__main__":
    made = {name: of_processor(name) for name in _traces.ARCHITECTURES} | {
        name: of_gpu(sample) for name, sample in GPU.items()
    }
    frame = pl.concat([_frame(name, sequence) for name, sequence in made.items()])
    small = {"dur": pl.Int32, "layer": pl.Int16, "step": pl.Int16}
    text = dict.fromkeys(("architecture", "name", "key", "role"), pl.Categorical())
    frame.cast({**small, **text}).write_parquet(FILE, compression="zstd", compression_level=19)
