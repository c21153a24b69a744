"""A cluster whose processes have the wheel, and no checkout, on their path."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house import ROOT
from tests.tracetui.fleet.made import fleet

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
PYTHON = os.path.realpath(sys.executable)  # of no environment, so that no editable installation is found


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which Python finds the unpacked wheel and its requirements."""
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(ROOT)]
    if subprocess.run(build, capture_output=True, check=False).returncode:
        pytest.skip("the wheel cannot be built here: the build needs hatchling, which pip fetches")
    [wheel] = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "unpacked")
    places = (str(folder / "unpacked"), sysconfig.get_path("purelib"))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places), "XDG_CACHE_HOME": str(folder / "cache")}


@pytest.fixture
def scheduler(environment: dict[str, str], tmp_path: Path) -> Iterator[str]:
    """The address of a scheduler with two workers."""
    start = [PYTHON, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard"]
    process = subprocess.Popen(start, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    address = next(line.rpartition("tcp://")[2].strip() for line in process.stderr if "Scheduler at" in line)
    options = ["--nworkers", "2", "--nthreads", "1", "--no-dashboard"]
    worker = subprocess.Popen(
        [PYTHON, "-m", "distributed.cli.dask_worker", f"tcp://{address}", *options],
        cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    yield address
    for each in (worker, process):
        each.terminate()
        each.wait(20)


def test_workers_with_the_wheel_answer(environment: dict[str, str], scheduler: str, tmp_path: Path) -> None:
    folder = fleet(tmp_path / "ranks", 6)
    words = [PYTHON, "-m", "tracetui", "report", "kernels", str(folder), "--format", "csv", "--no-cache"]

    def ask(on: str) -> str:
        result = subprocess.run(
            [*words, "--on", on], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    assert ask(f"dask://{scheduler}") == ask("local:1")
    foreign = subprocess.run([PYTHON, "-c", "import capture"], cwd=tmp_path, env=environment, check=False)
    assert foreign.returncode, "a checkout is on the path: this proves nothing"
