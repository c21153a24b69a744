"""The command line without a process of its own, for tests that ask it often."""

import os
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from subprocess import CompletedProcess
from unittest.mock import patch

from tracetui import cli

NOWHERE = {
    "XDG_STATE_HOME": "/dev/null",
    "XDG_CACHE_HOME": "/dev/null",
    "XDG_CONFIG_HOME": "/dev/null",
}


def tracetui(
    *args: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None
) -> CompletedProcess[str]:
    """Return what the command wrote and its exit code."""
    words, out, err = [str(arg) for arg in args], StringIO(), StringIO()
    around = patch.dict(os.environ, {**NOWHERE, **(env or {})})
    with around, chdir(cwd or Path.cwd()), redirect_stdout(out), redirect_stderr(err):
        try:
            code = cli.main(words)
        except SystemExit as stop:  # argparse after --help
            code = int(stop.code or 0)
    return CompletedProcess(words, code, out.getvalue(), err.getvalue())
