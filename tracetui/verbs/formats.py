"""`tracetui formats`: the formats that can be opened, and how to produce each."""

import sys
from argparse import ArgumentParser, Namespace


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--format", choices=("table", "md"), default="table", help="output format")


def run(args: Namespace) -> int:
    """Print one entry per format and return the exit code."""
    from capture.loaders import ForeignLoader, check_foreign_loaders, list_formats

    by = "" if args.format == "md" else "written by "
    entries = []
    for x in list_formats():
        package = f" (loader of {x.package})" if isinstance(x, ForeignLoader) else ""
        entries.append((x.FORMAT, f"{by}{x.PRODUCER}{package}", x.HOWTO))
    for x in check_foreign_loaders():
        if x.problem:
            entries.append((x.name, f"loader of {x.package}, left out", x.problem))
    if args.format == "md":
        lines = ["| format | written by | how |", "|:--|:--|:--|", *(f"| {' | '.join(e)} |" for e in entries)]
    else:
        lines = ["\n    ".join(entry) for entry in entries]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0
