"""`tracetui replay FILE`: a recording played as if it were live."""

from argparse import ArgumentParser, Namespace

from capture.errors import UsageError
from tracetui.samples import resolved
from tracetui.verbs import _shared


def options(parser: ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("file", type=resolved, metavar="FILE", help="a native recording")
    parser.add_argument("--speed", type=float, default=1.0, metavar="X", help="times as fast as it was")
    _shared.screen_options(parser)


def run(args: Namespace) -> int:
    """Show the replay and return the exit code."""
    if args.speed <= 0:
        raise UsageError(f"--speed {args.speed} is no speed", todo="give a number above zero")
    if not _shared.has_screen():
        raise UsageError("a replay needs a terminal", todo=f"tracetui report summary {args.file}")
    _native(args.file)
    from tracetui.replayer import Replay
    from tracetui.ui.app import run as show

    replay = Replay(args.file, args.speed)
    replay.start()
    try:
        return show([str(replay.path)], _shared.screen(args, follow=True))
    finally:
        replay.stop()


def _native(file: str) -> None:
    """Raise UsageError for any other format: only native lines have the pace at which they came."""
    from capture.loaders import native
    from capture.source import Source

    if not native.sniff(Source.of(file).head):
        raise UsageError(
            f"{file} is no native recording", todo="export it first: tracetui export FILE -o prof.jsonl"
        )
