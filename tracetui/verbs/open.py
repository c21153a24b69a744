"""`tracetui open [FILE…]`: the screen; without a terminal, the summary; without a file, a choice."""

import shutil
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace

from capture.errors import UsageError
from tracetui.chosen import choose
from tracetui.samples import resolved, sample
from tracetui.verbs import _fleet, _shared


def options(parser: ArgumentParser) -> None:
    """Declare the options of the command."""
    _shared.input_options(parser, "*")
    _shared.merge_option(parser)
    _shared.capture_option(parser)
    _shared.device_option(parser)
    _fleet.on_option(parser)
    _fleet.hosts_option(parser)
    _shared.look_options(parser)
    parser.add_argument(
        "--sample",
        action="append",
        default=[],
        metavar="NAME",
        help="a recording that comes with the tool: decode",
    )
    tour = "five minutes through two samples; you type the keys"
    parser.add_argument("--tour", action="store_true", help=tour)
    parser.add_argument("--follow", action="store_true", help="keep reading a file that grows")
    _shared.screen_options(parser)


def run(args: Namespace) -> int:
    """Show the files on the screen, or print their summaries; return the exit code."""
    from tracetui.views import module_of

    # A name that no view has is refused at once; the view itself loads behind the screen.
    module_of(args.view)
    args.files += [str(sample(name)) for name in args.sample]
    if args.tour:
        return _tour(args)
    if not args.files:
        return _start(args) if _shared.has_screen() else _recordings()
    if not _shared.has_screen():
        return _summary(args)
    if not (args.no_cache or args.follow or args.on):
        from capture.open import begin

        begin(args.files, capture=args.capture)  # beside what the screen has to load
    from capture.recent import remember
    from tracetui.ui.app import run as show

    remember(args.files)
    look, cache, on = _shared.look(args), not args.no_cache, _fleet.where(args)
    if on is not None:
        look = replace(look, merged=args.merge)
    more = {"run": args.which, "look": look, "follow": args.follow, "cache": cache, "merge": args.merge}
    more |= {"capture": args.capture, "device": args.only_device, "on": on, "hosts": _fleet.hosts(args)}
    return show(args.files, _shared.screen(args, **more))


def _summary(args: Namespace) -> int:
    """Print the summary of every run, where there is no terminal."""
    from tracetui.report import report, written
    from tracetui.views import view

    _shared.say("no terminal to draw on; this is the summary (`tracetui report` prints any view)")
    width = shutil.get_terminal_size((120, 40)).columns
    jobs = _fleet.jobs_where_many(args, view("summary"), _shared.look(args))
    if jobs is not None:
        fleet = _fleet.answered(args, view("summary"), jobs)
        sys.stdout.write(written(view("summary"), fleet.run, fleet.answer, jobs[0].look, width=width))
        return 0
    runs = _shared.load(args)
    places = [choose(runs, args.which)] if args.which else range(len(runs))
    for i in places:
        sys.stdout.write(
            report(view("summary"), runs, _shared.look(args), "table", chosen=i, width=width) + "\n"
        )
    return 0


def _start(args: Namespace) -> int:
    """Offer what can be opened, and show what is chosen."""
    from tracetui import start

    offered = start.choices()
    print("\n".join(start.lines(offered, shutil.get_terminal_size((80, 24)).columns)))
    try:
        answer = input(start.ASKED).strip()
    except EOFError:
        answer = ""
    if answer in start.LEAVE:
        return 0
    if answer == start.TOUR:
        return _tour(args)
    path = start.chosen(answer, offered)
    if path is None:
        raise UsageError(f"there is no number {answer}", todo=f"choose one of 1 to {len(offered)}")
    args.files = [path]
    return run(args)


def _tour(args: Namespace) -> int:
    """Show two samples, and beside them which key to type next; without a terminal print the stops."""
    from tracetui.ui.tour import FILES, STOPS

    if not _shared.has_screen():
        _shared.say("no terminal to draw on; these are the stops of the tour")
        sys.stdout.write("".join(f"{number:2}  {stop.text}\n" for number, stop in enumerate(STOPS, 1)))
        return 0
    from tracetui.ui.app import run as show
    from tracetui.ui.keys import KEYS

    screen = _shared.screen(args, tour=True, keys=KEYS)  # those that it names
    return show([resolved(name) for name in FILES], screen)


def _recordings() -> int:
    """Print the recordings, newest first, where no file was named."""
    from capture.places import recordings

    paths = recordings()
    for path in paths:
        sys.stdout.write(f"{path}\n")
    if not paths:
        _shared.say("no recording yet; name a file, or try tracetui open --sample decode")
    return 0
