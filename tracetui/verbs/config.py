"""`tracetui config`: every setting of the screen that holds, and where it is from."""

import sys
from argparse import ArgumentParser, Namespace


def options(parser: ArgumentParser) -> None:
    """Declare the options of the command, which has none."""


def run(args: Namespace) -> int:
    """Print every setting as the config file would have it; return the exit code."""
    from tracetui.ui import config, config_text

    wanted = config.read()
    wanted.check_views()
    sys.stdout.write("\n".join(config_text.lines(wanted)) + "\n")
    return 0
