"""One case again: in this process, to be looked at, or shrunk in one of its own."""

import os
import sys
import tempfile
from pathlib import Path

from tests.fuzz.inputs import Inputs
from tests.fuzz.shrink import shrunk


def repeat(name: str, *, samples: bool) -> int:
    """Run one case without limits, print how it ended, and return 1 where that is a fault."""
    seed, number = (int(part) for part in name.split(":"))
    inputs = Inputs(seed, samples=samples)
    with tempfile.TemporaryDirectory() as folder:
        begun, content = inputs.made(number)
        outcome = inputs.examined(number, begun, content, Path(folder))
    print(
        f"case {name}: {begun.name} ({begun.loader}, {begun.kind}), {len(content):,} bytes: {outcome.ended}"
    )
    if outcome.ended == "fault":
        print(f"{outcome.place}\n{outcome.details}")
    return int(outcome.ended == "fault")


def shrink(seed: int, number: int, place: str, out: Path, *, samples: bool) -> bytes:
    """Return the smallest input found that shows the fault of a case at the same place."""
    inputs = Inputs(seed, samples=samples)
    begun, content = inputs.made(number)
    with tempfile.TemporaryDirectory() as folder:

        def shows(smaller: bytes) -> bool:
            return inputs.examined(number, begun, smaller, Path(folder)).place == place

        return shrunk(content, shows) if shows(content) else content


if __name__ == "__main__":
    words = sys.argv[1:]
    os.environ["POLARS_MAX_THREADS"] = "1"
    target = Path(words[3])
    target.write_bytes(shrink(int(words[0]), int(words[1]), words[2], target, samples=words[4] == "1"))
