"""Recordings that are installed with the tool, so that every command can be tried without a profile at hand.

Both come from the bundled engine on a virtual machine with two cores of an AMD EPYC, with random weights:
`tracetui record --model smollm2-135m --steps 48 --threads 1`, the second one with `--slow ffn_down:1.4`. The
folders of that machine were replaced in the command that the header tells.
"""

from pathlib import Path
from typing import Final

from capture.errors import UsageError
from capture.nearest import did_you_mean

PREFIX: Final = "sample:"

# A sample is one file in this folder and one line in this table.
SAMPLES: Final = {
    "decode": "48 decode steps of a small model on a processor, every op of every step",
    "slowed": "the same with the op ffn_down made 1.4 times as slow, to try diff on",
}


def sample(name: str) -> Path:
    """Return the file of a sample; raise UsageError for a name that is none."""
    if name not in SAMPLES:
        todo = did_you_mean(name, SAMPLES, f"choose one of: {', '.join(SAMPLES)}")
        raise UsageError(f"no sample is called {name!r}", todo=todo)
    return Path(__file__).parent / f"{name}.jsonl.gz"


def resolved(file: str) -> str:
    """Return the path behind `sample:NAME`, and every other word as it is."""
    return str(sample(file.removeprefix(PREFIX))) if file.startswith(PREFIX) else file
