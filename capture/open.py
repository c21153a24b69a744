"""Opens files and folders as runs: chooses the loader, asks the cache, gathers and merges."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from capture import places
from capture.cache import entry, fetch, store
from capture.errors import UnreadableError
from capture.loaders import Loader, recognise
from capture.ranks import merged
from capture.run import Run
from capture.source import Source
from capture.text import clean
from capture.unknown import FORMATS_HINT, explain

MOST_FILES: Final = 2000


def load(path: str | Path, *, cache: bool = True) -> list[Run]:
    """All runs of one file, from the cache where its parsed form is known."""
    source = Source.of(path)
    place = entry(source) if cache else None
    known = fetch(place, source) if place else None
    if known:
        return known
    runs = _parsed(source)
    if place:
        store(place, runs, source)
    return runs


def _parsed(source: Source) -> list[Run]:
    claims = recognise(source.head)
    if not claims:
        raise explain(source)
    source.log.format = claims[0].FORMAT
    runs = _loaded(claims[0], source)
    if not any(run.events.height or run.tables for run in runs):
        raise UnreadableError(f"holds no event that could be read as {claims[0].FORMAT}", where=source.label)
    return runs


def _loaded(loader: Loader, source: Source) -> list[Run]:
    """A loader's runs; what no loader may let through becomes the one sentence here."""
    try:
        return loader.load(source)
    except (RecursionError, MemoryError) as e:
        why = "it is nested too deeply" if isinstance(e, RecursionError) else "there is not enough memory"
        raise UnreadableError(f"could not be read as {loader.FORMAT}", where=source.label, why=why) from None


def load_all(paths: Sequence[str | Path], *, cache: bool = True, merge: bool = False) -> list[Run]:
    """All runs of all files; a folder stands for its profiles, and `merge` makes one run of several ranks."""
    runs = [
        [run for path in gather(group) for run in load(path, cache=cache)]
        for group in groups(paths, merge=merge)
    ]
    return [run for group in runs for run in (merged(group) if merge else group)]


def groups(paths: Sequence[str | Path], *, merge: bool) -> list[list[str | Path]]:
    """What is opened at once: each path, or where ranks are merged each folder, and all files together."""
    if not merge:
        return [[path] for path in paths]
    files = [path for path in paths if not Path(path).is_dir()]
    return [*([path] for path in paths if path not in files), *([files] if files else [])]


def gather(paths: Sequence[str | Path]) -> list[str | Path]:
    """The files that are meant: a folder gives those of its files that a loader claims."""
    named = [_baseline(path) for path in paths]
    return [file for path in named for file in (_profiles(Path(path)) if Path(path).is_dir() else [path])]


def _baseline(path: str | Path) -> str | Path:
    """`baseline:NAME` stands for the run that is kept under this name."""
    name = str(path).removeprefix("baseline:")
    return path if name == str(path) else places.baseline(name)


def _profiles(folder: Path) -> list[Path]:
    files = sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith("."))
    found = [p for p in files[:MOST_FILES] if recognise(Source.of(p).head)]
    if not found:
        what = f"is a folder without profiles (looked into {min(len(files), MOST_FILES)} files)"
        raise UnreadableError(what, where=clean(str(folder), 4096), todo=FORMATS_HINT)
    return found
