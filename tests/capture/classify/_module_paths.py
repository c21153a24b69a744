"""Record which modules of small random models launch products, and which roles their attributes say.

`python -m tests.capture.classify._module_paths` writes the table beside this file; it needs transformers.
"""

import csv
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from capture.load_runs import load
from tests.capture.classify import _traces

TABLE = Path(__file__).with_name("module_paths.tsv")
_COUNTERS = re.compile(r"_\d+\b")


class ModulePath(NamedTuple):
    """The scope path of a product, and the role that the attributes of its modules say."""

    architecture: str
    path: str
    role: str


def read() -> list[ModulePath]:
    """Return the recorded paths."""
    with TABLE.open(encoding="utf-8", newline="") as opened:
        return [ModulePath(**row) for row in csv.DictReader(opened, delimiter="\t")]


def record(architecture: str) -> Iterator[ModulePath]:
    """Yield the products of one pass, one layer of each kind, from a real trace with modules and stacks."""
    torch = pytest.importorskip("torch")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        _traces.export(architecture, file, torch)
        (run,) = load(file, cache=False)
    rows = run.events.filter((pl.col("kind") == "kernel") & (pl.col("category") == "matmul"))
    known: dict[tuple[str, str], str] = {}
    for path in rows["path"].drop_nulls().unique(maintain_order=True).cast(pl.String):
        scopes = path.split(" / ")
        modules = [scope for scope in scopes if scope.startswith("nn.Module: ")]
        named = [scope[2:] for scope in scopes if scope.startswith("M:")]
        functions = [scope for scope in scopes if scope.startswith("F:")]
        layer, role = _traces.truth(named[-1] if named else "-", functions[-1] if functions else "")
        kind = _COUNTERS.sub("", modules[-1]) + "/" + "/".join(_COUNTERS.sub("", m) for m in modules[-4:])
        first = known.setdefault((kind, role or ""), _owner(modules))
        if role and layer >= 0 and first == _owner(modules):
            yield ModulePath(architecture, " / ".join(modules[-4:]), role)


def _owner(modules: list[str]) -> str:
    """Return the module whose children are alike: the parent of the innermost, or its parent."""
    return modules[-3] if len(modules) > 2 else ""


if __name__ == "__main__":
    with TABLE.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.writer(opened, delimiter="\t", lineterminator="\n")
        writer.writerow(ModulePath._fields)
        for architecture in _traces.ARCHITECTURES:
            writer.writerows(dict.fromkeys(record(architecture)))
