"""Garbage collection is deferred while a command starts; polars gets one thread next to a busy program."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

GC_PROGRAM = """
import gc
from tracetui import process_tuning
looks = []
gc.callbacks.append(lambda phase, told: looks.append(phase))
process_tuning.defer_gc()
process_tuning.defer_gc()  # a command within a command
start = [[] for _ in range(400_000)]
print(len(looks))
{then}
print(gc.get_threshold()[0], gc.get_freeze_count() > 400_000, len(gc.callbacks))
more = [[] for _ in range(120_000)]
print(looks.count("stop"))
"""


def printed(then: str) -> list[str]:
    command = [sys.executable, "-c", GC_PROGRAM.format(then=then)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_what_a_start_leaves_is_never_looked_through() -> None:
    assert printed("process_tuning.enable_gc()") == ["0", "50000", "True", "1", "2"]


def test_a_start_that_makes_more_than_any_ends_it() -> None:
    assert printed("start += [[] for _ in range(300_000)]")[:4] == ["0", "50000", "False", "1"]
    assert int(printed("start += [[] for _ in range(300_000)]")[4]) > 2


def test_without_a_start_nothing_is_changed() -> None:
    actual = "print(*gc.get_threshold())"
    program = (
        f"import gc; {actual}; from tracetui import process_tuning; process_tuning.enable_gc(); {actual}"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    before, after = ran.stdout.splitlines()
    assert after == before


THREADS_PROGRAM = """
import os
from tracetui.cli import main
main({argv})
import polars
print(polars.thread_pool_size(), "POLARS_MAX_THREADS" in os.environ)
"""


def threads(argv: list[str], **env: str) -> list[str]:
    plain = {k: v for k, v in os.environ.items() if k != "POLARS_MAX_THREADS"}
    command = [sys.executable, "-c", THREADS_PROGRAM.format(argv=argv)]
    ran = subprocess.run(
        command, env=plain | env, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
    )
    return ran.stdout.split()[-2:]


@pytest.mark.corpus
@pytest.mark.parametrize(
    "argv",
    [["live", "--model", "none"], ["replay", "no file"], ["open", "no file", "--follow"]],
    ids=lambda argv: argv[0],
)
def test_a_run_that_grows_is_seen_with_one_thread(argv: list[str], tmp_path: Path) -> None:
    assert threads(argv, XDG_STATE_HOME=str(tmp_path)) == ["1", "False"]


def test_who_has_set_a_number_keeps_it() -> None:
    assert threads(["open", "no file"], POLARS_MAX_THREADS="3") == ["3", "True"]
    assert threads(["open", "no file", "--follow"], POLARS_MAX_THREADS="3") == ["3", "True"]


IMPORT = """
import os, sys
class Watch:
    def find_spec(self, name, *rest):
        if name == "polars":
            print("polars read", os.environ.get("_RJEM_MALLOC_CONF"))
sys.meta_path.insert(0, Watch())
from tracetui.cli import main
main({argv})
print("left", "_RJEM_MALLOC_CONF" in os.environ)
"""


@pytest.mark.parametrize(("argv", "kept"), [(["report", "summary", "no file"], True), (["--version"], None)])
def test_who_asks_again_finds_its_memory_and_no_program_hears_of_it(
    argv: list[str], kept: bool | None
) -> None:
    plain = {k: v for k, v in os.environ.items() if k != "_RJEM_MALLOC_CONF"}
    command = [sys.executable, "-c", IMPORT.format(argv=argv)]
    ran = subprocess.run(command, env=plain, capture_output=True, text=True, check=True)
    read = [line for line in ran.stdout.splitlines() if line.startswith("polars read")]
    assert [("dirty_decay_ms:10000" in line) for line in read] == [kept] * (kept is not None)
    assert ran.stdout.splitlines()[-1] == "left False"


HEAP = """
import resource, threading
from tracetui.process_tuning import retain_freed_memory
{keep}
def fill():
    for block in [b"x" * (24 << 20) for _ in range(4)]:
        del block
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    thread = threading.Thread(target=fill)
    thread.start()
    thread.join()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator keeps what it will")
def test_arrays_of_a_question_lie_where_those_before_lay() -> None:
    """Four blocks of 24 MB have 24,576 pages, in whichever thread they are filled."""
    asked = (HEAP.format(keep=keep) for keep in ("retain_freed_memory()", ""))
    ran = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True) for code in asked]
    kept, given_back = (int(each.stdout) for each in ran)
    assert kept < 1000 < 20_000 < given_back
