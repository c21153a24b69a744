"""Beside a program that works the tables take one thread, and that program does not hear of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os
from tracetui.cli import main
main({argv})
import polars
print(polars.thread_pool_size(), "POLARS_MAX_THREADS" in os.environ)
"""


def threads(argv: list[str], **env: str) -> list[str]:
    plain = {k: v for k, v in os.environ.items() if k != "POLARS_MAX_THREADS"}
    command = [sys.executable, "-c", PROGRAM.format(argv=argv)]
    ran = subprocess.run(
        command, env=plain | env, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
    )
    return ran.stdout.split()[-2:]


@pytest.mark.parametrize(
    "argv",
    [["live", "--model", "none"], ["replay", "no file"], ["open", "no file", "--follow"]],
    ids=lambda argv: argv[0],
)
def test_a_run_that_grows_is_seen_with_one_thread(argv: list[str], tmp_path: Path) -> None:
    assert threads(argv, XDG_STATE_HOME=str(tmp_path)) == ["1", "False"]


def test_who_has_set_a_number_keeps_it() -> None:
    assert threads(["open", "no file"], POLARS_MAX_THREADS="3") == ["3", "True"]
    assert threads(["open", "no file", "--follow"], POLARS_MAX_THREADS="3") == ["3", "True"]
