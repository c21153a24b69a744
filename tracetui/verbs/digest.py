"""`tracetui digest FILE [B]`: a run, or what changed between two, in a bounded number of tokens."""

import sys
from argparse import ArgumentParser, Namespace
from typing import Final

from capture.addresses import masked
from capture.errors import UsageError
from tracetui.chosen import choose
from tracetui.verbs import _shared

USUAL: Final = 1000


def options(parser: ArgumentParser) -> None:
    """Declare the options of the command."""
    _shared.input_options(parser)
    _shared.merge_option(parser)
    _shared.capture_option(parser)
    _shared.device_option(parser)
    _shared.run_option(parser)
    _shared.steps_option(parser)
    about = f"how long the digest may be, about; {USUAL} where it is not said"
    parser.add_argument("--tokens", type=int, default=USUAL, metavar="N", help=about)


def run(args: Namespace) -> int:
    """Print the digest and return the exit code."""
    from tracetui.digest import LEAST, digest
    from tracetui.look import Look

    if args.tokens < LEAST:
        raise UsageError(f"--tokens {args.tokens} has no room for a digest", todo=f"give {LEAST} or more")
    if len(args.files) > 2:
        raise UsageError("a digest is of one file, or of two", todo="tracetui compare takes more")
    runs, named = _shared.load(args), [masked(file) for file in args.files]
    chosen = _shared.pair(runs, args.which) if len(named) == 2 else [runs[choose(runs, args.which)]]
    look, others = _shared.at_steps(Look(full_names=True), args.steps), [run.name for run in runs]
    sys.stdout.write(digest(chosen, named, args.tokens, look, others))
    return 0
