"""Checks that every format has to pass."""

from pathlib import Path

from capture.errors import UnreadableError
from capture.loaders import Loader, recognise
from capture.open import load
from capture.run import Run
from capture.source import Source


def one_claim(path: Path) -> Loader:
    """The only loader that claims a file."""
    (claim,) = recognise(Source.of(path).head)
    return claim


def same(left: list[Run], right: list[Run]) -> bool:
    """Equal runs, whatever their files are called."""
    return len(left) == len(right) and all(
        a.name == b.name
        and a.meta == b.meta
        and a.events.equals(b.events)
        and a.tables.keys() == b.tables.keys()
        and all(a.tables[k].equals(b.tables[k]) for k in a.tables)
        for a, b in zip(left, right, strict=True)
    )


def renamed(path: Path, folder: Path) -> list[Run]:
    """The runs of a copy whose name tells nothing."""
    copy = folder / "unknown"
    copy.write_bytes(path.read_bytes())
    return load(copy, cache=False)


def survives_cuts(path: Path, folder: Path, cuts: int) -> int:
    """Cuts a file at evenly spread bytes; each cut gives runs or one clear error. Returns how many opened."""
    whole, opened = path.read_bytes(), 0
    for at in range(0, len(whole), max(1, len(whole) // cuts)):
        cut = folder / "cut"
        cut.write_bytes(whole[:at])
        try:
            runs = load(cut, cache=False)
        except UnreadableError:
            continue
        assert runs
        assert all(r.log.read >= r.log.dropped >= 0 for r in runs)
        opened += 1
    return opened
