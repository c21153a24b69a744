"""Tables (plain as CSV and as JSON lines, rocprofv3, nsys stats, ncu) beside polars' own readers.

python -m tests.bench.tables [--rows N] [--rounds N]
"""

import argparse
import gc
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from statistics import median

import polars as pl

from capture.load_runs import load

AIM = 0.5  # µs a row
NAMES = [f"void cutlass::Kernel2<gemm_{i}, 128, 64>(Params)" if i % 2 else f"norm_{i}" for i in range(40)]
TRACE = (
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,Bytes (MB),Device,Ctx,Strm,Name"
)
ROCPROF = (
    '"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name",'
    '"Correlation_Id","Start_Timestamp","End_Timestamp","LDS_Block_Size","Workgroup_Size_X","Grid_Size_X"'
)
NCU = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",'
    '"Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)
METRICS = (
    ("DRAM Frequency", "Ghz"), ("Elapsed Cycles", "cycle"), ("Memory Throughput", "%"), ("Duration", "us"),
    ("Registers Per Thread", "register/thread"), ("Theoretical Occupancy", "%"), ("Waves Per SM", ""),
)  # fmt: skip


def plain(rows: int) -> Iterator[str]:
    random, t = Random(1), 0.0
    yield "name,start_us,duration_us,step,layer,stream"
    for i in range(rows):
        us = random.randint(1000, 900_000) / 1000
        yield f'"{NAMES[i % 40]}",{t:.3f},{us:.3f},{i // 400},{i % 400 // 13},{7 + i % 2}'
        t += us


def objects(rows: int) -> Iterator[str]:
    """The plain table as JSON lines."""
    headings, *lines = plain(rows)
    keys = headings.split(",")
    for line in lines:
        name, *numbers = line.removeprefix('"').rsplit(",", len(keys) - 1)
        values = (f'"{name.removesuffix(chr(34))}"', *numbers)
        yield "{" + ", ".join(f'"{key}": {value}' for key, value in zip(keys, values, strict=True)) + "}"


def rocprof(rows: int) -> Iterator[str]:
    random, t = Random(1), 10**15
    yield ROCPROF
    for i in range(rows):
        ns = random.randint(1000, 90_000)
        yield (
            f'"KERNEL_DISPATCH","Agent 4",1,0,1234,{i + 1},{i % 40},"{NAMES[i % 40]}",{i + 1},{t},{t + ns},'
            "0,256,65536"
        )
        t += ns + 500


def nsys(rows: int) -> Iterator[str]:
    random, t = Random(1), 10**9
    yield TRACE
    for i in range(rows):
        ns = random.randint(1000, 90_000)
        yield f'{t},{ns},{i},1,1,1,128,1,1,32,,NVIDIA H100 (0),1,{7 + i % 2},"{NAMES[i % 40]}"'
        t += ns + 500


def ncu(rows: int) -> Iterator[str]:
    random = Random(1)
    yield NCU
    for i in range(rows // len(METRICS)):
        for metric, unit in METRICS:
            yield (
                f'"{i}","99","python","host","{NAMES[i % 40]}","1","7","(128, 1, 1)","(64, 1, 1)","0","9.0",'
                f'"GPU Speed Of Light Throughput","{metric}","{unit}","{random.randint(1000, 90_000) / 1000}"'
            )


def tracetui(path: Path) -> int:
    return sum(run.events.height for run in load(path, cache=False))


def polars(path: Path) -> int:
    return (pl.read_ndjson if path.suffix == ".jsonl" else pl.read_csv)(path).height


def seconds(read: Callable[[Path], int], path: Path) -> float:
    gc.collect()
    began = time.perf_counter()
    read(path)
    return time.perf_counter() - began


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--rounds", type=int, default=5)
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for make in (plain, objects, rocprof, nsys, ncu):
            path = Path(folder) / f"{make.__name__}.{'jsonl' if make is objects else 'csv'}"
            path.write_text("\n".join(make(chosen.rows)) + "\n")
            took = [(seconds(tracetui, path), seconds(polars, path)) for _ in range(chosen.rounds)]
            ours, theirs = (median(times) for times in zip(*took, strict=True))
            us = ours / chosen.rows * 1e6
            print(
                f"{make.__name__:8} {chosen.rows:,} rows, {path.stat().st_size / 1e6:4.0f} MB: "
                f"{ours:6.3f} s, {us:5.2f} µs a row; polars {theirs:6.3f} s, "
                f"{ours / theirs:5.2f}x of it; {AIM} µs a row are {'held' if us <= AIM else 'missed'}"
            )
            path.unlink()


if __name__ == "__main__":
    main()
