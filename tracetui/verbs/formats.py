"""`tracetui formats`: the formats that can be opened, and how to produce each."""

import sys
from argparse import ArgumentParser, Namespace


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--format", choices=("table", "md"), default="table", help="output format")


def run(args: Namespace) -> int:
    """Print one entry per format and return the exit code."""
    from capture.loaders import ForeignLoader, check_foreign_loaders, list_formats

    entries = [
        (
            x.FORMAT,
            x.PRODUCER + (f" (loader of {x.package})" if isinstance(x, ForeignLoader) else ""),
            x.HOWTO,
        )
        for x in list_formats()
    ]
    broken = [
        (x.name, f"loader of {x.package}, left out", x.problem) for x in check_foreign_loaders() if x.problem
    ]
    if args.format == "md":
        lines = ["| format | written by | how |", "|:--|:--|:--|"]
        lines += [f"| {name} | {producer} | {howto} |" for name, producer, howto in [*entries, *broken]]
    else:
        lines = [f"{name}\n    written by {producer}\n    {howto}" for name, producer, howto in entries]
        lines += [f"{name}\n    {package}\n    {problem}" for name, package, problem in broken]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0
