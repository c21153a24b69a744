"""Ask many files one question: each computes its contribution, wherever it is, and one answer is made."""

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from os.path import commonprefix
from types import MappingProxyType
from typing import Final

import polars as pl

from capture.errors import UnreadableError, UsageError
from capture.files.addresses import mask_credentials
from capture.import_log import Log
from capture.load_runs import Bundle, Input, expand_inputs, load
from capture.merge_ranks import parse_ranks_from_names
from capture.run import Run
from tracetui import filter_syntax
from tracetui.analysis.merged.partial_results import MEMBERS, MergeTree, PartialResult
from tracetui.fleet.executors import find_executor
from tracetui.fleet.file_job import FileJob, JobResult, build_empty_events, compute_version
from tracetui.fleet.rank_hosts import Hosts, with_hosts
from tracetui.look import Look
from tracetui.views import Answer, View, ask, load_views

MAX_NAMED: Final = 5  # files, and inferences, that notes name

JobListener = Callable[[JobResult], None]


@dataclass(frozen=True, eq=False)
class FleetAnswer:
    """The answer about many files."""

    answer: Answer
    run: Run  # stands for all files: their shared metadata, without events
    faults: tuple[str, ...]  # of files that could not be read
    merged: PartialResult  # the contributions of all files


class FileResults:
    """The results of the files of a query, merged as they arrive."""

    def __init__(self, view: View, jobs: Sequence[FileJob]) -> None:
        self.view, self.jobs, self.count = view, jobs, 0
        self._tree = MergeTree(len(jobs), view.merging.shapes if view.merging else {})
        self._faults: dict[int, str] = {}

    def add(self, result: JobResult) -> None:
        """Add the result of one or several files."""
        self._tree.add(result.number, result.partial, result.count)
        self.count += result.count
        if result.partial is None:
            self._faults[result.number] = result.fault

    def merge_arrived(self) -> tuple[PartialResult, tuple[str, ...], int]:
        """Merge what has arrived: result, faults, file count. Raise UnreadableError if nothing was read."""
        merged, faults = self._tree.merge_arrived(), tuple(self._faults[i] for i in sorted(self._faults))
        if merged is None:
            message = f"none of {len(self.jobs)} files could be read"
            raise UnreadableError(message, why=faults[0] if faults else "")
        return merged, faults, self.count


def make_jobs(
    view: View, inputs: Sequence[Input], look: Look, *, cache: bool, capture: str | None
) -> list[FileJob]:
    """Make a job for each file; raise UsageError for a view whose answers cannot be merged."""
    if view.merging is None:
        names = ", ".join(v.name for v in load_views() if v.merging is not None and v.run_count == 1)
        raise UsageError(
            f"answers of the {view.name} view cannot be merged over files",
            why=view.not_merged_because or "it compares runs",
            todo=f"name one file, or ask for {names}",
        )
    places = expand_inputs(inputs)
    recordings = [tuple(map(str, each.files if isinstance(each, Bundle) else (each,))) for each in places]
    needs_ranks = view.merging.by_track or look.group == "track"
    ranks = _assign_ranks(recordings) if needs_ranks else [0] * len(recordings)
    return [
        FileJob(number, files, view.name, look, cache, capture, compute_version(), rank=rank)
        for number, (files, rank) in enumerate(zip(recordings, ranks, strict=True))
    ]


def _assign_ranks(recordings: Sequence[tuple[str, ...]]) -> Sequence[int]:
    """Assign a rank to each recording: by the names of the files, else by their order."""
    names = [files[0].rstrip("/").rpartition("/")[2] for files in recordings]
    return parse_ranks_from_names(names) or range(len(recordings))


def iter_results(jobs: Sequence[FileJob], on: str) -> Generator[JobResult, None, None]:
    """Iterate over the results of the jobs, in any order, computed on `local:N`, a Dask or a Ray cluster."""
    executor, where = find_executor(on)
    with closing(executor.run(jobs, where)) as results:  # type: ignore[type-var]
        yield from results


def ask_files(
    view: View, jobs: Sequence[FileJob], on: str, notify: JobListener, hosts: Hosts = MappingProxyType({})
) -> FleetAnswer:
    """Compute the answer of all files; `notify` gets each result. Raise UnreadableError if none was read."""
    results = FileResults(view, jobs)
    with closing(iter_results(jobs, on)) as arriving:
        for result in arriving:
            results.add(result)
            notify(result)
    return finish_answer(view, jobs, *results.merge_arrived(), hosts)


def finish_answer(
    view: View,
    jobs: Sequence[FileJob],
    merged: PartialResult,
    faults: tuple[str, ...],
    count: int,
    hosts: Hosts,
) -> FleetAnswer:
    """Make the answer from the merged results of `count` files; a single run is answered by the view."""
    members = with_hosts(merged.members, hosts)
    merged = replace(merged, frames={**merged.frames, MEMBERS: members})
    merging, look = view.merging, jobs[0].look
    if members.height == 1 and view.run_count == 1 and count == len(jobs):
        job = jobs[int(members["member"][0])]
        [run] = [run for file in job.files[:1] for run in load(file, cache=job.cache, capture=job.capture)]
        answer = ask(view, [run], look)
    else:
        run = build_stand_in_run(merged, [job.files[0] for job in jobs])
        has_data = members["lacks"].null_count() > 0
        answer = merging.finish_answer(merged, look) if merging and has_data else Answer(pl.DataFrame())
        rows = filter_syntax.filter_answer_rows(answer.rows, look, view.title.lower())
        answer = replace(answer, rows=rows)
    notes = (*_describe_coverage(count, members, faults), *answer.notes)
    return FleetAnswer(replace(answer, notes=notes), run, faults, merged)


def _describe_coverage(files: int, members: pl.DataFrame, faults: Sequence[str]) -> list[str]:
    """Describe how many files the answer covers, which were unreadable, and what the others do not report."""
    if files == 1 and not faults:
        return []
    readable, runs = files - len(faults), members.height
    notes = [f"one answer about {readable:,} files" + (f" with {runs:,} runs" if runs != readable else "")]
    if faults:
        more = f" (+{len(faults) - MAX_NAMED})" if len(faults) > MAX_NAMED else ""
        named = "; ".join(faults[:MAX_NAMED])
        notes.append(f"{len(faults):,} of {files:,} files could not be read: {named}{more}")
    for what, number in sorted(Counter(members["lacks"].drop_nulls()).items()):
        notes.append(f"{number:,} of {runs:,} runs do not report {what}: they are not in the answer")
    inferences = Counter(line for text in members["inferences"].drop_nulls() for line in text.splitlines())
    notes += [f"in {n:,} of {runs:,} runs: {line}" for line, n in inferences.most_common(MAX_NAMED)]
    return notes


def build_stand_in_run(merged: PartialResult, files: Sequence[str]) -> Run:
    """Build a run without events that stands for all files: their shared metadata, and losses of all."""
    members = merged.members
    formats = members["format"].unique().sort().to_list()
    source = mask_credentials(files[0])
    if len(files) > 1:
        source = f"{mask_credentials(commonprefix(list(files)))}…"  # noqa: RUF071
    log = Log(source, ", ".join(formats), int(members["read"].sum()), 0, int(members["dropped"].sum()))
    if log.dropped:
        text = f"records of {members.filter(pl.col('dropped') > 0).height} runs could not be read"
        log.note("dropped", text, count=log.dropped, severity="data_loss")
    return Run(f"{members.height} runs", merged.meta, build_empty_events(), log.freeze())
