"""The command line: argv in, an exit code out; the only place that prints an error."""

import argparse
import sys
from collections.abc import Sequence

from capture.errors import CaptureError


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    try:
        return int(args.run(args) or 0)
    except CaptureError as e:
        print(f"tracetui: {e}", file=sys.stderr)
        return e.exit_code


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="tracetui", description="watch, open and compare kernel profiles")
    verbs = top.add_subparsers(required=True, metavar="COMMAND")
    report = verbs.add_parser("report", help="print a view")
    report.add_argument("view")
    report.add_argument("files", nargs="+", metavar="FILE")
    report.add_argument("--format", choices=("table", "json", "csv", "md"), default="table")
    report.add_argument("--run", dest="which")
    report.set_defaults(run=_report)
    return top


def _report(args: argparse.Namespace) -> int:
    from capture.loaders import load_all
    from tracetui.look import Look
    from tracetui.report import report
    from tracetui.views import view

    runs = load_all(args.files)
    if args.which:
        runs = [r for i, r in enumerate(runs, 1) if args.which in r.name or args.which == str(i)]
    sys.stdout.write(report(view(args.view), runs, Look(), args.format))
    return 0
