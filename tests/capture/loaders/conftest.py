"""What the tests of several loaders share."""

from pathlib import Path

import pytest

from tests.bench._chrome_maker import write


@pytest.fixture(scope="session")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace as torch prints it: two steps of a decode loop."""
    path = tmp_path_factory.mktemp("chrome") / "trace.json"
    write(path, 0.5)
    return path
