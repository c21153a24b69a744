"""`tracetui digest FILE [B]`: a run, or what changed between two, in a bounded number of tokens."""

import sys
from argparse import ArgumentParser, Namespace
from typing import Final

from capture.errors import UsageError
from capture.files.addresses import mask_credentials
from tracetui.verbs import _options

DEFAULT_TOKENS: Final = 1000


def options(parser: ArgumentParser) -> None:
    _options.add_input_options(
        parser, "+", "--merge", "--device", *_options.WORK_OPTIONS, "--run", "--steps", "--cost"
    )
    about = f"approximate length of the digest (default: {DEFAULT_TOKENS})"
    parser.add_argument("--tokens", type=int, default=DEFAULT_TOKENS, metavar="N", help=about)


def run(args: Namespace) -> int:
    """Print the digest and return the exit code."""
    from capture.load_runs import resolve_run_index
    from tracetui.look import Look
    from tracetui.token_digest import MIN_TOKENS, build_digest

    if args.tokens < MIN_TOKENS:
        todo = f"give {MIN_TOKENS} or more"
        raise UsageError(f"--tokens {args.tokens} has no room for a digest", todo=todo)
    if len(args.files) > 2:
        raise UsageError("digest takes one or two files", todo="tracetui compare takes more")
    runs, named = _options.load_runs(args), [mask_credentials(file) for file in args.files]
    if len(named) == 2:
        chosen = _options.select_pair(runs, args.which)
    else:
        chosen = [runs[resolve_run_index(runs, args.which)]]
    look = _options.with_steps(Look(full_names=True, price=args.cost), args.steps)
    sys.stdout.write(build_digest(chosen, named, args.tokens, look, [run.name for run in runs]))
    return 0
