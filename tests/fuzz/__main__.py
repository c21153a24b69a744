"""Run the fuzzer: `python -m tests.fuzz --seconds 60 --seed 1`; exit 1 where a fault was found."""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from tests.fuzz.campaign import Campaign
from tests.fuzz.one import repeat
from tests.fuzz.tally import begun


def main() -> int:
    """Work through inputs for a time, or repeat one, and return the exit code."""
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long")
    parser.add_argument("--inputs", type=int, default=10**9, help="how many at most; each is many cases")
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same inputs")
    parser.add_argument("--jobs", type=int, default=1, help="processes beside each other")
    parser.add_argument("--no-samples", action="store_true", help="what a fresh clone has, and no more")
    parser.add_argument("--out", type=Path, help="the folder of failing inputs")
    parser.add_argument("--tally", type=Path, metavar="FILE", help="the account, and where to go on from")
    parser.add_argument("--input", metavar="SEED:NUMBER", help="repeat one input in this process")
    args = parser.parse_args()
    if args.input:
        return repeat(args.input, samples=not args.no_samples)
    out = args.out or Path(tempfile.mkdtemp(prefix="fuzz-"))
    out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    tally = begun(args.tally, args.seed, args.first)
    campaign = Campaign(tally, out, samples=not args.no_samples, kept=args.tally)
    campaign.run(args.seconds, args.inputs, args.jobs)
    print(tally.table())
    if tally.faults:
        print(f"failing inputs: {out}")
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
