"""`tracetui schema`: the JSON schema of what `--format json` prints."""

import json
import sys
from argparse import ArgumentParser, Namespace


def options(parser: ArgumentParser) -> None:
    """Declare the options of the command, which has none."""


def run(args: Namespace) -> int:
    """Print the schema and return the exit code."""
    from tracetui.schema import schema

    sys.stdout.write(json.dumps(schema(), indent=1) + "\n")
    return 0
