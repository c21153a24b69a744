"""Kernel names as profilers print them, with the right answers.

Identifiers are as printed. Where a name comes from a definition, and in some of the longest names, template
arguments and parameters are abbreviated; no answer rests on what was left out.
"""

import csv
from functools import cache
from pathlib import Path
from typing import NamedTuple

_FILE = Path(__file__).with_name("kernel_names.tsv")


class LabelledKernel(NamedTuple):
    """A kernel's name, what the kernel does, and where the name comes from."""

    name: str
    producer: str
    category: str
    op: str | None
    short: str | None  # None where the corpus states none
    source: str


@cache
def corpus() -> tuple[LabelledKernel, ...]:
    """Return every name of the corpus."""
    with _FILE.open(encoding="utf-8", newline="") as opened:
        rows = csv.DictReader(opened, delimiter="\t", quoting=csv.QUOTE_NONE)
        return tuple(
            LabelledKernel(
                r["name"], r["producer"], r["category"], r["op"] or None, r["short"] or None, r["source"]
            )
            for r in rows
        )
