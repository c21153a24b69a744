"""Run jobs in processes of this machine: as many as requested, but no more than the memory allows."""

import multiprocessing
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import connection, resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

from capture.errors import UsageError
from capture.files.addresses import is_url
from capture.stderr_mute import allow_stderr_muting
from capture.tasks import check_cancelled
from tracetui.fleet.executors import MAX_RETRIES, Patience, give_up
from tracetui.fleet.file_job import FileJob, JobResult, run_job

_MEMORY_PER_FILE_BYTE: Final = 4  # bytes of memory per byte of a file while it is read, at most
_POLL_SECONDS: Final = 0.2  # seconds between two checks for cancellation
_KILL_AFTER_S: Final = 1.0  # of a process that does not end when asked: stopped, or waiting for a dead disk
_MIN_PROCESS_BYTES: Final = 300 << 20  # memory of a process without a file


def run(jobs: Sequence[FileJob], where: str) -> Iterator[JobResult]:
    """Yield the result of each job; retry a job whose process was lost in a process of its own."""
    number = _count_processes(jobs, where)
    queue, suspects, lost = deque(jobs), deque[FileJob](), Counter[int]()
    while queue or suspects:
        is_retry = bool(suspects)
        some, processes, limit = (suspects, 1, 1) if is_retry else (queue, number, 2 * number)
        with _open_pool(processes) as pool:
            for job, result in _run_jobs(pool, some, limit):
                if result is not None:
                    yield result
                    continue
                lost[job.number] += 1
                if lost[job.number] > MAX_RETRIES:
                    fault = f"{job.files[0]}: its process was lost {MAX_RETRIES + 1} times"
                    yield JobResult(job.number, fault=fault)
                else:
                    suspects.append(job)


def start_resource_tracker() -> None:
    """Start Python's resource tracker now, because it needs the standard error that a screen replaces."""
    resource_tracker.ensure_running()


def _run_jobs(
    pool: ProcessPoolExecutor, queue: deque[FileJob], limit: int
) -> Iterator[tuple[FileJob, JobResult | None]]:
    """Yield each job of the queue with its result; None if its process was lost, which ends the iteration."""
    running: dict[Future[JobResult], FileJob] = {}
    is_intact, patience = True, Patience()
    while running or (queue and is_intact):
        while is_intact and queue and len(running) < limit:
            job = queue.popleft()
            try:
                with _block_interrupts():
                    running[pool.submit(run_job, job)] = job
            except BrokenProcessPool:
                queue.appendleft(job)
                is_intact = False
        finished: set[Future[JobResult]] = set()
        while not finished:
            check_cancelled()
            if patience.is_over(running.values()):
                jobs = (*running.values(), *queue)
                queue.clear()
                yield from zip(jobs, give_up(jobs), strict=True)
                return
            finished = wait(running, _POLL_SECONDS, FIRST_COMPLETED).done
        patience.note_answer()
        for future in finished:
            job = running.pop(future)
            if isinstance(future.exception(), BrokenProcessPool):
                is_intact = False
                yield job, None
            else:
                yield job, future.result()


@contextmanager
def _open_pool(number: int) -> Iterator[ProcessPoolExecutor]:
    """Open a pool of new processes; leave none behind, however the block ends."""
    before = set(multiprocessing.active_children())
    threads = os.environ.get("POLARS_MAX_THREADS")
    os.environ["POLARS_MAX_THREADS"] = threads or str(max(1, (os.cpu_count() or 1) // number))
    pool = ProcessPoolExecutor(number, multiprocessing.get_context("spawn"), _start_worker)
    try:
        yield pool
    finally:
        children = set(multiprocessing.active_children()) - before
        for child in children:
            child.terminate()
        killer = threading.Thread(target=_kill_after, args=(children, _KILL_AFTER_S), daemon=True)
        killer.start()
        # only the pool's own thread waits for the processes: a second one to wait would not see them end
        pool.shutdown(wait=True, cancel_futures=True)
        killer.join()
        if threads is None:
            os.environ.pop("POLARS_MAX_THREADS", None)


def _kill_after(children: Iterable[BaseProcess], seconds: float) -> None:
    """Kill the processes that are left: stopped ones, and those that wait for a dead disk."""
    deadline = time.monotonic() + seconds
    while (
        alive := [child.sentinel for child in children if child.is_alive()]
    ) and time.monotonic() < deadline:
        connection.wait(alive, deadline - time.monotonic())
    for child in children:
        with suppress(ValueError, OSError):
            child.kill()


@contextmanager
def _block_interrupts() -> Iterator[None]:
    """Let processes that start in the block ignore Ctrl-C, which is for the parent only."""
    resource_tracker.ensure_running()  # starting later, it would undo the mask
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _start_worker() -> None:
    """Leave Ctrl-C to the parent process, and exit with it."""
    allow_stderr_muting()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _count_processes(jobs: Sequence[FileJob], where: str) -> int:
    """Count the processes to start; raise UsageError for an invalid number."""
    if where and not (where.isdecimal() and 1 <= int(where) <= 1024):
        raise UsageError(f"invalid number of processes {where!r}", todo="use --on local:4")
    requested = int(where) if where else os.cpu_count() or 1
    return max(1, min(requested, len(jobs), _count_fitting(jobs)))


def _count_fitting(jobs: Sequence[FileJob]) -> int:
    """Count how many of the largest files fit into free memory at once."""
    paths = (Path(file) for job in jobs for file in job.files if not is_url(file))
    largest = max((path.stat().st_size for path in paths if path.is_file()), default=0)
    return int(_read_free_bytes() // (largest * _MEMORY_PER_FILE_BYTE + _MIN_PROCESS_BYTES))


def _read_free_bytes() -> int:
    """Read the bytes of free memory; a terabyte if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return 1 << 40
