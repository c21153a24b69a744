"""The command `tracetui`, also as `python -m tracetui`: the path is set before anything else is imported."""

import sys

from tracetui import rooms


def main() -> int:
    """Run the command line of this process and return its exit code."""
    rooms.put_first()
    from tracetui.cli import main as run_command_line

    return run_command_line()


if __name__ == "__main__":
    sys.exit(main())
