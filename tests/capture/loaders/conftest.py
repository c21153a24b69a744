"""What the tests of several loaders share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from capture.extensions import OFF_VARIABLE
from tests.bench._chrome_maker import write


@pytest.fixture(scope="session")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace as torch prints it: two steps of a decode loop."""
    path = tmp_path_factory.mktemp("chrome") / "trace.json"
    write(path, 0.5)
    return path


@pytest.fixture(scope="module", params=["compiled", "polars"])
def splitter(request: pytest.FixtureRequest) -> Iterator[None]:
    """Split separated values with the compiled scanner where it is built, and again without it."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "polars":
            patch.setenv(OFF_VARIABLE, "1")
        yield
