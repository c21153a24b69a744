"""`tracetui schema`: print the JSON schema of `--format json`."""

import json
import sys
from argparse import ArgumentParser, Namespace


def options(parser: ArgumentParser) -> None:
    """No options."""


def run(args: Namespace) -> int:
    """Print the schema and return the exit code."""
    from tracetui.json_schema import build_json_schema

    sys.stdout.write(json.dumps(build_json_schema(), indent=1) + "\n")
    return 0
