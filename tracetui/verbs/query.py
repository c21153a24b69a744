"""`tracetui query FILE "SELECT …"`: SQL over the events and answers of a run."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Final

from capture.errors import UsageError
from capture.run import Run
from tracetui.look import Look
from tracetui.report_formats import ReportContent, format_content
from tracetui.samples import resolve_file
from tracetui.verbs import _options
from tracetui.views import Answer, View

MAX_TABLE_ROWS: Final = 1000  # of a table for reading


def options(parser: ArgumentParser) -> None:
    about = "a profile, a folder, - for stdin, or sample:decode"
    parser.add_argument("files", nargs=1, type=resolve_file, metavar="FILE", help=about)
    about = "a query on `events`, `runs` and the views by name; without one the tables and columns are listed"
    parser.add_argument("sql", nargs="?", metavar="SELECT", help=about)
    _options.add_options(parser, *_options.READING_OPTIONS, "--merge", "--capture", "--run")
    _options.add_format_option(parser)
    about = f"show at most N rows (default for tables: {MAX_TABLE_ROWS})"
    parser.add_argument("--limit", type=int, metavar="N", help=about)
    _options.add_options(parser, "--width")


def run(args: Namespace) -> int:
    """Print the result of the query and return the exit code."""
    from capture.load_runs import resolve_run_index
    from tracetui import sql

    if args.limit is not None and args.limit < 0:
        raise UsageError(f"invalid --limit {args.limit}")
    runs = _options.load_runs(args)
    chosen = resolve_run_index(runs, args.which)
    rows = sql.execute_query(runs, chosen, args.sql) if args.sql else sql.describe_tables(runs, chosen)
    sys.stdout.write(_format_rows(args, Answer(rows), runs, chosen))
    return 0


def _format_rows(args: Namespace, answer: Answer, runs: Sequence[Run], chosen: int) -> str:
    limit = args.limit
    if limit is None and args.sql and args.format in ("table", "md"):
        limit = MAX_TABLE_ROWS
    look = Look(limit=limit, full_names=True)
    width, cut = _options.choose_width(args)
    table = View("query", "Query", lambda runs, look: answer)
    content = ReportContent(table, runs, runs[chosen : chosen + 1], answer, look, width, cut)
    return format_content(content, args.format)
