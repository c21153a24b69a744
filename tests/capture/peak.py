"""The peak memory of a process that opens one file, interpreter and libraries included."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = """
import contextlib, re, sys
from pathlib import Path
from capture.errors import UnreadableError
from capture.load_runs import load
with contextlib.suppress(UnreadableError):
    load(sys.argv[1], cache=False)
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


def peak_kib(path: Path) -> int:
    """A process of its own: what a test worker has loaded before does not count."""
    command = [sys.executable, "-c", CODE, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return int(done.stdout)
