"""Run jobs in processes of this machine: as many as requested, but no more than the memory allows."""

import multiprocessing
import os
import signal
import stat
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from itertools import chain
from multiprocessing import connection, resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

from capture.errors import UsageError
from capture.files.addresses import is_url
from capture.stderr_mute import allow_stderr_muting
from capture.tasks import check_cancelled
from tracetui.fleet.executors import MAX_RETRIES, Patience, give_up
from tracetui.fleet.file_job import FileJob, JobResult, run_block
from tracetui.process_tuning import list_polars_settings

_MEMORY_PER_FILE_BYTE: Final = 4  # bytes of memory per byte of a file while it is read, at most
_POLL_SECONDS: Final = 0.2  # seconds between two checks for cancellation
_KILL_AFTER_S: Final = 1.0  # of a process that does not end when asked: stopped, or waiting for a dead disk
_MIN_PROCESS_BYTES: Final = 300 << 20  # memory of a process without a file
_MAX_SMALL_BYTES: Final = 1 << 20  # of a file in a block
# Files in a block, a power of two. Message and merge of a single file take 3 ms of the parent: as long as a
# cached file of 4 kB takes a worker, and a sixth of what a worker takes to read one of 100 kB.
_BLOCK_FILES: Final = 16

Block = tuple[FileJob, ...]


def run(jobs: Sequence[FileJob], where: str) -> Iterator[JobResult]:
    """Yield the results of the jobs; retry a job whose process was lost in a process of its own."""
    number = _count_processes(jobs, where)
    queue, suspects, lost = deque(iter_blocks(jobs, number)), deque[Block](), Counter[int]()
    while queue or suspects:
        is_retry = bool(suspects)
        some, processes, limit = (suspects, 1, 1) if is_retry else (queue, number, 2 * number)
        with _open_pool(processes) as pool:
            for block, results in _run_blocks(pool, some, limit):
                if results is not None:
                    yield from results
                    continue
                lost.update(job.number for job in block)
                for job in block:
                    if lost[job.number] > MAX_RETRIES:
                        fault = f"{job.files[0]}: its process was lost {MAX_RETRIES + 1} times"
                        yield JobResult(job.number, fault=fault)
                    else:
                        suspects.append((job,))


def iter_blocks(jobs: Sequence[FileJob], processes: int) -> Iterator[Block]:
    """Yield the jobs in order: small files in blocks that are nodes of the tree of results, others alone.

    Each process gets several blocks, if there are so many files.
    """
    largest = min(_BLOCK_FILES, 1 << max(0, (len(jobs) // (2 * processes)).bit_length() - 1))
    is_small = [_is_small_file(job) for job in jobs]
    begin = 0
    while begin < len(jobs):
        size = largest
        while size > 1 and (jobs[begin].number % size or not _is_block(jobs, is_small, begin, begin + size)):
            size //= 2
        yield tuple(jobs[begin : begin + size])
        begin += size


def _is_block(jobs: Sequence[FileJob], is_small: Sequence[bool], begin: int, end: int) -> bool:
    """Whether the jobs from `begin` to before `end` exist, follow each other, and are about small files."""
    return (
        end <= len(jobs)
        and all(is_small[begin:end])
        and jobs[end - 1].number - jobs[begin].number == end - 1 - begin
    )


def _is_small_file(job: FileJob) -> bool:
    """Whether a job is about one file of this machine that is worth less than a message of its own."""
    if len(job.files) > 1 or is_url(job.files[0]):
        return False
    with suppress(OSError):
        status = Path(job.files[0]).stat()
        return stat.S_ISREG(status.st_mode) and status.st_size <= _MAX_SMALL_BYTES
    return False


def start_resource_tracker() -> None:
    """Start Python's resource tracker now, because it needs the standard error that a screen replaces."""
    resource_tracker.ensure_running()


def _run_blocks(
    pool: ProcessPoolExecutor, queue: deque[Block], limit: int
) -> Iterator[tuple[Block, list[JobResult] | None]]:
    """Yield each block of the queue with its results; None if its process was lost, which ends it all."""
    running: dict[Future[list[JobResult]], Block] = {}
    is_intact, patience = True, Patience()
    while running or (queue and is_intact):
        while is_intact and queue and len(running) < limit:
            block = queue.popleft()
            try:
                with _block_interrupts():
                    running[pool.submit(run_block, block)] = block
            except BrokenProcessPool:
                queue.appendleft(block)
                is_intact = False
        finished: set[Future[list[JobResult]]] = set()
        while not finished:
            check_cancelled()
            if patience.is_over(list(chain.from_iterable(running.values()))):
                yield from _give_up_blocks((*running.values(), *queue))
                queue.clear()
                return
            finished = wait(running, _POLL_SECONDS, FIRST_COMPLETED).done
        patience.note_answer()
        for future in finished:
            block = running.pop(future)
            if isinstance(future.exception(), BrokenProcessPool):
                is_intact = False
                yield block, None
            else:
                yield block, future.result()


def _give_up_blocks(blocks: Iterable[Block]) -> Iterator[tuple[Block, list[JobResult]]]:
    """Yield each block with a fault for each of its files."""
    return ((block, list(give_up(block))) for block in blocks)


@contextmanager
def _open_pool(number: int) -> Iterator[ProcessPoolExecutor]:
    """Open a pool of new processes; leave none behind, however the block ends."""
    before = set(multiprocessing.active_children())
    wishes = list_polars_settings(max(1, (os.cpu_count() or 1) // number))
    ours = {name: value for name, value in wishes.items() if name not in os.environ}
    os.environ.update(ours)
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
        for name in ours:
            os.environ.pop(name, None)


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
