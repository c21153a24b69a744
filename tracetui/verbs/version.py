"""`tracetui version`: which version this is, and of what it is made."""

import platform
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Final

PARTS: Final = (
    "polars",
    "textual",
    "plotext",
    "msgspec",
    "scipy",
    "numpy",
    "torch",
    "mcp",
    "distributed",
    "ray",
)


def options(parser: ArgumentParser) -> None:
    """Declare the options of the command, which has none."""


def run(args: Namespace) -> int:
    """Print the version, then a line for each part; return the exit code."""
    from capture.loaders import _scan as scan

    lines = [
        f"tracetui {version('tracetui')}",
        f"Python {platform.python_version()} on {platform.system()} {platform.machine()}",
        *(f"{name} {number}" for name, number in _installed()),
        f"compiled scanner of Chrome traces: {scan.state()}",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _installed() -> Iterator[tuple[str, str]]:
    """Yield each part that is here, with its version; none of them is imported."""
    for name in PARTS:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue
