"""Rows, cells, units and truncated names in the printed tables of Nsight Systems and Nsight Compute."""

import csv
import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

import polars as pl

from capture.loaders._typed_cells import MICROSECOND, MILLISECOND, SECOND

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

RULE: Final = re.compile(r"^\s*-{2,}(?:\s+-{2,}){2,}\s*$")  # the dashes under a heading
_WIDE_BLANK: Final = re.compile(r"\s{2,}")
_CUT: Final = r"(?:…|\.\.\.)(?: \[\d+\])?$"


def number_cut_names(names: Sequence[str]) -> list[str]:
    """Append a number to names that were truncated to the same text: they may be different kernels."""
    cut_counts = Counter(n for n in names if n.endswith(ELLIPSES))
    seen_counts: Counter[str] = Counter()
    numbered = []
    for name in names:
        seen_counts[name] += 1
        numbered.append(f"{name} [{seen_counts[name]}]" if cut_counts[name] > 1 else name)
    return numbered


def count_cut_names(names: pl.Series) -> int:
    """Count the names that the source truncated."""
    return int(names.str.contains(_CUT).sum())


def split_csv_line(line: str, delimiter: str) -> list[str] | None:
    """Split a CSV line; None if its quotes do not close. Quotes matter: C++ names contain commas."""
    if '"' not in line:
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True))
    except (csv.Error, StopIteration):
        return None


def find_spans(rule: str) -> list[tuple[int, int]]:
    """Find where each column begins and ends, by the dashes of a rule."""
    return [match.span() for match in re.finditer("-+", rule)]


def slice_row(line: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    """Cut an aligned line into cells; the last runs on."""
    ends = [*(end for _, end in spans[:-1]), len(line)]
    return [line[start:end].strip() for (start, _), end in zip(spans, ends, strict=True)]


def split_row(line: str, spans: Sequence[tuple[int, int]]) -> list[str] | None:
    """Cut a row into cells; at wide blanks if its columns have moved, None if these do not part it either."""
    ends = [0, *(end for _, end in spans)]
    gaps = (line[end:start] for end, (start, _) in zip(ends, spans, strict=False))
    if len(line) > spans[-1][0] and not "".join(gaps).strip():
        return slice_row(line, spans)
    cells = _WIDE_BLANK.split(line.strip(), maxsplit=len(spans) - 1)
    return cells if len(cells) == len(spans) else None
