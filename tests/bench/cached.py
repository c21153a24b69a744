"""Seconds from the command to the first rows of a Chrome trace of 1 GB: read, and from the cache.

python -m tests.bench.cached [--mb 1000] [--rounds 5]
"""

import argparse
import os
import tempfile
from pathlib import Path
from statistics import median

from tests.bench._chrome_maker import write
from tests.bench.startup import seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cached-bench-") as folder:
        os.environ["XDG_CACHE_HOME"] = os.environ["XDG_STATE_HOME"] = folder
        path = Path(folder) / "trace.json"
        write(path, args.mb)
        opened = ["-m", "tracetui", "open", str(path), "--view", "kernels"]
        rows = "rsqrt"  # stands in the names of the table
        first = seconds(opened, rows)
        again = [seconds(opened, rows) for _ in range(args.rounds)]
        print(f"{path.stat().st_size / 1e6:,.0f} MB, median of {args.rounds}")
        print(f"first rows, read    {first:7.3f} s")
        print(f"first rows, cached  {median(again):7.3f} s")


if __name__ == "__main__":
    main()
