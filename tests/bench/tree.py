"""The scope tree of two million kernels: nested by time under annotations, and by stated paths.

python -m tests.bench.tree [KERNELS]
"""

import sys
import time

import numpy as np
import polars as pl

from capture.import_log import ImportLog
from capture.run import Run
from tracetui.analysis.tree import compute_tree_table
from tracetui.look import Look

NAMES, LAYERS, A_STEP = 42, 36, 555


def generated(kernels: int, *, paths: bool) -> Run:
    """Kernels that overlap on a stream, 555 a step, each step under a cover or with a stated path."""
    place = np.arange(kernels, dtype=np.int64)
    steps = kernels // A_STEP
    names = pl.Series([f"void kernel_{i}<{'float, ' * 8}{i}>" for i in range(NAMES)]).cast(pl.Categorical())
    work = pl.DataFrame({"name": names.gather(place % NAMES), "t": place * 1000, "dur": 900 + place % 300})
    work = work.with_columns(kind=pl.lit("kernel"))
    if paths:
        scopes = pl.Series([f"step / layers.{i}" for i in range(LAYERS)]).cast(pl.Categorical())
        work = work.with_columns(path=scopes.gather(place % LAYERS))
    begin = np.arange(steps, dtype=np.int64) * A_STEP * 1000
    covers = pl.DataFrame({"t": begin, "dur": np.full(steps, A_STEP * 1000, dtype=np.int64)}).with_columns(
        name=pl.lit("step").cast(pl.Categorical()), kind=pl.lit("span")
    )
    rows = pl.concat([work, covers], how="diagonal")
    words = [pl.col("kind").cast(pl.Categorical())]
    words += [pl.lit(x).cast(pl.Categorical()).alias(c) for c, x in (("lens", "gpu"), ("track", "gpu0/7"))]
    return Run("generated", {}, rows.with_columns(words).rechunk(), ImportLog())


def main(kernels: int) -> None:
    for paths in (False, True):
        run = generated(kernels, paths=paths)
        start, cpu = time.perf_counter(), time.process_time()
        table = compute_tree_table(run, Look())
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        own, work = table["self_ns"].sum(), run.events.filter(pl.col("kind") == "kernel")["dur"].sum()
        how = "stated paths" if paths else "nested by time"
        sums = "equal" if own == work else "UNEQUAL"
        print(f"{kernels:,} kernels, {how}: {table.height} scopes, {wall:.2f} s, {cpu:.2f} s CPU, {sums}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000)
