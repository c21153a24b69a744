"""A folder of traces and a server, watched by the commands as a person gives them."""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from capture.load_runs import load
from tests.capture.watch.fake_server import State, serving
from tests.conftest import FIXTURES
from tracetui.verbs import live

DECODE = FIXTURES / "chrome" / "torch_decode.json"
PATIENCE_S = 60


def tracetui(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "tracetui", *map(str, arguments)]


def lines(child: "subprocess.Popen[str]") -> Iterator[str]:
    assert child.stderr is not None
    deadline = time.monotonic() + PATIENCE_S
    for line in child.stderr:
        assert time.monotonic() < deadline
        yield line


def until(child: "subprocess.Popen[str]", words: str) -> str:
    """The line that a command prints with these words in it, however much comes before."""
    return next(line for line in lines(child) if words in line)


@pytest.mark.slow
def test_record_follows_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    folder, out = tmp_path / "later", tmp_path / "out.jsonl"
    command = tracetui("record", "--watch", folder, "-o", out)
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert until(child, "does not exist yet")
        folder.mkdir()
        shutil.copy(DECODE, folder)
        assert until(child, "2 steps")
        child.send_signal(2)
        assert until(child, f"recorded {out}")
        assert child.stdout is not None
        assert "2 steps" in child.stdout.read()
    assert child.returncode == 0
    (run,) = load(out, cache=False)
    assert run.meta["device"] == "Synthetic GPU"
    assert run.events.filter(run.events["kind"] == "step").height == 2


@pytest.mark.slow
def test_record_watches_a_server(tmp_path: Path) -> None:
    state, out = State("vllm", tmp_path), tmp_path / "out.jsonl"
    with serving(state) as address:
        command = tracetui(
            "record", address, "--traces", tmp_path, "--windows", "0.2", "--for", "8s", "-o", out
        )
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert f"vLLM at {address} is healthy: 12 running" in result.stdout
    assert "2 steps, 2 layers" in result.stdout
    assert not state.profiling and state.starts == state.stops == 1
    (run,) = load(out, cache=False)
    assert run.meta["model"] == "model-vllm"


def test_figures_alone_are_a_recording(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    figures = b'{"kind":"run","schema":1}\n{"kind":"counter","name":"requests running","t":1,"value":2.0}\n'
    out.write_bytes(figures)
    assert live.keep_if_recorded(out, counters=True) and out.read_bytes() == figures
    assert not live.keep_if_recorded(out) and not out.exists()
    assert not live.keep_if_recorded(out, counters=True)


def test_nothing_watched_is_exit_5_and_leaves_no_file(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    command = tracetui("record", "--watch", tmp_path, "--for", "1s", "-o", out)
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 5
    assert "nothing was recorded" in result.stderr
    assert not out.exists()


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--watch", str(DECODE)], "is not a folder"),
        (["--watch", ".", "--", "true"], "excludes a program"),
        (["--for", "soon"], "argument --for"),
        (["--for", "0s"], "argument --for"),
        (["http://me:secret@host"], "would be saved in the recording"),
        (["http://host:port"], "invalid address"),
        (["http://host", "--windows", "5s", "--every", "2s"], "do not fit"),
        (["http://host", "--silence", "0"], "--silence 0 is no share"),
        (["http://host", "--silence", "nan%"], "--silence nan% is no share"),
        (["http://host", "--silence", "much"], "invalid percentage 'much'"),
        (["--silence", "1%"], "--silence is for a server"),
        (["--traces", "."], "--traces is for a server"),
    ],
)
def test_what_cannot_be_watched_is_refused(tmp_path: Path, arguments: list[str], said: str) -> None:
    command = tracetui("record", "-o", tmp_path / "out.jsonl", *arguments)
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert said in result.stderr
    assert not (tmp_path / "out.jsonl").exists()
