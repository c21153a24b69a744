"""`tracetui formats`: what is read, who writes it, and how."""

import sys
from argparse import ArgumentParser, Namespace


def options(parser: ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--format", choices=("table", "md"), default="table", help="how it is written")


def run(args: Namespace) -> int:
    """Print one entry a format and return the exit code."""
    from capture.loaders import formats

    known = formats()
    if args.format == "md":
        lines = ["| format | written by | how |", "|:--|:--|:--|"]
        lines += [f"| {x.FORMAT} | {x.PRODUCER} | {x.HOWTO} |" for x in known]
    else:
        lines = [f"{x.FORMAT}\n    written by {x.PRODUCER}\n    {x.HOWTO}" for x in known]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0
