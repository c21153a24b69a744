"""Ranks as processes: started by torchrun or by the engine itself, over gloo, and what becomes of them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capture.load_runs import load, load_all
from capture.merge_ranks import map_tracks_to_ranks
from engines.__main__ import main
from engines.host.tokenizer_text import IdText
from tests.engines import folders, plain, tiny

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
LONG = 90  # seconds that a busy machine may take


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It never says the end token, so that tests decide when it stops."""
    table = tiny.weights(tiny.SPECS["gemma3"])
    return folders.write(tmp_path_factory.mktemp("model"), {**folders.OLD_GEMMA, "eos_token_id": None}, table)


def engine(model: Path, out: Path, *more: str) -> list[str]:
    return ["-m", "tracetui.engine", "--model", "gemma", "--weights", str(model), "--out", str(out),
            "--dtype", "fp32", "--device", "cpu", "--prompt", "one two three",
            "--threads", "1", *more]  # fmt: skip


def started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def recorded(path: Path) -> list[dict[str, Any]]:
    """The lines that are whole."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines if line]


def wait_for(out: Path, **facts: Any) -> dict[str, Any]:
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        actual = [r for r in recorded(out) if all(r.get(k) == v for k, v in facts.items())]
        if actual:
            return actual[0]
        time.sleep(0.05)
    raise AssertionError(f"{facts} did not come within {LONG} s")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_torchrun_starts_ranks_that_write_a_file_each(model: Path, tmp_path: Path) -> None:
    """Merged they are one run: two tracks, comm rows on both, and the tokens of one that decodes alone."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "localhost"]
    torchrun += ["--nproc-per-node", "2"]
    child = started(*torchrun, *engine(model, tmp_path, "--steps", "6"))
    _, output = child.communicate(timeout=LONG)
    assert child.returncode == 0, output
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rank-0.jsonl", "rank-1.jsonl"]
    (run,) = load_all([tmp_path], cache=False, merge=True)
    assert run.meta["ranks"] == 2 and not run.log.lost_data
    assert set(map_tracks_to_ranks(run).values()) == {0, 1}
    comm = run.events.filter((pl.col("category") == "comm") & (pl.col("step") == 3))
    assert comm.group_by("track").len().sort("track").rows() == [("rank 0", 15), ("rank 1", 15)]
    shown = run.events.filter(pl.col("path") == "text")
    assert set(shown["track"]) == {"rank 0"}
    ids = [2, *IdText(tiny.SPECS["gemma3"]).encode("one two three")[-3:]]
    for token in map(int, shown["name"].cast(pl.String)):
        wanted = plain.forward(tiny.SPECS["gemma3"], tiny.weights(tiny.SPECS["gemma3"]), ids)[-1]
        assert token == int(wanted.argmax())
        ids.append(token)
    assert len(ids) == 4 + 7


def test_the_death_of_a_rank_ends_the_others_with_a_sentence(model: Path, tmp_path: Path) -> None:
    """They share a file; a prompt that rank 0 hears is answered by both."""
    out = tmp_path / "a.jsonl"
    child = started(*engine(model, out, "--ranks", "2", "--steps", "2", "--interactive"))
    assert child.stdin
    pids = [wait_for(out, kind="run", rank=rank)["meta"]["pid"] for rank in range(2)]
    wait_for(out, kind="mark", name="waiting for a prompt", rank=1)
    child.stdin.write('{"do":"prompt","text":"and now"}\n')
    child.stdin.flush()
    for rank in range(2):
        wait_for(out, kind="step", step=5, phase="decode", rank=rank)
    os.kill(pids[1], signal.SIGKILL)
    _, output = child.communicate(timeout=LONG)
    assert (child.returncode, output) == (5, "engines: rank 1 was killed by SIGKILL\n")
    assert not any(alive(pid) for pid in (*pids, child.pid))
    (run,) = load(out, cache=False)
    assert set(map_tracks_to_ranks(run).values()) == {0, 1}
    errors = run.events.filter(pl.col("path") == "error")["name"].cast(pl.String).to_list()
    assert errors[-1] == "rank 1 was killed by SIGKILL"


def test_what_cannot_be_shared_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--model", "smollm2-135m", "--ranks", "2", "--out", str(tmp_path / "a.jsonl")]
    assert main(arguments) == 2
    assert "smollm2-135m cannot be divided among 2 ranks" in capsys.readouterr().err
