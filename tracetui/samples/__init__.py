"""Recordings that are installed with tracetui, to try every command without a profile of your own.

Both come from the bundled engine on a virtual machine with two cores of an AMD EPYC, with random weights:
`tracetui record --model smollm2-135m --steps 48 --threads 1`, the second one with `--slow ffn_down:1.4`.
Folder names in the recorded command are replaced.
"""

from pathlib import Path
from typing import Final

from capture.errors import UsageError, suggest_nearest

SAMPLE_PREFIX: Final = "sample:"

# A sample is one file in this folder and one line in this table.
SAMPLES: Final = {
    "decode": "48 decode steps of a small model on a CPU, every op of every step",
    "slowed": "the same with the op ffn_down slowed down 1.4 times, to try diff",
}


def find_sample(name: str) -> Path:
    """Return the file of a sample; raise UsageError for an unknown name."""
    if name not in SAMPLES:
        todo = suggest_nearest(name, SAMPLES, f"choose one of: {', '.join(SAMPLES)}")
        raise UsageError(f"no sample is called {name!r}", todo=todo)
    return Path(__file__).parent / f"{name}.jsonl.gz"


def resolve_file(file: str) -> str:
    """Return the path behind `sample:NAME`, any other word unchanged; raise UsageError for an empty one."""
    if not file:  # of an unset variable; as a path it would be the current folder
        raise UsageError("an empty word names no file", todo="name one; . is the current folder")
    return str(find_sample(file.removeprefix(SAMPLE_PREFIX))) if file.startswith(SAMPLE_PREFIX) else file
