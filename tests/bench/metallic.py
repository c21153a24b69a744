"""A metallic recording to the kernel table, beside the peers, in turn in one run.

python -m tests.bench.metallic [--events N] [--rounds N] [--file FILE]
"""

import argparse
import importlib
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import polars as pl

from capture.load_runs import load
from tests.bench._metallic_maker import Maker, write
from tracetui.look import Look
from tracetui.views import ask, load_view

SLOWEST = 60.0  # a peer that needs longer is not asked again


def tracetui(path: Path) -> int:
    (run,) = load(path, cache=False)
    return int(ask(load_view("kernels"), [run], Look()).rows["count"].sum())


def duckdb(path: Path) -> int:
    duck = importlib.import_module("duckdb")
    rows = duck.sql(f"""
        select event.data.op_name, count(*), sum(event.data.duration_us), avg(event.data.duration_us),
               min(event.data.duration_us), max(event.data.duration_us),
               quantile_cont(event.data.duration_us, [0.5, 0.95, 0.99])
        from read_ndjson('{path}', columns={{event:
             'STRUCT(type VARCHAR, data STRUCT(op_name VARCHAR, duration_us BIGINT))'}})
        where event.type = 'GpuOpCompleted' group by 1 order by 3 desc""").fetchall()
    return sum(row[1] for row in rows)


def duckdb_rows(path: Path) -> int:
    """Every row stored before it is asked, as an explorer needs it."""
    duck = importlib.import_module("duckdb").connect()
    duck.sql(f"""
        create table events as select timestamp, event.type as type, event.data as data
        from read_ndjson('{path}', columns={{timestamp: 'VARCHAR', event: 'STRUCT(type VARCHAR, data STRUCT(
             op_name VARCHAR, backend VARCHAR, duration_us BIGINT, parent_op_name VARCHAR,
             internal_kernel_name VARCHAR, data MAP(VARCHAR, VARCHAR)))'}})""")
    rows = duck.sql("""
        select data.op_name, count(*), sum(data.duration_us) from events
        where type = 'GpuOpCompleted' group by 1 order by 3 desc""").fetchall()
    return sum(row[1] for row in rows)


def polars(path: Path) -> int:
    data = pl.Struct({"op_name": pl.String, "duration_us": pl.Int64})
    us = pl.col("duration_us")
    lines = pl.scan_ndjson(path, schema={"event": pl.Struct({"type": pl.String, "data": data})})
    ops = lines.select(pl.col("event").struct.unnest()).filter(pl.col("type") == "GpuOpCompleted")
    table = ops.select(pl.col("data").struct.unnest()).group_by("op_name").agg(
        pl.len().alias("count"), us.sum().alias("total"), us.mean().alias("mean"), us.min().alias("min"),
        us.max().alias("max"), *(us.quantile(q, "linear").alias(f"p{q}") for q in (0.5, 0.95, 0.99)),
    )  # fmt: skip
    return int(table.sort("total", descending=True).collect(engine="streaming")["count"].sum())


def pandas(path: Path) -> int:
    pd = importlib.import_module("pandas")
    events = pd.json_normalize(pd.read_json(path, lines=True)["event"].tolist())
    ops = events[events["type"] == "GpuOpCompleted"]
    grouped = ops.groupby("data.op_name")["data.duration_us"]
    table = grouped.agg(["count", "sum", "mean", "min", "max"])
    grouped.quantile([0.5, 0.95, 0.99])
    return int(table["count"].sum())


PEERS: tuple[Callable[[Path], int], ...] = (tracetui, duckdb, duckdb_rows, polars, pandas)


def measure(path: Path, rounds: int, skip: set[str]) -> dict[str, tuple[float, float]]:
    """Median seconds, wall and CPU, of everyone who can be imported."""
    times: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for peer in PEERS:
            name = peer.__name__
            if name in skip or (name in times and times[name][-1][0] > SLOWEST):
                continue
            try:
                if name not in ("tracetui", "polars"):
                    importlib.import_module(name.partition("_")[0])
            except ImportError:
                continue
            wall, cpu = time.perf_counter(), time.process_time()
            peer(path)
            times.setdefault(name, []).append((time.perf_counter() - wall, time.process_time() - cpu))
    return {n: (median(t[0] for t in ts), median(t[1] for t in ts)) for n, ts in times.items()}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--events", type=int, default=180_000)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--file", type=Path)
    arguments.add_argument("--skip", nargs="*", default=[])
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = chosen.file or Path(folder) / "prof.jsonl"
        if chosen.file is None:
            write(path, Maker().lines(), chosen.events)
        size = path.stat().st_size / 1e6
        found = measure(path, chosen.rounds, set(chosen.skip))
        own = found["tracetui"]
        sys.stdout.write(f"{chosen.events:,} events, {size:.0f} MB, medians of {chosen.rounds}\n")
        for name, (wall, cpu) in found.items():
            sys.stdout.write(
                f"{name:10} {wall:8.3f} s  {size / wall:6.0f} MB/s  cpu {cpu:7.3f} s  "
                f"{wall / own[0]:6.2f}x the time, {cpu / own[1]:6.2f}x the cpu of tracetui\n"
            )


if __name__ == "__main__":
    main()
