"""`tracetui report VIEW FILE…`: any view without a terminal."""

import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from capture.errors import UsageError
from capture.nearest import did_you_mean
from tracetui import units
from tracetui.chosen import choose
from tracetui.look import Look
from tracetui.report import FORMATS, report, written
from tracetui.verbs import _fleet, _shared
from tracetui.views import View, ask, view

if TYPE_CHECKING:
    from tracetui.fleet.job import Job


def options(parser: ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("view", help="which view; `tracetui report list` names them")
    _shared.input_options(parser, "*")
    _shared.merge_option(parser)
    _shared.capture_option(parser)
    _shared.device_option(parser)
    _fleet.on_option(parser)
    _fleet.hosts_option(parser)
    _shared.look_options(parser)
    parser.add_argument("--limit", type=int, metavar="N", help="at most N rows; a cut is said")
    parser.add_argument(
        "--what-if",
        action="append",
        default=[],
        metavar="OP=CHANGE",
        help="of the fix view: what a step would take with an op changed: attn.core=-30%%, mlp.down=x0.5",
    )
    parser.add_argument("--format", choices=tuple(FORMATS), default="table", help=_shared.FORMAT)
    parser.add_argument("--width", type=int, help="columns of the table and the drawings")


def run(args: Namespace) -> int:
    """Print the view and return the exit code."""
    if args.view == "list":
        return _list()
    asked = view(args.view)
    if not args.files:
        raise UsageError("no file was named", todo=f"tracetui report {args.view} FILE")
    look = _look(args)
    _fleet.choose_file(args)
    jobs = _fleet.jobs_where_many(args, asked, look)
    if jobs is not None:
        return _of_many(args, asked, look, jobs)
    runs = _shared.load(args)
    if asked.runs == 2:
        runs, chosen = _shared.pair(runs, args.which), 0
    else:
        chosen = choose(runs, args.which)
    if look.sort:
        look = sorted_look(
            look, ask(asked, [runs[chosen]] if asked.runs == 1 else runs, look).rows, args.reverse
        )
    width, cut = _shared.room(args)
    sys.stdout.write(report(asked, runs, look, args.format, chosen=chosen, width=width, cut=cut))
    return 0


def _of_many(args: Namespace, asked: View, look: Look, jobs: "list[Job]") -> int:
    """Print one answer about many files; return the exit code."""
    fleet = _fleet.answered(args, asked, jobs)
    if look.sort:
        look = sorted_look(look, fleet.answer.rows, args.reverse)
    width, cut = _shared.room(args)
    sys.stdout.write(written(asked, fleet.run, fleet.answer, look, args.format, width=width, cut=cut))
    return 0


def _look(args: Namespace) -> Look:
    """Return the look that the options ask for; raise UsageError for changes of ops in other views."""
    look = _shared.look(args)
    if not args.what_if:
        return look
    if args.view != "fix":
        raise UsageError("--what-if is of the fix view", todo="tracetui report fix FILE --what-if OP=-30%")
    from tracetui.analysis.what_if import change_of

    return replace(look, what_if=tuple(change_of(text) for text in args.what_if))


def _list() -> int:
    from tracetui.views import views

    for v in views():
        sys.stdout.write(f"{v.name:12} {v.title}\n")
    return 0


def sorted_look(look: Look, rows: pl.DataFrame, reverse: bool) -> Look:
    """Return the look with the sort columns as the answer calls them, numbers from the largest, text from A.
    Raise UsageError where no column has such a name.
    """
    named = {name(c): c for name in (units.spoken, units.heading, str) for c in rows.columns}
    asked = look.sort or ""
    if not rows.columns:
        return replace(look, sort=None)
    orders = []
    for word in [asked] if asked in named else asked.split(","):
        column = named.get(word.strip())
        if column is None:
            todo = did_you_mean(word, named, f"the columns are {', '.join(rows.columns)}")
            raise UsageError(f"no column is called {word!r}", todo=todo)
        orders.append((column, rows.schema[column].is_numeric() != reverse))
    (first, falls), *then = orders
    return replace(look, sort=first, descending=falls, then=tuple(then))
