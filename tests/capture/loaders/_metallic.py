"""metallic's analyzer once more, in plain Python over the lines of a recording: the truth for the tests."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

DIMENSIONS = ("op", "batch", "m", "n", "k", "tA", "tB")
Samples = dict[str, list[int]]


def analyzed(path: Path) -> list[str]:
    """The report without its title, line by line."""
    events = [json.loads(text)["event"] for text in path.read_text().splitlines()]
    ops = [e["data"] for e in events if e["type"] == "GpuOpCompleted"]
    inner = [e["data"] for e in events if e["type"] == "InternalKernelCompleted"]
    chosen = [e["data"] for e in events if e["type"] == "KernelBackendSelected"]
    out = [f"Total events: {len(events)}", "Event type summary:"]
    timed: Samples = defaultdict(list)
    for e in events:
        if "duration_us" in e["data"]:
            timed[e["type"]].append(e["data"]["duration_us"])
    for kind, n in Counter(e["type"] for e in events).most_common():
        out.append(f"{kind} (count={n}): {stats(timed.get(kind, []))}")
    out += ["Backend selection summary:", *counted(f"backend={d['backend']}" for d in chosen)]
    out += ["Backend selection reasons:", *counted(f"reason={d['reason']}" for d in chosen)]
    pairs = counted(f"op={d['op_name']} backend={d['backend']}" for d in chosen)
    out += ["Backend selection by op/backend:", *pairs[:20]]
    out += table("Internal kernel by parent:", inner, lambda d: d["parent_op_name"])
    out += table(
        "Internal kernel by parent/op:",
        inner,
        lambda d: f"{d['parent_op_name']} :: {d['internal_kernel_name']}",
        20,
    )
    leaf = [d for d in inner if not d["internal_kernel_name"].endswith(("_total", "cb_wait"))]
    out += table("Kernel aggregate (all parents):", leaf, lambda d: d["internal_kernel_name"], 50)
    waits = [d for d in ops if is_wait(d)]
    gpu = [d for d in ops if "/cb_gpu" in d["op_name"]]
    kernels = [d for d in ops if not is_wait(d) and "/cb_gpu" not in d["op_name"]]
    out += table("GPU kernel durations (excluding waits):", kernels, lambda d: d["op_name"], 20)
    out += table("GPU kernel aggregate (by kernel type):", kernels, lambda d: kernel_type(d["op_name"]), 20)
    matmuls = [d for d in ops if "op" in d.get("data", {})]
    out += table("Matmul backend summary:", matmuls, lambda d: f"backend={d['data']['backend']}")
    out += table(
        "Matmul op/backend summary:", matmuls, lambda d: f"{d['data']['op']} @ {d['data']['backend']}"
    )
    out += ["Matmul shape backend summary:", *shapes(matmuls)]
    out += table("GPU wait breakdown:", waits, lambda d: d["op_name"], 20)
    out += table("Command buffer GPU timing:", gpu, lambda d: d["op_name"], 20)
    names = [(d.get("op_name") or d["internal_kernel_name"], d["duration_us"]) for d in (*ops, *inner)]
    return [*out, "Sync operations:", f"sync kernels: {stats([us for n, us in names if 'sync' in n])}"]


def is_wait(op: dict[str, Any]) -> bool:
    return "cb_wait" in op["op_name"] or op["op_name"].endswith("wait")


def kernel_type(name: str) -> str:
    last = name.split("/")[-1]
    if last.endswith("_op"):
        for stage in ("sdpa", "mlp_swiglu"):
            if last.startswith(stage + "_block_"):
                return stage
        return "_".join(last.split("_")[:-1])
    return last


def shapes(matmuls: list[dict[str, Any]]) -> list[str]:
    grouped: dict[str, Samples] = defaultdict(lambda: defaultdict(list))
    for d in matmuls:
        data = d["data"]
        extras = sorted(set(data) - {*DIMENSIONS, "backend"})
        label = " | ".join(f"{k}={data.get(k, '?')}" for k in (*DIMENSIONS, *extras))
        grouped[label][data["backend"]].append(d["duration_us"])
    out = []
    for label, backends in sorted(grouped.items(), key=lambda g: -sum(map(sum, g[1].values())))[:20]:
        out.append(f"{label}:")
        out += [f"backend={b}: {stats(us)}" for b, us in sorted(backends.items(), key=lambda g: -sum(g[1]))]
    return out


def table(
    title: str, rows: list[dict[str, Any]], key: Callable[[dict[str, Any]], str], top: int | None = None
) -> list[str]:
    samples: Samples = defaultdict(list)
    for row in rows:
        samples[key(row)].append(row["duration_us"])
    ranked = sorted(samples.items(), key=lambda s: -sum(s[1]))[:top]
    return [title, *(f"{label}: {stats(us)}" for label, us in ranked)]


def counted(labels: Iterable[str]) -> list[str]:
    return [f"{label}: count={n}" for label, n in Counter(labels).most_common()]


def stats(us: list[int]) -> str:
    if not us:
        return "no samples"
    ms = [v / 1000 for v in (sum(us), sum(us) / len(us), min(us), max(us), *np.percentile(us, [95, 99]))]
    total, mean, low, high, p95, p99 = ms
    return (
        f"count={len(us)} | total={total:.2f}ms | avg={mean:.3f}ms | min={low:.3f}ms | max={high:.3f}ms | "
        f"p95_ms={p95:.3f}ms, p99_ms={p99:.3f}ms"
    )
