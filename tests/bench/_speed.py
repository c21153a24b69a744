"""How fast this machine is now, beside the one on which the limits without a peer were set."""

import json
import time
from statistics import median
from typing import Final

# Seconds of the work below on the machine of the guide `benchmarks`: 0.053 where msgspec into polars reads
# 219 MB/s of a Chrome trace, of which it read 322 there.
REFERENCE: Final = 0.036
ROUNDS: Final = 9


def measure_slowness() -> float:
    """Return how many times longer fixed work takes here and now than it took there."""
    return median(_time_work() for _ in range(ROUNDS)) / REFERENCE


def _time_work() -> float:
    begun = time.perf_counter()
    rows = [
        {"name": f"kernel_{i % 97}", "ts": i * 1.25, "dur": i % 1013, "args": {"step": i // 100}}
        for i in range(20_000)
    ]
    json.loads(json.dumps(rows)).sort(key=lambda row: (row["dur"], row["ts"]))
    return time.perf_counter() - begun
