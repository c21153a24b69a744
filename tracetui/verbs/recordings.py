"""`tracetui recordings [--prune SIZE]`: list recordings made without -o, or remove the oldest."""

import sys
import time
from argparse import ArgumentParser, Namespace

from capture.files import user_dirs
from tracetui import units
from tracetui.verbs import _options


def options(parser: ArgumentParser) -> None:
    about = "remove the oldest until the rest is at most this large: 5GB"
    parser.add_argument("--prune", type=_options.parse_size, metavar="SIZE", help=about)


def run(args: Namespace) -> int:
    """List the recordings, or remove the oldest of them and name each."""
    recordings = user_dirs.list_recordings()
    if args.prune is not None:
        for path in user_dirs.prune(recordings, args.prune):
            _options.print_status(f"removed {path}")
        return 0
    for path in recordings:
        status = path.stat()
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(status.st_mtime))
        sys.stdout.write(f"{when}  {units.format_size(status.st_size):>10}  {path}\n")
    return 0
