"""One file of many: what is asked of it, and what it contributes. This is what runs beside the file."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import polars as pl

import capture
import tracetui
from capture import cache as kept
from capture.addresses import is_url, masked
from capture.errors import CaptureError
from capture.open import gather, load
from capture.ranks import on_rank_tracks, ranks, stated_rank
from capture.remote import look_up
from capture.run import Run
from capture.source import Source
from capture.text import clean
from tracetui import filters
from tracetui.analysis import steady
from tracetui.analysis.partial.algebra import MEMBERS, Partial, agreed_of, merge
from tracetui.look import Look
from tracetui.views import Merging, View, lacking, view

_META: Final = ("model", "device", "dtype", "products", "quant", "weights", "roof", "batch", "producer",
                "driver", "world_size", "bytes_per_token")  # fmt: skip


_MARKS: Final = {
    "inferred": "layers and roles are inferred from what repeats",
    "inferred_steps": "steps are inferred from what repeats",
    "captured": "kernels of graphs are told by captures",
}


@dataclass(frozen=True)
class Job:
    """A file, or the files of one recording, and the question about it."""

    number: int  # its place among all
    files: tuple[str, ...]
    view: str
    look: Look
    cache: bool = True
    capture: str | None = None
    code: str = ""  # the version of the program that asks
    side: int = 0  # of a comparison: 1 for the files that are held against the others
    rank: int = 0  # of its tracks, where the file does not say of which rank it is


@dataclass(frozen=True, eq=False)
class Done:
    """What became of a job: what the file contributes, or why it could not be read."""

    number: int
    size: int = 0  # bytes of the file, as far as known
    partial: Partial | None = None
    fault: str = ""


def do(job: Job) -> Done:
    """Read the file and return what it contributes; one that cannot be read is no error of the whole."""
    if job.code != version():
        fault = f"the worker has another version of tracetui ({version()}, not {job.code})"
        return Done(job.number, fault=fault)
    try:
        size, part = _contribution(job)
    except CaptureError as e:
        return Done(job.number, fault=masked(str(e)))
    except Exception as e:
        why = f"a fault of its own: {type(e).__name__}: {clean(str(e), 300)}"
        return Done(job.number, fault=masked(f"{job.files[0]}: {why}"))
    return Done(job.number, size, _placed(part, job))


def _contribution(job: Job) -> tuple[int, Partial]:
    """Return the size of the file and what it contributes, from the cache where it was asked before."""
    order = replace(
        job.look, sort=None, descending=True, then=(), limit=None, columns=()
    )  # nothing hangs on it
    merging, asked = view(job.view), repr((version(), job.view, order, job.capture, job.rank))
    if len(job.files) > 1:
        runs = [run for each in gather(job.files) for run in load(each, cache=job.cache)]
        return sum(Path(f).stat().st_size for f in job.files), contribution(merging, runs, job.look, job.rank)
    place, size, source = _place(job, asked)
    if place and (have := kept.fetch(place, source or job.files[0])):
        return size, Partial(dict(have[0].tables), dict(have[0].meta["agreed"]))
    source = source or Source.of(job.files[0])
    runs = load(source, cache=job.cache, capture=job.capture)
    part = contribution(merging, runs, job.look, job.rank)
    if place:
        saved = Run("part", {"agreed": dict(part.agreed)}, pl.DataFrame(), source.log.freeze(), part.frames)
        kept.store(place, [saved])
    return size, part


def _place(job: Job, asked: str) -> tuple[Path | None, int, Source | None]:
    """Return where the contribution is kept, the size of the file, and the file where it lies here."""
    [file] = job.files
    if is_url(file):
        remote = look_up(file)
        place = kept.entry_of(remote.identity, asked, remote.size or 0) if job.cache else None
        return place, remote.size or 0, None
    source = Source.of(file)
    return (kept.entry(source, asked) if job.cache else None), source.size, source


def _placed(part: Partial, job: Job) -> Partial:
    """Return what a file contributes with its place among all files, and its side."""
    places = {"member": job.number, "side": job.side}
    frames = {
        name: f.with_columns(pl.lit(v, pl.Int64).alias(c) for c, v in places.items() if c in f.columns)
        for name, f in part.frames.items()
    }
    return replace(part, frames=frames)


def contribution(asked: View, runs: Sequence[Run], look: Look, rank: int = 0) -> Partial:
    """Return what the runs of one file contribute to an answer of this view, which must be a merging one.

    Where tracks tell rows apart, they are those of the rank that a run states, else of this one.
    """
    merging = asked.merging
    if merging is None:
        raise TypeError(f"the {asked.name} view cannot be merged")
    if merging.by_track or look.group == "track":
        runs = [_on_its_rank(run, rank) for run in runs]
    whole, *rest = (_of_run(merging, run, place, look) for place, run in enumerate(runs))
    for part in rest:
        whole = merge(whole, part, merging.shapes)
    return whole


def _on_its_rank(run: Run, rank: int) -> Run:
    """Return the run with tracks of its rank; one of several ranks, or of none that counts, as it is."""
    if len(set(ranks(run).values())) > 1:
        return run
    stated = stated_rank(run)
    return replace(run, events=on_rank_tracks(run, rank if stated is None else stated, 0))


def _of_run(merging: Merging, run: Run, place: int, look: Look) -> Partial:
    if look.steady:
        run, look = steady.steady_part(run), steady.without_warm_up(look)
    lacks = lacking(merging.needs, [run])
    frames = {} if lacks else dict(merging.partial(run, filters.on_events(look)))
    members = _member(run, place, lacks)
    if MEMBERS in frames:
        members = members.hstack(frames.pop(MEMBERS))
    placed = pl.lit(place, pl.Int64).alias("run")
    frames = {n: f.with_columns(placed) if "member" in f.columns else f for n, f in frames.items()}
    return Partial({MEMBERS: members, **frames}, agreed_of(_kept(run.meta)))


def _member(run: Run, place: int, lacks: Sequence[str]) -> pl.DataFrame:
    """Return the row of a run among all that take part; its place among the files is filled in later."""
    facts = {
        "member": (pl.Int64, 0),
        "run": (pl.Int64, place),
        "source": (pl.String, run.log.source),
        "format": (pl.String, run.log.format),
        "name": (pl.String, run.name),
        "read": (pl.Int64, run.log.read),
        "dropped": (pl.Int64, run.log.dropped),
        "rank": (pl.Int64, stated_rank(run)),
        "lacks": (pl.String, " and ".join(lacks) or None),
        "told": (pl.String, "\n".join(_not_stated(run)) or None),
    }
    return pl.DataFrame({name: pl.Series([value], dtype=kind) for name, (kind, value) in facts.items()})


def _not_stated(run: Run) -> list[str]:
    """Return what a source does not state itself: what is inferred, what captures tell, and guesses."""
    marks = [words for key, words in _MARKS.items() if run.meta.get(key)]
    return [*marks, *(f"a guess: {text}" for text in run.meta.get("guess", ()))]


def _kept(meta: Mapping[str, Any]) -> dict[str, Any]:
    return {key: meta[key] for key in _META if key in meta}


def empty_events() -> pl.DataFrame:
    """Return the events of what stands for many files: none."""
    return pl.DataFrame(schema={"kind": pl.Categorical()})


@cache
def version() -> str:
    """Return what changes with any file of the program: parts of another version are not merged."""
    digest = hashlib.blake2b(digest_size=8)
    for room in (tracetui, capture):
        for path in sorted(Path(room.__file__ or "").parent.rglob("*.py")):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()
