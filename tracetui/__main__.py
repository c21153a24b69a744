"""Entry point of `tracetui` and `python -m tracetui`: set the import path, then run the command line."""

import gc
import sys

from tracetui import package_paths


def main() -> int:
    """Run the command line of this process and return its exit code."""
    package_paths.prefer_our_packages()
    from tracetui.cli import main as run_command_line

    code = run_command_line()
    gc.freeze()  # skip the collection at exit: the memory goes with the process
    return code


if __name__ == "__main__":
    sys.exit(main())
