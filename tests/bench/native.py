"""The native format: reading it, keeping it in the cache, following it; beside polars' own NDJSON reader.

python -m tests.bench.native [--events N] [--rounds N]
"""

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median

import polars as pl

from capture.load_runs import load
from capture.native.emit import Emitter
from capture.native.tail import FileTail

KERNELS = 290  # of one step of gemma-3-1b
LISTS = {name: pl.List(pl.Int64) for name in ("op", "dt", "dur")}


def write(path: Path, events: int) -> None:
    rng = Random(1)
    noise = [rng.randrange(1_000, 60_000) for _ in range(1 << 16)]
    emitter = Emitter(path)
    emitter.run("gemma-3-1b", {"model": "gemma-3-1b"})
    emitter.plan(
        {"id": i, "name": f"op {i % 11}", "layer": i // 11, "lens": "gpu", "flops": [1e6, 2e3],
         "bytes": [1e6, 512], "window": 512}
        for i in range(KERNELS)
    )  # fmt: skip
    t, ops = 10**12, range(KERNELS)
    for step in range(events // KERNELS):
        at = step * 7919 % 65_000
        durations = noise[at : at + KERNELS]
        starts = []
        for duration in durations:
            starts.append(t)
            t += duration + 1_500
        emitter.columns(ops, starts, durations, step=step, phase="decode", context=17 + step)
        emitter.step(step, starts[0], t - starts[0], tokens=1, context=17 + step)
    emitter.end()


def polars_lists(path: Path) -> int:
    """The lists of the column lines alone, without checksums, names or laws."""
    lines = b"\n".join(x for x in path.read_bytes().split(b"\n") if x.startswith(b'{"kind":"columns"'))
    return pl.read_ndjson(lines, schema=LISTS).select(pl.col("dur").list.len().sum()).item()


def follow(path: Path) -> int:
    """Four polls a second of a file that grows by 20 MB/s, as fast as they can be made."""
    whole = path.read_bytes()
    grown = path.with_suffix(".grown")
    grown.write_bytes(b"")
    follower, rows = FileTail(grown), 0
    for at in range(0, len(whole), 5_000_000):
        with grown.open("ab") as file:
            file.write(whole[at : at + 5_000_000])
        follower.poll()
        rows = sum(run.events.height for run in follower.build_runs())
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        path = Path(folder) / "sample.jsonl"
        write(path, args.events)
        size = path.stat().st_size
        print(f"{args.events:,} kernel events, {size / 1e6:.0f} MB, {size / args.events:.1f} bytes an event")
        load(path)  # fills the cache
        peers: dict[str, Callable[[Path], object]] = {
            "load": lambda path: load(path, cache=False),
            "load from the cache": load,
            "follow at 20 MB/s": follow,
            "polars read_ndjson, lists only": polars_lists,
        }
        seconds: dict[str, list[float]] = {name: [] for name in peers}
        for _ in range(args.rounds):
            for name, read in peers.items():
                began = time.perf_counter()
                read(path)
                seconds[name].append(time.perf_counter() - began)
        base = median(seconds["load"])
        for name, took in seconds.items():
            s = median(took)
            speed = f"{size / s / 1e6:7.0f} MB/s {args.events / s / 1e6:6.2f} M events/s"
            print(f"{name:32} {s:7.3f} s {speed} {base / s:6.2f}×")
        print(f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
