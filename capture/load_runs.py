"""Load files and folders as runs: choose the loader, use the cache, group and merge ranks, select a run."""

import re
import traceback
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeGuard

from msgspec import Struct, structs
from polars.exceptions import PanicException

from capture import loaders
from capture.cache import build_entry_path, fetch, store
from capture.cache import prefetch as begin_to_fetch
from capture.clean_text import clean
from capture.device_roofs import Roof, add_floor
from capture.devices import select_device
from capture.errors import CaptureError, UnforeseenError, UnreadableError, UsageError
from capture.files import remote_files, user_dirs
from capture.files.addresses import find_list_path, is_pattern, is_url, match_local_files, parse_address_list
from capture.graphs.capture_files import is_capture, resolve_captures
from capture.import_log import Notice
from capture.loaders import Bundler, ForeignLoader, Loader
from capture.merge_ranks import are_all_ranks, merge_ranks
from capture.model_work.model_config import SEARCHED_CONFIG, ConfigChoice, has_config
from capture.native.parts import list_earlier_parts, read_first_line
from capture.run import Run
from capture.source import Source
from capture.stderr_mute import mute_stderr
from capture.unknown_input import FORMATS_HINT, build_unknown_input_error, has_lost_content, is_tar

if TYPE_CHECKING:
    from capture.run import Run

MAX_PREFETCHED_FILES: Final = 2  # more would only compete for the cores
MAX_NAMED_FILES: Final = 20  # unreadable files of a folder that a notice names
_PROFILE: Final = "profile"
_JAX_PROFILE: Final = ".xplane.pb"
_CAPTURE: Final = "capture"
_DAMAGED: Final = "damaged"
_DIGITS: Final = re.compile(r"\d+")


class Bundle(Struct, frozen=True):
    """Several files that form one recording."""

    files: tuple[Path, ...]
    bundler: Bundler

    def __str__(self) -> str:
        """Return the folder of the files."""
        return str(self.files[0].parent)


Input = str | Path | Bundle


def load(
    path: Input | Source, *, cache: bool = True, capture: str | None = None, limits: bool = True,
    config: ConfigChoice = SEARCHED_CONFIG,
) -> list[Run]:  # fmt: skip
    """Return all runs of a file, or of the files of one recording, from the cache if possible.

    `capture` is a file or folder with graph captures, or `none`; by default they are searched nearby. So is
    the model's config.json, which gives the work of kernels without shapes.
    Without `limits` an input may unpack to any size and a stream may have any length.
    Raises UnreadableError for an input that is not a profile.
    """
    if not isinstance(path, Source):
        path = _bundle_earlier_parts(path)
    if isinstance(path, Bundle):
        return _fill_work(path.bundler.load(path.files), path.files[0], config)
    source = path if isinstance(path, Source) else Source.from_path(path, limits=limits)
    source.requested_captures = None if capture is None else resolve_captures(capture)
    return _fill_work(_load_source(source, cache=cache), source.path, config)


def _fill_work(runs: list[Run], trace: Path | None, config: ConfigChoice) -> list[Run]:
    """Return the runs with the work that the config of their model gives, if there is one."""
    if not has_config(config, trace, [run.meta for run in runs]):
        return runs
    from capture.model_work.fill_work import fill_model_work  # 9 ms; few runs have a config

    return fill_model_work(runs, trace, config)


def _load_source(source: Source, *, cache: bool) -> list[Run]:
    """Return the runs of a source from the cache if possible, else parsed and stored there."""
    entry = build_entry_path(source) if cache else None
    cached = fetch(entry, source) if entry else None
    if cached and not loaders.is_outdated(cached, source.head):
        return cached
    loader = _choose_loader(source)
    runs = _parse_source(source, loader)
    if entry and not isinstance(loader, ForeignLoader):  # a new version of it may read the file differently
        store(entry, runs, source)
    return runs


def prefetch(paths: Sequence[Input], *, capture: str | None = None) -> None:
    """Start reading the cached runs of the first files in threads, while the caller is still busy.

    Errors are ignored here: loading the file raises them.
    """
    for path in paths[:MAX_PREFETCHED_FILES]:
        with suppress(CaptureError, OSError):
            if not isinstance(path, Bundle) and _is_file(path):
                source = Source.from_path(path)
                source.requested_captures = None if capture is None else resolve_captures(capture)
                entry = build_entry_path(source)
                if entry is not None:
                    begin_to_fetch(entry, source)


def _bundle_earlier_parts(path: Input) -> Input:
    """Return a native recording bundled with its earlier parts, any other path unchanged."""
    if isinstance(path, Bundle) or not str(path).endswith(".jsonl") or not _is_file(path):
        return path
    earlier = list_earlier_parts(path, read_first_line(path))
    if not earlier:
        return path
    from capture.loaders import native_parts

    return Bundle((*map(Path, earlier), Path(path)), native_parts)


def _choose_loader(source: Source) -> Loader:
    candidates = _find_loaders(source)
    if not candidates:
        raise build_unknown_input_error(source, loaders.describe_broken_loaders())
    return candidates[0]


def _find_loaders(source: Source) -> list[Loader]:
    """Find the loaders that accept a source; long names or keys before the events need a longer head."""
    if is_tar(source.head.raw):
        return []
    claims = loaders.find_loaders(source.head, source.path.suffix, source.log)
    if not claims and not source.head.is_complete and source.head.stripped_text.startswith(("{", "[")):
        source.extend_head()
        claims = loaders.find_loaders(source.head, source.path.suffix, source.log)
    return claims


def _parse_source(source: Source, loader: Loader) -> list[Run]:
    source.log.format = loader.FORMAT
    from capture.classify.name_rules import load_user_rules  # slow to import; not needed until a file is read

    if wrong := load_user_rules().problems:
        message = f"invalid lines in your own rules (see tracetui doctor); the first: {wrong[0]}"
        source.log.note("own_rules", message, count=len(wrong))
    runs = _load_with(loader, source)
    if not any(run.events.height or run.tables for run in runs):
        raise UnreadableError(f"contains no event readable as {loader.FORMAT}", where=source.label)
    return runs


def _load_with(loader: Loader, source: Source) -> list[Run]:
    """Return a loader's runs; turn its unexpected errors into UnforeseenError."""
    what = f"cannot be read as {loader.FORMAT}"
    try:
        with mute_stderr():
            return loader.load(source)
    except (CaptureError, OSError):
        raise
    except (RecursionError, MemoryError) as e:
        why = "it is nested too deeply" if isinstance(e, RecursionError) else "there is not enough memory"
        raise UnreadableError(what, where=source.label, why=why) from None
    except (Exception, PanicException) as e:
        report = user_dirs.write_crash_report("".join(traceback.format_exception(e)))
        details = f"; details are in {report}" if report else ""
        why = f"the loader was not written for its content{details}"
        todo = "please report it"
        if isinstance(loader, ForeignLoader):
            todo += f" to the authors of {loader.package}"
        raise UnforeseenError(what, where=source.label, why=why, todo=todo) from e


def load_all(
    paths: Sequence[Input],
    *,
    cache: bool = True,
    merge: bool = False,
    capture: str | None = None,
    limits: bool = True,
    device: str | None = None,
    roof: Roof | None = None,
    config: ConfigChoice = SEARCHED_CONFIG,
    client_logs: Sequence[str] = (),
    joins_ranks: bool = True,
) -> list[Run]:
    """Return all runs of all files and of all profiles in folders.

    `merge` merges the ranks of a launch into one run, as `joins_ranks` does for a folder whose files state
    that they are all ranks of one launch; `device` keeps only its rows and those of the host;
    `roof` takes the place of their own roofs; `config` is the model's; `client_logs` have the requests that
    were served meanwhile.
    """
    read = partial(load, cache=cache, capture=capture, limits=limits, config=config)
    merged: list[Run] = []
    for group in group_inputs(paths, merge=merge):
        runs = _load_group(group, read)
        is_launch = merge or (joins_ranks and _is_folder(group[0]) and are_all_ranks(runs))
        merged += merge_ranks(runs) if is_launch else runs
    if roof is not None:
        metas = ({**run.meta, "roof": add_floor(roof, run.meta).as_meta()} for run in merged)
        merged = [replace(run, meta=meta) for run, meta in zip(merged, metas, strict=True)]
    if client_logs:
        merged = _attach_logs(merged, client_logs, read)
    return merged if device is None else [select_device(run, device) for run in merged]


def _attach_logs(runs: Sequence[Run], paths: Sequence[str], read: Callable[[Input], list[Run]]) -> list[Run]:
    """Return the runs with the requests of some logs."""
    from capture.loaders.requests.request_rows import attach_requests

    return attach_requests(runs, [run for path in paths for run in read(path)])


def _load_group(paths: Sequence[Input], read: Callable[[Input], list[Run]]) -> list[Run]:
    """Return the runs of some paths; unreadable files in folders are skipped and named in the log."""
    requested = {str(path) for path in paths}
    runs: list[Run] = []
    errors: list[UnreadableError] = []
    for path in expand_inputs(paths):
        try:
            runs += read(path)
        except UnreadableError as e:
            if str(path) in requested:
                raise
            errors.append(e)
    if not runs and errors:
        raise errors[0]
    return _log_unreadable_files(runs, errors) if errors else runs


def _log_unreadable_files(runs: list[Run], errors: Sequence[UnreadableError]) -> list[Run]:
    """Return the runs with a notice about skipped files in the log of the first."""
    more = " …" if len(errors) > MAX_NAMED_FILES else ""
    others = ", ".join(e.where for e in errors[1:MAX_NAMED_FILES]) + more
    message = f"skipped an unreadable file: {errors[0]}" + (f"; also {others}" if others else "")
    notice = Notice("unreadable_file", "data_loss", len(errors), clean(message, 4000))
    log = runs[0].log
    extended = structs.replace(log, notices=(*log.notices, notice))
    return [replace(run, log=extended) if run.log is log else run for run in runs]


def group_inputs(paths: Sequence[Input], *, merge: bool) -> list[list[Input]]:
    """Return groups of paths to load together: one each, or with `merge` each folder and all files."""
    paths = expand_addresses(paths)
    if not merge:
        return [[path] for path in _replace_bundles(paths)]
    folders = [path for path in paths if _is_folder(path)]
    files = [path for path in paths if path not in folders]
    groups: list[list[Input]] = [[path] for path in folders]
    return [*groups, files] if files else groups


def expand_inputs(paths: Sequence[Input]) -> list[Input]:
    """Return the paths with folders replaced by their profiles and files of one recording by a Bundle."""
    resolved = [_resolve_baseline(path) for path in expand_addresses(paths)]
    files = [_find_profiles(path) if _is_folder(path) else [path] for path in resolved]
    return _replace_bundles(list(chain.from_iterable(files)))


def expand_addresses(paths: Sequence[Input]) -> list[Input]:
    """Return the paths with lists, patterns and remote folders replaced by their files.

    Raises UnreadableError if a pattern has no match, UsageError for an invalid list.
    """
    words = [str(path) for path in paths if not isinstance(path, Bundle)]
    if not any(is_url(word) or is_pattern(word) or word.startswith("@") for word in words):
        return list(paths)
    expanded = [[path] if isinstance(path, Bundle) else _expand_address(str(path)) for path in paths]
    return list(chain.from_iterable(expanded))


def _expand_address(word: str) -> list[Input]:
    addresses, list_path = [word], find_list_path(word)
    if list_path is not None:
        addresses = parse_address_list(Source.from_path(list_path).read_text(), list_path)
    files: list[Input] = []
    for address in addresses:
        if is_url(address):
            files += remote_files.expand_url(address)
        else:
            files += match_local_files(address) if is_pattern(address) else [address]
    return files


def _is_folder(path: Input) -> TypeGuard[str | Path]:
    return not isinstance(path, Bundle) and Path(path).is_dir()


def _replace_bundles(paths: Sequence[Input]) -> list[Input]:
    """Return the paths with the files of each recording replaced by its Bundle, at the first of them."""
    files = [Path(path) for path in paths if not isinstance(path, Bundle) and _is_file(path)]
    bundles = _find_bundles(files)
    inputs = [
        path if isinstance(path, Bundle) or is_url(path) else bundles.get(Path(path), path) for path in paths
    ]
    return [item for i, item in enumerate(inputs) if not isinstance(item, Bundle) or item not in inputs[:i]]


def _find_bundles(files: Sequence[Path]) -> dict[Path, Bundle]:
    """Return file → Bundle for the files that form a recording together."""
    groups = ((group, bundler) for bundler in loaders.find_bundlers(files) for group in bundler.find(files))
    return {file: Bundle(group, bundler) for group, bundler in groups for file in group}


def _is_file(path: str | Path) -> bool:
    return str(path) != "-" and not is_url(path) and Path(path).is_file()


def _resolve_baseline(path: Input) -> Input:
    """Return the file of `baseline:NAME`, any other path unchanged."""
    name = str(path).removeprefix("baseline:")
    return path if isinstance(path, Bundle) or name == str(path) else user_dirs.build_baseline_path(name)


def _find_profiles(folder: str | Path) -> list[Input]:
    """Return the profiles of a folder and its files that seem to be damaged ones, which cannot be read.

    Raise UnreadableError if there is no profile. Graph captures count only if there is nothing else: they
    belong to the other traces.
    """
    files = _drop_jax_copies(sorted(filter(_can_be_profile, Path(folder).rglob("*"))))
    kinds = [(path, _classify_file(path)) for path in _replace_bundles(files)]
    traces = {path for path, kind in kinds if kind == _PROFILE}
    profiles = traces or {path for path, kind in kinds if kind == _CAPTURE}
    if not profiles:
        what = f"is a folder without profiles (searched {len(files):,} files)"
        raise UnreadableError(what, where=clean(str(folder), 4096), todo=FORMATS_HINT)
    damaged = _select_damaged(kinds, profiles)
    return [path for path, _ in kinds if path in damaged or path in profiles]


def _select_damaged(kinds: Sequence[tuple[Input, str]], profiles: Collection[Input]) -> set[Input]:
    """Select the unread files whose names differ from that of a profile in numbers only, and damaged ones
    with its suffix.
    """
    files = [(Path(str(path)), kind) for path, kind in kinds if kind in (_DAMAGED, "")]
    parts = [part for path in profiles for part in (path.files if isinstance(path, Bundle) else [Path(path)])]
    names = {_blank_digits(part) for part in parts}
    suffixes = {(part.parent, _get_suffix(part)) for part in parts}
    return {
        file
        for file, kind in files
        if _blank_digits(file) in names or (kind == _DAMAGED and (file.parent, _get_suffix(file)) in suffixes)
    }


def _can_be_profile(path: Path) -> bool:
    """Whether a path is a file, or a link to nothing, that is not hidden."""
    return not path.name.startswith(".") and (path.is_file() or (path.is_symlink() and not path.exists()))


def _blank_digits(path: Path) -> str:
    """Return a path without its numbers, which is the same for the files of all ranks."""
    return _DIGITS.sub("#", str(path))


def _get_suffix(path: Path) -> str:
    """Return the suffix of a file, with the one before .gz."""
    suffix = Path(path.stem).suffix + path.suffix if path.suffix == ".gz" else path.suffix
    return _DIGITS.sub("#", suffix)


def _drop_jax_copies(files: Sequence[Path]) -> list[Path]:
    """Leave out the Chrome traces that JAX writes of a run next to its profile, HOST.xplane.pb."""
    profiles = [file for file in files if file.name.endswith(_JAX_PROFILE)]
    copies = {file.with_name(file.name.removesuffix(_JAX_PROFILE) + ".trace.json.gz") for file in profiles}
    copies |= {file.with_name("perfetto_trace.json.gz") for file in profiles}
    return [file for file in files if file not in copies]


def _classify_file(path: Input) -> str:
    """Return whether a file is a profile, a graph capture, or damaged; else an empty text."""
    if isinstance(path, Bundle):
        return _PROFILE
    try:
        source = Source.from_path(path)
        if _find_loaders(source):
            return _CAPTURE if is_capture(source.path, source.head.text) else _PROFILE
    except UnreadableError:
        return _DAMAGED
    return _DAMAGED if has_lost_content(source.head, _get_suffix(source.path)) else ""


def resolve_run_index(runs: "Sequence[Run]", which: str | None) -> int:
    """Return the index of the run named by a number from one, its name, or a part of it; 0 for None.

    Raise UsageError if no run or several runs match. A number is never matched against a part of a name.
    """
    if which is None:
        return 0
    if which.isdecimal() and 1 <= int(which) <= len(runs):
        return int(which) - 1
    places = [i for i, r in enumerate(runs) if r.name == which]
    if not places and not which.isdecimal():
        places = [i for i, r in enumerate(runs) if which.lower() in r.name.lower()]
    if len(places) == 1:
        return places[0]
    what = f"{len(places)} runs are called" if places else "no run is called"
    raise UsageError(f"{what} {which!r}", todo=f"the runs are {format_run_names(runs)}")


def format_run_names(runs: "Sequence[Run]") -> str:
    """Return the names of the runs, each with its number: 1: warm-up, 2: decode."""
    return ", ".join(f"{number}: {run.name}" for number, run in enumerate(runs, 1))
