"""`tracetui recordings [--prune SIZE]`: recordings made without -o, listed, and removed when asked."""

import sys
import time
from argparse import ArgumentParser, Namespace

from capture import places
from tracetui import units
from tracetui.verbs import _shared


def options(parser: ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "--prune",
        type=_shared.size,
        metavar="SIZE",
        help="remove the oldest until the rest takes no more: 5GB",
    )


def run(args: Namespace) -> int:
    """List the recordings, or remove the oldest of them and name each."""
    if args.prune is not None:
        return _prune(args.prune)
    for path in places.recordings():
        status = path.stat()
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(status.st_mtime))
        sys.stdout.write(f"{when}  {units.size(status.st_size):>10}  {path}\n")
    return 0


def _prune(limit: int) -> int:
    for path in places.prune(places.recordings(), limit):
        _shared.say(f"removed {path}")
    return 0
