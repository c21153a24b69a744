"""`tracetui compare FILE…`: many runs in one matrix."""

import shutil
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace

from capture.errors import UsageError
from tracetui.verbs import _shared


def options(parser: ArgumentParser) -> None:
    _shared.input_options(parser)
    _shared.look_options(parser)
    parser.add_argument("--baseline", metavar="N|NAME", help="divide every cell by this run's")
    parser.add_argument("--limit", type=int, metavar="N")
    parser.add_argument("--format", choices=("table", "json", "csv", "md"), default="table")
    parser.add_argument("--width", type=int)


def run(args: Namespace) -> int:
    from tracetui.report import report
    from tracetui.views import view

    runs = _shared.load(args)
    if len(runs) < 2:
        raise UsageError("one run alone cannot be compared", todo="name a second file")
    look = _shared.look(args)
    if args.baseline:
        look = replace(look, terms=replace(look.terms, baseline=_shared.choose(runs, args.baseline)))
    width = args.width or shutil.get_terminal_size((120, 40)).columns
    sys.stdout.write(report(view("compare"), runs, look, args.format, width=width))
    return 0
