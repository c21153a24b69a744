"""Run the fuzzer: `python -m tests.fuzz --seconds 60 --seed 1`; exit 1 where a fault was found."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fuzz.campaign import Campaign
from tests.fuzz.one import repeat


def main() -> int:
    """Work through cases for a time, or repeat one, and return the exit code."""
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long")
    parser.add_argument("--cases", type=int, default=10**9, help="how many at most")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same cases")
    parser.add_argument("--workers", type=int, default=1, help="processes beside each other")
    parser.add_argument("--no-samples", action="store_true", help="what a fresh clone has, and no more")
    parser.add_argument("--out", type=Path, help="the folder of failing inputs")
    parser.add_argument("--case", metavar="SEED:NUMBER", help="repeat one case in this process")
    args = parser.parse_args()
    if args.case:
        return repeat(args.case, samples=not args.no_samples)
    out = args.out or Path(tempfile.mkdtemp(prefix="fuzz-"))
    out.mkdir(parents=True, exist_ok=True)
    campaign = Campaign(args.seed, out, samples=not args.no_samples)
    campaign.run(args.seconds, args.cases, args.workers, args.first)
    print(campaign.table())
    return 1 if campaign.faults else 0


if __name__ == "__main__":
    sys.exit(main())
