"""`tracetui report VIEW FILE…`: print any view without a terminal."""

import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace

import polars as pl

from capture.errors import UsageError
from capture.spelling import suggest_nearest
from tracetui import units
from tracetui.look import Look
from tracetui.report_formats import ReportContent, ask_for_report, format_content
from tracetui.verbs import _many_files, _options
from tracetui.views import list_unusable_views, load_view, load_views


def options(parser: ArgumentParser) -> None:
    parser.add_argument("view", help="view to print; `tracetui report list` lists them")
    _options.add_input_options(
        parser, "*", "--merge", "--capture", "--device", "--on", "--hosts", *_options.LOOK_OPTIONS, "--limit"
    )
    about = "fix view only: predict the step time with an op changed: attn.core=-30%%, mlp.down=x0.5"
    parser.add_argument("--what-if", action="append", default=[], metavar="OP=CHANGE", help=about)
    _options.add_format_option(parser)
    _options.add_options(parser, "--width")


def run(args: Namespace) -> int:
    """Print the view and return the exit code."""
    if args.view == "list":
        return _print_view_list()
    view = load_view(args.view)
    if not args.files:
        raise UsageError("no file was named", todo=f"tracetui report {args.view} FILE")
    look = _build_look(args)
    _many_files.select_chosen_file(args)
    jobs = _many_files.build_jobs_if_many(args, view, look)
    if jobs is not None:
        fleet = _many_files.ask_many_files(args, view, jobs)
        content = ReportContent(view, [fleet.run], [fleet.run], fleet.answer, look)
    else:
        runs, chosen = _options.load_for_view(args, view.run_count)
        content = ask_for_report(view, runs, look, chosen)
    sys.stdout.write(format_sorted(args, content))
    return 0


def _build_look(args: Namespace) -> Look:
    """Build the look from the options; raise UsageError for --what-if in other views."""
    look = _options.build_look(args)
    if not args.what_if:
        return look
    if args.view != "fix":
        todo = "tracetui report fix FILE --what-if OP=-30%"
        raise UsageError("--what-if works in the fix view only", todo=todo)
    from tracetui.analysis.ledger.what_if import parse_change

    return replace(look, what_if=tuple(parse_change(text) for text in args.what_if))


def _print_view_list() -> int:
    for view in load_views():
        sys.stdout.write(f"{view.name:12} {view.title}\n")
    for line in list_unusable_views():
        _options.print_status(line)
    return 0


def format_sorted(args: Namespace, content: ReportContent) -> str:
    """Format an answer in --format and --width, sorted by --sort."""
    look, (width, cut) = content.look, _options.choose_width(args)
    if args.sort:
        look = resolve_sort(replace(look, sort=args.sort), content.answer.rows, args.reverse)
    return format_content(replace(content, look=look, width=width, cut=cut), args.format or "table")


def resolve_sort(look: Look, rows: pl.DataFrame, reverse: bool) -> Look:
    """Return the look with sort columns as the answer names them, numbers descending, text ascending.

    Raise UsageError if no column has such a name.
    """
    if not rows.columns:
        return replace(look, sort=None)
    names = (units.format_plain_heading, units.format_heading, str)
    named = {name(column): column for name in names for column in rows.columns}
    words, orders = look.sort or "", []
    for word in [words] if words in named else words.split(","):
        column = named.get(word.strip())
        if column is None:
            todo = suggest_nearest(word, named, f"the columns are {', '.join(rows.columns)}")
            raise UsageError(f"no column is called {word!r}", todo=todo)
        orders.append((column, rows.schema[column].is_numeric() != reverse))
    (first, falls), *then = orders
    return replace(look, sort=first, descending=falls, then=tuple(then))
