"""One input again: in this process, to be looked at, or shrunk in one of its own."""

import os
import sys
import tempfile
from pathlib import Path

from capture.stderr_mute import allow_stderr_muting
from tests.fuzz.inputs import Inputs
from tests.fuzz.shrink import shrunk


def repeat(name: str, *, samples: bool) -> int:
    """Ask all of one input without limits, print how it ended, and return 1 where there is a fault."""
    allow_stderr_muting()  # as the command line says of itself
    seed, number = (int(part) for part in name.split(":"))
    inputs = Inputs(seed, samples=samples)
    with tempfile.TemporaryDirectory() as folder:
        begun, content = inputs.made(number)
        outcomes = list(inputs.examined(number, begun, content, Path(folder)))
    print(f"input {name}: {begun.name} ({begun.loader}, {begun.kind}), {len(content):,} bytes")
    for outcome in outcomes:
        print(f"  {outcome.answer:12}{outcome.form:10}{outcome.ended} {outcome.place}")
        if outcome.details:
            print(outcome.details)
    return int(any(outcome.ended == "fault" for outcome in outcomes))


def shrink(seed: int, number: int, place: str, *, samples: bool) -> bytes:
    """Return the smallest input found that shows the fault at the same place."""
    inputs = Inputs(seed, samples=samples)
    begun, content = inputs.made(number)
    with tempfile.TemporaryDirectory() as folder:

        def shows(smaller: bytes) -> bool:
            return any(o.place == place for o in inputs.examined(number, begun, smaller, Path(folder)))

        return shrunk(content, shows) if shows(content) else content


if __name__ == "__main__":
    words = sys.argv[1:]
    os.environ["POLARS_MAX_THREADS"] = "1"
    Path(words[3]).write_bytes(shrink(int(words[0]), int(words[1]), words[2], samples=words[4] == "1"))
