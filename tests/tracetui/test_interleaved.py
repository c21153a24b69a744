"""`diff --record`: two commands recorded in turn until their comparison is decided."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from argparse import ArgumentTypeError
from pathlib import Path

import pytest

from tests.tracetui.in_process import tracetui
from tests.tracetui.process.test_engine_process import _dead, until
from tracetui.verbs._comparison_sides import parse_budget

# writes 12 steps of its first argument in µs, a tenth of a percent more each time, and notes its second;
# the two sides never write the same, as one recording that is named twice would
ENGINE = """
import os, pathlib, sys, time
took, side = float(sys.argv[1]), sys.argv[2]
order = pathlib.Path("order")
number = order.read_text().count(side) if order.exists() else 0
with order.open("a") as out:
    out.write(side)
took = int(1000 * took * (1 + number / 1000))
with open(os.environ["TRACETUI_OUT"], "a") as out:
    print('{"kind":"run","schema":1,"name":"toy","meta":{"model":"toy"}}', file=out)
    for step in range(12):
        at = f'"step":{step},"phase":"decode","t":{step * took + (side == "b")},"dur":{took},"lens":"gpu"'
        print('{"kind":"kernel","name":"k",' + at + '}', file=out)
        print('{"kind":"step","name":"decode","tokens":1,' + at + '}', file=out)
print("said on stdout")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "engine.py").write_text(ENGINE)
    (tmp_path / "state").mkdir()
    return tmp_path


def asked(folder: Path, a: str, b: str, *more: str) -> subprocess.CompletedProcess[str]:
    env = {"XDG_STATE_HOME": str(folder / "state")}
    return tracetui("diff", "--record", a, b, *more, cwd=folder, env=env)


def kept(folder: Path) -> list[str]:
    return sorted(path.name.partition("-python")[2] for path in (folder / "state").rglob("*.jsonl"))


@pytest.mark.slow
def test_a_change_is_decided_and_the_recordings_are_kept(folder: Path) -> None:
    a, b = (f"python engine.py {took} {side}" for took, side in (("10", "a"), ("15", "b")))
    result = asked(folder, a, b, "--format", "json", "--fail-over", "3%")
    assert result.returncode == 1, result.stderr
    assert (folder / "order").read_text() == "abba", "decided after two a side"
    assert kept(folder) == ["-a-1.jsonl", "-a-2.jsonl", "-b-1.jsonl", "-b-2.jsonl"]
    actual = json.loads(result.stdout)  # what the programs print is not in it
    assert actual["decision"]["phases"][0]["verdict"] == "slower"
    assert any(note.startswith("compared after each pair: this look used ") for note in actual["notes"])
    output = result.stderr.splitlines()
    assert output[0].startswith("tracetui: after 1 per side: about ") and output[0].endswith(" left")
    assert output[1].startswith("tracetui: after 2 per side: slower: decode step 10.00 µs → 15.01 µs (+50.")
    assert "and 3 more (tracetui recordings lists them)" in output[2] and "slower: k +50" in output[3]


@pytest.mark.slow
def test_no_difference_ends_with_the_budget_and_what_more_would_take(folder: Path) -> None:
    """Equal programs whose recordings lie 0.1 % apart: not decided within 0.01 %, however often asked."""
    a, b = (f"python engine.py 10 {side}" for side in "ab")
    result = asked(folder, a, b, "--budget", "12s", "--threshold", "0.01%", "--format", "table")
    order, output = (folder / "order").read_text(), result.stderr
    pairs = len(order) // 2
    assert result.returncode == 0 and order == ("abba" * len(order))[: len(order)]
    assert (
        f"after {pairs} per side: undecided: decode step" in output
        and "no further pair fits into 12 s" in output
    )
    assert result.stdout.startswith("undecided: decode step")
    decision = result.stdout.partition("\n\n")[0]
    assert "\n  step: " in decision and "recordings per side" in decision


@pytest.mark.slow
def test_equal_programs_are_the_same_within_a_threshold(folder: Path) -> None:
    result = asked(folder, "python engine.py 10 a", "python engine.py 10 b", "--threshold", "20%")
    assert result.returncode == 0 and result.stdout.startswith("same: decode step"), result.stderr


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("python -c 'print(7); raise SystemExit(9)'", "ended with exit code 9: 7"),
        ("python -c 'import os; os.kill(os.getpid(), 11)'", "was ended by SIGSEGV"),
        ("python -c 0", "was recorded, because no process of it imported torch or llama_cpp"),
        ("/nonexistent/program", "/nonexistent/program cannot be started"),
    ],
)
def test_a_command_that_fails_is_named_and_the_other_recording_kept(
    bad: str, says: str, folder: Path
) -> None:
    result = asked(folder, "python engine.py 10 a", bad)
    assert result.returncode == 5 and says in result.stderr and result.stdout == ""
    assert kept(folder) == ["-a-1.jsonl"]


@pytest.mark.slow
def test_a_command_is_no_line_of_a_shell(folder: Path) -> None:
    result = asked(folder, "python engine.py 10 a; touch ran", "python engine.py 15 b $(touch ran)")
    assert not (folder / "ran").exists() and result.returncode == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--record", "a 'b", "c"), "no closing quotation"),
        (("--record", "", "c"), "empty command"),
        (("--record", "a", "b", "f.jsonl"), "--record creates both sides itself"),
        (("--record", "a", "b", "--budget", "soon"), "invalid time 'soon'"),
        (("--record", "--model x -o f", "b"), "leave out -o and --repeat"),
    ],
)
def test_what_cannot_be_recorded_is_a_fault_of_use(words: tuple[str, ...], says: str, folder: Path) -> None:
    result = tracetui("diff", *words, cwd=folder, env={"XDG_STATE_HOME": str(folder / "state")})
    assert result.returncode == 2 and says in result.stderr and not kept(folder)


def test_times_are_written_as_people_write_them() -> None:
    assert [parse_budget(text) for text in ("90", "90s", "5m", "1.5h")] == [90, 90, 300, 5400]
    with pytest.raises(ArgumentTypeError):
        parse_budget("0s")


@pytest.mark.slow
def test_ctrl_c_ends_the_program_with_its_children_and_keeps_what_is_finished(folder: Path) -> None:
    code = "import os, subprocess; c = subprocess.Popen(['sleep', '60']); print(c.pid, os.getpid(), file=open('pids', 'w'), flush=True); c.wait()"  # noqa: E501
    slow = shlex.join(["python", "-c", code])
    env = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "XDG_CACHE_HOME": "/dev/null"}
    command = [sys.executable, "-m", "tracetui", "diff", "--record", "python engine.py 10 a", slow]
    with subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.PIPE, text=True) as asking:
        pids = folder / "pids"
        until(lambda: pids.exists() and pids.read_text().endswith("\n"), 60)
        time.sleep(0.3)
        asking.send_signal(signal.SIGINT)
        output = asking.communicate(timeout=60)[1]
    assert asking.returncode == 130 and "recordings kept: " in output
    until(lambda: all(_dead(int(pid)) for pid in pids.read_text().split()))
    assert kept(folder) == ["-a-1.jsonl"]


@pytest.mark.slow
def test_a_budget_for_one_pair_fails_no_gate(folder: Path) -> None:
    """A pair is made whatever the budget; what runs of the same differ by is then not known."""
    a, b = (f"python engine.py {took} {side}" for took, side in (("10", "a"), ("30", "b")))
    result = asked(folder, a, b, "--budget", "0.01s", "--fail-over", "3%")
    assert result.returncode == 4 and (folder / "order").read_text() == "ab"
    assert "one run per side does not fail the gate" in result.stderr
