"""How the trend of a log fares on real recordings, beside Otava, E-divisive and PELT; speed of a large log.

python -m tests.bench.history trend PYTHON DIR…: series drawn from recordings of equal runs in folders, one
    for each state of the host, with a planted change, a drift, an outlier, another machine or nothing; PYTHON
    is that of an environment with apache-otava and ruptures, or none. The oracle is told the row, the size,
    that there is one change, and the noise of each state of the host: so near do these recordings allow
python -m tests.bench.history pairs DIR…: series of 25 runs, one row +20 % and another −20 % from a run on
python -m tests.bench.history log [PARTS]: list, filter and open the trend of a log of so many parts

Found: a change of the planted row that is classed as its code, within one run of where it was planted;
seen: one within four runs, whatever its class. A false alarm: any row of an even series with a change
classed as code; for the others, any change of the one row that they are given.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy import stats

from capture.load_runs import load
from tracetui.history import part_index
from tracetui.history.change_points import remove_context
from tracetui.history.part import build_part
from tracetui.history.part_index import MAX_RUNS, LogTables, choose_runs, read_log
from tracetui.history.row_trends import build_series, compute_trend, estimate_noise
from tracetui.history.run_log import RunLog

SERIES = int(os.environ.get("TRACETUI_BENCH_SERIES", "200"))  # of either kind
SEED = int(os.environ.get("TRACETUI_BENCH_SEED", "1"))  # of the draws
LENGTHS = (40, 120)
CHANGES = (0.05, 0.10, 0.20)
EVEN = ("nothing", "drift", "outlier", "machine")
LEAST_SHARE = 0.01  # of the step, of a row that is planted or given to the others
MARGIN = 8  # runs on either side of a planted change
OTHERS = """\
import json, sys, warnings
warnings.filterwarnings("ignore")
import numpy as np, ruptures as rpt
from otava.analysis import compute_change_points, compute_change_points_orig
out = []
for row in json.load(sys.stdin):
    x = np.array(row)
    sd = np.median(np.abs(np.diff(x) - np.median(np.diff(x)))) / 0.6745 / np.sqrt(2) + 1e-12
    z = (x - np.median(x)) / sd
    found = {}
    for p in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8):
        found[f"otava {p:g}"] = [c.index for c in compute_change_points(row, max_pvalue=p)[0]]
    for p in (0.05, 0.01, 0.001):
        changes = compute_change_points_orig(row, max_pvalue=p, seed=1)[0]
        found[f"e-divisive {p:g}"] = [c.index for c in changes]
    for kind, pens in {"l2": (3, 6, 12, 24, 48), "rbf": (0.5, 1, 1.5, 2)}.items():
        pelt = rpt.Pelt(model=kind, min_size=3, jump=1).fit(z)
        for pen in pens:
            found[f"pelt-{kind} {pen:g}"] = pelt.predict(pen=pen * np.log(len(x)))[:-1]
    out.append(found)
json.dump(out, sys.stdout, default=int)
"""


@dataclass(frozen=True, eq=False)
class Pool(LogTables):
    """The tables of a log with the lines of its runs, which may be changed."""

    lines: pl.DataFrame
    states: tuple[str, ...] = ()  # of the host, for each run

    def read_lines(self, files: Sequence[str]) -> pl.DataFrame:
        return self.lines.filter(pl.col("file").is_in(list(files)))


def of_folder(folder: Path) -> Pool:
    """The recordings of a folder as a log, without a cache; of few, many stretches of their steps."""
    files = sorted(folder.glob("*.jsonl*"))
    with tempfile.TemporaryDirectory() as place:
        log, stretches = RunLog(place), -(-LENGTHS[1] // len(files))
        for number, file in enumerate(files):
            run = load(file)[0]
            last = int(run.events["step"].max())  # type: ignore[arg-type]
            for i in range(stretches):
                begin = 1 + i * (last // 2) // max(1, stretches - 1)
                is_within = pl.col("step").is_between(begin, begin + last // 2)
                cut = run.with_events(run.events.filter(is_within | (pl.col("kind") == "counter")))
                started = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=len(files) * i + number)
                part = build_part(cut if stretches > 1 else run)
                log.add(part.with_columns(started=pl.lit(started, part.schema["started"])))
        part_index._find_folder = lambda _: None  # type: ignore[assignment]
        tables = read_log(log)
        lines = tables.read_lines(tables.runs["file"].to_list())
        states = (folder.name,) * tables.runs.height
        return Pool(log, tables.runs, tables.faults, tables.chunks, lines, states)


def drawn(pools: Sequence[Pool], rng: np.random.Generator, count: int | None = None) -> Pool:
    """Runs of one pool, or of one and then of another: a host that changes."""
    n = count or int(rng.integers(*LENGTHS))
    first = pools[int(rng.integers(len(pools)))]
    alike = [pool for pool in pools if pool.runs["model"][0] == first.runs["model"][0]]
    second = alike[int(rng.integers(len(alike)))]
    change = int(rng.integers(0, n))
    runs: list[pl.DataFrame] = []
    lines: list[pl.DataFrame] = []
    for pool, some_runs in ((first, change), (second, n - change)):
        some = pool.runs[rng.choice(pool.runs.height, some_runs)]
        names = [f"{len(runs)}-{i}" for i in range(some_runs)]
        files = pl.DataFrame(
            {"file": some["file"], "name_here": names}, schema={"file": pl.String, "name_here": pl.String}
        )
        runs.append(some.with_columns(file=pl.Series(names, dtype=pl.String)))
        lines.append(files.join(pool.lines, on="file").drop("file").rename({"name_here": "file"}))
    began = datetime(2026, 1, 1, tzinfo=UTC)
    started = pl.Series("started", [began + timedelta(minutes=i) for i in range(n)]).cast(
        first.runs.schema["started"]
    )
    states = (*first.states[:1] * change, *second.states[:1] * (n - change))
    return replace(first, runs=pl.concat(runs).with_columns(started), lines=pl.concat(lines), states=states)


def scaled(tables: Pool, factors: Sequence[float], row: str | None = None) -> Pool:
    """The same runs with all times, or those of one row, multiplied by a factor for each run."""
    factor = pl.DataFrame({"file": tables.runs["file"], "factor": list(factors)})
    lines = tables.lines.join(factor, on="file", how="left", maintain_order="left")
    hit = pl.lit(True) if row is None else (pl.col("name") == row) & (pl.col("kind") == "row")
    times = [c for c in lines.columns if c.endswith("_ns")]
    changed = [pl.when(hit).then(pl.col(c) * pl.col("factor")).otherwise(pl.col(c)).alias(c) for c in times]
    return replace(tables, lines=lines.with_columns(changed).drop("factor"))


def large_rows(tables: Pool) -> list[str]:
    """The rows of decode with a share of LEAST_SHARE and more."""
    rows = tables.lines.filter((pl.col("kind") == "row") & (pl.col("phase") == "decode"))
    sums = rows.group_by("name").agg(pl.col("median_ns").median()).sort("name")
    return sums.filter(pl.col("median_ns") >= LEAST_SHARE * pl.col("median_ns").sum())["name"].to_list()


def even(tables: Pool, kind: str, rng: np.random.Generator) -> Pool:
    """A series in which no code changed."""
    n = tables.runs.height
    at = int(rng.integers(MARGIN, n - MARGIN))
    factors = np.ones(n)
    if kind == "drift":
        factors = np.linspace(1, 1.2, n)
    elif kind == "outlier":
        factors[at] = 3
    elif kind == "machine":
        factors[at:] = 1.15
    return scaled(tables, factors.tolist())


def values_of(tables: Pool, row: str) -> list[float]:
    lines = tables.lines.filter((pl.col("name") == row) & (pl.col("kind") == "row"))
    by_file = tables.runs.select("file").join(
        lines.filter(pl.col("phase") == "decode"), on="file", how="left"
    )
    return [float(v) for v in by_file["median_ns"].log().forward_fill().backward_fill()]


@dataclass(frozen=True, eq=False)
class State:
    """What all recordings of one state of the host say about its noise, in log time."""

    names: list[str]
    values: np.ndarray[Any, Any]  # variables × runs: quantiles of rows
    contexts: np.ndarray[Any, Any]  # of the runs, in tokens

    @classmethod
    def of(cls, tables: Pool) -> "State":
        """The state of a pool."""
        runs = choose_runs(tables.runs, "time", 10**9)[0]
        series = build_series(tables.lines, "decode", runs)
        assert series is not None
        return cls(series.names, series.quantiles, series.runs["context"].to_numpy())

    def likelihoods(self, tried: "State", row: int, size: float) -> np.ndarray[Any, Any]:
        """For each of some runs how much likelier it is, in logs, with a change of this size than without."""
        all_values = np.concatenate([self.values, tried.values], axis=-1)
        all_values = remove_context(all_values, np.concatenate([self.contexts, tried.contexts]))
        known, values = np.split(all_values, [self.values.shape[-1]], axis=-1)
        center = np.median(known, axis=-1, keepdims=True)
        noise = estimate_noise((known - center).reshape(-1, known.shape[-1]))
        own = np.tile(np.arange(len(self.names)) == row, len(self.values)) / noise.sd
        weights = np.linalg.solve(noise.correlation, own) / noise.sd
        weights /= weights @ (own * noise.sd)
        equal, levels = (weights @ (v - center).reshape(-1, v.shape[-1]) for v in (known, values))
        density = stats.gaussian_kde(equal)
        return np.asarray(np.log((density(levels - size) + 1e-9) / (density(levels) + 1e-9)))


def oracle(tables: Pool, row: str, change: float, states: dict[str, State]) -> int:
    """The likeliest place of a change of which all else is known."""
    ratio, own = np.zeros(tables.runs.height), State.of(tables)
    for name in {*tables.states}:
        state, here = states[name], np.array(tables.states) == name
        both = [n for n in state.names if n in own.names]
        at, at_own = ([names.index(n) for n in both] for names in (state.names, own.names))
        of_state = State(both, state.values[:, at], state.contexts)
        tried = State(both, own.values[:, at_own][..., here], own.contexts[here])
        ratio[here] = of_state.likelihoods(tried, both.index(row), float(np.log1p(change)))
    tail = np.cumsum(ratio[::-1])[::-1]
    return int(np.argmax(tail[MARGIN : len(tail) - MARGIN])) + MARGIN


def judged(tables: Pool) -> pl.DataFrame:
    chosen, _ = choose_runs(tables.runs, "time", MAX_RUNS)
    return compute_trend(tables, chosen).rows.filter(pl.col("p").is_not_null())


def trend(folders: Sequence[Path], python: str) -> None:
    """Print the table."""
    pools, rng, rows = [of_folder(folder) for folder in folders], np.random.default_rng(SEED), list[Any]()
    states = {pool.states[0]: State.of(pool) for pool in pools}
    likeliest: list[list[int]] = []
    seen: list[list[int]] = []
    for i in range(SERIES):
        tables = drawn(pools, rng)
        row = str(rng.choice(large_rows(tables)))
        at = int(rng.integers(MARGIN, tables.runs.height - MARGIN))
        change = CHANGES[i % len(CHANGES)]
        factors = np.where(np.arange(tables.runs.height) < at, 1.0, 1 + change)
        planted = scaled(tables, factors.tolist(), row)
        labels = choose_runs(planted.runs, "time")[0]["label"].to_list()
        changes = judged(planted).filter((pl.col("row") == row) & (pl.col("phase") == "decode"))
        places = list(map(labels.index, changes["since"]))
        classes = changes["what"].to_list()
        code = [place for place, what in zip(places, classes, strict=True) if what == "code"]
        rows.append((f"{change:.0%}", at, code, values_of(planted, row)))
        likeliest += [[oracle(planted, row, change, states)], []]
        seen += [[at] if any(abs(place - at) <= 4 for place in places) else [], []]
        kind = EVEN[i % len(EVEN)]
        flat = even(drawn(pools, rng), kind, rng)
        row = str(rng.choice(large_rows(flat)))
        alarms = judged(flat).filter(pl.col("what") == "code")["row"].to_list()
        rows.append((kind, None, alarms, values_of(flat, row)))
    methods: dict[str, list[Any]] = {
        "tracetui": [hits for _, _, hits, _ in rows], "tracetui, seen": seen, "oracle": likeliest,
    }  # fmt: skip
    if python != "none":
        series = json.dumps([values for *_, values in rows])
        done = subprocess.run(
            [python, "-c", OTHERS], input=series, capture_output=True, text=True, check=True
        )
        theirs = json.loads(done.stdout)
        methods |= {name: [result[name] for result in theirs] for name in theirs[0]}
    truth = [row[:2] for row in rows]
    for name, results in methods.items():
        print(f"{name:18}", ", ".join(_summarise(truth, results)), flush=True)
    limit = count_false(truth, methods["tracetui"])
    print(f"\nof each method the setting that finds most at no more than {limit} false alarms:")
    for family in ("tracetui", "otava", "e-divisive", "pelt-l2", "pelt-rbf"):
        alike = {name: r for name, r in methods.items() if name.split()[0] == family}
        allowed = [name for name, results in alike.items() if count_false(truth, results) <= limit]
        count, name = max(((count_right(truth, alike[name]), name) for name in allowed), default=(0, family))
        print(f"{name:18} {count} found")


def count_false(truth: Sequence[tuple[str, int | None]], results: Sequence[list[Any]]) -> int:
    """Count the even series with an alarm."""
    return sum(bool(hits) for (_, at), hits in zip(truth, results, strict=True) if at is None)


def count_right(truth: Sequence[tuple[str, int | None]], results: Sequence[list[Any]]) -> int:
    """Count the changes that are found within a run."""
    pairs = ((at, hits) for (_, at), hits in zip(truth, results, strict=True) if at is not None)
    return sum(any(abs(hit - at) <= 1 for hit in hits) for at, hits in pairs)


def _summarise(rows: Sequence[tuple[str, int | None]], results: Sequence[list[Any]]) -> Iterator[str]:
    for kind in dict.fromkeys(
        kind for kind, _ in sorted(rows, key=lambda row: (row[1] is None, row[0].zfill(9)))
    ):
        of_kind = [(at, hits) for (k, at), hits in zip(rows, results, strict=True) if k == kind]
        if of_kind[0][0] is None:
            yield f"{kind} {sum(bool(hits) for _, hits in of_kind)}/{len(of_kind)} false"
        else:
            right = sum(any(abs(hit - at) <= 1 for hit in hits) for at, hits in of_kind if at is not None)
            yield f"{kind} {right}/{len(of_kind)}"


def pairs(folders: Sequence[Path], series: int = 120) -> None:
    """Print how many of two opposite changes of rows are found, and classed as code."""
    pools, rng, count = [of_folder(folder) for folder in folders], np.random.default_rng(5), 25
    found, of_code, strays = [0] * 3, [0] * 3, 0
    for i in range(series):
        pool = pools[i % len(pools)]
        tables = drawn([pool], rng, count)
        rows = [str(row) for row in rng.choice(large_rows(tables), 2, replace=False)]
        at = int(rng.integers(MARGIN, count - MARGIN))
        for row, factor in zip(rows, (1.2, 0.8), strict=True):
            tables = scaled(tables, np.where(np.arange(count) < at, 1.0, factor).tolist(), row)
        labels = choose_runs(tables.runs, "time")[0]["label"].to_list()
        changes = judged(tables).filter(pl.col("phase") == "decode").to_dicts()
        near = [c for c in changes if abs(labels.index(c["since"]) - at) <= 1]
        found[len({c["row"] for c in near}.intersection(rows))] += 1
        code = {c["row"] for c in near if c["what"] == "code"}
        of_code[len(code.intersection(rows))] += 1
        strays += any(c["what"] == "code" and c["row"] not in (*rows, "step") for c in changes)
    print(
        f"{series} series: none, one, both rows found {found}, as code {of_code}; {strays} with another row"
    )


def large_log(count: int) -> None:
    """Print how long a log of so many parts takes, at first and afterwards."""
    from tests.tracetui.runs import decode

    part = build_part(decode())
    with tempfile.TemporaryDirectory() as place:
        log, began = RunLog(f"{place}/log"), datetime(2020, 1, 1, tzinfo=UTC)
        Path(log.address).mkdir()
        for i in range(count):
            started = began + timedelta(minutes=10 * i)
            name = f"{started:%Y%m%dT%H%M%S}-{i:020x}.parquet"
            one = part.with_columns(run=pl.lit(f"{i:020x}"), started=pl.lit(started, part.schema["started"]))
            one.write_parquet(Path(log.address) / name)
        size = sum(p.stat().st_size for p in Path(log.address).iterdir())
        print(f"{count:,} parts, {size / count / 1000:.1f} kB each")
        for what in ("first reading", "list", "list again"):
            start, own = time.perf_counter(), time.process_time()
            tables = read_log(log)
            took = f"{time.perf_counter() - start:.2f} s ({time.process_time() - own:.2f} s of the processor)"
            print(f"{what}: {took} for {tables.runs.height:,} runs", flush=True)
        chunks = [(c.stat().st_size, part_index._name_lines(c).stat().st_size) for c in tables.chunks]
        print(
            f"read: {sum(runs for runs, _ in chunks):,} bytes of runs, {chunks[-1][1]:,} of the newest lines"
        )
        start = time.perf_counter()
        month = tables.runs.filter(pl.col("started") > pl.lit(began + timedelta(minutes=10 * (count - 400))))
        print(f"filter: {time.perf_counter() - start:.2f} s, {month.height} runs")
        start, own = time.perf_counter(), time.process_time()
        tables = read_log(log)
        chosen, _ = choose_runs(tables.runs, "time")
        answer = compute_trend(tables, chosen)
        seconds = time.perf_counter() - start
        own = time.process_time() - own
        print(f"trend of the last {chosen.height}: {seconds:.2f} s ({own:.2f} s of the processor)")
        print(f"{answer.rows.height} rows")


if __name__ == "__main__":
    if sys.argv[1:2] == ["trend"]:
        trend([Path(word) for word in sys.argv[3:]], sys.argv[2])
    elif sys.argv[1:2] == ["pairs"]:
        pairs([Path(word) for word in sys.argv[2:]])
    else:
        large_log(int(sys.argv[2]) if len(sys.argv) > 2 else 100_000)
