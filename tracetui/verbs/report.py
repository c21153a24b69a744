"""`tracetui report VIEW FILE…`: print any view without a terminal."""

import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path
from typing import Final

from capture.errors import UsageError
from tracetui.look import Look
from tracetui.report_formats import ReportContent, ask_for_report
from tracetui.samples import SAMPLE_PREFIX, resolve_file
from tracetui.verbs import _many_files, _options
from tracetui.views import list_unusable_views, list_view_names, load_view, load_views

PRICED_VIEWS: Final = ("summary", "diff", "compare")  # that say what tokens cost


def options(parser: ArgumentParser) -> None:
    about = "view to print, `summary` if it is left out; `tracetui report list` lists them"
    parser.add_argument("view", help=about)
    _options.add_input_options(
        parser,
        "*",
        "--merge",
        "--device",
        *_options.WORK_OPTIONS,
        "--on",
        "--hosts",
        *_options.LOOK_OPTIONS,
        "--limit",
        "--cost",
    )
    about = "fix view only: predict the step time with an op changed: attn.core=-30%%, mlp.down=x0.5"
    parser.add_argument("--what-if", action="append", default=[], metavar="OP=CHANGE", help=about)
    about = "steps view only: in what step N differs from the median of its like; slowest: of the slowest"
    parser.add_argument("--why", metavar="N", help=about)
    about = "with --why N: in what step N differs from step M instead"
    parser.add_argument("--against", metavar="M", help=about)
    _options.add_format_option(parser)
    _options.add_options(parser, "--width")


def run(args: Namespace) -> int:
    """Print the view and return the exit code."""
    if args.view == "list":
        return _print_view_list()
    if _names_file(args.view):
        args.files, args.view = [resolve_file(args.view), *args.files], _options.FIRST_VIEW
    reference = _choose_step(args)
    view = load_view(args.view)
    if not args.files:
        raise UsageError("no file was named", todo=f"tracetui report {args.view} FILE")
    if args.cost is not None and args.view not in PRICED_VIEWS:
        todo = f"choose one of: {', '.join(PRICED_VIEWS)}"
        raise UsageError(f"--cost changes nothing in the view {args.view}", todo=todo)
    look = _build_look(args)
    if reference is not None:
        look = replace(look, focus=(*look.focus, ("step", (reference, int(args.why)))))
    _many_files.select_chosen_file(args)
    jobs = _many_files.build_jobs_if_many(args, view, look)
    if jobs is not None:
        fleet = _many_files.ask_many_files(args, view, jobs)
        content = ReportContent(view, [fleet.run], [fleet.run], fleet.answer, look)
    else:
        runs, chosen = _options.load_for_view(args, view.run_count)
        content = ask_for_report(view, runs, look, chosen)
    sys.stdout.write(_options.format_sorted(args, content))
    return 0


def _choose_step(args: Namespace) -> int | None:
    """Ask why the step of --why is slow; return the step of --against, if there is one.

    Raise UsageError in other views, or for no step.
    """
    if args.why is None and args.against is None:
        return None
    if args.view != "steps":
        raise UsageError("--why works in the steps view only", todo="tracetui report steps FILE --why 42")
    if args.why is None or (args.against is not None and args.why == "slowest"):
        raise UsageError("--against needs --why N", todo="tracetui report steps FILE --why 43 --against 42")
    if args.why != "slowest":
        _check_step("--why", args.why, "write its number, or slowest")
    if args.against is not None:
        _check_step("--against", args.against, "write its number")
        if int(args.against) == int(args.why):
            raise UsageError("--why and --against name one step", todo="name two")
    args.view = "why"
    if args.against is not None:
        return int(args.against)
    if args.why != "slowest":
        args.focus = [*args.focus, f"step={args.why}"]
    return None


def _check_step(option: str, step: str, todo: str) -> None:
    if not step.isdecimal():
        raise UsageError(f"{option} {step!r} is no step", todo=todo)


def _names_file(word: str) -> bool:
    """Return whether the word in the place of a view is a file; a view's name never is."""
    is_special = word == "-" or word.startswith(("@", SAMPLE_PREFIX)) or "://" in word
    is_path = "." in word or "/" in word  # also of an absent file: no view is called so
    could_be = is_special or is_path or Path(word).exists()
    return could_be and word not in list_view_names()  # which reads entry points: 50 ms


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
