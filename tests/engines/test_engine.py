"""The engine through its door: what it writes, when it stops, what it says when it cannot."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engines.__main__ import main, tune_process
from tests.engines import folders, plain, tiny

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def _same_signals() -> Iterator[None]:
    """The engine takes signals; pytest wants them back."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {n: signal.getsignal(n) for n in numbers}
    yield
    for n, handler in before.items():
        signal.signal(n, handler)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It never says the end token, so that tests decide when it stops."""
    folder = tmp_path_factory.mktemp("model")
    table = tiny.weights(tiny.SPECS["gemma3"])
    return folders.write(folder, {**folders.OLD_GEMMA, "eos_token_id": None}, table)


def recorded(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def record(model: Path, out: Path, *more: str) -> list[dict[str, Any]]:
    code = main(["--model", "gemma", "--weights", str(model), "--out", str(out), "--dtype", "fp32",
                 "--device", "cpu", "--prompt", "one two three", "--threads", "1", *more])  # fmt: skip
    assert code == 0
    return recorded(out)


def of_kind(lines: list[dict[str, Any]], kind: str, **facts: Any) -> list[dict[str, Any]]:
    return [r for r in lines if r["kind"] == kind and all(r.get(k) == v for k, v in facts.items())]


def ops_of(lines: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {op["id"]: op for plan in of_kind(lines, "plan") for op in plan["ops"]}


def test_a_run_is_whole(model: Path, tmp_path: Path) -> None:
    lines = record(model, tmp_path / "a.jsonl", "--steps", "6")
    assert lines[0]["kind"] == "run" and lines[-1]["kind"] == "end"
    assert lines[1]["name"] == "importing torch" and lines[1]["path"] == "status"
    assert [(s["step"], s["phase"], s["tokens"], s["context"]) for s in of_kind(lines, "step")] == [
        (0, "prefill", 4, 4), *((i, "decode", 1, 4 + i) for i in range(1, 7)),
    ]  # fmt: skip
    assert lines[0]["name"] == "gemma fp32 cpu threads=1"  # what was chosen tells it apart
    meta = {k: v for run in of_kind(lines, "run") for k, v in run["meta"].items()}
    assert meta["weights"] == str(model) and meta["dtype"] == "float32" and meta["batch"] == 1
    assert len(of_kind(lines, "mark", path="text")) == 7
    stages = [m["name"] for m in of_kind(lines, "mark", path="status")]
    assert stages[-3:] == ["warming up", "prefill of 4 tokens", "capturing"]
    assert any(s.startswith("building weights") for s in stages)


def test_a_bare_run_times_its_steps_and_no_op(model: Path, tmp_path: Path) -> None:
    lines = record(model, tmp_path / "a.jsonl", "--steps", "3", "--capture", "off")
    ops = ops_of(lines)
    actual = {c["phase"]: [ops[i]["name"] for i in c["op"]] for c in of_kind(lines, "columns")}
    assert actual["decode"] == ["callback", "ops", "token_decode"]
    assert {op["lens"] for op in ops.values()} == {"host"}
    assert [s["tokens"] for s in of_kind(lines, "step", phase="decode")] == [1, 1, 1]
    meta = {k: v for run in of_kind(lines, "run") for k, v in run["meta"].items()}
    assert meta["capture"] == "off"


def test_the_rows_of_a_step_fill_its_wall(model: Path, tmp_path: Path) -> None:
    lines = record(model, tmp_path / "a.jsonl", "--steps", "6")
    ops = ops_of(lines)
    for step in of_kind(lines, "step"):
        (columns,) = of_kind(lines, "columns", step=step["step"])
        assert sum(columns["dur"]) == step["dur"] and columns["t"] == step["t"]
        assert columns["dt"][0] == 0 and columns["dt"][1:] == columns["dur"][:-1]
        assert columns["context"] == step["context"]
        names = [ops[i]["name"] for i in columns["op"]]
        assert names.count("attention") == 7 and names[-1] == "token_decode"


def test_the_tokens_are_those_of_the_plain_decoder(model: Path, tmp_path: Path) -> None:
    lines = record(model, tmp_path / "a.jsonl", "--steps", "5")
    shown = [int(m["name"]) for m in of_kind(lines, "mark", path="text")]
    spec, table = tiny.SPECS["gemma3"], tiny.weights(tiny.SPECS["gemma3"])
    from engines.host.tokenizer_text import IdText

    ids = IdText(spec).encode("one two three")
    ids = [2, *ids[-3:]]
    for token in shown:
        assert token == int(plain.forward(spec, table, ids)[-1].argmax())
        ids.append(token)


def test_blocks_of_tokens_are_one_step(model: Path, tmp_path: Path) -> None:
    lines = record(model, tmp_path / "a.jsonl", "--steps", "7", "--tokens-per-report", "3", "--batch", "2")
    steps = of_kind(lines, "step", phase="decode")
    assert [(s["step"], s["tokens"], s["batch"]) for s in steps] == [(1, 6, 2), (2, 6, 2), (3, 2, 2)]
    assert [c["context"] for c in of_kind(lines, "columns", phase="decode")] == [5, 6, 7, 8, 9, 10, 11]
    for step in steps:
        rows = of_kind(lines, "columns", step=step["step"])
        assert sum(sum(c["dur"]) for c in rows) == step["dur"]


def test_a_long_past_can_be_made_up(model: Path, tmp_path: Path) -> None:
    lines = record(model, tmp_path / "a.jsonl", "--steps", "2", "--context", "300")
    assert [s["context"] for s in of_kind(lines, "step")] == [304, 305, 306]
    meta = {k: v for run in of_kind(lines, "run") for k, v in run["meta"].items()}
    assert meta["made_up_context"] == 300


def test_the_end_token_ends_the_answer(tmp_path: Path) -> None:
    spec = tiny.SPECS["gemma3"]
    table = tiny.weights(spec)
    table["model.norm.weight"] = torch.full((48,), -1.0)  # all logits are 0: token 0 is the likeliest
    folders.write(tmp_path, {**folders.OLD_GEMMA, "eos_token_id": 0}, table)
    lines = record(tmp_path, tmp_path / "a.jsonl", "--steps", "9")
    assert [s["phase"] for s in of_kind(lines, "step")] == ["prefill"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_a_recording_that_cannot_be_written_is_told(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--model", "gemma", "--weights", str(model), "--out", "/dev/full", "--dtype", "fp32",
                 "--device", "cpu", "--threads", "1", "--steps", "3"])  # fmt: skip
    assert code == 5
    assert "events could not be written: no space left on device" in capsys.readouterr().err


def test_a_full_context_ends_the_answer(model: Path, tmp_path: Path) -> None:
    lines = record(model, tmp_path / "a.jsonl", "--capacity", "9")
    assert of_kind(lines, "step")[-1]["context"] == 9
    assert of_kind(lines, "mark", name="the context is full")


def test_a_planted_slowness_shows(model: Path, tmp_path: Path) -> None:
    lines = record(model, tmp_path / "a.jsonl", "--steps", "20", "--slow", "L3.attn.core:50")
    ops = ops_of(lines)
    spent: dict[int, int] = {}
    for columns in of_kind(lines, "columns", phase="decode"):
        for i, dur in zip(columns["op"], columns["dur"], strict=True):
            if ops[i]["name"] == "attention":
                spent[ops[i]["layer"]] = spent.get(ops[i]["layer"], 0) + dur
    assert max(spent, key=lambda layer: spent[layer]) == 3


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--model", "gema-3-1b"], 2, "did you mean gemma-3-1b"),
        (["--weights", "/nowhere/at/all"], 2, "no such file or folder"),
        (["--temperature", "-1"], 2, "--temperature must be"),
        (
            ["--model", "smollm2-135m", "--weights", "random", "--context", "9000"],
            2,
            "sees at most 8192 positions",
        ),
        (["--model", "smollm2-135m", "--weights", "random", "--batch", "2000000"], 5, "GB are free"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    arguments: list[str], code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a.jsonl"
    assert main(["--out", str(out), "--dtype", "fp32", "--device", "cpu", *arguments]) == code
    lines = recorded(out)
    assert said in of_kind(lines, "mark", path="error")[0]["name"]
    assert lines[-1]["kind"] == "end"
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--out", str(tmp_path / "no" / "a.jsonl")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def started(model: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "engines", "--model", "gemma", "--weights", str(model), "--out", str(out),
         "--dtype", "fp32", "--device", "cpu", "--threads", "1", *more],
        cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_for(out: Path, text: str, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if out.exists() and text in out.read_text():
            return
        time.sleep(0.05)
    raise AssertionError(f"{text!r} did not come within {seconds} s")


@pytest.mark.slow
def test_it_obeys_and_ends(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    engine = started(model, out, "--steps", "3", "--interactive")
    assert engine.stdin
    wait_for(out, "waiting for a prompt")
    for command in ({"do": "prompt", "text": "and now"}, "nonsense", {"do": "mode", "mode": "spans"}):
        engine.stdin.write((command if isinstance(command, str) else json.dumps(command)) + "\n")
    engine.stdin.flush()
    wait_for(out, '"step":7,"phase":"decode"')
    engine.stdin.write('{"do":"quit"}\n')
    engine.stdin.flush()
    assert engine.wait(30) == 0
    lines = recorded(out)
    phases = [s["phase"] for s in of_kind(lines, "step")]
    assert phases == ["prefill", *["decode"] * 3] * 2
    assert of_kind(lines, "mark", name="unknown command: nonsense")
    assert lines[-1]["kind"] == "end"


@pytest.mark.slow
def test_a_term_signal_ends_it_cleanly(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    engine = started(model, out, "--capacity", "500", "--interactive", "--die-with-parent")
    wait_for(out, '"phase":"decode"')
    engine.send_signal(signal.SIGTERM)
    _, err = engine.communicate(timeout=30)
    assert engine.returncode == 143 and err == ""
    lines = recorded(out)
    assert of_kind(lines, "mark", name="stopped by SIGTERM") and lines[-1]["kind"] == "end"


@pytest.mark.parametrize(
    ("own", "settled"),
    [
        ({}, {"GOMP_SPINCOUNT": "3000"}),
        ({"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7"}),
        ({"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active"}),
    ],
)
def test_what_torch_is_told_yields_to_the_user(
    own: dict[str, str], settled: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = dict(own)
    monkeypatch.setattr(os, "environ", environment)
    tune_process()
    assert environment == settled
