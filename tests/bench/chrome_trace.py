"""Chrome trace to kernel table: MB/s, ratios and peak memory beside other ways to the same answer.

python -m tests.bench.chrome_trace [--mb 120] [--rounds 3]
"""

import argparse
import gzip
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from capture.extensions import OFF_VARIABLE
from tests.bench._chrome_maker import write

LAYOUT_MB: Final = 60  # of a trace that is written anew in other layouts, by way of objects
OBJECTS_UP_TO_MB: Final = 300  # parsers into Python objects need seven times the file


def ours(path: Path) -> int:
    from capture.load_runs import load
    from tracetui.analysis.kernels import compute_kernel_table
    from tracetui.look import Look

    (run,) = load(path, cache=False)
    return int(compute_kernel_table(run, Look())["count"].sum())


def ours_in_python(path: Path) -> int:
    """Read without the compiled scanner."""
    os.environ[OFF_VARIABLE] = "1"
    return ours(path)


def msgspec_into_polars(path: Path) -> int:
    import msgspec
    import polars as pl

    class Event(msgspec.Struct, gc=False):
        ph: str = ""
        ts: float = 0.0
        cat: str = ""
        name: str = ""
        tid: int | str = 0
        dur: float = 0.0

    class Document(msgspec.Struct):
        traceEvents: list[Event]  # noqa: N815 - the key of the format

    text = _bytes(path)
    is_list = text.lstrip()[:1] == b"["
    events = msgspec.json.decode(text, type=list[Event] if is_list else Document)
    events = events if isinstance(events, list) else events.traceEvents
    columns = ("ph", "cat", "name", "ts", "dur")
    frame = pl.DataFrame({c: [getattr(e, c) for e in events] for c in columns})
    return _table(_select_work(frame))


def duckdb_unnest(path: Path) -> int:
    import duckdb

    with path.open("rb") as file:
        is_list = file.read(1) == b"["
    fields = "STRUCT(ph VARCHAR, cat VARCHAR, name VARCHAR, ts DOUBLE, dur DOUBLE)"
    columns = {"ph": "VARCHAR", "cat": "VARCHAR", "name": "VARCHAR", "ts": "DOUBLE", "dur": "DOUBLE"}
    size = path.stat().st_size + 1
    if is_list:
        source = f"read_json('{path}', columns={columns}, maximum_object_size={size})"
    else:
        document = f"read_json('{path}', columns={{'traceEvents': '{fields}[]'}}, maximum_object_size={size})"
        source = f"(SELECT unnest(traceEvents, recursive := true) FROM {document})"
    duckdb.sql(f"CREATE OR REPLACE TEMP TABLE events AS SELECT ph, cat, name, dur FROM {source}")
    has_kernels = duckdb.sql("SELECT 1 FROM events WHERE cat = 'kernel' LIMIT 1").fetchall()
    work = "cat = 'kernel'" if has_kernels else "ph = 'X'"
    numbers = "count(*), sum(dur), min(dur), quantile_cont(dur, [0.5, 0.95, 0.99])"
    table = duckdb.sql(f"SELECT name, {numbers} FROM events WHERE {work} GROUP BY name").fetchall()
    return int(sum(row[1] for row in table))


def polars_json(path: Path) -> int:
    import polars as pl

    event = {"ph": pl.String, "cat": pl.String, "name": pl.String, "ts": pl.Float64, "dur": pl.Float64}
    with path.open("rb") as file:
        is_list = file.read(1) == b"["
    if is_list:
        return _table(_select_work(pl.read_json(path, schema=event)))
    document = pl.read_json(path, schema={"traceEvents": pl.List(pl.Struct(event))})
    return _table(_select_work(document.explode("traceEvents").unnest("traceEvents")))


def _select_work(frame: Any) -> Any:
    """Kernels, or all complete events where there is none."""
    import polars as pl

    kernels = frame.filter(pl.col("cat") == "kernel")
    return kernels if kernels.height else frame.filter(pl.col("ph") == "X")


def orjson_objects(path: Path) -> int:
    import orjson

    return _tally(orjson.loads(_bytes(path)))


def stdlib_json(path: Path) -> int:
    return _tally(json.loads(_bytes(path)))


def hta(path: Path) -> int:
    from hta.common.trace import Trace

    trace = Trace(trace_files={0: str(path)})
    trace.parse_traces(use_multiprocessing=False)
    frame = trace.get_trace(0)
    kernels = frame[frame["stream"] >= 0].groupby("name")["dur"].agg(["count", "sum", "mean", "min", "max"])
    return int(kernels["count"].sum())


def tracelens(path: Path) -> int:
    from TraceLens import TreePerfAnalyzer

    return len(TreePerfAnalyzer.from_file(str(path)).get_df_gpu_timeline())


def _bytes(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def _table(frame: Any) -> int:
    import polars as pl

    dur = pl.col("dur")
    quantiles = [dur.quantile(q, "linear").alias(f"p{q}") for q in (0.5, 0.95, 0.99)]
    table = frame.group_by("name").agg(pl.len(), dur.sum().alias("total"), dur.min().alias("min"), *quantiles)
    return int(table["len"].sum())


def _tally(document: dict[str, Any]) -> int:
    """The kernel table with plain dictionaries."""
    durations: dict[str, list[float]] = {}
    for event in document["traceEvents"]:
        if event.get("cat") == "kernel":
            durations.setdefault(event["name"], []).append(event["dur"])
    return sum(len(found) for found in durations.values())


WAYS: Final[dict[str, Callable[[Path], int]]] = {
    "ours": ours,
    "ours, gz": ours,
    "ours, no C": ours_in_python,
    "msgspec into polars": msgspec_into_polars,
    "DuckDB": duckdb_unnest,
    "polars": polars_json,
    "orjson into objects": orjson_objects,
    "stdlib json": stdlib_json,
    "HTA": hta,
    "TraceLens": tracelens,
}
OF_REAL_TRACES: Final = ("DuckDB", "polars")
NEEDS: Final = {"DuckDB": "duckdb", "orjson into objects": "orjson", "HTA": "hta", "TraceLens": "TraceLens"}
LAYOUTS: Final[dict[str, dict[str, Any]]] = {
    "compact": {"separators": (",", ":")},
    "in one line": {},
    "indented": {"indent": 1},
}
INTO_OBJECTS: Final = ("orjson into objects", "stdlib json", "HTA", "TraceLens")


def measured(way: str, path: Path) -> dict[str, Any]:
    """Seconds and peak memory of one way in a process of its own, its imports not counted."""
    command = [sys.executable, "-m", "tests.bench.chrome_trace", "--way", way, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def one(way: str, path: Path) -> None:
    import polars as pl  # noqa: F401 - imported before the clock starts, for every way alike

    with tempfile.TemporaryDirectory() as folder:
        warm = Path(folder) / "warm.json"
        write(warm, 0.01)
        WAYS[way](warm)
    cpu, start = time.process_time(), time.perf_counter()
    kernels = WAYS[way](path)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "cpu": cpu, "peak_mb": peak, "kernels": kernels}))


def ways(megabytes: float) -> list[str]:
    usual = [w for w in WAYS if w not in OF_REAL_TRACES and is_installed(w)]
    return [w for w in usual if megabytes <= OBJECTS_UP_TO_MB or w not in INTO_OBJECTS]


def is_installed(way: str) -> bool:
    return way not in NEEDS or importlib.util.find_spec(NEEDS[way]) is not None


def compare(megabytes: float, rounds: int) -> None:
    """All ways in turn, so that a busy machine is busy for each; the best of the rounds counts."""
    with tempfile.TemporaryDirectory(prefix="chrome-bench-") as folder:
        path = Path(folder) / "trace.json"
        write(path, megabytes)
        zipped = path.with_suffix(".json.gz")
        with gzip.open(zipped, "wb", compresslevel=3) as out, path.open("rb") as raw:
            while chunk := raw.read(1 << 22):
                out.write(chunk)
        best = in_turn({w: zipped if w.endswith("gz") else path for w in ways(megabytes)}, rounds)
        report("as torch prints it", best, path.stat().st_size / 1e6)
        write(path, min(megabytes, LAYOUT_MB))
        for layout in LAYOUTS:
            other = path.with_stem(layout)
            again = [
                sys.executable,
                "-m",
                "tests.bench.chrome_trace",
                "--rewrite",
                layout,
                str(path),
                str(other),
            ]
            subprocess.run(again, check=True)  # a process of its own: the peak of a child counts from ours
            there = [w for w in ways(OBJECTS_UP_TO_MB) if not w.endswith("gz")]
            report(layout, in_turn(dict.fromkeys(there, other), rounds), other.stat().st_size / 1e6)


def rewrite(layout: str, path: Path, other: Path) -> None:
    other.write_text(json.dumps(json.loads(path.read_bytes()), **LAYOUTS[layout]))


def in_turn(files: dict[str, Path], rounds: int) -> dict[str, dict[str, Any]]:
    """The best round of each way on its file."""
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in files}
    for _ in range(rounds):
        for way, found in runs.items():
            found.append(measured(way, files[way]))
    return {way: min(found, key=lambda r: r["seconds"]) for way, found in runs.items()}


def report(layout: str, best: dict[str, dict[str, Any]], size: float) -> None:
    print(f"\n{layout}: {size:.0f} MB, {best['ours']['kernels']:,} kernels")
    print(f"{'':22}{'s':>8}{'MB/s':>8}{'cpu s':>8}{'ratio':>8}{'peak MB':>10}{'peak/file':>11}")
    for way, r in best.items():
        ratio = r["seconds"] / best["ours"]["seconds"]
        speed, share = size / r["seconds"], r["peak_mb"] * 1.048576 / size
        print(
            f"{way:22}{r['seconds']:8.3f}{speed:8.0f}{r['cpu']:8.2f}{ratio:8.2f}{r['peak_mb']:10.0f}{share:11.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, default=120)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--way", nargs=2, metavar=("WAY", "FILE"), help=argparse.SUPPRESS)
    parser.add_argument("--rewrite", nargs=3, metavar=("LAYOUT", "FILE", "FILE"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.rewrite:
        rewrite(chosen.rewrite[0], *map(Path, chosen.rewrite[1:]))
    elif chosen.way:
        one(chosen.way[0], Path(chosen.way[1]))
    else:
        compare(chosen.mb, chosen.rounds)


if __name__ == "__main__":
    main()
