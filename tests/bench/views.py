"""Views of 10 million events: memory of the frame, and the time of sorts, filters and groupings.

python -m tests.bench.views [EVENTS]
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from capture.importlog import ImportLog
from capture.run import Run
from tracetui.look import Look
from tracetui.views import ask, ordered, view

NAMES, LAYERS, STEPS = 200, 28, 1000


def generated(events: int) -> Run:
    """A decode of many steps on one stream, as a loader of a trace would build it."""
    random = np.random.default_rng(0)
    which = random.integers(0, NAMES, events).astype(np.uint32)
    dur = (random.gamma(2, 5000, events) + 500).astype(np.int64)
    names = [f"void cutlass::kernel_{i:03d}<{'float, ' * 8}{i}>" for i in range(NAMES)]
    zeros = np.zeros(events, dtype=np.uint32)
    frame = pl.DataFrame(
        {
            "kind": _words(["kernel"], zeros),
            "name": _words(names, which),
            "t": np.cumsum(dur) + 1_700_000_000_000_000_000,
            "dur": dur,
            "step": np.arange(events) * STEPS // events,
            "phase": _words(["decode"], zeros),
            "layer": (which % LAYERS).astype(np.int32),
            "op": _words(["attn.core", "attn.qkv", "mlp.up", "mlp.down", "norm"], which % 5),
            "category": _words(["attention", "matmul", "matmul", "matmul", "norm"], which % 5),
            "lens": _words(["gpu"], zeros),
            "track": _words(["gpu0/stream7", "gpu0/stream13"], which % 2),
        }
    )
    return Run("generated", {}, frame.rechunk(), ImportLog())


def _words(words: Sequence[str], which: np.ndarray) -> pl.Series:
    """Few distinct words in many places, as a categorical column."""
    distinct = pl.Series(words, dtype=pl.String).cast(pl.Categorical())
    return distinct.gather(which.astype(np.uint32))


def best(what: Callable[[], object], tries: int = 3) -> float:
    times = []
    for _ in range(tries):
        start = time.perf_counter()
        what()
        times.append(time.perf_counter() - start)
    return min(times)


def main(events: int) -> None:
    run = generated(events)
    size = run.events.estimated_size() / 1e9
    print(f"{events:,} events, frame {size:.2f} GB, {pl.thread_pool_size()} threads")
    plain = best(lambda: run.events.lazy().group_by("name").agg(pl.col("dur").sum(), pl.len()).collect())
    print(f"{'peer: one plain polars group_by of a sum':48} {plain:6.3f} s")
    looks = {
        "kernels": Look(),
        "kernels, sorted by p99": Look(sort="p99_ns"),
        "kernels, filtered": Look(filter="kernel_0[1-5]"),
        "kernels, per step": Look(per="step"),
        **{f"kernels by {g}": Look(group=g) for g in ("op", "layer", "track", "step")},
        "detail, one kernel": Look(focus=(("op", "norm"),)),
        **{v: Look() for v in ("summary", "growth", "layers", "steps", "timeline")},
    }
    for what, look in looks.items():
        shown = view(what.split(",")[0].split()[0])
        taken = best(lambda shown=shown, look=look: ordered(ask(shown, [run], replace(look)), look))
        print(f"{what:48} {taken:6.3f} s  {taken / plain:6.1f}× the peer")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000)
