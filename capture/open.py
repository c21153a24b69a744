"""Opens files and folders as runs: chooses the loader, asks the cache, gathers and merges."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from capture import places
from capture.cache import entry, fetch, store
from capture.captures import asked, is_capture
from capture.classify.names import own_rules
from capture.errors import UnreadableError
from capture.loaders import Loader, recognise
from capture.ranks import merge_ranks
from capture.run import Run
from capture.source import Source
from capture.text import clean
from capture.unknown import FORMATS_HINT, unknown_input

MOST_FILES: Final = 2000


def load(path: str | Path, *, cache: bool = True, capture: str | None = None) -> list[Run]:
    """Return all runs of one file, from the cache where it has them; raise UnreadableError for no profile.

    `capture` is a file or folder that tells of the graphs which a trace replays, `none` for none at all;
    where it is not given, one is looked for beside the file.
    """
    source = Source.of(path)
    source.named_captures = None if capture is None else asked(capture)
    place = entry(source) if cache else None
    cached = fetch(place, source) if place else None
    if cached:
        return cached
    runs = _parse(source)
    if place:
        store(place, runs, source)
    return runs


def _parse(source: Source) -> list[Run]:
    claims = recognise(source.head, source.path.suffix)
    if not claims:
        raise unknown_input(source)
    source.log.format = claims[0].FORMAT
    if wrong := own_rules().problems:
        message = f"lines of your own rules that cannot be used (see tracetui doctor); the first: {wrong[0]}"
        source.log.note("own_rules", message, count=len(wrong))
    runs = _load_with(claims[0], source)
    if not any(run.events.height or run.tables for run in runs):
        raise UnreadableError(f"holds no event that could be read as {claims[0].FORMAT}", where=source.label)
    return runs


def _load_with(loader: Loader, source: Source) -> list[Run]:
    """Return a loader's runs; turn errors that no loader handles into an UnreadableError."""
    try:
        return loader.load(source)
    except (RecursionError, MemoryError) as e:
        why = "it is nested too deeply" if isinstance(e, RecursionError) else "there is not enough memory"
        raise UnreadableError(f"could not be read as {loader.FORMAT}", where=source.label, why=why) from None


def load_all(
    paths: Sequence[str | Path], *, cache: bool = True, merge: bool = False, capture: str | None = None
) -> list[Run]:
    """Return all runs of all files; a folder gives its profiles, `merge` makes one run of several ranks."""
    runs = [
        [run for path in gather(group) for run in load(path, cache=cache, capture=capture)]
        for group in groups(paths, merge=merge)
    ]
    return [run for group in runs for run in (merge_ranks(group) if merge else group)]


def groups(paths: Sequence[str | Path], *, merge: bool) -> list[list[str | Path]]:
    """Return the paths that are opened together: each alone; to merge ranks each folder, and all files."""
    if not merge:
        return [[path] for path in paths]
    files = [path for path in paths if not Path(path).is_dir()]
    return [*([path] for path in paths if path not in files), *([files] if files else [])]


def gather(paths: Sequence[str | Path]) -> list[str | Path]:
    """Return the files of some paths: a folder gives those of its files that a loader claims."""
    named = [_resolve_baseline(path) for path in paths]
    return [file for path in named for file in (_profiles(Path(path)) if Path(path).is_dir() else [path])]


def _resolve_baseline(path: str | Path) -> str | Path:
    """Return the file of a run that is kept under a name, for `baseline:NAME`; any other path as it is."""
    name = str(path).removeprefix("baseline:")
    return path if name == str(path) else places.baseline(name)


def _profiles(folder: Path) -> list[Path]:
    """Return the files of a folder that a loader claims; raise UnreadableError where there are none.

    Captures of graphs are left out where there is anything else: they tell of the other traces.
    """
    files = sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith("."))
    heads = {p: Source.of(p).head for p in files[:MOST_FILES]}
    profiles = [p for p, head in heads.items() if recognise(head)]
    profiles = [p for p in profiles if not is_capture(p, heads[p].text)] or profiles
    if not profiles:
        what = f"is a folder without profiles (looked into {min(len(files), MOST_FILES)} files)"
        raise UnreadableError(what, where=clean(str(folder), 4096), todo=FORMATS_HINT)
    return profiles
