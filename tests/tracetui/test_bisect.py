"""`tracetui bisect`: over commits and names, with broken versions, kills, and a tree that stays as it is."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.tracetui.in_process import tracetui
from tests.tracetui.process.test_engine_process import until

# records 12 steps of 100 µs times its first argument, and each run of it has a pace of its own
TOY = """
import os, pathlib, random, sys, time
took = float(sys.argv[1]) * 100_000
spread = float(sys.argv[2]) if len(sys.argv) > 2 else 0.01
took = int(took * random.gauss(1, spread))
with open(os.environ["TRACETUI_OUT"], "a") as out:
    print('{"kind":"run","schema":1,"name":"toy","meta":{"model":"toy"}}', file=out)
    for step in range(12):
        at = f'"step":{step},"phase":"decode","t":{step * took},"dur":{took},"lens":"gpu"'
        print('{"kind":"kernel","name":"k",' + at + '}', file=out)
        print('{"kind":"step","name":"decode","tokens":1,' + at + '}', file=out)
"""
# two rows: from version b on, one takes half as long, and the other as much more
TWO_ROWS = """
import os, random, sys
took = int(100_000 * random.gauss(1, 0.01))
one = took // 2 if sys.argv[1] in "xa" else took // 4
with open(os.environ["TRACETUI_OUT"], "a") as out:
    print('{"kind":"run","schema":1,"name":"toy","meta":{"model":"toy"}}', file=out)
    for step in range(12):
        at = f'"step":{step},"phase":"decode","t":{step * took},"lens":"gpu"'
        print('{"kind":"kernel","name":"one",' + at + f',"dur":{one}}}', file=out)
        print('{"kind":"kernel","name":"two",' + at + f',"dur":{took - one}}}', file=out)
        print('{"kind":"step","name":"decode","tokens":1,' + at + f',"dur":{took}}}', file=out)
"""
# multiplies matrices as often as its file `work` says, each step timed by the clock: a real program
PRODUCTS = """
import os, pathlib, time
import numpy as np
count = int(pathlib.Path("work").read_text())
a = np.ones((64, 64), dtype=np.float32)
with open(os.environ["TRACETUI_OUT"], "a") as out:
    print('{"kind":"run","schema":1,"name":"products","meta":{"model":"products"}}', file=out)
    for step in range(40):
        t = time.perf_counter_ns()
        for _ in range(count):
            a @ a
        at = f'"step":{step},"phase":"decode","t":{t},"dur":{time.perf_counter_ns() - t},"lens":"wall"'
        print('{"kind":"kernel","name":"product",' + at + '}', file=out)
        print('{"kind":"step","name":"decode","tokens":1,' + at + '}', file=out)
"""


def git(folder: Path, *words: str) -> str:
    fixed = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *fixed, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def make_repository(folder: Path, program: str, works: Sequence[str]) -> Path:
    """Return a repository with a commit for each text of `work`; one that says `broken` fails."""
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / "bench.py").write_text(program)
    for number, work in enumerate(works):
        (folder / "work").write_text(work)
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--allow-empty", "--message", f"change {number}")
        git(folder, "tag", f"v{number}")
    return folder


def describe_tree(folder: Path) -> list[str]:
    """Return all that must stay: state of the tree, HEAD, branches, worktrees."""
    asked = (["status", "--porcelain"], ["rev-parse", "HEAD"], ["worktree", "list"], ["for-each-ref"])
    facts = [git(folder, *words) for words in asked]
    return [
        *facts,
        (folder / ".git" / "HEAD").read_text(),
        *sorted(path.name for path in (folder / ".git").iterdir()),
    ]


@pytest.fixture
def homes(tmp_path: Path) -> dict[str, str]:
    made = {"XDG_STATE_HOME": "state", "XDG_CACHE_HOME": "cache"}
    for name in made.values():
        (tmp_path / name).mkdir()
    return {variable: str(tmp_path / name) for variable, name in made.items()}


def ask(folder: Path, homes: dict[str, str], *words: str) -> CompletedProcess[str]:
    return tracetui("bisect", *words, cwd=folder, env=homes)


def answer(folder: Path, homes: dict[str, str], *words: str) -> dict[str, Any]:
    result = ask(folder, homes, "--format", "json", *words)
    assert result.returncode == 0, result.stderr
    parsed: dict[str, Any] = json.loads(result.stdout)
    return parsed


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    (tmp_path / "toy.py").write_text(TOY)
    return tmp_path


TIMES = "1.0,1.001,1.002,1.003,1.3,1.301,1.302,1.303"


@pytest.mark.slow
def test_names_put_into_the_command_end_with_the_first_slow_one(toy: Path, homes: dict[str, str]) -> None:
    command = ("--over", TIMES, "--budget", "60runs", "--row", "k", "--", "python", "toy.py", "{}")
    result = ask(toy, homes, *command)
    assert result.returncode == 0, result.stderr
    first, *rest = result.stdout.splitlines()
    assert first.startswith("slower since 1.3: decode k ") and "per token, +" in first
    assert "(95% likely " in first
    assert rest[-1].endswith("bisect --over " + " ".join(
        [TIMES, "--row k --threshold 1% --budget 60runs -- python toy.py {}"]
    ))  # fmt: skip
    again = ask(toy, homes, *command)
    assert again.stdout == result.stdout and "runs were measured before" in again.stderr
    shown = next(line for line in rest if "tracetui diff" in line).partition("tracetui ")[2]
    compared = tracetui(*shown.split(), "--format", "table", env=homes)
    assert compared.returncode == 0 and ": decode step " in compared.stdout, compared.stderr


def test_commits_are_run_in_worktrees_and_broken_ones_are_skipped(
    tmp_path: Path, homes: dict[str, str]
) -> None:
    works = ["10"] * 4 + ["broken", "broken"] + ["15"] * 3
    program = TOY.replace("sys.argv[1]", "pathlib.Path('work').read_text()").replace("sys.argv[2]", "0.01")
    root = make_repository(tmp_path / "r", program, works)
    (root / "work").write_text("as the user left it")
    hook = root / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {root}/hooked\n")
    hook.chmod(0o755)
    before = describe_tree(root)
    actual = answer(root, homes, "v0", "main", "--budget", "60runs", "--", "python", "bench.py")
    assert [each["about"] for each in actual["versions"]] == ["change 4", "change 5", "change 6"]
    assert "could not convert" in actual["versions"][0]["broken"] and actual["versions"][2]["broken"] is None
    assert actual["versions"][2]["commit"] == git(root, "rev-parse", "v6").strip()
    assert 0.4 < actual["change"] < 0.6 and isinstance(actual["before_ns"], int)
    assert describe_tree(root) == before and not list((tmp_path / "cache").rglob("bench.py"))


@pytest.mark.slow
def test_a_subfolder_is_that_of_each_worktree(tmp_path: Path, homes: dict[str, str]) -> None:
    root = make_repository(tmp_path / "r", "", [])
    (root / "sub").mkdir()
    program = TOY.replace("sys.argv[1]", "pathlib.Path('work').read_text()").replace("sys.argv[2]", "0.01")
    for number, work in enumerate(("", "10", "15")):
        if work:
            (root / "sub" / "bench.py").write_text(program)
            (root / "sub" / "work").write_text(work)
        git(root, "add", "--all")
        git(root, "commit", "--quiet", "--allow-empty", "--message", f"change {number}")
        git(root, "tag", f"v{number}")
    actual = answer(root / "sub", homes, "v1", "v2", "--budget", "30runs", "--", "python", "bench.py")
    assert [each["about"] for each in actual["versions"]] == ["change 2"]
    early = ask(root / "sub", homes, "v0", "v2", "--", "python", "bench.py")
    assert early.returncode == 5 and "(the commit has no folder sub)" in early.stderr


def test_a_line_that_a_kill_has_torn_is_forgotten(toy: Path, homes: dict[str, str]) -> None:
    command = ("--over", "1.0,1.5", "--budget", "30runs", "--", "python", "toy.py", "{}")
    whole = ask(toy, homes, *command)
    file = next((toy / "state").rglob("runs.jsonl"))
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:3]) + lines[3][:20] + bytes(8192))  # zeros: as after a loss of power
    (file.parent / "1-4.jsonl").write_text("half a recording")
    again = ask(toy, homes, *command)
    assert "3 runs were measured before" in again.stderr and again.stdout.startswith("slower since 1.5")
    assert whole.returncode == again.returncode == 0
    assert all(json.loads(line)["time_ns"] for line in file.read_bytes().splitlines())


@pytest.mark.slow
def test_two_at_once_do_not_clash_unless_they_ask_the_same(tmp_path: Path, homes: dict[str, str]) -> None:
    program = TOY.replace("sys.argv[1]", "pathlib.Path('work').read_text()").replace("sys.argv[2]", "0.01")
    root = make_repository(tmp_path / "r", program, ["10", "10", "15", "15"])
    before, command = describe_tree(root), ("--budget", "60runs", "--", "python", "bench.py")
    runs = tmp_path / "state" / "tracetui" / "bisect"
    with start(root, homes, "v0", "v3", *command) as first:
        until(lambda: any(runs.glob("*/runs.jsonl")), 60)
        same = ask(root, homes, "v0", "v3", *command)
        assert same.returncode == 2 and "the same bisect is running" in same.stderr
        other = answer(root, homes, "v0", "v2", *command)
        first.communicate(timeout=120)
    assert first.returncode == 0 and [each["about"] for each in other["versions"]] == ["change 2"]
    assert describe_tree(root) == before


@pytest.mark.slow
def test_equal_ends_are_no_change_or_say_what_would_have_been_found(toy: Path, homes: dict[str, str]) -> None:
    equal = ("--over", "1.0,1.000,1.0000", "--budget", "30runs")
    quiet = ask(toy, homes, *equal, "--threshold", "20%", "--", "python", "toy.py", "{}")
    assert quiet.returncode == 0 and quiet.stdout.startswith("no change between 1.0 and 1.0000: decode step")
    noisy = ask(toy, homes, *equal, "--", "python", "toy.py", "{}", "0.2")
    assert "since" not in noisy.stdout
    assert noisy.stdout.startswith(("no change found between 1.0 and 1.0000: ", "cannot tell"))
    if noisy.returncode == 0:
        assert "or more would have been found; " in noisy.stdout and "per side" in noisy.stdout


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["HEAD"], 2, "no command to measure"),
        (["HEAD", "--", "python", "x"], 2, "bisect takes two commits, not 1"),
        (["v0", "HEAD", "--over", "a,b", "--", "python", "{}"], 2, "--over excludes commits"),
        (["--over", "a,a", "--", "python", "{}"], 2, "two or more different names"),
        (["--over", "a,b", "--", "python", "x"], 2, "the command has no {}"),
        (["v0", "gone", "--", "python", "x"], 2, "no commit is called 'gone' here"),
        (["v1", "v0", "--", "python", "x"], 2, "v1 is no ancestor of v0"),
        (["v0", "v0", "--", "python", "x"], 2, "v0 and v0 are the same commit"),
        (["v0", "v1", "--budget", "0runs", "--", "python", "x"], 2, "invalid budget '0runs'"),
        (
            ["v0", "v1", "--", "python", "-c", "raise SystemExit('no module')"],
            5,
            "ended with exit code 1: no",
        ),
        (["v0", "v1", "--", "python", "-c", "0"], 5, "nothing was recorded"),
        (["v0", "v1", "--", "./absent"], 5, "./absent cannot be started"),
    ],
)
def test_what_cannot_be_searched_is_one_sentence(
    words: list[str], code: int, says: str, tmp_path: Path, homes: dict[str, str]
) -> None:
    root = make_repository(tmp_path / "r", TOY, ["10", "15"])
    result = ask(root, homes, *words)
    assert result.returncode == code and says in result.stderr and result.stdout == ""
    assert len(git(root, "worktree", "list").splitlines()) == 1


def test_outside_of_a_repository_names_are_suggested(toy: Path, homes: dict[str, str]) -> None:
    result = ask(toy, homes, "a", "b", "--", "python", "toy.py")
    assert result.returncode == 2 and "--over NAME,NAME… needs no repository" in result.stderr


@pytest.mark.slow
def test_a_larger_budget_continues_and_restart_forgets(toy: Path, homes: dict[str, str]) -> None:
    command = ("--over", TIMES, "--", "python", "toy.py", "{}")
    short = ask(toy, homes, "--budget", "7runs", *command)
    assert short.returncode == 4 and short.stdout.startswith("cannot tell "), short.stdout
    assert " since " not in short.stdout and "a larger --budget continues" in short.stdout
    longer = ask(toy, homes, "--budget", "60runs", *command)
    assert longer.returncode == 0 and longer.stdout.startswith("slower since 1.3")
    assert "7 runs were measured before" in longer.stderr and "carried by k +" in longer.stdout
    anew = ask(toy, homes, "--budget", "60runs", "--restart", *command)
    assert anew.stdout.startswith("slower since 1.3") and "measured before" not in anew.stderr


@pytest.mark.slow
def test_a_program_that_does_not_end_is_stopped_with_the_budget(toy: Path, homes: dict[str, str]) -> None:
    slow = TOY.replace("took = float", "sys.argv[1] == '1' or time.sleep(600)\ntook = float", 1)
    (toy / "toy.py").write_text(slow)
    result = ask(toy, homes, "--over", "1,2", "--budget", "6s", "--", "python", "toy.py", "{}")
    assert result.returncode == 4 and result.stdout.startswith("cannot tell between 1 and 2")
    assert "2 was stopped: the budget is spent" in result.stderr


@pytest.mark.slow
def test_a_row_hidden_in_an_equal_step_is_found(toy: Path, homes: dict[str, str]) -> None:
    (toy / "toy.py").write_text(TWO_ROWS)
    command = ("--over", "x,a,b,c", "--budget", "60runs", "--threshold", "5%")
    row = ask(toy, homes, *command, "--row", "one", "--", "python", "toy.py", "{}")
    assert row.stdout.startswith("faster since b: decode one "), (row.stdout, row.stderr)
    step = ask(toy, homes, *command, "--", "python", "toy.py", "{}")
    assert step.stdout.startswith("no change"), step.stdout
    changed = step.stdout.partition("rows that changed: ")[2].partition(";")[0]
    assert {part.split()[0] for part in changed.split(", ")} == {"one", "two"}, step.stdout
    assert "one -5" in changed or "one -4" in changed, step.stdout
    assert "--row NAME finds the version" in step.stdout


def test_a_row_that_is_not_there_is_named(toy: Path, homes: dict[str, str]) -> None:
    command = ("--over", "1,2", "--row", "attention", "--phase", "prefill", "--", "python", "toy.py", "{}")
    result = ask(toy, homes, *command)
    assert result.returncode == 5 and "no row matches 'attention' in prefill" in result.stderr


def start(root: Path, homes: dict[str, str], *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tracetui", "bisect", *words]
    environment = {**os.environ, **homes}
    return subprocess.Popen(command, cwd=root, env=environment, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_loses_one_run_and_the_same_command_continues(
    number: signal.Signals, tmp_path: Path, homes: dict[str, str]
) -> None:
    program = TOY.replace("sys.argv[1]", "pathlib.Path('work').read_text()").replace("sys.argv[2]", "0.01")
    root = make_repository(tmp_path / "r", program, ["10", "10", "15", "15"])
    before, words = describe_tree(root), ("v0", "v3", "--budget", "60runs", "--", "python", "bench.py")
    runs = tmp_path / "state" / "tracetui" / "bisect"
    with start(root, homes, *words) as asking:
        until(lambda: any(f.read_text().count("\n") >= 2 for f in runs.glob("*/runs.jsonl")), 60)
        time.sleep(0.2)
        asking.send_signal(number)
        output = asking.communicate(timeout=60)[1]
    kept = next(runs.glob("*/runs.jsonl")).read_bytes()
    kept = kept[: kept.rindex(b"\n") + 1]
    if number != signal.SIGKILL:
        assert asking.returncode == 128 + number and "the same command continues" in output
        assert describe_tree(root) == before
    actual = answer(root, homes, *words)
    assert next(runs.glob("*/runs.jsonl")).read_bytes().startswith(kept)
    assert [each["about"] for each in actual["versions"]] == ["change 2"]
    assert describe_tree(root) == before and not list((tmp_path / "cache").rglob("bench.py"))


def make_long_history(folder: Path, place: int, broken: Sequence[int] = (), factor: int = 3) -> Path:
    """Return a repository of 64 commits; from `place` on the program multiplies `factor` times as often."""
    works = [str(40 * (factor if number >= place else 1)) for number in range(64)]
    for number in broken:
        works[number] = "broken"
    return make_repository(folder, PRODUCTS, works)


@pytest.mark.slow
def test_a_slow_commit_among_64_is_found_past_two_broken_ones(tmp_path: Path, homes: dict[str, str]) -> None:
    root = make_long_history(tmp_path / "r", 38, broken=(31, 36))
    before = describe_tree(root)
    command = ("--budget", "100runs", "--row", "product", "--", "python", "bench.py")
    actual = answer(root, homes, "v0", "v63", *command)
    assert [each["about"] for each in actual["versions"]] == ["change 38"]
    assert len(actual["runs"]) <= 64 and describe_tree(root) == before


@pytest.mark.slow
def test_nothing_planted_among_64_names_no_commit(tmp_path: Path, homes: dict[str, str]) -> None:
    root = make_long_history(tmp_path / "r", 64)
    result = ask(root, homes, "v0", "v63", "--budget", "16runs", "--", "python", "bench.py")
    assert " since " not in result.stdout and result.returncode in (0, 4)
    assert result.stdout.startswith(("no change", "cannot tell")), result.stderr


@pytest.mark.slow
def test_kills_at_any_time_lose_only_the_run_that_was_measured(
    tmp_path: Path, homes: dict[str, str], kills: int = 4
) -> None:
    root = make_long_history(tmp_path / "r", 38, broken=(31,))
    before, words = describe_tree(root), ("v0", "v63", "--row", "product", "--", "python", "bench.py")
    runs, random, kept = tmp_path / "state" / "tracetui" / "bisect", Random(1), b""
    for _ in range(kills):
        with start(root, homes, *words) as asking:
            time.sleep(random.uniform(0.5, 5))
            asking.send_signal(random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
            asking.communicate(timeout=60)
        for file in runs.glob("*/runs.jsonl"):
            content = file.read_bytes()
            assert content.startswith(kept)
            kept = content[: content.rfind(b"\n") + 1]
    actual = answer(root, homes, *words)
    assert [each["about"] for each in actual["versions"]] == ["change 38"]
    assert describe_tree(root) == before and not list((tmp_path / "cache").rglob("bench.py"))
