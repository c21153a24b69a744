"""`record` with a program of one's own, and `replay` at another speed."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from argparse import ArgumentParser
from importlib.util import find_spec
from pathlib import Path

import polars as pl
import pytest

from capture.load_runs import load
from capture.native import tail
from tests.tracetui.process.test_engine_process import until
from tests.tracetui.test_cli import run_process
from tracetui.process import EngineProcess
from tracetui.verbs import _engine_options, record
from tracetui.verbs.replay import RecordingReplay

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed here")

SHELL = """
printf '%s\\n' '{"kind":"run","schema":1,"name":"shell","meta":{"model":"toy"}}' >>"$TRACETUI_OUT"
for step in 1 2 3; do
  printf '{"kind":"kernel","name":"attn","step":%d,"dur":%d00,"lens":"gpu"}\\n' $step $step >>"$TRACETUI_OUT"
done
"""


def test_a_shell_script_is_an_engine(tmp_path: Path) -> None:
    out = tmp_path / "prof.jsonl"
    result = run_process("record", "-o", out, "--", "sh", "-c", SHELL)
    assert result.returncode == 0, result.stderr
    assert "attn" in result.stderr and result.stdout == "", "standard output is the program's own"
    actual = json.loads(run_process("report", "kernels", out, "--format", "json").stdout)
    assert [(r["name"], r["count"], r["total_ns"]) for r in actual["rows"]] == [("attn", 3, 600)]


def test_a_program_that_fails_leaves_what_it_wrote_and_its_exit_code(tmp_path: Path) -> None:
    out = tmp_path / "prof.jsonl"
    result = run_process("record", "-o", out, "--", "sh", "-c", SHELL + "echo no more memory; exit 9")
    assert result.returncode == 9
    assert result.stdout == "no more memory\n" and f"recorded {out}" in result.stderr
    assert load(out, cache=False)[0].events.filter(kind="kernel").height == 3


LEAVES = """
import os, time
if not os.fork():
    os.setsid()
    os.closerange(0, 3)
    out = os.environ["TRACETUI_OUT"]
    while not os.path.exists(out + ".go"):
        time.sleep(0.01)
    with open(out, "a") as file:
        file.write("later")
    os._exit(0)
"""


def test_a_program_that_leaves_a_daemon_behind_is_no_failure_and_its_file_stays(tmp_path: Path) -> None:
    out = tmp_path / "prof.jsonl"
    result = run_process("record", "-o", out, "--", sys.executable, "-c", LEAVES)
    assert result.returncode == 0 and "still runs, recorded into" in result.stderr, result.stderr
    Path(f"{out}.go").touch()
    until(lambda: "later" in out.read_text())  # after what the sampler wrote


BEATS = """
import json, sys, time
out = open(sys.argv[1], "a", buffering=1)
while True:
    print(json.dumps({"kind": "mark", "name": "capturing", "path": "heartbeat"}), file=out)
    time.sleep(0.05)
"""


@pytest.mark.slow
def test_an_engine_that_hangs_is_named_and_so_is_its_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tail, "HEARTBEAT_TIMEOUT_S", 1.0)
    monkeypatch.setattr(record, "PROGRESS_INTERVAL_S", 0.05)
    out, said = tmp_path / "prof.jsonl", ""
    engine = EngineProcess([sys.executable, "-c", BEATS, str(out)])

    def disturb() -> None:
        nonlocal said
        until(lambda: out.exists() and out.stat().st_size)
        deadline = time.monotonic() + 20
        for number, word in ((signal.SIGSTOP, "silent for"), (signal.SIGCONT, "responds again")):
            os.kill(engine.pid, number)
            while word not in said:
                said += capsys.readouterr().err
                assert time.monotonic() < deadline, said
                time.sleep(0.02)
        engine.stop()

    disturber = threading.Thread(target=disturb)
    disturber.start()
    record._follow_engine(engine, out, quiet=False, seconds=None)
    disturber.join()
    assert re.search(r"the engine has been silent for \d+ s: Ctrl\+C ends it\n", said)
    assert said.index("silent for") < said.index("responds again")


ON_SMALL_DISK = """
mount -t tmpfs -o size=512k none "$0" || exit 77
head -c "$1" /dev/zero > "$0/other" 2> /dev/null
shift
"$@"
code=$?
cp "$0"/prof.jsonl "$0.jsonl" 2> /dev/null
exit $code
"""


def record_on_small_disk(
    tmp_path: Path, program: str, *, used_bytes: int = 0
) -> tuple[subprocess.CompletedProcess[str], Path]:
    """Record a program on a disk of 512 kB, and return what came of it and a copy of the recording.

    The samples of the host lie there, too: they would take most of a minute to fill it alone.
    """
    disk = tmp_path / "disk"
    disk.mkdir()
    command = [sys.executable, "-m", "tracetui", "record", "-o", disk / "prof.jsonl", "--"]
    command = [*command, sys.executable, "-c", program, ""]
    namespace = ["unshare", "--map-root-user", "--mount", "sh", "-c", ON_SMALL_DISK, disk, str(used_bytes)]
    result = subprocess.run([*namespace, *command], capture_output=True, text=True)
    if "tracetui" not in result.stderr:
        pytest.skip(f"no disk can be mounted here: {result.stderr.strip()}")
    return result, Path(f"{disk}.jsonl")


FILLS = """
from tracetui import Recorder
with Recorder() as rec:
    for n in range(5000):
        with rec.step(), rec.span("attention"):
            pass
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="mounts a disk of its own")
def test_a_full_disk_is_told_and_what_was_written_opens(tmp_path: Path) -> None:
    result, out = record_on_small_disk(tmp_path, FILLS)
    assert result.returncode == 5
    output = re.search(r"has gaps: ([\d,]+) events could not be written: no space left", result.stderr)
    assert output is not None, result.stderr
    kept = load(out, cache=False)[0].events.filter(pl.col("kind").is_in(["kernel", "step"])).height
    assert kept > 0 and kept + int(output[1].replace(",", "")) >= 10_000


def test_an_engine_that_is_refused_leaves_no_file(tmp_path: Path) -> None:
    out = tmp_path / "prof.jsonl"
    result = run_process("record", "--model", "gema-3-1b", "-o", out)
    assert result.returncode == 2
    assert "did you mean gemma-3-1b" in result.stderr and "recorded" not in result.stderr
    assert not out.exists()


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (("--dtype", "fp9"), "argument --dtype: invalid choice: 'fp9'"),
        pytest.param(("--top-p", "7"), "top-p", marks=needs_torch),
        (("--mode", "train", "--ranks", "2"), "training supports one rank only"),
    ],
)
def test_what_the_engine_is_asked_in_vain_is_a_fault_of_use(
    asked: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    out = tmp_path / "prof.jsonl"
    result = run_process("record", "--steps", "1", "--quiet", *asked, "-o", out)
    last = result.stderr.strip().splitlines()[-1]
    assert result.returncode == 2 and says in last and "exit code" not in last and not out.exists()


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("ending", "code"), [("exit 2", 2), ("kill -TERM $$", 143), ("kill -SEGV $$", 139), ("exit 0", 5)]
)
def test_an_exit_code_is_passed_on_and_5_for_nothing_watched(ending: str, code: int, tmp_path: Path) -> None:
    out = tmp_path / "prof.jsonl"
    result = run_process("record", "-o", out, "--", "sh", "-c", ending)
    assert result.returncode == code and not out.exists()
    assert "nothing was recorded, because none of its processes loaded the recorder" in result.stderr


@pytest.mark.corpus
@pytest.mark.parametrize("place", ["missing/prof.jsonl", "there.jsonl", "."])
def test_a_bad_path_refuses_before_anything_runs(place: str, tmp_path: Path) -> None:
    """Also an empty file: another recording may have just begun it."""
    (tmp_path / "there.jsonl").touch()
    result = run_process("record", "-o", place, "--", "touch", "ran", cwd=tmp_path)
    assert result.returncode == 2 and place in result.stderr
    assert not (tmp_path / "ran").exists()


def test_a_program_has_our_streams(tmp_path: Path) -> None:
    code = "import sys; print(sys.stdin.read(), end=''); print('to err', file=sys.stderr)"
    command = [sys.executable, "-m", "tracetui", "record", "-o", str(tmp_path / "p"), "--"]
    result = subprocess.run(
        [*command, sys.executable, "-c", code],
        input="line 1\nline 2", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.stdout == "line 1\nline 2" and result.stderr.startswith(
        "to err\ntracetui: nothing was recorded"
    )


@pytest.mark.corpus
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP"])
def test_signals_to_us_reach_the_program(name: str, tmp_path: Path) -> None:
    code = (
        f"import signal, sys; signal.signal(signal.{name}, lambda *_: sys.exit(33));"
        "print('ready', flush=True); signal.pause()"
    )
    command = [sys.executable, "-m", "tracetui", "record", "-o", str(tmp_path / "p"), "--"]
    with subprocess.Popen(
        [*command, sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as recording:
        assert recording.stdout is not None and recording.stdout.readline() == "ready\n"
        recording.send_signal(getattr(signal, name))
        assert recording.wait(30) == 33


def test_a_signal_that_the_caller_ignores_is_ignored_by_the_program(tmp_path: Path) -> None:
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    command = [
        sys.executable,
        "-m",
        "tracetui",
        "record",
        "-o",
        str(tmp_path / "p"),
        "--",
        sys.executable,
        "-c",
    ]
    done = subprocess.run(
        ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *command, code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "True\n", done.stderr


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ([], []),
        (["--graph"], ["--graph"]),
        (["--no-graph", "--path", "fused"], ["--path", "fused", "--no-graph"]),
        (["--steps", "3", "--tokens-per-report", "4"], ["--steps", "3", "--tokens-per-report", "4"]),
    ],
)
def test_the_engine_is_told_what_was_asked(asked: list[str], told: list[str]) -> None:
    parser = ArgumentParser()
    _engine_options.add_engine_options(parser)
    always = ["--mode", "decode", "--weights", "auto", "--device", "auto", "--dtype", "auto"]
    given = _engine_options.build_engine_arguments(parser.parse_args(asked))
    for part in always:
        given.remove(part)
    assert given == told


def test_a_recording_is_never_written_over(tmp_path: Path) -> None:
    out = tmp_path / "prof.jsonl"
    out.write_text("precious\n")
    result = run_process("record", "-o", out, "--", "true")
    assert result.returncode == 2
    assert out.read_text() == "precious\n"


def test_a_folder_that_has_the_engines_name_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "engines").mkdir()
    (tmp_path / "engines" / "__main__.py").write_text("raise SystemExit('a stranger ran')")
    result = run_process("record", "--model", "gemma-3-1", "-o", tmp_path / "prof.jsonl", cwd=tmp_path)
    assert result.returncode == 2
    assert "gemma-3-1b" in result.stderr and "a stranger ran" not in result.stderr


def test_a_replay_has_the_same_lines_at_its_own_pace(tmp_path: Path) -> None:
    lines = [f'{{"kind":"kernel","name":"k","t":{i * 100_000_000},"dur":5}}' for i in range(5)]
    source = tmp_path / "prof.jsonl"
    source.write_text("\n".join(lines) + "\n")
    replay = RecordingReplay(source, speed=2)
    began = time.monotonic()
    replay.start()
    while replay.path.stat().st_size < source.stat().st_size:
        assert time.monotonic() - began < 20
        time.sleep(0.01)
    assert time.monotonic() - began >= 0.2
    assert replay.path.read_bytes() == source.read_bytes()
    place = replay.path
    replay.stop()
    assert not place.exists()


PARTED = """
import os, time
from capture.native.emit import Emitter
emitter = Emitter(os.environ["TRACETUI_OUT"])
emitter.run("parted")
for step in range(60):
    for i in range(200):
        emitter.event("kernel", f"kernel {i}", t=step * 1000 + i, dur=step, step=step)
    emitter.flush()
    time.sleep(0.02)
emitter.end()
"""


@pytest.mark.slow
def test_a_recording_goes_on_in_parts_of_a_size(tmp_path: Path) -> None:
    path = tmp_path / "prof.jsonl"
    asked = ("record", "-o", path, "--quiet", "--part-size", "64KB")
    result = run_process(*asked, "--", sys.executable, "-c", PARTED)
    assert result.returncode == 0, result.stderr
    assert len(list(tmp_path.glob("prof.*.jsonl"))) >= 2
    (run,) = load(path, cache=False)
    kernels = run.events.filter(pl.col("kind") == "kernel")
    assert kernels.height == 60 * 200 and kernels["dur"].sum() == 200 * sum(range(60))


EMITS = """
import os, sys
from capture.native.emit import Emitter
out = os.environ["TRACETUI_OUT"]
emitter = Emitter(out)
emitter.run("mine")
for step in range(200):
    emitter.event("kernel", "k", t=step, dur=5, step=step)
emitter.flush()
exec(sys.argv[1])
emitter.end()
"""
COUNTED = """
import time
deadline = time.monotonic() + 20
while "counter" not in open(out).read() and time.monotonic() < deadline:
    time.sleep(0.05)
"""


@pytest.mark.corpus
@pytest.mark.parametrize("before", ["", COUNTED], ids=["at once", "counted"])
@pytest.mark.parametrize(
    ("act", "said"),
    [
        ("os.unlink(out)", "was removed while it was written"),
        ("os.rename(out, out + '.1'); open(out, 'w').write('my notes')", "is another file"),
    ],
)
def test_a_recording_that_was_taken_away_is_said_and_nothing_is_removed(
    act: str, said: str, before: str, tmp_path: Path
) -> None:
    out = tmp_path / "prof.jsonl"
    result = run_process("record", "-o", out, "--", sys.executable, "-c", EMITS, before + act)
    assert result.returncode == 5 and said in result.stderr and "torch" not in result.stderr
    assert not out.exists() or out.read_text() == "my notes"


@pytest.mark.corpus
@pytest.mark.skipif(sys.platform != "linux", reason="mounts a disk of its own")
@pytest.mark.parametrize(
    ("used_bytes", "said"),
    [
        (0, r"has gaps: [\d,]+ events could not be written: no space left"),
        (1 << 20, "nothing was recorded, because no space is left for"),
    ],
    ids=["fills up", "full before"],
)
def test_a_program_that_records_itself_on_a_full_disk_is_a_failure(
    used_bytes: int, said: str, tmp_path: Path
) -> None:
    many = EMITS.replace("range(200)", "range(20_000)")
    result, out = record_on_small_disk(tmp_path, many, used_bytes=used_bytes)
    assert result.returncode == 5 and re.search(said, result.stderr), result.stderr
    assert out.exists() == (not used_bytes)
    if out.exists():
        assert load(out, cache=False)[0].log.lost_data


POOL = """
import torch
from torch import multiprocessing

def work(number):
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(4)))
    for _ in range(50):
        model(torch.randn(1, 8))
    return number

if __name__ == "__main__":
    with multiprocessing.get_context("METHOD").Pool(2) as pool:
        print(pool.map(work, range(6), chunksize=1))
"""


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_that_their_pool_ends_are_recorded_whole(method: str, tmp_path: Path) -> None:
    """A pool ends its workers with SIGTERM, once it has all results."""
    (tmp_path / "pool.py").write_text(POOL.replace("METHOD", method))
    out = tmp_path / "prof.jsonl"
    alone = subprocess.run(
        [sys.executable, tmp_path / "pool.py"], capture_output=True, text=True, check=True, timeout=100
    )
    result = run_process("record", "-o", out, "--", sys.executable, tmp_path / "pool.py")
    assert (result.returncode, result.stdout) == (0, alone.stdout)
    assert "recorded 300 steps, 300 forwards in " in result.stderr, result.stderr
    assert "without a report" not in result.stderr
    assert (
        method == "spawn" or "not recorded: process" not in result.stderr
    )  # it may die while it imports torch
    assert load(out, cache=False)[0].events.filter(kind="step").height == 300
