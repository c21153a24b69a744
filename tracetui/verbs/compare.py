"""`tracetui compare FILE…`: many runs in one matrix."""

import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace

from capture.errors import UsageError
from tracetui.look import Look
from tracetui.verbs import _options


def options(parser: ArgumentParser) -> None:
    _options.add_input_options(parser, "+", *_options.WORK_OPTIONS, *_options.LOOK_OPTIONS, "--cost")
    about = "view whose rows are compared: kernels, steps, shapes, memory …"
    _options.add_screen_options(parser, "kernels", about)
    parser.add_argument("--value", default="", metavar="COLUMN", help="column of the view to compare")
    parser.add_argument("--baseline", metavar="N|NAME", help="divide every cell by that of this run")
    _options.add_options(parser, "--limit")
    _options.add_format_option(parser, default=None)
    _options.add_options(parser, "--width")


def run(args: Namespace) -> int:
    """Show the matrix on the screen, or print it; return the exit code."""
    from capture.load_runs import resolve_run_index

    runs = _options.load_runs(args)
    if len(runs) < 2:
        raise UsageError("compare needs at least two runs", todo="name a second file")
    base = resolve_run_index(runs, args.baseline) if args.baseline else None
    look = _options.build_look(args)
    look = replace(look, terms=replace(look.terms, baseline=base, of=args.view, value=args.value))
    if args.format is None and _options.has_screen():
        return _show_screen(args, look, base)
    from tracetui.report_formats import ask_for_report
    from tracetui.views import load_view

    sys.stdout.write(_options.format_sorted(args, ask_for_report(load_view("compare"), runs, look)))
    return 0


def _show_screen(args: Namespace, look: Look, base: int | None) -> int:
    """Show the matrix; the screen sorts by key, --sort is for reports."""
    from tracetui.ui.app import run as show

    baseline = None if base is None else str(base + 1)
    which = args.which or baseline
    screen = _options.build_screen_options(
        args, run=which, baseline=baseline, look=look, **_options.build_read_options(args)
    )
    return show(args.files, replace(screen, view="compare"))
