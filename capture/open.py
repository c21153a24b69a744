"""Opens files and folders as runs: chooses the loader, asks the cache, gathers and merges."""

import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, TypeGuard

from msgspec import Struct
from polars.exceptions import PanicException

from capture import places, remote
from capture.addresses import is_pattern, is_url, list_file, listed, local_matches
from capture.cache import begin as begin_to_fetch
from capture.cache import entry, fetch, store
from capture.captures import asked, is_capture
from capture.devices import of_device
from capture.errors import CaptureError, UnforeseenError, UnreadableError
from capture.importlog import Notice
from capture.loaders import Bundler, Loader, bundlers, recognise
from capture.native.parts import earlier_parts, first_line
from capture.ranks import merge_ranks
from capture.run import Run
from capture.source import Source
from capture.text import clean
from capture.unheard import unheard
from capture.unknown import FORMATS_HINT, unknown_input

AHEAD: Final = 2  # files that are read from the cache before they are asked for
NAMED: Final = 20  # files that cannot be read are named, of one folder
_PROFILE: Final = "profile"
_CAPTURE: Final = "capture"


class Bundle(Struct, frozen=True):
    """Several files that are one recording."""

    files: tuple[Path, ...]
    bundler: Bundler

    def __str__(self) -> str:
        """Return the folder that the files lie in."""
        return str(self.files[0].parent)


Input = str | Path | Bundle


def load(
    path: Input | Source, *, cache: bool = True, capture: str | None = None, limits: bool = True
) -> list[Run]:
    """Return all runs of one file, from the cache where it has them, or of files that are one recording.

    `capture` is a file or folder that tells of the graphs which a trace replays, `none` for none at all;
    where it is not given, one is looked for beside the file. Without `limits` an input may unpack to any
    size, and a stream may be of any length. Raises UnreadableError for what is no profile.
    """
    if not isinstance(path, Source):
        path = _with_earlier_parts(path)
    if isinstance(path, Bundle):
        return path.bundler.load(path.files)
    source = path if isinstance(path, Source) else Source.of(path, limits=limits)
    source.named_captures = None if capture is None else asked(capture)
    place = entry(source) if cache else None
    cached = fetch(place, source) if place else None
    if cached:
        return cached
    runs = _parse(source)
    if place:
        store(place, runs, source)
    return runs


def begin(paths: Sequence[Input], *, capture: str | None = None) -> None:
    """Begin to read what the cache has of files, in threads, while whoever loads them next is still busy.

    More than AHEAD would only be in each other's way. What is wrong with one is told when it is loaded.
    """
    for path in paths[:AHEAD]:
        with suppress(CaptureError, OSError):
            if not isinstance(path, Bundle) and _is_file(path):
                source = Source.of(path)
                source.named_captures = None if capture is None else asked(capture)
                place = entry(source)
                if place is not None:
                    begin_to_fetch(place, source)


def _with_earlier_parts(path: Input) -> Input:
    """Return a native recording with the parts that came before; any other path as it is."""
    if isinstance(path, Bundle) or not str(path).endswith(".jsonl") or not _is_file(path):
        return path
    earlier = earlier_parts(path, first_line(path))
    if not earlier:
        return path
    from capture.loaders import native_parts

    return Bundle((*map(Path, earlier), Path(path)), native_parts)


def _parse(source: Source) -> list[Run]:
    claims = recognise(source.head, source.path.suffix)
    if not claims:
        raise unknown_input(source)
    source.log.format = claims[0].FORMAT
    from capture.classify.names import own_rules  # no screen needs rules of names before it reads

    if wrong := own_rules().problems:
        message = f"lines of your own rules that cannot be used (see tracetui doctor); the first: {wrong[0]}"
        source.log.note("own_rules", message, count=len(wrong))
    runs = _load_with(claims[0], source)
    if not any(run.events.height or run.tables for run in runs):
        raise UnreadableError(f"holds no event that could be read as {claims[0].FORMAT}", where=source.label)
    return runs


def _load_with(loader: Loader, source: Source) -> list[Run]:
    """Return a loader's runs; turn errors that no loader handles into an UnreadableError."""
    what = f"could not be read as {loader.FORMAT}"
    try:
        with unheard():
            return loader.load(source)
    except (CaptureError, OSError):
        raise
    except (RecursionError, MemoryError) as e:
        why = "it is nested too deeply" if isinstance(e, RecursionError) else "there is not enough memory"
        raise UnreadableError(what, where=source.label, why=why) from None
    except (Exception, PanicException) as e:
        place = places.crash_file("".join(traceback.format_exception(e)))
        details = f"; the details are in {place}" if place else ""
        why = f"it holds what the loader was not written for{details}"
        raise UnforeseenError(what, where=source.label, why=why, todo="please report it") from e


def load_all(
    paths: Sequence[Input],
    *,
    cache: bool = True,
    merge: bool = False,
    capture: str | None = None,
    limits: bool = True,
    device: str | None = None,
) -> list[Run]:
    """Return all runs of all files; a folder gives its profiles, `merge` makes one run of several ranks, and
    of a `device` only its own rows and those of the host are left.
    """
    read = partial(load, cache=cache, capture=capture, limits=limits)
    runs = [_runs_of(group, read) for group in groups(paths, merge=merge)]
    whole = [run for group in runs for run in (merge_ranks(group) if merge else group)]
    return whole if device is None else [of_device(run, device) for run in whole]


def _runs_of(paths: Sequence[Input], read: Callable[[Input], list[Run]]) -> list[Run]:
    """Return the runs of some paths; a file of a folder that cannot be read costs itself, and the log of the
    first run names it.
    """
    named = {str(path) for path in paths}
    runs: list[Run] = []
    lost: list[UnreadableError] = []
    for path in gather(paths):
        try:
            runs += read(path)
        except UnreadableError as e:
            if str(path) in named:
                raise
            lost.append(e)
    if not runs and lost:
        raise lost[0]
    return _with_lost(runs, lost) if lost else runs


def _with_lost(runs: list[Run], lost: Sequence[UnreadableError]) -> list[Run]:
    """Return the runs; the log of the first names the files beside it that could not be read."""
    others = ", ".join(e.where for e in lost[1:NAMED]) + (" …" if len(lost) > NAMED else "")
    message = f"left out, for it cannot be read: {lost[0]}" + (f"; likewise {others}" if others else "")
    notice = Notice("unreadable_file", "data_loss", len(lost), clean(message, 4000))
    log = runs[0].log
    told = replace(log, notices=(*log.notices, notice))
    return [replace(run, log=told) if run.log is log else run for run in runs]


def groups(paths: Sequence[Input], *, merge: bool) -> list[list[Input]]:
    """Return the paths that are opened together: each alone; to merge ranks each folder, and all files."""
    paths = expanded(paths)
    if not merge:
        return [[path] for path in _bundled(paths)]
    folders = [path for path in paths if _is_folder(path)]
    files = [path for path in paths if path not in folders]
    alone: list[list[Input]] = [[path] for path in folders]
    return [*alone, *([files] if files else [])]


def gather(paths: Sequence[Input]) -> list[Input]:
    """Return the files of some paths: a folder gives those of its files that a loader claims.

    Files that are one recording are one of them.
    """
    named = [_resolve_baseline(path) for path in expanded(paths)]
    return _bundled([file for path in named for file in (_profiles(path) if _is_folder(path) else [path])])


def expanded(paths: Sequence[Input]) -> list[Input]:
    """Return what lists, patterns and folders behind URLs stand for, in their places; the rest as it is.

    Raises UnreadableError where a pattern fits nothing, UsageError where a list cannot be used.
    """
    words = [str(path) for path in paths if not isinstance(path, Bundle)]
    if not any(is_url(word) or is_pattern(word) or word.startswith("@") for word in words):
        return list(paths)
    out: list[Input] = []
    for path in paths:
        out += [path] if isinstance(path, Bundle) else _expanded(str(path))
    return out


def _expanded(word: str) -> list[Input]:
    place = list_file(word)
    named = [word] if place is None else listed(Source.of(place).text(), place)
    out: list[Input] = []
    for each in named:
        if is_url(each):
            out += remote.expand(each)
        else:
            out += local_matches(each) if is_pattern(each) else [each]
    return out


def _is_folder(path: Input) -> TypeGuard[str | Path]:
    return not isinstance(path, Bundle) and Path(path).is_dir()


def _bundled(paths: Sequence[Input]) -> list[Input]:
    """Return the paths with those that are one recording as one, in the place of the first."""
    files = [Path(path) for path in paths if isinstance(path, str | Path) and _is_file(path)]
    bundles = _bundles(files)
    inputs = [
        path if isinstance(path, Bundle) or is_url(path) else bundles.get(Path(path), path) for path in paths
    ]
    return [each for at, each in enumerate(inputs) if not isinstance(each, Bundle) or each not in inputs[:at]]


def _bundles(files: Sequence[Path]) -> dict[Path, Bundle]:
    """Return file → the recording that it is a part of, for files that are not one alone."""
    found = [Bundle(group, bundler) for bundler in bundlers(files) for group in bundler.find(files)]
    return {file: bundle for bundle in found for file in bundle.files}


def _is_file(path: str | Path) -> bool:
    return str(path) != "-" and not is_url(path) and Path(path).is_file()


def _resolve_baseline(path: Input) -> Input:
    """Return the file of a run that is kept under a name, for `baseline:NAME`; any other path as it is."""
    name = str(path).removeprefix("baseline:")
    return path if isinstance(path, Bundle) or name == str(path) else places.baseline(name)


def _profiles(folder: str | Path) -> list[Input]:
    """Return the files of a folder that a loader claims; raise UnreadableError where there are none.

    Captures of graphs are left out where there is anything else: they tell of the other traces.
    """
    found = sorted(p for p in Path(folder).rglob("*") if p.is_file() and not p.name.startswith("."))
    kinds = [(path, _kind(path)) for path in _bundled(found)]
    traces = [path for path, kind in kinds if kind == _PROFILE]
    profiles = traces or [path for path, kind in kinds if kind == _CAPTURE]
    if not profiles:
        what = f"is a folder without profiles (looked into {len(found):,} files)"
        raise UnreadableError(what, where=clean(str(folder), 4096), todo=FORMATS_HINT)
    return profiles


def _kind(path: Input) -> str:
    """Return what a file of a folder is; empty for what no loader claims."""
    if isinstance(path, Bundle):
        return _PROFILE
    head = Source.of(path).head
    if not recognise(head, Path(path).suffix):
        return ""
    return _CAPTURE if is_capture(Path(path), head.text) else _PROFILE
