"""A cluster whose processes have the wheel, and no checkout, on their path."""

import os
import subprocess
import sys
import sysconfig
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import psutil
import pytest

from tests.house import ROOT
from tests.tracetui.fleet.made import fleet

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
T = TypeVar("T")
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


class Cluster(NamedTuple):
    """A scheduler with two workers of one thread."""

    address: str
    scheduler: subprocess.Popen[str]
    workers: subprocess.Popen[bytes]  # starts a process for each

    def list_workers(self) -> list[psutil.Process]:
        children = psutil.Process(self.workers.pid).children(recursive=True)
        return [child for child in children if "spawn_main" in " ".join(child.cmdline())]


@pytest.fixture
def cluster(environment: dict[str, str], tmp_path: Path) -> Iterator[Cluster]:
    start = [PYTHON, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard"]
    process = subprocess.Popen(start, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    address = next(line.rpartition("tcp://")[2].strip() for line in process.stderr if "Scheduler at" in line)
    options = ["--nworkers", "2", "--nthreads", "1", "--no-dashboard"]
    workers = subprocess.Popen(
        [PYTHON, "-m", "distributed.cli.dask_worker", f"tcp://{address}", *options],
        cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    yield Cluster(address, process, workers)
    for each in (workers, process):
        each.terminate()
        try:
            each.wait(20)
        except subprocess.TimeoutExpired:
            each.kill()
            each.wait()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 512 files, one of which is none."""
    folder = fleet(tmp_path_factory.mktemp("fleet") / "ranks", 512, steps=2)
    (folder / "rank100.jsonl").write_bytes(b"\0" * 100)
    return folder


def start_asking(folder: Path, on: str, environment: dict[str, str], cwd: Path) -> subprocess.Popen[str]:
    words = [PYTHON, "-m", "tracetui", "report", "kernels", str(folder), "--format", "csv", "--no-cache"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*words, "--on", on], cwd=cwd, env=environment, text=True, **pipes)


def ask(folder: Path, on: str, environment: dict[str, str], cwd: Path) -> tuple[int, str, list[str]]:
    process = start_asking(folder, on, environment, cwd)
    return wait_for_answer(process)


def wait_for_answer(process: subprocess.Popen[str]) -> tuple[int, str, list[str]]:
    """Return the exit code, the answer, and what is said about files, without progress."""
    out, err = process.communicate(timeout=240)
    return process.returncode, out, [line for line in err.splitlines() if "files/s" not in line]


def wait_until_they_compute(cluster: Cluster, asking: subprocess.Popen[str]) -> list[psutil.Process]:
    """Wait until each worker has spent time on files."""
    workers = wait_for(lambda: found if len(found := cluster.list_workers()) == 2 else None)
    before = [sum(worker.cpu_times()[:2]) for worker in workers]
    wait_for(lambda: all(sum(w.cpu_times()[:2]) > t + 1.0 for w, t in zip(workers, before, strict=True)))
    assert asking.poll() is None, "it has ended before: this proves nothing"
    return workers


def wait_for(look: Callable[[], T | None]) -> T:
    """Return what `look` finds, once it finds something, within a minute."""
    deadline = time.monotonic() + 60
    while not (seen := look()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return seen


@pytest.mark.timeout(600)
def test_512_files_answer_though_a_worker_is_killed_and_the_other_stopped(
    environment: dict[str, str], cluster: Cluster, ranks: Path, tmp_path: Path
) -> None:
    asking = start_asking(ranks, f"dask://{cluster.address}", environment, tmp_path)
    killed, stopped = wait_until_they_compute(cluster, asking)
    killed.kill()
    stopped.suspend()
    time.sleep(3)
    stopped.resume()
    code, answer, lines = wait_for_answer(asking)
    expected = ask(ranks, "local:1", environment, tmp_path)
    assert (code, answer) == expected[:2]
    assert code == 0 and answer.count("\n") == 5
    assert "rank100.jsonl" in "\n".join(lines) and "rank100.jsonl" in "\n".join(expected[2])


@pytest.mark.timeout(600)
def test_a_scheduler_that_dies_is_one_sentence(
    environment: dict[str, str], cluster: Cluster, ranks: Path, tmp_path: Path
) -> None:
    asking = start_asking(ranks, f"dask://{cluster.address}", environment, tmp_path)
    wait_until_they_compute(cluster, asking)
    cluster.scheduler.kill()
    began = time.monotonic()
    code, answer, lines = wait_for_answer(asking)
    assert time.monotonic() - began < 60
    assert (code, answer) == (3, "")
    assert f"the Dask scheduler at {cluster.address} is gone" in lines[-1] and "Traceback" not in str(lines)


def test_workers_with_the_wheel_answer(environment: dict[str, str], cluster: Cluster, tmp_path: Path) -> None:
    folder = fleet(tmp_path / "ranks", 6)
    code, answer, lines = ask(folder, f"dask://{cluster.address}", environment, tmp_path)
    assert code == 0, lines
    assert answer == ask(folder, "local:1", environment, tmp_path)[1]
    foreign = subprocess.run([PYTHON, "-c", "import capture"], cwd=tmp_path, env=environment, check=False)
    assert foreign.returncode, "a checkout is on the path: this proves nothing"
