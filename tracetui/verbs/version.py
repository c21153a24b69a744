"""`tracetui version`: versions of tracetui and of the packages it uses."""

import platform
import sys
from argparse import ArgumentParser, Namespace
from importlib.metadata import PackageNotFoundError, version
from typing import Final

LISTED_PACKAGES: Final = (
    "polars", "textual", "plotext", "msgspec", "scipy", "numpy", "torch", "mcp", "distributed", "ray",
)  # fmt: skip


def options(parser: ArgumentParser) -> None:
    """No options."""


def run(args: Namespace) -> int:
    """Print the version, then a line per package; return the exit code."""
    from capture.loaders import _scan as scan

    lines = [
        f"tracetui {version('tracetui')}",
        f"Python {platform.python_version()} on {platform.system()} {platform.machine()}",
        *(f"{name} {number}" for name in LISTED_PACKAGES if (number := find_version(name))),
        f"compiled scanner of Chrome traces: {scan.state()}",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def find_version(package: str) -> str:
    """Return the version of a package, without importing it; empty if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
