"""`tracetui export FILE -o OUT`: a run in another format, chosen by the suffix of OUT."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from capture.errors import UsageError
from tracetui.chosen import choose
from tracetui.verbs import _shared

if TYPE_CHECKING:
    from capture.run import Run


PICTURES: Final = (".svg", ".png")
REPORTS: Final = {".md": "md", ".html": "html", ".txt": "table"}  # documents, and the format of each
_PAIR: Final = 2


def options(parser: ArgumentParser) -> None:
    """Declare the options of the command."""
    _shared.input_options(parser)
    _shared.merge_option(parser)
    _shared.capture_option(parser)
    _shared.look_options(parser)
    about = "the file to write; its suffix says what"
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help=about)
    parser.add_argument("--force", action="store_true", help="write over a file that is there")
    about = "the view to write, for .md .html .txt .svg .png; kernels where it is not said"
    parser.add_argument("--view", default="kernels", help=about)
    about = "of the picture, for .svg and .png, and the width of .txt and .html"
    parser.add_argument("--size", default="120x40", metavar="COLSxROWS", help=about)


def run(args: Namespace) -> int:
    """Write the file and return the exit code."""
    from capture.export import SUFFIXES, export

    out = Path(args.output)
    if out.suffix in PICTURES:
        return _picture(args, out)
    if out.suffix in REPORTS:
        return _report(args, out)
    if out.suffix not in SUFFIXES:
        suffixes = " ".join((*SUFFIXES, *REPORTS, *PICTURES))
        raise UsageError(
            f"{out.name} has no suffix that says what to write", todo=f"choose one of {suffixes}"
        )
    runs = _shared.load(args)
    chosen = [runs[choose(runs, args.which)]] if args.which else runs
    for note in export(chosen, out, overwrite=args.force):
        _shared.say(note)
    _shared.say(f"wrote {out}")
    return 0


def _report(args: Namespace, out: Path) -> int:
    """Write a view as a document."""
    from capture.atomic import whole_file
    from tracetui.report import report
    from tracetui.views import view

    asked, (width, _) = view(args.view), _size(args)
    runs, chosen = _of_view(args, asked.runs)
    text = report(asked, runs, _shared.look(args), REPORTS[out.suffix], chosen=chosen, width=width)
    with whole_file(out, overwrite=args.force) as file:
        file.write(text.encode("utf-8", "backslashreplace"))
    _shared.say(f"wrote {out}")
    return 0


def _picture(args: Namespace, out: Path) -> int:
    """Write what the screen shows of a view."""
    from tracetui.ui.picture import picture
    from tracetui.views import view

    asked, size = view(args.view), _size(args)
    runs, chosen = _of_view(args, asked.runs)
    picture(asked, runs, chosen, _shared.look(args), size, out, force=args.force)
    _shared.say(f"wrote {out}")
    return 0


def _of_view(args: Namespace, number: int) -> "tuple[Sequence[Run], int]":
    """Return the runs that a view is asked about, and which of them was chosen."""
    runs = _shared.load(args)
    return (_shared.pair(runs, args.which), 0) if number == _PAIR else (runs, choose(runs, args.which))


def _size(args: Namespace) -> tuple[int, int]:
    """Return the size that --size asks for; raise UsageError where it says none."""
    columns, _, rows = args.size.partition("x")
    if not (columns.isdecimal() and rows.isdecimal()):
        raise UsageError(f"--size {args.size!r} is no size", todo="write it like 120x40")
    return int(columns), int(rows)
