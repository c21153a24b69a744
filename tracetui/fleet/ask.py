"""One question to many files: each is asked by itself, wherever it is computed, and one answer is made."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from os.path import commonprefix
from types import MappingProxyType
from typing import Final

import polars as pl

from capture.addresses import masked
from capture.errors import UnreadableError, UsageError
from capture.importlog import ImportLog, Log
from capture.open import Bundle, Input, gather, load
from capture.ranks import ranks_in_names
from capture.run import Run
from tracetui import filters
from tracetui.analysis.partial.algebra import MEMBERS, Partial
from tracetui.fleet.executors import executor
from tracetui.fleet.fold import Fold
from tracetui.fleet.hosts import Hosts, placed
from tracetui.fleet.job import Done, Job, empty_events, version
from tracetui.look import Look
from tracetui.views import Answer, View, ask, views

NAMED: Final = 5  # files that a note names

Tell = Callable[[Done], None]


@dataclass(frozen=True, eq=False)
class Fleet:
    """The answer of many files, what stands for all of them as a run, and the files that failed."""

    answer: Answer
    run: Run
    faults: tuple[str, ...]
    whole: Partial  # what all files contributed


def jobs_of(
    asked: View, inputs: Sequence[Input], look: Look, *, cache: bool, capture: str | None
) -> list[Job]:
    """Return a job for each file; raise UsageError for a view whose answers cannot be merged."""
    if asked.merging is None:
        names = ", ".join(v.name for v in views() if v.merging is not None and v.runs == 1)
        raise UsageError(
            f"answers of the {asked.name} view cannot be merged over files",
            why=asked.alone or "it compares runs",
            todo=f"name one file, or ask for {names}",
        )
    files = [_files(each) for each in gather(inputs)]
    numbers = _ranks(files) if asked.merging.by_track or look.group == "track" else [0] * len(files)
    return [
        Job(number, of_one, asked.name, look, cache, capture, version(), rank=rank)
        for number, (of_one, rank) in enumerate(zip(files, numbers, strict=True))
    ]


def _ranks(files: Sequence[tuple[str, ...]]) -> Sequence[int]:
    """Return the rank of each file, as its name or its place says."""
    told = ranks_in_names([of_one[0].rstrip("/").rpartition("/")[2] for of_one in files])
    return told or range(len(files))


def _files(each: Input) -> tuple[str, ...]:
    return tuple(map(str, each.files)) if isinstance(each, Bundle) else (str(each),)


def ask_fleet(
    asked: View, jobs: Sequence[Job], on: str, tell: Tell, hosts: Hosts = MappingProxyType({})
) -> Fleet:
    """Return the answer of all files; `tell` hears of each as it is done, `hosts` says where ranks ran. Raise
    UnreadableError where none could be read.
    """
    who, where = executor(on)
    fold, faults = Fold(len(jobs), asked.merging.shapes if asked.merging else {}), dict[int, str]()
    with closing(who.run(jobs, where)) as arriving:  # type: ignore[type-var]
        for done in arriving:
            fold.add(done.number, done.partial)
            tell(done)
            if done.partial is None:
                faults[done.number] = done.fault
    failed = tuple(faults[number] for number in sorted(faults))
    if fold.whole is None:
        raise UnreadableError(f"none of {len(jobs)} files could be read", why=failed[0] if failed else "")
    return finished(asked, jobs, fold.whole, failed, len(jobs), hosts)


def finished(
    asked: View, jobs: Sequence[Job], whole: Partial, faults: tuple[str, ...], done: int, hosts: Hosts
) -> Fleet:
    """Return the answer of what so many files contributed; that of a single run is the view's own."""
    members = placed(whole.members, hosts)
    whole = replace(whole, frames={**whole.frames, MEMBERS: members})
    merging, look = asked.merging, jobs[0].look
    if members.height == 1 and asked.runs == 1 and done == len(jobs):
        job = jobs[int(members["member"][0])]
        [run] = [run for file in job.files[:1] for run in load(file, cache=job.cache, capture=job.capture)]
        answer = ask(asked, [run], look)
    else:
        run = stand_in(whole, [job.files[0] for job in jobs])
        able = members["lacks"].null_count()
        answer = merging.finish(whole, look) if merging and able else Answer(pl.DataFrame())
        rows = filters.narrow(answer.rows, look, asked.title.lower())
        answer = replace(answer, rows=rows)
    return Fleet(replace(answer, notes=(*_notes(done, members, faults), *answer.notes)), run, faults, whole)


def _notes(files: int, members: pl.DataFrame, faults: Sequence[str]) -> list[str]:
    """Return of how many files the answer is, which could not be read, and what others do not tell."""
    read, runs = files - len(faults), members.height
    if files == 1 and not faults:
        return []
    of = f"{read:,} files" + (f" with {runs:,} runs" if runs != read else "")
    notes = [f"one answer about {of}"]
    if faults:
        more = f" (+{len(faults) - NAMED})" if len(faults) > NAMED else ""
        notes.append(
            f"{len(faults):,} of {files:,} files could not be read: {'; '.join(faults[:NAMED])}{more}"
        )
    for what, number in sorted(Counter(members["lacks"].drop_nulls()).items()):
        notes.append(f"{number:,} of {runs:,} runs do not tell {what}: they are not in the answer")
    told = Counter(line for text in members["told"].drop_nulls() for line in text.splitlines())
    notes += [f"in {number:,} of {runs:,} runs: {line}" for line, number in told.most_common(NAMED)]
    return notes


def stand_in(whole: Partial, files: Sequence[str]) -> Run:
    """Return a run without events that stands for all files: what they agree on, and what was lost in all."""
    members = whole.members
    formats = members["format"].unique().sort().to_list()
    source = masked(files[0]) if len(files) == 1 else f"{masked(commonprefix(list(files)))}…"  # noqa: RUF071
    log = Log(source, ", ".join(formats), int(members["read"].sum()), 0, int(members["dropped"].sum()))
    if log.dropped:
        some = members.filter(pl.col("dropped") > 0).height
        log.note(
            "dropped", f"records of {some} runs could not be kept", count=log.dropped, severity="data_loss"
        )
    frozen: ImportLog = log.freeze()
    return Run(f"{members.height} runs", whole.meta, empty_events(), frozen)
