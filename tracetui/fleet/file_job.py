"""One file of a question to many: compute its contribution to the answer, in a worker process."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import polars as pl

import capture
import tracetui
from capture import cache as run_cache
from capture.clean_text import clean
from capture.dense_lookup import put_columns
from capture.errors import CaptureError
from capture.files.addresses import is_url, mask_credentials
from capture.files.remote_files import stat_remote
from capture.import_log import Log
from capture.load_runs import expand_inputs, load
from capture.merge_ranks import find_rank, map_tracks_to_ranks, move_to_rank_tracks
from capture.model_work.model_config import find_config_state
from capture.run import Run
from capture.source import Source
from tracetui import filter_syntax
from tracetui.analysis.merged.partial_results import (
    MEMBERS,
    PartialResult,
    encode_meta,
    merge_block,
    merge_results,
)
from tracetui.analysis.time import steady
from tracetui.look import Look
from tracetui.views import Merging, View, describe_missing_needs, load_view

_SHARED_META: Final = (  # keys of `Run.meta`
    *("model", "device", "dtype", "products", "quant", "weights", "roof"),
    *("batch", "producer", "driver", "world_size", "bytes_per_token"),
)
_INFERENCE_NOTES: Final = {
    "inferred": "layers and op names are guessed from what repeats",
    "inferred_steps": "steps are inferred from what repeats",
    "captured": "kernels of graphs come from captures",
}


@dataclass(frozen=True)
class FileJob:
    """A question about one file, or about the files of one recording."""

    number: int  # index among all jobs
    files: tuple[str, ...]
    view: str
    look: Look
    cache: bool = True
    capture: str | None = None
    code: str = ""  # version of the program that made the job
    side: int = 0  # of a comparison: 0 for a, 1 for b
    rank: int = 0  # assigned to its tracks if the file reports no rank


@dataclass(frozen=True, eq=False)
class JobResult:
    """The contribution of a file, or why it could not be read; or of several, all of which were read."""

    number: int  # of the first
    size: int = 0  # bytes of the files, 0 if unknown
    partial: PartialResult | None = None
    fault: str = ""
    count: int = 1  # files: a power of two, of which the number is a multiple


class _Input(NamedTuple):
    """The file of a job, as `_find_input` finds it."""

    entry: Path | None  # the cache entry of its contribution
    size: int
    source: Source | None  # if it is local


def run_job(job: FileJob, file: _Input | None = None) -> JobResult:
    """Compute the contribution of a file; an unreadable file is a fault, not an error of the query."""
    if job.code != compute_version():
        fault = f"the worker has another version of tracetui ({compute_version()}, not {job.code})"
        return JobResult(job.number, fault=fault)
    try:
        size, result = _load_result(job, file)
    except CaptureError as e:
        return JobResult(job.number, fault=mask_credentials(str(e)))
    except Exception as e:
        why = f"internal error: {type(e).__name__}: {clean(str(e), 300)}"
        return JobResult(job.number, fault=mask_credentials(f"{job.files[0]}: {why}"))
    return JobResult(job.number, size, _with_member(result, job))


def run_block(jobs: Sequence[FileJob]) -> list[JobResult]:
    """Compute the contributions of small files of one question, as one if all of them could be read.

    Such a contribution is cached as a whole: reading those of its files one by one takes three times as long.
    """
    if len(jobs) == 1:
        return [run_job(jobs[0])]
    try:
        inputs = list(map(_find_input, jobs))
    except (CaptureError, OSError):
        return list(map(run_job, jobs))
    entry, size = _build_block_entry(jobs, inputs), sum(file.size for file in inputs)
    if entry and (saved := _fetch_result(entry, jobs[0].files[0])):
        return [JobResult(jobs[0].number, size, saved, count=len(jobs))]
    results = list(map(run_job, jobs, inputs))
    partials = [result.partial for result in results if result.partial is not None]
    merging = load_view(jobs[0].view).merging
    if len(partials) < len(jobs) or merging is None:
        return results
    merged = merge_block(partials, merging.shapes)
    if entry:
        _store_result(entry, merged, Log())
    return [JobResult(jobs[0].number, size, merged, count=len(jobs))]


def _build_block_entry(jobs: Sequence[FileJob], inputs: Sequence[_Input]) -> Path | None:
    """Build the path of the cache entry of the contribution of several files; None if one has no entry."""
    stems = [file.entry.stem for file in inputs if file.entry]
    if len(stems) < len(jobs) or jobs[0].code != compute_version():
        return None
    parts = [(stem, job.number, job.side) for stem, job in zip(stems, jobs, strict=True)]
    return run_cache.build_entry_path_from_identity(repr(parts), "block")


def _fetch_result(entry: Path, file: Source | str) -> PartialResult | None:
    """Fetch a contribution from the cache, None if it is not there."""
    saved = run_cache.fetch(entry, file)
    return PartialResult(dict(saved[0].tables), dict(saved[0].meta["agreed"])) if saved else None


def _store_result(entry: Path, result: PartialResult, log: Log) -> None:
    """Store a contribution in the cache."""
    meta = {"agreed": dict(result.shared_meta)}
    run_cache.store(entry, [Run("part", meta, pl.DataFrame(), log.freeze(), result.frames)])


def _load_result(job: FileJob, file: _Input | None) -> tuple[int, PartialResult]:
    """Load the size of the file and its contribution, from the cache if the same was asked before."""
    view = load_view(job.view)
    if len(job.files) > 1:
        runs = [run for each in expand_inputs(job.files) for run in load(each, cache=job.cache)]
        size = sum(Path(file).stat().st_size for file in job.files)
        return size, compute_result(view, runs, job.look, job.rank)
    entry, size, source = file or _find_input(job)
    if entry and (saved := _fetch_result(entry, source or job.files[0])):
        return size, saved
    source = source or Source.from_path(job.files[0])
    runs = load(source, cache=job.cache, capture=job.capture)
    result = compute_result(view, runs, job.look, job.rank)
    if entry:
        _store_result(entry, result, source.log)
    return size, result


def _find_input(job: FileJob) -> _Input:
    """Find the file of a job, its size, and the cache entry of its contribution."""
    [file] = job.files
    look = replace(job.look, sort=None, descending=True, then=(), limit=None, columns=())  # no effect on it
    config = find_config_state(Path(file)) if not is_url(file) else ()
    question = repr((compute_version(), job.view, look, job.capture, job.rank, config))
    if is_url(file):
        remote = stat_remote(file)
        size = remote.size or 0
        entry = run_cache.build_entry_path_from_identity(remote.identity, question)
        return _Input(entry if job.cache else None, size, None)
    source = Source.from_path(file)
    return _Input(run_cache.build_entry_path(source, question) if job.cache else None, source.size, source)


def _with_member(result: PartialResult, job: FileJob) -> PartialResult:
    """Fill in the index of the file among all, and its side."""
    values = {"member": job.number, "side": job.side}
    frames = dict(result.frames)
    for name, frame in result.frames.items():
        present = {c: value for c, value in values.items() if c in frame.columns}
        frames[name] = put_columns(frame, *(_repeat(c, v, frame.height) for c, v in present.items()))
    return replace(result, frames=frames)


def _repeat(name: str, number: int, times: int) -> pl.Series:
    return pl.Series(name, [number], dtype=pl.Int64).new_from_index(0, times)


def compute_result(view: View, runs: Sequence[Run], look: Look, rank: int = 0) -> PartialResult:
    """Compute the contribution of the runs of one file to an answer of a view that can be merged.

    If rows are grouped by track, tracks are named by the rank that a run reports, else by `rank`.
    """
    merging = view.merging
    if merging is None:
        raise TypeError(f"the {view.name} view cannot be merged")
    if merging.by_track or look.group == "track":
        runs = [_set_rank(run, rank) for run in runs]
    merged, *rest = (_compute_run_result(view, merging, run, index, look) for index, run in enumerate(runs))
    for result in rest:
        merged = merge_results((merged, result), merging.shapes)
    return merged


def _set_rank(run: Run, rank: int) -> Run:
    """Name the tracks of a run by its reported rank, else by `rank`; leave a run of several ranks alone."""
    if len(set(map_tracks_to_ranks(run).values())) > 1:
        return run
    reported = find_rank(run)
    return run.with_events(move_to_rank_tracks(run, rank if reported is None else reported, 0))


def _compute_run_result(view: View, merging: Merging, run: Run, index: int, look: Look) -> PartialResult:
    if look.steady:
        run, look = steady.cut_to_steady(run), replace(look, steady=False)
    lacks = describe_missing_needs(view.needs if merging.needs is None else merging.needs, [run])
    frames = {} if lacks else dict(merging.compute_partial(run, filter_syntax.with_event_terms(look)))
    members = _build_member_row(run, index, lacks)
    if MEMBERS in frames:
        members = members.hstack(frames.pop(MEMBERS))
    frames = {
        n: put_columns(f, _repeat("run", index, f.height)) if "member" in f.columns else f
        for n, f in frames.items()
    }
    meta = {key: run.meta[key] for key in _SHARED_META if key in run.meta}
    return PartialResult({MEMBERS: members, **frames}, encode_meta(meta))


def _build_member_row(run: Run, index: int, lacks: Sequence[str]) -> pl.DataFrame:
    """Build the row of a run among the members; the index of its file is filled in later."""
    columns = {
        "member": (pl.Int64, 0),
        "run": (pl.Int64, index),
        "source": (pl.String, run.log.source),
        "format": (pl.String, run.log.format),
        "name": (pl.String, run.name),
        "read": (pl.Int64, run.log.read),
        "dropped": (pl.Int64, run.log.dropped),
        "rank": (pl.Int64, find_rank(run)),
        "lacks": (pl.String, " and ".join(lacks) or None),
        "inferences": (pl.String, "\n".join(_list_inferences(run)) or None),
    }
    schema = {name: dtype for name, (dtype, _) in columns.items()}
    return pl.DataFrame([tuple(value for _, value in columns.values())], schema, orient="row")


def _list_inferences(run: Run) -> list[str]:
    """List what the source does not report itself: inferences, captures and guesses."""
    notes = [note for key, note in _INFERENCE_NOTES.items() if run.meta.get(key)]
    return [*notes, *(f"a guess: {text}" for text in run.meta.get("guess", ()))]


def build_empty_events() -> pl.DataFrame:
    """Build an empty frame of events, for the run that represents many files."""
    return pl.DataFrame(schema={"kind": pl.Categorical()})


@cache
def compute_version() -> str:
    """Compute a digest of the program's source: results of different versions must not be merged."""
    digest = hashlib.blake2b(digest_size=8)
    for package in (tracetui, capture):
        for path in sorted(Path(package.__file__ or "").parent.rglob("*.py")):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()
