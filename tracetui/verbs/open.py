"""`tracetui open [FILE…]`: show files on the screen, or their summaries; without a file offer a menu."""

import shutil
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from typing import Final

from capture.clean_text import clean
from capture.errors import CaptureError, UsageError
from capture.files import user_dirs
from tracetui import glyphs, units
from tracetui.samples import find_sample, resolve_file
from tracetui.verbs import _many_files, _options

MAX_LOGGED_RUNS: Final = 40
TREND_CELLS: Final = 20


def options(parser: ArgumentParser) -> None:
    _options.add_input_options(
        parser,
        "*",
        "--merge",
        "--device",
        *_options.WORK_OPTIONS,
        "--on",
        "--hosts",
        *_options.LOOK_OPTIONS,
        "--cost",
    )
    add = _options.find_group(parser, "input").add_argument
    about = "an installed recording: decode or slowed"
    add("--sample", action="append", default=[], metavar="NAME", help=about)
    add("--follow", action="store_true", help="keep reading a file that grows")
    about = "five minutes through two samples; you type the keys"
    _options.find_group(parser, "screen").add_argument("--tour", action="store_true", help=about)
    _options.add_screen_options(parser)


def run(args: Namespace) -> int:
    """Show the files on the screen, or print their summaries; return the exit code."""
    from tracetui.views import check_view_name

    check_view_name(args.view)  # at once; the view itself is loaded behind the screen
    args.files += [str(find_sample(name)) for name in args.sample]
    if args.tour:
        return _show_tour(args)
    if not args.files:
        return _show_start_menu(args) if _options.has_screen() else _print_recordings()
    if not _options.has_screen():
        return _print_summaries(args)
    if not (args.no_cache or args.follow or args.on):
        from capture.load_runs import prefetch

        prefetch(args.files, capture=args.capture)  # while the screen is imported
    from capture.files.recent_files import remember
    from tracetui.ui.app import run as show

    remember(args.files)
    look, on = _options.build_look(args), _many_files.choose_executor(args)
    if on is not None:
        look = replace(look, merged=args.merge)
    more = {"run": args.which, "look": look, "follow": args.follow, "executor": on}
    more |= {"hosts": _many_files.read_hosts(args), **_options.build_read_options(args)}
    return show(args.files, _options.build_screen_options(args, **more))


def _print_summaries(args: Namespace) -> int:
    """Print the summary of every run, if there is no terminal."""
    from capture.load_runs import resolve_run_index
    from tracetui.report_formats import ReportContent, format_content, format_report
    from tracetui.views import load_view

    _options.print_status("no terminal: printing the summary (`tracetui report` prints any view)")
    width = shutil.get_terminal_size((120, 40)).columns
    summary, look = load_view("summary"), _options.build_look(args)
    jobs = _many_files.build_jobs_if_many(args, summary, look)
    if jobs is not None:
        fleet = _many_files.ask_many_files(args, summary, jobs)
        content = ReportContent(summary, [fleet.run], [fleet.run], fleet.answer, jobs[0].look, width)
        sys.stdout.write(format_content(content))
        return 0
    runs = _options.load_runs(args)
    for i in [resolve_run_index(runs, args.which)] if args.which else range(len(runs)):
        sys.stdout.write(f"{format_report(summary, runs, look, chosen=i, width=width)}\n")
    return 0


def _show_start_menu(args: Namespace) -> int:
    from tracetui import start_menu

    offered = start_menu.list_entries()
    width = shutil.get_terminal_size((80, 24)).columns
    print("\n".join([*summarise_log(width), *start_menu.format_menu(offered, width)]))
    try:
        answer = input(start_menu.PROMPT).strip()
    except EOFError:
        answer = ""
    if answer in start_menu.LEAVE:
        return 0
    if answer == start_menu.TOUR:
        return _show_tour(args)
    path = start_menu.resolve_choice(answer, offered)
    if path is None:
        raise UsageError(f"there is no entry {answer}", todo=f"choose one of 1 to {len(offered)}")
    args.files = [path]
    return run(args)


def summarise_log(width: int) -> list[str]:
    """Return a line on the step time of the last runs in the user's log that are like the newest.

    There is none where nothing is kept, or cannot be read: `tracetui log` says why.
    """
    if (state := user_dirs.find_state_folder()) is None or not (state / "log").is_dir():
        return []
    from tracetui.history.part_index import choose_runs, read_log
    from tracetui.history.run_log import RunLog

    try:
        runs = read_log(RunLog(str(state / "log"))).runs
    except CaptureError:
        return []
    if not runs.height:
        return []
    runs = choose_runs(runs, "time", MAX_LOGGED_RUNS)[0]
    newest, times = runs.row(-1, named=True), runs["step_ns"].to_list()
    about = [clean(str(newest[c])) for c in ("model", "phase") if newest[c] is not None]
    if newest["step_ns"] is not None:
        about.append(f"{units.format_duration(newest['step_ns'])} a step")
    trend = glyphs.draw_sparkline(times, TREND_CELLS)
    line = f"      {trend:{TREND_CELLS}}  {', '.join(about)}; {runs.height} runs"
    return ["log (tracetui trend says what changed)", line[:width].rstrip()]


def _show_tour(args: Namespace) -> int:
    """Show two samples and which key to type next; without a terminal print the steps of the tour."""
    from tracetui.ui.tour import TOUR_FILES, TOUR_STEPS

    if not _options.has_screen():
        _options.print_status("no terminal: printing the steps of the tour")
        sys.stdout.write("".join(f"{number:2}  {stop.text}\n" for number, stop in enumerate(TOUR_STEPS, 1)))
        return 0
    from tracetui.ui.app import run as show
    from tracetui.ui.key_table import KEYS

    screen = _options.build_screen_options(args, tour=True, keys=KEYS)  # the tour names the default keys
    return show([resolve_file(name) for name in TOUR_FILES], screen)


def _print_recordings() -> int:
    from capture.files.user_dirs import list_recordings

    paths = list_recordings()
    for path in paths:
        sys.stdout.write(f"{path}\n")
    if not paths:
        _options.print_status("no recording yet; name a file, or try tracetui open --sample decode")
    return 0
