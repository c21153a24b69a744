"""Whoever computes, the answer is the same: processes of this machine, Dask, Ray; killed or interrupted."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import psutil
import pytest
from polars.testing import assert_frame_equal

from capture.errors import UnreadableError, UsageError
from tests.capture.served import object_store
from tests.real.servers import find_free_port
from tests.tracetui.fleet.asked import RANKS, VIEWS, here, ignore, jobs, same
from tests.tracetui.fleet.made import NAMES, decoders, fleet
from tracetui.fleet import file_job
from tracetui.fleet.ask_files import FileResults, ask_files, make_jobs
from tracetui.fleet.executors import MAX_RETRIES, local, ray
from tracetui.fleet.file_job import FileJob, JobResult, run_block, run_job
from tracetui.look import Look
from tracetui.views import load_view

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
        has_rows = wanted.answer.rows.height or name == "collectives"  # these ranks run none
        assert has_rows and wanted.merged.members.height == len(asked)
        for on in places:
            assert same(ask_files(load_view(name), asked, on, ignore), wanted), (name, on)


def look_at(name: str) -> Look:
    return Look(focus=(("scope", "layers.2"),)) if name == "calls" else Look()


def dies_once(job: FileJob) -> JobResult:
    """Read a file; the process that has the fourth kills itself, the first time."""
    mark = Path(job.files[0]).parent.parent / "killed"
    if job.number == 3 and not mark.exists():
        mark.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
    return run_job(job)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_processes_and_dask_give_the_same_and_leave_nothing(few: Path) -> None:
    with dask_cluster() as (on, _):
        before = active_children()
        equal_everywhere(few, "local:2", names=("kernels", "layers", "rankmap", "tree"))
        equal_everywhere(few, on)
        assert set(active_children()) <= set(before)


@pytest.mark.slow
def test_a_pool_has_ended_whole_when_its_answers_have(few: Path) -> None:
    """Neither a process nor the thread that keeps it is left, to the end or given up halfway."""
    asked, before = jobs(few, "kernels"), set(threading.enumerate())
    for _ in range(3):
        arriving = local.run(asked, "2")
        assert next(arriving).partial is not None
        arriving.close()  # type: ignore[attr-defined]
        assert set(threading.enumerate()) == before and active_children() == []
        assert sum(result.count for result in local.run(asked, "2")) == FEW
        assert set(threading.enumerate()) == before and active_children() == []


@pytest.mark.slow
def test_a_process_that_is_killed_changes_nothing(folder: Path) -> None:
    killed = []

    def kill_one(done: JobResult) -> None:
        if not killed:
            killed.append(active_children()[0].pid)
            os.kill(killed[0], signal.SIGKILL)

    asked = jobs(folder, "kernels")[:24]
    assert same(ask_files(load_view("kernels"), asked, "local:2", kill_one), here(asked))
    assert killed


def dies_at_three(block: Sequence[FileJob]) -> list[JobResult]:
    if any(job.number == 3 for job in block):
        os._exit(9)
    return run_block(block)


def test_a_job_whose_process_is_lost_is_tried_as_often_as_is_promised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries: Counter[int] = Counter()

    def run_blocks(
        pool: None, queue: deque[local.Block], limit: int
    ) -> Iterator[tuple[local.Block, list[JobResult] | None]]:
        """Job 1 always loses its process, job 2 on all but its last try."""
        while queue:
            block = queue.popleft()
            [job] = block
            tries[job.number] += 1
            if job.number == 1 or (job.number == 2 and tries[2] <= MAX_RETRIES):
                yield block, None
                return
            yield block, [JobResult(job.number)]

    monkeypatch.setattr(local, "_run_blocks", run_blocks)
    monkeypatch.setattr(local, "_open_pool", lambda number: nullcontext())
    asked = [FileJob(number, (f"{number}.jsonl",), "kernels", Look()) for number in range(4)]
    faults = {result.number: result.fault for result in local.run(asked, "2")}
    assert faults == {0: "", 1: f"1.jsonl: its process was lost {MAX_RETRIES + 1} times", 2: "", 3: ""}
    assert tries == {0: 1, 1: MAX_RETRIES + 1, 2: MAX_RETRIES + 1, 3: 1}


@pytest.mark.slow
def test_a_file_that_kills_its_process_is_named_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "run_block", dies_at_three)
    asked = jobs(folder, "kernels")[:6]
    actual = ask_files(load_view("kernels"), asked, "local:2", ignore)
    assert actual.faults == (f"{asked[3].files[0]}: its process was lost {MAX_RETRIES + 1} times",)
    assert actual.answer.rows["files"].to_list() == [5] * len(NAMES)


def waiting(ready: Callable[[], bool], seconds: float = 30) -> bool:
    end = time.monotonic() + seconds
    while not ready() and time.monotonic() < end:
        time.sleep(0.05)
    return ready()


@pytest.mark.slow
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
        actual = subprocess.run(["pgrep", "-g", str(asking.pid)], capture_output=True, text=True, check=False)
        return actual.stdout.split()

    assert waiting(lambda: len(group()) >= 3)  # the one that asks, and two that read
    os.killpg(asking.pid, signal.SIGINT)
    out, err = asking.communicate(timeout=30)
    assert asking.returncode == 130 and out == b"" and b"Traceback" not in err
    assert waiting(lambda: group() == [], 10)


@pytest.mark.slow
def test_ctrl_c_ends_processes_that_are_stopped(folder: Path) -> None:
    """As one is that waits for a dead disk: it does not see that it is asked to end."""
    words = [sys.executable, "-m", "tracetui", "report", "kernels", str(folder), "--on", "local:2"]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    asking = subprocess.Popen([*words, "--no-cache"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def workers() -> list[int]:
        words = ["pgrep", "-P", str(asking.pid), "-f", "spawn_main"]
        return [int(n) for n in subprocess.run(words, stdout=subprocess.PIPE, check=False).stdout.split()]

    assert waiting(lambda: len(workers()) == 2)
    stopped = workers()
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(0.5)
    asking.send_signal(signal.SIGINT)
    _, err = asking.communicate(timeout=10)
    assert asking.returncode == 130 and b"Traceback" not in err
    assert not any(Path(f"/proc/{pid}").exists() for pid in stopped)


@pytest.mark.slow
def test_a_file_that_never_answers_is_announced_and_given_up(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    heard: list[str] = []
    monkeypatch.setattr("capture.tasks._listeners", [heard.append])
    monkeypatch.setattr("tracetui.fleet.executors.ANNOUNCE_AFTER_S", 1.0)
    monkeypatch.setattr("tracetui.fleet.executors.MAX_SILENCE_S", 15.0)  # a worker starts meanwhile
    pipe, *files = str(tmp_path / "pipe.jsonl"), *map(str, sorted(folder.iterdir())[:3])
    asked = make_jobs(load_view("kernels"), [pipe, *files], Look(), cache=False, capture=None)
    actual = ask_files(load_view("kernels"), asked, "local:2", ignore)
    assert any(text.startswith(f"waiting for {pipe} since ") for text in heard)
    [fault] = actual.faults
    assert fault.startswith(f"{pipe}: no answer for") and actual.answer.rows["files"].to_list() == [3] * len(
        NAMES
    )


def fail_to_import(job: FileJob) -> JobResult:
    raise ModuleNotFoundError("No module named 'capture'")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_scheduler_that_dies_is_one_sentence_and_a_worker_tells_its_cause(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard"]
    scheduler = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert scheduler.stderr is not None
    address = next(
        line.rpartition("tcp://")[2].strip() for line in scheduler.stderr if "Scheduler at" in line
    )
    worker = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_worker", f"tcp://{address}", "--no-dashboard"],
        stderr=subprocess.DEVNULL,
    )
    try:
        with monkeypatch.context() as patched:
            patched.setattr("tracetui.fleet.executors.dask.run_job", fail_to_import)
            with pytest.raises(UnreadableError, match="No module named 'capture'; install the same tracetui"):
                ask_files(load_view("kernels"), jobs(folder, "kernels")[:2], f"dask://{address}", ignore)
        began = time.monotonic()
        with pytest.raises(UnreadableError, match=f"the Dask scheduler at {address} is gone"):
            ask_files(
                load_view("kernels"), jobs(folder, "kernels"), f"dask://{address}", lambda _: scheduler.kill()
            )
        assert time.monotonic() - began < 30
    finally:
        for process in (worker, scheduler):
            process.kill()
            process.wait()


@pytest.mark.slow
def test_files_in_an_object_store_are_asked_by_processes(few: Path) -> None:
    """Also one that is none: it is counted, and named without what lets somebody in."""
    with object_store() as system:
        for path in few.iterdir():
            system.pipe(f"bucket/run/{path.name}", path.read_bytes())
        asked = make_jobs(load_view("ranks"), ["s3://bucket/run/*.jsonl"], Look(), cache=True, capture=None)
        assert same(ask_files(load_view("ranks"), asked, "local:2", ignore), here(jobs(few, "ranks")))
        system.pipe("bucket/run/rank000.jsonl", b"no profile")
        actual = ask_files(load_view("ranks"), asked, "local:2", ignore)
        assert len(actual.faults) == 1 and actual.faults[0].startswith("s3://bucket/run/rank000.jsonl")
        assert f"1 of {FEW} files could not be read" in actual.answer.notes[1]


@contextmanager
def dask_cluster() -> Iterator[tuple[str, Any]]:
    """A scheduler with two processes: its address, and a client to look into it."""
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield cluster.scheduler_address.replace("tcp", "dask"), client


@pytest.mark.slow
def test_dask_gives_the_same_when_a_worker_is_killed(folder: Path) -> None:
    with dask_cluster() as (on, client):
        pids, killed = list(client.run(os.getpid).values()), []

        def kill_one(done: JobResult) -> None:
            if not killed:
                killed.append(pids[0])
                os.kill(pids[0], signal.SIGKILL)

        asked = jobs(folder, "kernels")
        assert same(ask_files(load_view("kernels"), asked, on, kill_one), here(asked))
        assert killed
    with pytest.raises(UsageError, match="no Dask scheduler answers"):
        ask_files(load_view("kernels"), asked, on.rpartition(":")[0] + ":1", ignore)


@pytest.mark.slow
def test_dask_computes_again_what_dies_with_the_workers_that_have_computed_it(folder: Path) -> None:
    with dask_cluster() as (on, client):
        arrived = []

        def kill_all(done: JobResult) -> None:
            arrived.append(done)
            if len(arrived) == 1:
                time.sleep(1.5)  # so that the results of the others wait with their workers
            if len(arrived) == 3:
                for pid in client.run(os.getpid).values():
                    os.kill(pid, signal.SIGKILL)
                time.sleep(0.3)

        asked = jobs(folder, "kernels")[:24]
        assert same(ask_files(load_view("kernels"), asked, on, kill_all), here(asked))


@pytest.mark.slow
def test_dask_is_left_with_nothing_after_ctrl_c(folder: Path) -> None:
    with dask_cluster() as (on, client):
        with pytest.raises(KeyboardInterrupt):
            ask_files(load_view("kernels"), jobs(folder, "kernels"), on, interrupt)
        assert waiting(lambda: not client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))


def interrupt(done: JobResult) -> None:
    raise KeyboardInterrupt


@pytest.mark.table  # Ray alone takes some twenty seconds to start, and these are a thousand questions
@pytest.mark.timeout(900)
def test_sixty_four_files_give_the_same_here_on_dask_and_on_ray_also_when_a_worker_is_killed(
    many: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray_module = pytest.importorskip("ray", reason="the extra ray is not installed")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    ray_module.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False,
             object_store_memory=100 << 20)  # fmt: skip
    try:
        with dask_cluster() as (on, _):
            equal_everywhere(many, "local:2", on, "ray://auto")
        asked = jobs(folder, "kernels")
        monkeypatch.setattr("tracetui.fleet.executors.ray.run_job", dies_once)
        assert same(ask_files(load_view("kernels"), asked, "ray://auto", ignore), here(asked))
        assert (folder.parent / "killed").exists()
        monkeypatch.undo()
        with pytest.raises(KeyboardInterrupt):
            ask_files(load_view("kernels"), asked, "ray://auto", interrupt)
        assert waiting(lambda: ray_module.available_resources().get("CPU") == 2)
    finally:
        ray_module.shutdown()


@pytest.mark.table
@pytest.mark.timeout(300)
def test_a_head_of_ray_that_is_killed_is_one_sentence(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="the extra ray is not installed")
    port = str(find_free_port())
    start = [Path(sys.executable).with_name("ray"), "start", "--head", "--num-cpus", "2", "--port", port]
    with TemporaryDirectory() as folder:  # with a short path: sockets lie there
        for name, value in {
            "USAGE_STATS_ENABLED": "0",
            "ADDRESS": f"127.0.0.1:{port}",
            "TMPDIR": folder,
        }.items():
            monkeypatch.setenv(f"RAY_{name}", value)
        subprocess.run([*start, "--include-dashboard=false"], check=True, stdout=subprocess.DEVNULL)
        try:
            answers = ray.run(jobs(many, "kernels") * 200, "auto")
            assert not next(answers).fault
        finally:
            kill_ray(port)
        began = time.monotonic()
        with pytest.raises(UnreadableError, match=rf"^the head of the Ray cluster at \S+:{port} is gone"):
            list(answers)
        assert time.monotonic() - began < 50  # before Ray ends this process


def kill_ray(port: str) -> None:
    """Kill the processes of the cluster whose head listens there."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if words and Path(words[0]).name in ("gcs_server", "raylet") and any(port in word for word in words):
            process.kill()


def test_a_ray_cluster_that_is_gone_is_tried_once_and_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_NUM_REDIS_GET_RETRIES", "0")  # so that it is restored
    monkeypatch.delenv("RAY_NUM_REDIS_GET_RETRIES")
    gone = RuntimeError("Failed to connect\nTraceback (most recent call last):\nRpcError: nothing listens")

    def build_module(*_: str) -> SimpleNamespace:
        print("(raylet) words of Ray's own")
        tries.append(os.environ["RAY_NUM_REDIS_GET_RETRIES"])
        return SimpleNamespace(is_initialized=lambda: False, init=Mock(side_effect=gone))

    tries: list[str] = []
    monkeypatch.setattr(ray, "require_module", build_module)
    with pytest.raises(UsageError, match=r"at auto \(RuntimeError: RpcError: nothing listens\)$"):
        next(ray.run([], "auto"))
    assert tries == ["1"]
    assert not capsys.readouterr().out


@pytest.mark.parametrize("name", VIEWS)
def test_blocks_of_small_files_give_the_same_as_one_by_one_to_the_last_bit(
    folder: Path, tmp_path: Path, name: str
) -> None:
    """Blocks of 16, 4 and 1 files, and one in which a file cannot be read."""
    for file in sorted(folder.iterdir())[:37]:
        (tmp_path / file.name).write_bytes(file.read_bytes())
    sorted(tmp_path.glob("*.jsonl"))[3].write_text('{"traceEvents": [{"ph"')
    asked = make_jobs(
        load_view(name), sorted(tmp_path.glob("*.jsonl")), look_at(name), cache=False, capture=None
    )
    blocks = list(local.iter_blocks(asked, 1))
    assert [len(block) for block in blocks] == [16, 16, 4, 1]
    assert [len(block) for block in local.iter_blocks(asked, 8)] == [2] * 18 + [1]
    one_by_one, in_blocks = (FileResults(load_view(name), asked) for _ in range(2))
    for job in asked:
        one_by_one.add(run_job(job))
    messages = [result for block in reversed(blocks) for result in run_block(block)]
    for result in messages:
        in_blocks.add(result)
    assert len(messages) == 1 + 1 + 1 + 16
    (wanted, *said), (actual, *said_too) = one_by_one.merge_arrived(), in_blocks.merge_arrived()
    assert said == said_too and len(said[0]) == 1 and said[1] == 37
    assert wanted.shared_meta == actual.shared_meta and wanted.frames.keys() == actual.frames.keys()
    for frame in wanted.frames:
        assert_frame_equal(actual.frames[frame], wanted.frames[frame], check_exact=True)


def test_a_block_of_small_files_is_read_from_the_cache_until_a_file_of_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRACETUI_NO_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = fleet(tmp_path / "of4", 4)
    asked = make_jobs(load_view("kernels"), [folder], Look(), cache=True, capture=None)
    [first] = run_block(asked)
    with monkeypatch.context() as patch:
        patch.setattr(file_job, "run_job", None)  # a block from the cache asks no file
        [again] = run_block(asked)
        with pytest.raises(TypeError):
            run_block(asked[:2])
    assert (again.number, again.size, again.count) == (first.number, first.size, 4)
    assert same_frames(first, again)
    (folder / "rank002.jsonl").write_bytes((folder / "rank003.jsonl").read_bytes())
    [changed] = run_block(asked)
    [expected] = run_block([replace(job, cache=False) for job in asked])
    assert same_frames(changed, expected) and not same_frames(changed, first)


def same_frames(one: JobResult, other: JobResult) -> bool:
    assert one.partial is not None and other.partial is not None
    frames = one.partial.frames, other.partial.frames
    return frames[0].keys() == frames[1].keys() and all(frames[0][n].equals(frames[1][n]) for n in frames[0])
