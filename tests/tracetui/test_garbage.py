"""Garbage is not looked for while a command starts, and is from then on."""

import subprocess
import sys

PROGRAM = """
import gc
from tracetui import garbage
looks = []
gc.callbacks.append(lambda phase, told: looks.append(phase))
garbage.put_off()
garbage.put_off()  # a command within a command
start = [[] for _ in range(400_000)]
print(len(looks))
{then}
print(gc.get_threshold()[0], gc.get_freeze_count() > 400_000, len(gc.callbacks))
more = [[] for _ in range(120_000)]
print(looks.count("stop"))
"""


def printed(then: str) -> list[str]:
    command = [sys.executable, "-c", PROGRAM.format(then=then)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_what_a_start_leaves_is_never_looked_through() -> None:
    assert printed("garbage.take_up()") == ["0", "50000", "True", "1", "2"]


def test_a_start_that_makes_more_than_any_ends_it() -> None:
    assert printed("start += [[] for _ in range(300_000)]")[:4] == ["0", "50000", "False", "1"]
    assert int(printed("start += [[] for _ in range(300_000)]")[4]) > 2


def test_without_a_start_nothing_is_changed() -> None:
    told = "print(*gc.get_threshold())"
    program = f"import gc; {told}; from tracetui import garbage; garbage.take_up(); {told}"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    before, after = ran.stdout.splitlines()
    assert after == before
