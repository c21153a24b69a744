"""Processes of this machine: as many as asked, but no more than the memory holds files."""

import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Final

from capture.addresses import is_url
from capture.errors import UsageError
from capture.unheard import own_process
from tracetui import cancel
from tracetui.fleet.executors import RETRIES
from tracetui.fleet.job import Done, Job, do

_PER_BYTE: Final = 4  # bytes of memory that a byte of a file takes while it is read, at most
_PATIENCE: Final = 0.2  # seconds between two looks at whether somebody still waits
_LEAST: Final = 300 << 20  # bytes that a process takes in any case


def run(jobs: Sequence[Job], where: str) -> Iterator[Done]:
    """Yield what became of each job; one whose process was lost is tried again, alone."""
    number = _processes(jobs, where)
    queue, suspects, lost = deque(jobs), deque[Job](), Counter[int]()
    while queue or suspects:
        alone = bool(suspects)
        with _pool(1 if alone else number) as pool:
            for job, done in _ran(pool, suspects if alone else queue, 1 if alone else 2 * number):
                if done is not None:
                    yield done
                    continue
                lost[job.number] += 1
                if lost[job.number] > RETRIES:
                    yield Done(job.number, fault=f"{job.files[0]}: its process was lost {RETRIES + 1} times")
                else:
                    suspects.append(job)


def prepare() -> None:
    """Start what keeps account of processes; it needs the standard error that a screen takes away."""
    resource_tracker.ensure_running()


def _ran(pool: ProcessPoolExecutor, queue: deque[Job], most: int) -> Iterator[tuple[Job, Done | None]]:
    """Yield each job of the queue with what became of it, None where a process was lost, after which the rest
    of the queue is left.
    """
    running: dict[Future[Done], Job] = {}
    whole = True
    while running or (queue and whole):
        while whole and queue and len(running) < most:
            job = queue.popleft()
            try:
                with _deaf_children():
                    running[pool.submit(do, job)] = job
            except BrokenProcessPool:
                queue.appendleft(job)
                whole = False
        finished: set[Future[Done]] = set()
        while not finished:
            cancel.check()
            finished = wait(running, _PATIENCE, FIRST_COMPLETED).done
        for future in finished:
            job = running.pop(future)
            if isinstance(future.exception(), BrokenProcessPool):
                whole = False
                yield job, None
            else:
                yield job, future.result()


@contextmanager
def _pool(number: int) -> Iterator[ProcessPoolExecutor]:
    """Give a pool of fresh processes, none of which is left behind, however this ends."""
    before = set(multiprocessing.active_children())
    threads = os.environ.get("POLARS_MAX_THREADS")
    os.environ["POLARS_MAX_THREADS"] = threads or str(max(1, (os.cpu_count() or 1) // number))
    pool = ProcessPoolExecutor(number, multiprocessing.get_context("spawn"), _begin)
    try:
        yield pool
    finally:
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()
        pool.shutdown(wait=True, cancel_futures=True)  # only its own thread waits for the processes: of two
        # that wait for one process, the second learns nothing
        if threads is None:
            os.environ.pop("POLARS_MAX_THREADS", None)


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Let processes that start meanwhile inherit that they hear no Ctrl-C, which is for us alone."""
    resource_tracker.ensure_running()  # it would undo the mask when it starts
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _begin() -> None:
    """Leave Ctrl-C to the process that asks, and end when that one ends."""
    own_process()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _processes(jobs: Sequence[Job], where: str) -> int:
    """Return how many processes are started; raise UsageError where the number is none."""
    if where and not (where.isdecimal() and 1 <= int(where) <= 1024):
        raise UsageError(f"{where!r} is no number of processes", todo="write it like --on local:4")
    asked = int(where) if where else os.cpu_count() or 1
    return max(1, min(asked, len(jobs), _fitting(jobs)))


def _fitting(jobs: Sequence[Job]) -> int:
    """Return how many of the largest files fit into the memory that is free at once."""
    largest = max((Path(f).stat().st_size for job in jobs for f in job.files if _is_here(f)), default=0)
    return int(_free() // (largest * _PER_BYTE + _LEAST))


def _is_here(file: str) -> bool:
    return not is_url(file) and Path(file).is_file()


def _free() -> int:
    """Return the bytes of memory that are free, a terabyte where nobody knows."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return 1 << 40
