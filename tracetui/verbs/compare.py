"""`tracetui compare FILE…`: many runs in one matrix."""

import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace

from capture.errors import UsageError
from tracetui.chosen import choose
from tracetui.look import Look
from tracetui.verbs import _shared


def options(parser: ArgumentParser) -> None:
    """Declare the options of the command."""
    _shared.input_options(parser)
    _shared.capture_option(parser)
    _shared.look_options(parser)
    _shared.screen_options(parser, "kernels", "whose rows are compared: kernels, steps, shapes, memory …")
    parser.add_argument("--value", default="", metavar="COLUMN", help="which of its columns")
    parser.add_argument("--baseline", metavar="N|NAME", help="divide every cell by this run's")
    parser.add_argument("--limit", type=int, metavar="N", help=_shared.LIMIT)
    about = "print, and how; else a screen shows it"
    parser.add_argument("--format", choices=_shared.FORMATS, help=about)
    parser.add_argument("--width", type=int, help=_shared.WIDTH)


def run(args: Namespace) -> int:
    """Show the matrix on the screen, or print it; return the exit code."""
    runs = _shared.load(args)
    if len(runs) < 2:
        raise UsageError("one run alone cannot be compared", todo="name a second file")
    base = choose(runs, args.baseline) if args.baseline else None
    look = _shared.look(args)
    look = replace(look, terms=replace(look.terms, baseline=base, of=args.view, value=args.value))
    if args.format is None and _shared.has_screen():
        return _screen(args, look, base)
    from tracetui.report import report
    from tracetui.verbs.report import sorted_look
    from tracetui.views import ask, view

    asked = view("compare")
    if look.sort:
        look = sorted_look(look, ask(asked, runs, look).rows, args.reverse)
    width, cut = _shared.room(args)
    sys.stdout.write(report(asked, runs, look, args.format or "table", width=width, cut=cut))
    return 0


def _screen(args: Namespace, look: Look, base: int | None) -> int:
    """Show the matrix; the screen sorts by key, --sort is for reports."""
    from tracetui.ui.app import run as show

    baseline = None if base is None else str(base + 1)
    which = args.which or baseline
    screen = _shared.screen(args, run=which, baseline=baseline, look=look, **_shared.ways(args))
    return show(args.files, replace(screen, view="compare"))
