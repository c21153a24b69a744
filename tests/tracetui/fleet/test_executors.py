"""Whoever computes, the answer is the same: processes of this machine, Dask, Ray; killed or interrupted."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import active_children
from pathlib import Path

import pytest

from capture.errors import UsageError
from tests.tracetui.fleet.asked import VIEWS, here, ignore, jobs, same
from tests.tracetui.fleet.made import NAMES, fleet
from tracetui.fleet.ask import ask_fleet
from tracetui.fleet.executors import RETRIES, local
from tracetui.fleet.job import Done, Job, do
from tracetui.views import view


def test_processes_give_the_same_and_leave_nothing(folder: Path) -> None:
    for name in VIEWS:
        asked = jobs(folder, name)
        assert same(ask_fleet(view(name), asked, "local:2", ignore), here(asked))
    assert active_children() == []


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


def test_dask_gives_the_same_also_when_a_worker_is_killed(folder: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        on = cluster.scheduler_address.replace("tcp", "dask")
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


@pytest.mark.table  # Ray alone takes some twenty seconds to start
@pytest.mark.timeout(300)
def test_ray_gives_the_same(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason="the extra ray is not installed")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False,
             object_store_memory=100 << 20)  # fmt: skip
    try:
        for name in VIEWS:
            asked = jobs(folder, name)
            assert same(ask_fleet(view(name), asked, "ray://auto", ignore), here(asked))
    finally:
        ray.shutdown()
