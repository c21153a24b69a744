"""Measure ten releases of numpy, all of them, as the truth for replays of a bisect.

python -m tests.bench.releases measure CSV [ROUNDS]: installs each release into a folder of its own and
    measures all in turn, ROUNDS times (10), by what `bisect` itself runs and reads
python -m tests.bench.releases replay [CSV [TRIES]]: what `bisect`'s search finds in draws from it


The program samples a token of a decode step: softmax of 16,384 logits, sort, cumulative sum, threshold, draw.
A step is shorter than a slice of the scheduler, so that most steps are whole on a busy host too.
"""

import csv
import os
import platform
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np

from tracetui.history.git import Version
from tracetui.history.version_search import Measurement, VersionSearch
from tracetui.verbs._version_runs import VersionQuestion, VersionRuns

RELEASES = ("1.23.5", "1.24.4", "1.25.0", "1.25.2", "1.26.0", "1.26.4", "2.0.2", "2.1.3", "2.2.6", "2.3.5")
MEASURED = Path(__file__).parents[1] / "tracetui" / "history" / "measured_releases.csv"
ROUNDS = 10
PROGRAM = """
import os, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from tracetui import Recorder

assert np.__version__ == os.path.basename(sys.argv[1]), np.__version__
random = np.random.default_rng(0)
logits = random.standard_normal((400, 16384)).astype(np.float32)
with Recorder(model="sampler") as recorder:
    for step in range(400):
        with recorder.step(context=step), recorder.span("sample"):
            p = np.exp(logits[step] - logits[step].max())
            p /= p.sum()
            ordered = np.sort(p)[::-1]
            least = ordered[np.searchsorted(np.cumsum(ordered), 0.9)]
            p[p < least] = 0
            total = np.cumsum(p)
            int(np.searchsorted(total, random.random() * total[-1]))
"""


def measure(out: Path, rounds: int) -> None:
    """Write version and ns of every run, in the order in which they were measured."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "sampler.py").write_text(PROGRAM)
        pip = [sys.executable, "-m", "pip", "--quiet", "install", "--no-deps", "--target"]
        for name in RELEASES:
            subprocess.run([*pip, str(folder / name), f"numpy=={name}"], check=True)
        os.environ["XDG_STATE_HOME"] = place
        command = (sys.executable, "sampler.py", f"{folder}/{{}}")
        question = VersionQuestion(tuple(Version(name) for name in RELEASES), command, place, row="sample")
        runs = VersionRuns.open(question, restart=True)
        order = np.random.default_rng(0)
        for _ in range(rounds):
            for version in order.permutation(len(RELEASES)):
                run = runs.measure(int(version), None, 600)
                print(RELEASES[version], run.time_ns, run.why, flush=True)
    with out.open("w", newline="") as file:
        about = f"# numpy releases, sampling of a decode step, {platform.machine()}, {os.cpu_count()} cores"
        file.write(f"{about}, {datetime.now(UTC):%Y-%m-%d}\n")
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["release", "ns"])
        lines.writerows((RELEASES[run.version], round(run.time_ns or 0)) for run in runs.done)


def read_measured(path: Path = MEASURED) -> dict[str, list[float]]:
    """Return the ns of each release, in the order of the releases."""
    times: dict[str, list[float]] = defaultdict(list)
    with path.open() as file:
        next(file)
        for line in csv.DictReader(file):
            times[line["release"]].append(float(line["ns"]))
    return {name: times[name] for name in RELEASES}


def replay(times: Sequence[Sequence[float]], seed: int, budget: int) -> VersionSearch:
    """Return a search among drawn runs of these versions, with a budget of runs."""
    random, search = np.random.default_rng(seed), VersionSearch(len(times))
    while (version := search.choose_next()) is not None:
        time_ns = float(random.choice(times[version]))
        search.add(Measurement(version, time_ns, (len(search.log) + 1) / budget))
    return search


def print_replays(path: Path, tries: int) -> None:
    """Print what all measurements say, what the replays end with, and the same of each pair of neighbours."""
    times = read_measured(path)
    for name, values in times.items():
        print(f"{name:8} {np.median(values) / 1000:8.1f} µs, {len(values)} runs")
    half = sum(map(len, times.values())) // 2
    searches = [replay(list(times.values()), seed, half) for seed in range(tries)]
    ends = Counter((s.result.word, RELEASES[s.result.first_after]) for s in searches if s.result)
    print("all:", dict(ends), f"{np.mean([len(s.log) for s in searches]):.1f} runs, at most {half}")
    for a, b in pairwise(RELEASES):
        pairs = [replay([times[a], times[b]], seed, half) for seed in range(tries)]
        print(f"{a} to {b}:", dict(Counter(s.result.word for s in pairs if s.result)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else ROUNDS)
    else:
        print_replays(
            Path(sys.argv[2]) if len(sys.argv) > 2 else MEASURED,
            int(sys.argv[3]) if len(sys.argv) > 3 else 100,
        )
