"""Large runs of several shapes, to ask every view about: each made in seconds, and always the same."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from capture.import_log import ImportLog, Log
from capture.load_runs import load
from capture.run import Run, build_run
from tests.bench import _chrome_maker, native

MB_AN_EVENT: Final = 493e-6  # of a trace of torch with shapes
LAYERS: Final = 28
RANKS: Final = 8
OPS: Final = ("attn.core", "attn.qkv", "mlp.up", "mlp.down", "norm")
CATEGORIES: Final = ("attention", "matmul", "matmul", "matmul", "norm")
TRAINING_PHASES: Final = ("forward", "backward", "optimizer")
KINDS_OF_NAMES: Final = (
    "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_{i}x{j}_32x{k}_tn_align8>(Params)",
    "void at::native::vectorized_elementwise_kernel<4, at::native::op_{i}<c10::BFloat16>, char*>(int)",
    "triton_poi_fused_add_mul_silu_{i}",
    "ampere_bf16_s16816gemm_bf16_{i}x64_ldg8_f2f_stages_{j}x5_tn",
    "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<{i}, 64, 64, 4, false>, true>(Params)",
    "_ZN7cutlass7Kernel2I{n}kernel_{i}EEvNT_6ParamsE",
)


def decode(events: int, names: int = 200, steps: int = 1000) -> Run:
    """Return a decode of many steps on two streams, as a loader of a trace would build it."""
    random = np.random.default_rng(0)
    which = random.integers(0, names, events).astype(np.uint32)
    dur = (random.gamma(2, 5000, events) + 500).astype(np.int64)
    words = [f"void cutlass::kernel_{i:03d}<{'float, ' * 8}{i}>" for i in range(names)]
    zeros = np.zeros(events, dtype=np.uint32)
    frame = pl.DataFrame(
        {
            "kind": _words(["kernel"], zeros),
            "name": _words(words, which),
            "t": np.cumsum(dur) + 1_700_000_000_000_000_000,
            "dur": dur,
            "step": np.arange(events) * steps // events,
            "phase": _words(["decode"], zeros),
            "layer": (which % LAYERS).astype(np.int32),
            "op": _words(OPS, which % len(OPS)),
            "category": _words(CATEGORIES, which % len(OPS)),
            "lens": _words(["gpu"], zeros),
            "track": _words(["gpu0/stream7", "gpu0/stream13"], which % 2),
        }
    )
    return Run("decode", {}, frame.rechunk(), ImportLog())


def many_names(events: int, names: int = 20_000) -> Run:
    """Return kernels of many names that only their names tell of, launched by a host, under step spans."""
    random = np.random.default_rng(1)
    kinds = KINDS_OF_NAMES
    words = [kinds[i % len(kinds)].format(i=i, j=i % 7, k=i % 5, n=7 + len(str(i))) for i in range(names)]
    which = np.concatenate((np.arange(names), random.integers(0, names, events - names))).astype(np.uint32)
    random.shuffle(which)
    dur = (random.gamma(2, 5000, events) + 500).astype(np.int64)
    t = np.cumsum(dur + 300) + 10**15
    per = 2_500
    kernels = pl.DataFrame({
        "name": _words(words, which), "t": t, "dur": dur, "step": np.arange(events) // per,
        "launch": t - 20_000, "launch_dur": np.full(events, 4_000),
        "shape": _words([f"m={m} n=4096 k=4096" for m in range(500)], which % 500),
        "flops": dur * 1e3, "bytes": dur * 1e2,
    })  # fmt: skip
    every = np.arange(0, events, per)
    ends = np.minimum(every + per, events) - 1
    spans = pl.DataFrame({"t": t[every], "dur": t[ends] + dur[ends] - t[every], "step": every // per})
    words_of = [pl.lit(x).cast(pl.Categorical()).alias(c) for c, x in (("lens", "gpu"), ("track", "gpu0/7"))]
    host = pl.lit("python/1").cast(pl.Categorical()).alias("launcher")
    named = [pl.lit(x).cast(pl.Categorical()).alias(c) for c, x in (("name", "step"), ("lens", "wall"))]
    kernels = kernels.with_columns(pl.lit("kernel").cast(pl.Categorical()).alias("kind"), *words_of, host)
    steps = spans.with_columns(pl.lit("step").cast(pl.Categorical()).alias("kind"), *named)
    return build_run("many names", {"device": "A100"}, pl.concat([kernels, steps], how="diagonal"), Log())


def training(events: int, steps: int = 20_000) -> Run:
    """Return many steps of training on several ranks, with paths, shapes, work, memory and counters."""
    random = np.random.default_rng(2)
    place = np.arange(events)
    which = (place % 600).astype(np.uint32)
    step, rank = place * steps // events, (place % RANKS).astype(np.uint32)
    dur = (random.gamma(2, 5000, events) + 500).astype(np.int64)
    phase = (which // 200).astype(np.uint32)
    ops = (*OPS, "allreduce")
    kernels = pl.DataFrame({
        "name": _words([f"void kernel_{i}<bf16>(Params)" for i in range(600)], which),
        "t": place // RANKS * 30_000 + 10**15, "dur": dur, "step": step,
        "phase": _words(TRAINING_PHASES, phase), "layer": (which % LAYERS).astype(np.int32),
        "op": _words(ops, which % 6), "category": _words((*CATEGORIES, "comm"), which % 6),
        "track": _words([f"rank {i} / gpu0/7" for i in range(RANKS)], rank),
        "path": _words([f"{p} / layers.{i}" for p in TRAINING_PHASES for i in range(LAYERS)],
                       (phase * LAYERS + which % LAYERS).astype(np.uint32)),
        "shape": _words([f"m={m} n=4096 k=4096" for m in range(100)], which % 100),
        "flops": dur * 1e3, "bytes": dur * 1e2,
    })  # fmt: skip
    every = np.arange(steps)
    begin = every * (events // steps) // RANKS * 30_000 + 10**15
    marks = pl.DataFrame(
        {"t": begin, "dur": np.full(steps, 400_000), "step": every, "tokens": every * 0 + 4096}
    )
    used = pl.DataFrame({"t": begin, "step": every, "bytes": 1e9 + every % 100, "value": 1.0 * (every % 50)})
    parts = [_of("kernel", kernels, lens="gpu"), _of("step", marks, name="step", lens="wall")]
    parts += [_of("memory", used.drop("value"), name="allocated")]
    parts += [_of("counter", used.drop("bytes"), name="temperature")]
    return build_run("training", {"device": "H100"}, pl.concat(parts, how="diagonal"), Log())


def recording(events: int) -> Run:
    """Return a recording of our own engine's, written and read again."""
    with tempfile.TemporaryDirectory(prefix="views-bench-") as folder:
        path = Path(folder) / "prof.jsonl"
        native.write(path, events)
        return load(path, cache=False)[0]


def chrome(events: int) -> Run:
    """Return a trace as torch writes it, with host, launches and shapes."""
    with tempfile.TemporaryDirectory(prefix="views-bench-") as folder:
        path = Path(folder) / "trace.json"
        _chrome_maker.write(path, events * MB_AN_EVENT)
        return load(path, cache=False)[0]


SHAPES: Final[dict[str, Callable[[int], Run]]] = {
    "chrome": chrome,
    "names": many_names,
    "training": training,
    "native": recording,
    "decode": decode,
}


def changed(run: Run) -> Run:
    """Return the same run as it could have come out another time: every duration some per cent longer."""
    longer = pl.when(pl.col("dur").is_not_null()).then(pl.col("dur") + pl.col("dur") // 20 + 1)
    return Run(
        f"{run.name}, again", run.meta, run.events.with_columns(longer.alias("dur")), run.log, run.tables
    )


def _of(kind: str, rows: pl.DataFrame, **words: str) -> pl.DataFrame:
    texts = {"kind": kind, **words}
    return rows.with_columns(pl.lit(x).cast(pl.Categorical()).alias(c) for c, x in texts.items())


def _words(words: Sequence[str], which: np.ndarray) -> pl.Series:
    """Few distinct words in many places, as a categorical column."""
    distinct = pl.Series(words, dtype=pl.String).cast(pl.Categorical())
    return distinct.gather(which.astype(np.uint32))
