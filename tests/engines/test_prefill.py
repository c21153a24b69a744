"""One prompt taken in again and again, through the engine's door."""

from pathlib import Path

import pytest

from engines.__main__ import main
from tests.engines.test_engine import _same_signals, model, of_kind, ops_of, recorded, started, wait_for

__all__ = ["_same_signals", "model"]  # fixtures


def test_each_pass_is_a_step_of_the_same_length(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    code = main(["--mode", "prefill", "--model", "gemma", "--weights", str(model), "--out", str(out),
                 "--dtype", "fp32", "--device", "cpu", "--threads", "1", "--context", "150", "--batch", "2",
                 "--steps", "3"])  # fmt: skip
    assert code == 0
    lines = recorded(out)
    steps = of_kind(lines, "step")
    assert [(s["step"], s["phase"], s["tokens"], s["context"]) for s in steps] == [
        (n, "prefill", 2 * 150, 150) for n in (1, 2, 3)
    ]
    meta = {k: v for run in of_kind(lines, "run") for k, v in run["meta"].items()}
    assert meta["prompt_tokens"] == 150 and meta["mode"] == "prefill" and meta["capacity"] == 151
    assert "made_up_context" not in meta
    ops = ops_of(lines)
    for step in steps:
        columns = of_kind(lines, "columns", step=step["step"])
        assert sum(sum(c["dur"]) for c in columns) == step["dur"]
        assert {c["phase"] for c in columns} == {"prefill"}
        names = [ops[i]["name"] for c in columns for i in c["op"]]
        assert names.count("attention") == 7 * len(columns)


@pytest.mark.slow
def test_a_prompt_is_answered_with_a_sentence(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    engine = started(model, out, "--mode", "prefill", "--context", "20", "--steps", "0")
    wait_for(out, '"kind":"step"')
    assert engine.stdin is not None
    engine.stdin.write('{"do":"prompt","text":"hi"}\n')
    engine.stdin.flush()
    wait_for(out, "accepts no prompts")
    engine.stdin.write('{"do":"quit"}\n')
    engine.stdin.close()
    assert engine.wait(30) == 0
    output = of_kind(recorded(out), "mark", path="note")
    assert [m["name"].partition(":")[0] for m in output].count("prefill mode accepts no prompts") == 1


def test_a_prompt_that_is_too_long_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a.jsonl"
    asked = ["--mode", "prefill", "--model", "smollm2-135m", "--weights", "random", "--context", "9000"]
    assert main([*asked, "--out", str(out), "--dtype", "fp32", "--device", "cpu"]) == 2
    assert "--context 9000: smollm2-135m sees at most 8192 positions" in capsys.readouterr().err
