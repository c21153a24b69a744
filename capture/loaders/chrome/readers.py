"""The readers of Chrome traces, the fastest first: each gives the same `Trace`, or refuses a file.

What comes after them does not know which one it was. `compiled` takes plain JSON in any layout, `fast_scan`
what torch printed, damaged or not, and `any_json` everything.
"""

from collections.abc import Callable, Sequence
from typing import Final

from capture.loaders.chrome import any_json, compiled, fast_scan
from capture.loaders.chrome.tables import RefusedError, Trace
from capture.source import Source

Reader = Callable[[Source], Trace]
OF_DOCUMENTS: Final[tuple[Reader, ...]] = (compiled.read, fast_scan.read, any_json.read)
OF_LINES: Final[tuple[Reader, ...]] = (compiled.read_lines, any_json.read_lines)


def read(source: Source, readers: Sequence[Reader]) -> Trace:
    """Return what the first reader gives that takes the file; the last one takes every file."""
    before = source.log.freeze().as_dict()
    for reader in readers[:-1]:
        try:
            return reader(source)
        except RefusedError:
            source.log = type(source.log).of(before)
    return readers[-1](source)
