"""What differs between two groups of many files, for the command diff with --on."""

import sys
from argparse import Namespace
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from capture.errors import UsageError
from tracetui.look import Look, Terms
from tracetui.verbs import _fleet, _shared

if TYPE_CHECKING:
    import polars as pl

    from tracetui.fleet.job import Job
    from tracetui.views import View

UNDECIDED: Final = 4  # the exit code where no row could be judged


def print_sides(args: Namespace, threshold: float) -> int:
    """Print the comparison; return 0, with --fail-over 1 where a row is slower or 4 where none is judged."""
    from tracetui.report import written
    from tracetui.views import view

    look = Look(filter=args.filter, group=args.group_by, phase=args.phase, lens=args.lens, limit=args.limit)
    look = replace(look, sort=args.sort, terms=Terms(threshold=threshold))
    look = _shared.at_steps(look, args.steps)
    asked = view("sides")
    fleet = _fleet.answered(args, asked, _jobs(args, asked, look))
    width, cut = _shared.room(args)
    format = args.format or "table"
    sys.stdout.write(written(asked, fleet.run, fleet.answer, look, format, width=width, cut=cut))
    return _gate(args, fleet.answer.rows) if args.fail_over is not None else 0


def _jobs(args: Namespace, asked: "View", look: Look) -> "list[Job]":
    """Return a job for each file of both sides; raise UsageError where a side has none."""
    from tracetui.fleet.ask import jobs_of

    first, second = [*args.files[:1], *args.a], [*args.files[1:], *args.b]
    if not first or not second:
        raise UsageError("--on compares two sides", todo="name two folders, patterns or lists")
    a, b = (
        jobs_of(asked, side, look, cache=not args.no_cache, capture=args.capture) for side in (first, second)
    )
    return [*a, *(replace(job, number=len(a) + job.number, side=1) for job in b)]


def _gate(args: Namespace, rows: "pl.DataFrame") -> int:
    """Return 1 when a row is slower by more than allowed, 4 where no row could be judged, else 0."""
    from tracetui.analysis.matching import fitting

    if args.rows and rows.width:
        rows = rows.filter(fitting(rows.to_series(), args.rows.replace(",", "|")))
    if rows.is_empty() or rows["p"].null_count() == rows.height:
        _shared.say("not enough evidence: no row has two files on both sides")
        return UNDECIDED
    return int((rows["verdict"] == "slower").any())
