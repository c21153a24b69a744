"""Files of many ranks made by hand, whose sums can be added up in plain Python."""

import json
import random
from pathlib import Path
from typing import Any

from capture.native.schema import seal_record

NAMES = ("attention", "ffn_down", "rmsnorm", "all_reduce")


def durations(rank: int, steps: int = 6, slow: str = "") -> list[dict[str, Any]]:
    """The kernels of a rank, drawn by its number; rank 5 is slow in ffn_down, every rank in `slow`."""
    draw = random.Random(rank)
    rows, clock = [], 0
    for step in range(steps):
        for name in NAMES:
            for _ in range(3):
                dur = (
                    draw.randrange(1_000, 90_000)
                    * (3 if (rank, name) == (5, "ffn_down") else 1)
                    * (2 if name == slow else 1)
                )
                rows.append({"name": name, "t": clock, "dur": dur, "step": step})
                clock += dur
    return rows


def fleet(folder: Path, ranks: int, steps: int = 6, slow: str = "") -> Path:
    """A folder with a native file a rank."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        meta = {"rank": rank, "world_size": ranks, "device": "paper"}
        lines: list[dict[str, Any]] = [
            {"kind": "run", "schema": 1, "id": f"r{rank}", "name": "job", "meta": meta}
        ]
        lines += [
            {"kind": "kernel", "phase": "decode", "lens": "gpu", **row}
            for row in durations(rank, steps, slow)
        ]
        (folder / f"rank{rank:03}.jsonl").write_bytes(b"".join(map(seal_record, lines)))
    return folder


STEPS = 7
OPS = {"gemm": "mlp.down", "flash": "attn.core", "norm": "norm", "ring": "comm.all_reduce"}
META = {"device": "NVIDIA H100 80GB HBM3", "dtype": "bfloat16"}


def rank_rows(rank: int) -> list[dict[str, Any]]:
    """What a rank of a decoder does: a prefill, then steps with kernels of four layers, and samples."""
    draw, rows, clock = random.Random(rank), list[dict[str, Any]](), 1_000 * rank
    for step in range(STEPS):
        phase, begin = "decode" if step else "prefill", clock
        for layer in range(4):
            for name, op in OPS.items():
                if (name, rank) == ("ring", 3):
                    continue  # one rank has a kernel less
                dur = draw.randrange(1_000, 90_000)
                row = {"kind": "kernel", "name": name, "t": clock, "dur": dur, "step": step, "phase": phase,
                       "layer": layer, "op": op, "lens": "gpu", "track": f"cuda:{rank}",
                       "path": f"model / layers.{layer} / {op}"}  # fmt: skip
                if name == "gemm":
                    row |= {"shape": f"m={1 + rank % 2} n=512 k=512", "flops": 2.0 * draw.randrange(9**9),
                            "bytes": float(draw.randrange(9**7))}  # fmt: skip
                rows.append(row)
                clock += dur
        row = {"kind": "step", "name": "step", "t": begin, "dur": clock - begin + 500, "step": step}
        rows.append(row | {"phase": phase, "tokens": 4 if step else 64, "context": 64 + 4 * step, "batch": 4})
        clock += 700
        for kind, key, name in (("counter", "value", "gemm power"), ("memory", "bytes", "gemm held")):
            sample = {"kind": kind, "name": name, "t": clock, key: float(draw.randrange(9**6))}
            rows.append(sample | {"step": step, "phase": phase, "layer": 2})
    return rows


def decoders(folder: Path, ranks: int) -> Path:
    """A folder with a file of every rank of a decoder."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        meta = {**META, "world_size": ranks, "rank": rank}
        lines = [{"kind": "run", "schema": 1, "id": f"r{rank}", "name": "job", "meta": meta}]
        (folder / f"rank{rank:03}.jsonl").write_bytes(b"".join(map(seal_record, [*lines, *rank_rows(rank)])))
    return folder


def written(rows: Any) -> str:
    """A frame as text, to compare all of it."""
    return json.dumps(rows.to_dicts(), default=str)
