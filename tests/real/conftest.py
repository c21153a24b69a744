"""A model for the servers and programs that need one."""

import subprocess
from pathlib import Path

import pytest

from tests.real import PROGRAMS, find_program


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a small model of random weights."""
    folder = tmp_path_factory.mktemp("model") / "qwen3"
    subprocess.run([find_program("vllm"), str(PROGRAMS / "make_model.py"), str(folder)], check=True)
    return folder
