"""`tracetui open FILE…`: the screen; without a terminal, the summary."""

import shutil
import sys
from argparse import ArgumentParser, Namespace

from tracetui.verbs import _shared


def options(parser: ArgumentParser) -> None:
    _shared.input_options(parser, "*")
    _shared.look_options(parser)
    parser.add_argument("--view", default="summary", help="the view to begin with")
    parser.add_argument("--follow", action="store_true", help="keep reading a file that grows")
    parser.add_argument("--theme", choices=("dark", "light", "ansi"), help="colours of the screen")
    parser.add_argument("--ascii", action="store_true", help="draw with ASCII characters only")
    parser.add_argument("--no-clipboard", action="store_true", help="never write to the terminal's clipboard")


def run(args: Namespace) -> int:
    from tracetui.views import view

    view(args.view)
    if not args.files:
        return _recordings()
    if not _shared.has_screen():
        return _summary(args)
    from tracetui.ui.app import Options
    from tracetui.ui.app import run as show

    return show(
        args.files,
        Options(
            view=args.view,
            run=args.which,
            look=_shared.look(args),
            follow=args.follow,
            theme=args.theme,
            ascii=args.ascii,
            clipboard=not args.no_clipboard,
            cache=not args.no_cache,
        ),
    )


def _summary(args: Namespace) -> int:
    """There is no terminal: the summary of every run says what a person asks first."""
    from tracetui.report import report
    from tracetui.views import view

    _shared.say("no terminal to draw on; this is the summary (`tracetui report` prints any view)")
    runs = _shared.load(args)
    width = shutil.get_terminal_size((120, 40)).columns
    places = [_shared.choose(runs, args.which)] if args.which else range(len(runs))
    for i in places:
        sys.stdout.write(
            report(view("summary"), runs, _shared.look(args), "table", chosen=i, width=width) + "\n"
        )
    return 0


def _recordings() -> int:
    """Nothing was named: the recordings, newest first."""
    from capture.places import recordings

    found = recordings()
    for path in found:
        sys.stdout.write(f"{path}\n")
    if not found:
        _shared.say("no recording yet; name a file: tracetui open FILE")
    return 0
