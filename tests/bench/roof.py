"""The roof: how far ten measurements lie apart, and what a slow reader beside a run does to times and shares.

    python -m tests.bench.roof [--times 10] [--model qwen2.5-0.5b] [--seconds 60]

The second part records an engine; for the middle third of the time a process beside it reads memory in a
loop. Each third is set against the readings of its own time, by the ops that stream weights; in 20 s there
are so few readings that luck moves a share by a tenth. Run it on a machine that does nothing else.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl

from capture.load_runs import load
from capture.run import Run
from engines.host.measure_roofs import FULL_READ_S, BandwidthProbe, compute_sustained_rate
from tracetui.analysis import roofline

READER = "import torch; torch.set_num_threads(1); field = torch.ones(1 << 27)\nwhile True: field.sum()"
STREAMING = ("attn.qkv", "attn.out", "mlp.gate_up", "mlp.down", "lm_head")
SETTLE_NS = 3_000_000_000  # after the reader came or went


def measured(times: int) -> None:
    passes = (BandwidthProbe(huge_pages=True).measure_passes(FULL_READ_S) for _ in range(times))
    rates = [compute_sustained_rate(each) / 1e9 for each in passes]
    apart = max(rates) / min(rates) - 1
    print(f"{times} measurements: {min(rates):.1f} to {max(rates):.1f} GB/s, {100 * apart:.1f} % apart")


def recorded(model: str, seconds: float, path: Path) -> tuple[Run, list[tuple[int, int]]]:
    """A recording, and when each third of it began and ended."""
    options = ["--model", model, "--weights", "random", "--capacity", "32000", "--out", str(path)]
    engine = subprocess.Popen([sys.executable, "-m", "engines", *options], stdin=subprocess.PIPE)
    thirds = []
    try:
        while not path.exists() or b'"phase":"decode"' not in path.read_bytes():
            time.sleep(0.1)
        for third in range(3):
            reader = subprocess.Popen([sys.executable, "-c", READER]) if third == 1 else None
            begun = time.perf_counter_ns() + SETTLE_NS
            time.sleep(seconds)
            thirds.append((begun, time.perf_counter_ns()))
            if reader:
                reader.kill()
                reader.wait()
    finally:
        engine.send_signal(signal.SIGTERM)
        engine.wait()
    (run,) = load(path, cache=False)
    return run, thirds


def told(run: Run, thirds: list[tuple[int, int]]) -> None:
    """Print time and share of the roof of the ops that stream weights, third by third."""
    rows = run.events.filter((pl.col("phase") == "decode") & pl.col("op").cast(pl.String).is_in(STREAMING))
    read = roofline.select_bandwidth_samples(run)
    found = []
    for begin, end in thirds:
        inside = rows.filter(pl.col("t") >= begin, pl.col("t") < end)
        near = read.filter(pl.col("t") >= begin, pl.col("t") < end)["value"]
        if near.is_empty() or inside.is_empty():
            raise SystemExit("a third of the time has no reading or no step: give it more --seconds")
        rate = float(inside["bytes"].sum()) / float(inside["dur"].sum())
        roof = len(near) / float((1 / near).sum()) / 1e9
        found.append(rate / roof)
        print(f"  {rate:6.1f} GB/s of {roof:6.1f}, read {len(near)} times: share {100 * rate / roof:5.1f} %")
    print(f"with the reader the share is {found[1] / ((found[0] + found[2]) / 2):.3f} of that without")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--model", default="qwen2.5-0.5b")
    parser.add_argument("--seconds", type=float, default=60)
    args = parser.parse_args()
    measured(args.times)
    with tempfile.TemporaryDirectory() as folder:
        told(*recorded(args.model, args.seconds, Path(folder) / "prof.jsonl"))


if __name__ == "__main__":
    main()
