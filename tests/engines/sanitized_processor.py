"""Runs the tests of the compiled products with checks of memory and behaviour.

python -m tests.engines.sanitized_processor [WORDS OF PYTEST]

The first fault ends it with the compiler's report. For people with gcc, after a change of `_processor.c`.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from capture.build_part import build_command
from engines import processor
from tests.capture.loaders.sanitized_scan import CHECKS, build_environment

NAME = "engines.processor._processor"
TESTS = ("tests/engines/test_processor.py", "tests/engines/test_processor_rows.py")


def run_tests(part: str, words: list[str]) -> int:
    """Put the part at a path in the place of the built one, and run the tests; return their exit code."""
    spec = importlib.util.spec_from_file_location(NAME, part)
    if spec is None or spec.loader is None:
        sys.exit(f"{part} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[NAME] = module
    del os.environ["LD_PRELOAD"]  # processes that a test starts load the usual part
    if not processor.list_kinds() or processor.load_module() is not module:
        sys.exit("this processor has none of the products")
    return pytest.main(["-q", "-x", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", *TESTS, *words])


def main() -> int:
    if sys.argv[1:2] == ["--part"]:
        return run_tests(sys.argv[2], sys.argv[3:])
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / "_processor.abi3.so"
        source = Path(__file__).parents[2] / "engines/processor/_processor.c"
        subprocess.run([*build_command(source, part), *CHECKS], check=True)
        again = [sys.executable, "-m", "tests.engines.sanitized_processor", "--part", str(part)]
        return subprocess.run([*again, *sys.argv[1:]], env=build_environment(), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
