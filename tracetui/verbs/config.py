"""`tracetui config`: all settings of the screen, and where each comes from."""

import sys
from argparse import ArgumentParser, Namespace


def options(parser: ArgumentParser) -> None:
    """No options."""


def run(args: Namespace) -> int:
    """Print every setting in the format of the config file; return the exit code."""
    from tracetui.ui import screen_config

    config = screen_config.read_config()
    config.check_views()
    sys.stdout.write("\n".join(screen_config.iter_config_lines(config)) + "\n")
    return 0
