"""`tracetui log [add|show|rm|gc]`: keep what comparisons need of each run, in one small file per run."""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from capture.errors import CaptureError, PartialError, UnreadableError, UsageError
from tracetui.samples import resolve_file
from tracetui.verbs import _options

if TYPE_CHECKING:
    import polars as pl

    from tracetui.history.git import Commit
    from tracetui.history.part_index import LogTables
    from tracetui.history.run_log import RunLog
    from tracetui.views import Answer

ACTIONS: Final = ("list", "add", "show", "rm", "gc")
LISTED_COLUMNS: Final = (
    "run", "started", "model", "batch", "phase", "step_ns", "commit", "tags", "versions", "source",
)  # fmt: skip

SHOWN_COLUMNS: Final = (
    "kind", "phase", "name", "op", "per", "steps", "launches", "median_ns", "p05_ns", "p95_ns", "value",
    "unit",
)  # fmt: skip
DESCRIBED: Final = ("model", "device", "versions", "options", "commit", "tags", "source")


def options(parser: ArgumentParser) -> None:
    about = "list (default), add files, show or rm runs, gc what killed writers left"
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="list", help=about)
    about = "profiles and folders to add; the start of a run's name to show or remove"
    parser.add_argument("files", nargs="*", metavar="FILE|RUN", help=about)
    add_log_option(parser, "--to")
    about = "word to keep with the runs added, or to list by: nightly=yes"
    parser.add_argument("--tag", action="append", default=[], metavar="KEY=VALUE", help=about)
    about = "commit of the runs (default: that of the current folder, for files younger than it)"
    parser.add_argument("--commit", metavar="REVISION", help=about)
    _options.add_options(
        parser, *_options.READING_OPTIONS, "--merge", "--filter", "--sort", "--reverse", "--limit"
    )
    _options.add_format_option(parser)
    _options.add_options(parser, "--width")


def add_log_option(parser: ArgumentParser, *aliases: str) -> None:
    """Add the option that names a log."""
    about = "folder or URL of the log, such as s3://bucket/log (default: your own)"
    parser.add_argument("--log", *aliases, dest="log", metavar="DIR", help=about)


def open_log(args: Namespace) -> "RunLog":
    """Return the log that the command line names, else the user's own."""
    from tracetui.history.run_log import RunLog, find_own_log

    return RunLog(args.log or find_own_log())


def run(args: Namespace) -> int:
    """List, add, show or remove runs; return the exit code."""
    if args.action != "add" and (args.action in ("list", "gc")) == bool(args.files):
        todo = "tracetui log list --filter WORD" if args.files else f"tracetui log {args.action} RUN…"
        raise UsageError(f"log {args.action} takes {'no' if args.files else 'a'} name of a run", todo=todo)
    actions = {"list": _list_runs, "add": _add_files, "show": _show_runs, "rm": _remove_runs, "gc": _tidy}
    return actions[args.action](args, open_log(args))


def parse_tags(words: Sequence[str]) -> dict[str, str]:
    """Parse KEY=VALUE words; raise UsageError for anything else."""
    pairs = [word.partition("=") for word in words]
    if wrong := next(
        (word for word, (key, sign, _) in zip(words, pairs, strict=True) if not key or not sign), None
    ):
        raise UsageError(f"invalid tag {wrong!r}", todo="use KEY=VALUE")
    return {key: value for key, _, value in pairs}


def _add_files(args: Namespace, log: "RunLog") -> int:
    """Add the runs of the files; a file that cannot be read is named, and the others are added."""
    if not args.files:
        raise UsageError("no file was named", todo="tracetui log add FILE…")
    files, added, present, faults = list(_expand(args)), 0, 0, []
    for number, file in enumerate(files, 1):
        try:
            new = add_file(log, file, args)
        except UnreadableError as error:
            faults.append(str(error))
            _options.print_status(str(error))
            continue
        added, present = added + sum(new), present + new.count(False)
        if len(files) > 1:
            _options.print_status(f"{number} of {len(files)} files: {added} runs added")
    again = f", {present} already there" if present else ""
    failed = f", {len(faults)} files could not be read" if faults else ""
    _options.print_status(f"{added} runs added to {log.label}{again}{failed}")
    if faults and not (added or present):
        return UnreadableError.exit_code
    return PartialError.exit_code if faults and args.strict else 0


def _expand(args: Namespace) -> Iterator[str]:
    from capture.load_runs import expand_inputs

    files = [resolve_file(file) for file in args.files]
    yield from map(str, files if args.merge else expand_inputs(files))


def add_file(log: "RunLog", file: str, args: Namespace) -> list[bool]:
    """Add the runs of a file; return for each whether it is new. Raise UnreadableError if it has no times."""
    from capture.load_runs import load_all
    from tracetui.history.part import build_part

    options = _options.build_read_options(args)
    commit, tags = _find_commit(file, getattr(args, "commit", None)), parse_tags(args.tag)
    timed = [run for run in load_all([file], **options) if run.has("dur")]
    if not timed:
        raise UnreadableError("has no times to keep", where=file)
    return [log.add(build_part(run, commit, tags))[1] for run in timed]


def keep_recordings(args: Namespace, files: Sequence[Path]) -> int:
    """Add new recordings to the log of --to-log; return 0. Raise CaptureError if that fails."""
    if args.to_log is None:
        return 0
    from tracetui.history.run_log import RunLog, find_own_log

    log = RunLog(args.to_log or find_own_log())
    plain = Namespace(no_cache=False, tag=[], commit=None)
    count = sum(sum(add_file(log, str(file), plain)) for file in files)
    _options.print_status(f"{count} runs added to {log.label}")
    return 0


def _find_commit(file: str, revision: str | None) -> "Commit | None":
    """Return the commit of the current folder, if the file is younger than it; or the one named."""
    from tracetui.history.git import find_commit

    commit = find_commit(Path.cwd(), revision or "HEAD")
    if revision is not None and commit is None:
        raise UsageError(f"no commit is called {revision!r} here", todo="git log lists them")
    if commit is None or revision is not None:
        return commit
    path = Path(file)
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC) if path.exists() else None
    return commit if written and written >= commit.time else None


def read_tables(log: "RunLog", strict: bool = False) -> "LogTables":
    """Read a log; print what cannot be read. Raise UnreadableError if nothing can, PartialError if strict."""
    from tracetui.history.part_index import read_log

    def report(count: int, total: int) -> None:
        if total > 1000:
            _options.print_status(f"reading new parts: {count:,} of {total:,}")

    tables = read_log(log, report)
    for fault in tables.faults:
        _options.print_status(fault)
    if tables.faults and not tables.runs.height:
        raise UnreadableError("no part of the log can be read", where=log.label)
    if strict and tables.faults:
        raise PartialError(f"{len(tables.faults)} parts of the log cannot be read", why="--strict was given")
    return tables


def filter_tags(runs: "pl.DataFrame", tags: Sequence[str]) -> "pl.DataFrame":
    """Return the runs that have all these tags."""
    import polars as pl

    asked_tags = parse_tags(tags).items()
    if not asked_tags:
        return runs
    has_all = [all(json.loads(text or "{}").get(k) == v for k, v in asked_tags) for text in runs["tags"]]
    return runs.filter(pl.Series(has_all, dtype=pl.Boolean))


def print_answer(args: Namespace, title: str, answer: "Answer") -> None:
    """Print an answer about a log in the requested format."""
    from tracetui.look import Look
    from tracetui.report_formats import ReportContent
    from tracetui.views import View

    view = View(title.lower(), title, lambda _runs, _look: answer)
    content = ReportContent(view, [], [], answer, Look(limit=getattr(args, "limit", None)))
    sys.stdout.write(_options.format_sorted(args, content))


def with_notes(answer: "Answer", notes: Sequence[str]) -> "Answer":
    """Return an answer with more notes after its own."""
    from dataclasses import replace

    return replace(answer, notes=(*answer.notes, *notes))


def _list_runs(args: Namespace, log: "RunLog") -> int:
    import polars as pl

    from tracetui.analysis.frames.name_filter import match_names
    from tracetui.views import Answer

    runs = filter_tags(read_tables(log, args.strict).runs, args.tag).reverse()
    if args.filter:
        text = pl.concat_str(pl.col(*LISTED_COLUMNS).cast(pl.String), separator=" ", ignore_nulls=True)
        runs = runs.filter(match_names(runs.select(text).to_series(), args.filter))
    commit = pl.col("commit").str.head(9) + pl.when("is_changed_tree").then(pl.lit("+")).otherwise(pl.lit(""))
    tags = pl.col("tags").str.replace_all(r'[{}"]', "").str.replace_all(": ", "=", literal=True)
    started = pl.col("started").dt.strftime("%Y-%m-%d %H:%M:%S")
    runs = runs.with_columns(pl.col("run").str.head(10), commit.alias("commit"), tags, started).select(
        LISTED_COLUMNS
    )
    print_answer(args, "Log", Answer(runs, (f"{runs.height} runs in {log.label}",), ("run",)))
    return 0


def _show_runs(args: Namespace, log: "RunLog") -> int:
    """Print the lines of runs."""
    import polars as pl

    from tracetui.views import Answer

    names = log.list_parts()
    for word in args.files:
        part = log.read(log.resolve(word, names))
        head = ", ".join(f"{c} {part[c][0]}" for c in DESCRIBED if part[c][0] not in (None, "{}"))
        lines = part.filter(pl.col("kind") != "step").select(SHOWN_COLUMNS)
        note = f"run {part['run'][0]}: {head}"
        print_answer(args, "Run", Answer(lines, (note,), ("kind", "phase", "name"), leading_notes=1))
    return 0


def _remove_runs(args: Namespace, log: "RunLog") -> int:
    names = log.list_parts()
    for name in [log.resolve(word, names) for word in args.files]:
        log.remove(name)
        _options.print_status(f"removed {name}")
    return 0


def _tidy(args: Namespace, log: "RunLog") -> int:
    """Remove what killed writers left, read every part again, and name those that are damaged."""
    from tracetui.history.part_index import forget_log

    removed = log.remove_leftovers()
    forget_log(log)
    try:
        tables = read_tables(log, args.strict)
    except CaptureError:
        _options.print_status(f"{removed} unfinished files removed")
        raise
    damaged = f", {len(tables.faults)} cannot be read" if tables.faults else ""
    _options.print_status(f"{removed} unfinished files removed; {tables.runs.height} runs{damaged}")
    return 0
