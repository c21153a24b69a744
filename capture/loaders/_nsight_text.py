"""What the printed tables of Nsight Systems and Nsight Compute share: cells, units, names that were cut."""

import csv
from collections import Counter
from collections.abc import Sequence
from typing import Final

import polars as pl

from capture.loaders._numbers import MICROSECOND, MILLISECOND, SECOND

TIME_UNITS: Final = {
    "ns": 1, "nsec": 1, "nsecond": 1,
    "us": MICROSECOND, "µs": MICROSECOND, "usec": MICROSECOND, "usecond": MICROSECOND,
    "ms": MILLISECOND, "msec": MILLISECOND, "msecond": MILLISECOND,
    "s": SECOND, "sec": SECOND, "second": SECOND,
}  # fmt: skip
BYTE_UNITS: Final = {
    "b": 1, "byte": 1,
    "kb": 10**3, "kbyte": 10**3, "mb": 10**6, "mbyte": 10**6, "gb": 10**9, "gbyte": 10**9,
    "kib": 2**10, "mib": 2**20, "gib": 2**30,
}  # fmt: skip
ELLIPSES: Final = ("…", "...")

_CUT: Final = r"(?:…|\.\.\.)(?: \[\d+\])?$"


def number_cut_names(names: Sequence[str]) -> list[str]:
    """Return the names, with a number behind those that were cut to equal texts: they may differ."""
    cut = Counter(n for n in names if n.endswith(ELLIPSES))
    seen: Counter[str] = Counter()
    numbered = []
    for name in names:
        seen[name] += 1
        numbered.append(f"{name} [{seen[name]}]" if cut[name] > 1 else name)
    return numbered


def count_cut_names(names: pl.Series) -> int:
    return int(names.str.contains(_CUT).sum())


def csv_cells(line: str, delimiter: str) -> list[str] | None:
    """Return the cells of a CSV line, None where its quotes do not close; C++ names hold commas."""
    if '"' not in line:
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True))
    except (csv.Error, StopIteration):
        return None
