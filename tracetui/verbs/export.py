"""`tracetui export FILE -o OUT`: a run in another format, chosen by the suffix of OUT."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from capture.errors import UsageError
from tracetui.chosen import choose
from tracetui.verbs import _shared


def options(parser: ArgumentParser) -> None:
    """Declare the options of the command."""
    _shared.input_options(parser)
    _shared.merge_option(parser)
    _shared.capture_option(parser)
    _shared.look_options(parser)
    about = "the file to write; its suffix says what"
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help=about)
    parser.add_argument("--force", action="store_true", help="write over a file that is there")
    parser.add_argument("--view", default="kernels", help="the view to draw, for .svg")
    parser.add_argument("--size", default="120x40", metavar="COLSxROWS", help="of the picture, for .svg")


def run(args: Namespace) -> int:
    """Write the file and return the exit code."""
    from capture.export import SUFFIXES, export

    out = Path(args.output)
    if out.suffix == ".svg":
        return _picture(args, out)
    if out.suffix not in SUFFIXES:
        suffixes = " ".join((*SUFFIXES, ".svg"))
        raise UsageError(
            f"{out.name} has no suffix that says what to write", todo=f"choose one of {suffixes}"
        )
    runs = _shared.load(args)
    chosen = [runs[choose(runs, args.which)]] if args.which else runs
    for note in export(chosen, out, overwrite=args.force):
        _shared.say(note)
    _shared.say(f"wrote {out}")
    return 0


def _picture(args: Namespace, out: Path) -> int:
    from tracetui.ui.picture import picture
    from tracetui.views import view

    columns, _, rows = args.size.partition("x")
    if not (columns.isdecimal() and rows.isdecimal()):
        raise UsageError(f"--size {args.size!r} is no size", todo="write it like 120x40")
    runs = _shared.load(args)
    picture(
        view(args.view),
        runs,
        choose(runs, args.which),
        _shared.look(args),
        (int(columns), int(rows)),
        out,
        force=args.force,
    )
    _shared.say(f"wrote {out}")
    return 0
