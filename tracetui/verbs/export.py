"""`tracetui export FILE -o OUT`: write a run, or a view, in the format of OUT's suffix."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Final

from capture.errors import UsageError
from tracetui.verbs import _options

PICTURE_SUFFIXES: Final = (".svg", ".png")
REPORT_FORMATS: Final = {".md": "md", ".html": "html", ".txt": "table"}  # suffix → report format


def options(parser: ArgumentParser) -> None:
    _options.add_input_options(parser, "+", "--merge", *_options.WORK_OPTIONS, *_options.LOOK_OPTIONS)
    about = "file to write; its suffix selects the format"
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help=about)
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")
    about = "view to write as .md .html .txt .svg .png (default: kernels)"
    parser.add_argument("--view", default="kernels", help=about)
    about = "size of .svg and .png, width of .txt and .html, in cells"
    parser.add_argument("--size", default="120x40", metavar="COLSxROWS", help=about)


def run(args: Namespace) -> int:
    """Write the file and return the exit code."""
    from capture.export_runs import WRITERS_BY_SUFFIX, export
    from capture.load_runs import resolve_run_index

    out = Path(args.output)
    if out.suffix in PICTURE_SUFFIXES:
        return _write_picture(args, out)
    if out.suffix in REPORT_FORMATS:
        return _write_report(args, out)
    if out.suffix not in WRITERS_BY_SUFFIX:
        suffixes = " ".join((*WRITERS_BY_SUFFIX, *REPORT_FORMATS, *PICTURE_SUFFIXES))
        raise UsageError(f"{out.name} has no known suffix", todo=f"choose one of {suffixes}")
    runs = _options.load_runs(args)
    chosen = [runs[resolve_run_index(runs, args.which)]] if args.which else runs
    for note in export(chosen, out, overwrite=args.force):
        _options.print_status(note)
    _options.print_status(f"wrote {out}")
    return 0


def _write_report(args: Namespace, out: Path) -> int:
    from capture.files.atomic import write_atomically
    from tracetui.report_formats import format_report
    from tracetui.views import load_view

    view, (width, _) = load_view(args.view), _parse_picture_size(args)
    runs, chosen = _options.load_for_view(args, view.run_count)
    look, format = _options.build_look(args), REPORT_FORMATS[out.suffix]
    text = format_report(view, runs, look, format, chosen=chosen, width=width)
    with write_atomically(out, overwrite=args.force) as file:
        file.write(text.encode("utf-8", "backslashreplace"))
    _options.print_status(f"wrote {out}")
    return 0


def _write_picture(args: Namespace, out: Path) -> int:
    """Write what the screen shows of a view."""
    from tracetui.ui.picture import write_picture
    from tracetui.views import load_view

    view, size = load_view(args.view), _parse_picture_size(args)
    runs, chosen = _options.load_for_view(args, view.run_count)
    write_picture(view, runs, chosen, _options.build_look(args), size, out, force=args.force)
    _options.print_status(f"wrote {out}")
    return 0


def _parse_picture_size(args: Namespace) -> tuple[int, int]:
    """Parse --size; raise UsageError for an invalid one."""
    columns, _, rows = args.size.partition("x")
    if not (columns.isdecimal() and rows.isdecimal()):
        raise UsageError(f"invalid --size {args.size!r}", todo="use 120x40")
    return int(columns), int(rows)
