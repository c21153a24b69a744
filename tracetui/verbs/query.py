"""`tracetui query FILE "SELECT …"`: SQL over the events and answers of a run."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Final

from capture.errors import UsageError
from capture.run import Run
from tracetui.chosen import choose
from tracetui.look import Look
from tracetui.report import FORMATS, Report
from tracetui.samples import resolved
from tracetui.verbs import _shared
from tracetui.views import Answer, View, ordered

MOST: Final = 1000  # rows of a table that a person reads


def options(parser: ArgumentParser) -> None:
    """Declare the options of the command."""
    about = "a profile, a folder, - for stdin, or sample:decode"
    parser.add_argument("files", nargs=1, type=resolved, metavar="FILE", help=about)
    about = "a query on `events`, `runs` and the views by name; without one the tables and columns are listed"
    parser.add_argument("sql", nargs="?", metavar="SELECT", help=about)
    _shared.reading_options(parser)
    _shared.merge_option(parser)
    _shared.capture_option(parser)
    _shared.run_option(parser)
    parser.add_argument("--format", choices=tuple(FORMATS), default="table", help=_shared.FORMAT)
    parser.add_argument("--limit", type=int, metavar="N", help=f"at most N rows; {MOST} of a table")
    parser.add_argument("--width", type=int, help="columns of the table")


def run(args: Namespace) -> int:
    """Print what the query answers and return the exit code."""
    from tracetui import sql

    if args.limit is not None and args.limit < 0:
        raise UsageError(f"--limit {args.limit} is no number of rows")
    runs = _shared.load(args)
    chosen = choose(runs, args.which)
    rows = sql.query(runs, chosen, args.sql) if args.sql else sql.schema(runs, chosen)
    sys.stdout.write(_written(args, Answer(rows), runs, chosen))
    return 0


def _written(args: Namespace, answer: Answer, runs: Sequence[Run], chosen: int) -> str:
    limit = args.limit
    if limit is None and args.sql and args.format in ("table", "md"):
        limit = MOST
    look = Look(limit=limit, full_names=True)
    width, cut = _shared.room(args)
    shown = View("query", "Query", lambda runs, look: answer)
    report = Report(shown, runs, runs[chosen : chosen + 1], ordered(answer, look), look, width, cut)
    return FORMATS[args.format](report)
