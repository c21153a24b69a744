"""Whoever computes, the answer is the same: processes of this machine, Dask, Ray; killed or interrupted."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest

from capture.errors import UsageError
from tests.capture.served import object_store
from tests.tracetui.fleet.asked import RANKS, VIEWS, here, ignore, jobs, same
from tests.tracetui.fleet.made import NAMES, decoders, fleet
from tracetui.fleet.ask import ask_fleet, jobs_of
from tracetui.fleet.executors import RETRIES, local
from tracetui.fleet.job import Done, Job, do
from tracetui.look import Look
from tracetui.views import view

FEW = 8


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return decoders(tmp_path_factory.mktemp("decoders"), FEW)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return decoders(tmp_path_factory.mktemp("decoders"), RANKS)


def equal_everywhere(folder: Path, *places: str, names: Sequence[str] = VIEWS) -> None:
    """Every view that can be merged has the same answer there as in one process."""
    for name in names:
        asked = jobs(folder, name, look_at(name))
        wanted = here(asked)
        assert wanted.answer.rows.height and wanted.whole.members.height == len(asked)
        for on in places:
            assert same(ask_fleet(view(name), asked, on, ignore), wanted), (name, on)


def look_at(name: str) -> Look:
    return Look(focus=(("scope", "layers.2"),)) if name == "calls" else Look()


def dies_once(job: Job) -> Done:
    """Read a file; the process that has the fourth kills itself, the first time."""
    mark = Path(job.files[0]).parent.parent / "killed"
    if job.number == 3 and not mark.exists():
        mark.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
    return do(job)


@pytest.mark.timeout(300)
def test_processes_and_dask_give_the_same_and_leave_nothing(few: Path) -> None:
    with dask_cluster() as (on, _):
        before = active_children()
        equal_everywhere(few, "local:2", names=("kernels", "layers", "rankmap", "tree"))
        equal_everywhere(few, on)
        assert set(active_children()) <= set(before)


def test_a_pool_has_ended_whole_when_its_answers_have(few: Path) -> None:
    """Neither a process nor the thread that keeps it is left, to the end or given up halfway."""
    asked, before = jobs(few, "kernels"), set(threading.enumerate())
    for _ in range(3):
        arriving = local.run(asked, "2")
        assert next(arriving).partial is not None
        arriving.close()  # type: ignore[attr-defined]
        assert set(threading.enumerate()) == before and active_children() == []
        assert len(list(local.run(asked, "2"))) == FEW
        assert set(threading.enumerate()) == before and active_children() == []


def test_a_process_that_is_killed_changes_nothing(folder: Path) -> None:
    killed = []

    def kill_one(done: Done) -> None:
        if not killed:
            killed.append(active_children()[0].pid)
            os.kill(killed[0], signal.SIGKILL)

    asked = jobs(folder, "kernels")[:24]
    assert same(ask_fleet(view("kernels"), asked, "local:2", kill_one), here(asked))
    assert killed


def dies_at_three(job: Job) -> Done:
    if job.number == 3:
        os._exit(9)
    return do(job)


def test_a_file_that_kills_its_process_is_named_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "do", dies_at_three)
    asked = jobs(folder, "kernels")[:6]
    found = ask_fleet(view("kernels"), asked, "local:2", ignore)
    assert found.faults == (f"{asked[3].files[0]}: its process was lost {RETRIES + 1} times",)
    assert found.answer.rows["files"].to_list() == [5] * len(NAMES)


def waiting(ready: Callable[[], bool], seconds: float = 30) -> bool:
    end = time.monotonic() + seconds
    while not ready() and time.monotonic() < end:
        time.sleep(0.05)
    return ready()


def test_ctrl_c_leaves_no_process(tmp_path: Path) -> None:
    folder = fleet(tmp_path / "ranks", 1, steps=400)
    (one,) = folder.iterdir()
    for number in range(1, 300):  # that take a while to read
        (folder / f"rank{number:03}.jsonl").hardlink_to(one)
    words = [sys.executable, "-m", "tracetui", "report", "kernels", str(folder), "--on", "local:2"]
    words.append("--no-cache")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a child inherits that it is ignored
    asking = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)

    def group() -> list[str]:
        found = subprocess.run(["pgrep", "-g", str(asking.pid)], capture_output=True, text=True, check=False)
        return found.stdout.split()

    assert waiting(lambda: len(group()) >= 3)  # the one that asks, and two that read
    os.killpg(asking.pid, signal.SIGINT)
    out, err = asking.communicate(timeout=30)
    assert asking.returncode == 130 and out == b"" and b"Traceback" not in err
    assert waiting(lambda: group() == [], 10)


def test_files_in_an_object_store_are_asked_by_processes(few: Path) -> None:
    """Also one that is none: it is counted, and named without what lets somebody in."""
    with object_store() as system:
        for path in few.iterdir():
            system.pipe(f"bucket/run/{path.name}", path.read_bytes())
        asked = jobs_of(view("ranks"), ["s3://bucket/run/*.jsonl"], Look(), cache=True, capture=None)
        assert same(ask_fleet(view("ranks"), asked, "local:2", ignore), here(jobs(few, "ranks")))
        system.pipe("bucket/run/rank000.jsonl", b"no profile")
        found = ask_fleet(view("ranks"), asked, "local:2", ignore)
        assert len(found.faults) == 1 and found.faults[0].startswith("s3://bucket/run/rank000.jsonl")
        assert f"1 of {FEW} files could not be read" in found.answer.notes[1]


@contextmanager
def dask_cluster() -> Iterator[tuple[str, Any]]:
    """A scheduler with two processes: its address, and a client to look into it."""
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield cluster.scheduler_address.replace("tcp", "dask"), client


def test_dask_gives_the_same_when_a_worker_is_killed(folder: Path) -> None:
    with dask_cluster() as (on, client):
        pids, killed = list(client.run(os.getpid).values()), []

        def kill_one(done: Done) -> None:
            if not killed:
                killed.append(pids[0])
                os.kill(pids[0], signal.SIGKILL)

        asked = jobs(folder, "kernels")
        assert same(ask_fleet(view("kernels"), asked, on, kill_one), here(asked))
        assert killed
    with pytest.raises(UsageError, match="no Dask scheduler answers"):
        ask_fleet(view("kernels"), asked, on.rpartition(":")[0] + ":1", ignore)


def test_dask_is_left_with_nothing_after_ctrl_c(folder: Path) -> None:
    with dask_cluster() as (on, client):
        with pytest.raises(KeyboardInterrupt):
            ask_fleet(view("kernels"), jobs(folder, "kernels"), on, interrupt)
        assert waiting(lambda: not client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))


def interrupt(done: Done) -> None:
    raise KeyboardInterrupt


@pytest.mark.table  # Ray alone takes some twenty seconds to start, and these are a thousand questions
@pytest.mark.timeout(900)
def test_sixty_four_files_give_the_same_here_on_dask_and_on_ray_also_when_a_worker_is_killed(
    many: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray", reason="the extra ray is not installed")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False,
             object_store_memory=100 << 20)  # fmt: skip
    try:
        with dask_cluster() as (on, _):
            equal_everywhere(many, "local:2", on, "ray://auto")
        asked = jobs(folder, "kernels")
        monkeypatch.setattr("tracetui.fleet.executors.ray.do", dies_once)
        assert same(ask_fleet(view("kernels"), asked, "ray://auto", ignore), here(asked))
        assert (folder.parent / "killed").exists()
        monkeypatch.undo()
        with pytest.raises(KeyboardInterrupt):
            ask_fleet(view("kernels"), asked, "ray://auto", interrupt)
        assert waiting(lambda: ray.available_resources().get("CPU") == 2)
    finally:
        ray.shutdown()
