"""The command `tracetui`, also as `python -m tracetui`: the path is set before anything else is imported."""

import gc
import sys

from tracetui import rooms


def main() -> int:
    """Run the command line of this process and return its exit code."""
    rooms.put_first()
    from tracetui.cli import main as run_command_line

    code = run_command_line()
    gc.freeze()  # the memory goes with the process: nobody waits for it to be looked through once more
    return code


if __name__ == "__main__":
    sys.exit(main())
