"""Small runs made by hand, whose answers can be worked out on paper."""

from typing import Any

import numpy as np
import polars as pl

from capture.import_log import Log
from capture.run import Run, build_run

MS = 1_000_000
OPS = ("attn.q", "attn.core", "mlp.down", "norm")


def made(rows: list[dict[str, Any]], tables: dict[str, pl.DataFrame] | None = None, **meta: Any) -> Run:
    """A run of these rows."""
    log = Log(source="by hand", format="made", read=len(rows))
    return build_run("made", meta, pl.DataFrame(rows, infer_schema_length=None), log, tables)


def decode(steps: int = 40, layers: int = 4, spike: int | None = None, odd: int | None = None) -> Run:
    """A prefill and decode steps of 2 tokens each, on a timeline.

    Per layer and step: attention of (100 + 10 · context) µs, mlp.down of 400 µs, a norm of 20 µs.
    In the spike step down and norm take three times as long; in the odd layer down always takes twice.
    """
    rows: list[dict[str, Any]] = [
        {"kind": "mark", "name": "attention variant=split", "path": "selection", "t": 0}
    ]
    clock, context = 0, 10
    for step in range(steps + 1):
        phase, tokens = ("decode", 2) if step else ("prefill", 10)
        context += tokens if step else 0
        begin = clock
        for layer in range(layers):
            slow = 3 if step == spike else 1
            for name, us in (
                ("attention", 100 + 10 * context),
                ("ffn_down", 400 * slow * (2 if layer == odd else 1)),
                ("rmsnorm", 20 * slow),
            ):
                rows.append(
                    {
                        "kind": "kernel", "name": name, "t": clock, "dur": us * 1000, "step": step,
                        "phase": phase, "layer": layer, "lens": "gpu", "track": "gpu0",
                    }
                )  # fmt: skip
                clock += us * 1000
        clock += 500_000
        rows.append(
            {
                "kind": "step", "name": phase, "t": begin, "dur": clock - begin, "step": step, "phase": phase,
                "tokens": tokens, "context": context, "batch": 1,
            }
        )  # fmt: skip
        rows.append({"kind": "counter", "name": "power", "t": clock, "value": 100.0 + step, "unit": "W"})
        rows.append({"kind": "memory", "name": "kv cache", "t": clock, "bytes": 1024.0 * context})
    return made(rows, model="toy-1b", device="paper", dtype="f16", weights="random", ttft_ms=12.5)


def aggregates() -> Run:
    """A printed table: totals and counts, no instances."""
    small, wide = "m=1 n=2 k=3", "m=4"
    return made(
        [
            {"name": "gemm", "dur": 900, "count": 3, "max": 400, "p95": 390, "shape": small, "flops": 1.2e3},
            {"name": "gemm", "dur": 100, "count": 1, "max": 100, "shape": small, "flops": 0.4e3},
            {"name": "softmax", "dur": 500, "count": 5, "max": 200, "p95": 150, "shape": wide},
        ]
    )


def scopes() -> Run:
    """Leaf times below stated paths, one scope measured itself."""
    return made(
        [
            {"kind": "kernel", "name": "gemv", "dur": 30, "path": "forward / layer 0", "lens": "wall"},
            {"kind": "kernel", "name": "gemv", "dur": 20, "path": "forward / layer 0", "lens": "wall"},
            {"kind": "kernel", "name": "add", "dur": 10, "path": "forward / layer 1", "lens": "wall"},
            {"kind": "span", "name": "layer 1", "dur": 25, "path": "forward", "lens": "wall"},
            {"kind": "kernel", "name": "sample", "dur": 5, "path": None, "lens": "wall"},
        ]
    )


def nested() -> Run:
    """Spans that lie in each other on one track, and the same names on another."""
    spans = [
        ("main", "run", 0, 100), ("main", "load", 0, 30), ("main", "step", 40, 50), ("main", "gemm", 45, 20),
        ("main", "gemm", 70, 10), ("other", "run", 10, 5),
    ]  # fmt: skip
    return made(
        [{"kind": "span", "track": t, "name": n, "t": a, "dur": d, "lens": "host"} for t, n, a, d in spans]
    )


def recording(
    name: str, *, slow: dict[str, float] | None = None, steps: int = 48, noise: int = 0, gap: int = 50
) -> Run:
    """A decode of `steps` steps with four ops on two layers; `slow` multiplies an op's time."""
    rng = np.random.default_rng(noise)
    rows: list[dict[str, Any]] = []
    for step in range(1, steps + 1):
        total = 0
        for layer in range(2):
            for i, op in enumerate(OPS):
                base = 1000 * (i + 1) + (40 * step if op == "attn.core" else 0)
                dur = int(base * (slow or {}).get(op, 1) * rng.normal(1, 0.02))
                rows.append(
                    {
                        "kind": "kernel",
                        "name": f"L{layer}.{op}",
                        "op": op,
                        "layer": layer,
                        "dur": dur,
                        "step": step,
                    }
                )
                total += dur
        rows.append(
            {
                "kind": "step",
                "name": "step",
                "step": step,
                "tokens": 1,
                "context": 10 + step,
                "dur": total + gap,
            }
        )
    frame = pl.DataFrame(rows).with_columns(phase=pl.lit("decode"), lens=pl.lit("gpu"))
    return build_run(name, {"model": "toy"}, frame, Log())


def launch_bound() -> Run:
    """A step of 13 µs of kernels in 100, whose host launches the second 80 µs after the first has ended."""
    shared = {"kind": "kernel", "name": "gemm", "lens": "gpu", "track": "gpu0/7", "launcher": "main"}
    shared |= {"step": 1, "phase": "decode"}
    times = ((0, 10, -5, 3), (97, 3, 90, 3))
    rows = [{**shared, **dict(zip(("t", "dur", "launch", "launch_dur"), (1000 * n for n in k), strict=True))}
            for k in times]  # fmt: skip
    mark = {"kind": "step", "name": "step", "t": 0, "dur": 400_000, "step": 1, "phase": "decode", "batch": 8}
    return made([*rows, mark])
