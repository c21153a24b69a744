"""Training through the engine's door: what it writes, and what it says when it cannot."""

from pathlib import Path

import pytest

from capture.load_runs import load
from engines.__main__ import main
from engines.training.model_sizes import SIZES, ModelSize
from tests.engines.test_engine import _same_signals, of_kind, ops_of, recorded

__all__ = ["_same_signals"]  # a fixture that every test here needs

SMALL = ModelSize("cs336-small", 32, 48, 4, 2, vocab=50)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest size of the family, made smaller."""
    monkeypatch.setitem(SIZES, "cs336-small", SMALL)


def train(out: Path, *more: str) -> int:
    return main(["--mode", "train", "--out", str(out), "--device", "cpu", "--threads", "1", *more])


@pytest.mark.usefixtures("small")
def test_a_course_is_whole(tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    assert train(out, "--steps", "2", "--context", "16", "--warm-up", "1") == 0
    lines = recorded(out)
    assert lines[0]["kind"] == "run" and lines[-1]["kind"] == "end"
    meta = {k: v for run in of_kind(lines, "run") for k, v in run["meta"].items()}
    wanted = {
        "model": "cs336-small", "mode": "train", "batch": 4, "context": 16, "layers": 4, "heads": 2,
        "d_model": 32, "dtype": "float32", "weights": "random(0)", "optimizer": "cs336", "warm_up": 1,
        "attention": "explicit", "parameters": SMALL.parameters,
    }  # fmt: skip
    assert {key: meta[key] for key in wanted} == wanted
    assert set(meta["unprofiled_ns"]) == {"forward", "backward", "optimizer"}
    steps = of_kind(lines, "step")
    assert [(s["step"], s["tokens"], s["context"], s["batch"]) for s in steps] == [
        (1, 64, 16, 4), (2, 64, 16, 4),
    ]  # fmt: skip
    assert {op["path"] for op in ops_of(lines).values() if op["name"] == "w1"} == {
        f"{phase} / layers.{layer} / ffn" for phase in ("forward", "backward") for layer in range(4)
    }
    stages = [m["name"] for m in of_kind(lines, "mark", path="status")]
    assert stages[-2:] == ["warming up, step 1 of 1", "capturing"]


@pytest.mark.usefixtures("small")
def test_products_in_bf16_are_labelled(tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    assert train(out, "--steps", "1", "--context", "16", "--warm-up", "1", "--dtype", "bf16") == 0
    (run,) = load(out, cache=False)
    actual = {key: run.meta[key] for key in ("dtype", "products", "weights_in")}
    assert actual == {"dtype": "bfloat16", "products": "bf16 by autocast", "weights_in": "fp32"}
    assert "bf16" in run.name


@pytest.mark.usefixtures("small")
def test_a_part_with_other_choices_says_so(tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    more = ("--layers", "2", "--attention", "sdpa", "--optimizer", "fused", "--batch", "2", "--warm-up", "0")
    assert train(out, "--model", "small", "--steps", "1", "--context", "8", *more) == 0
    lines = recorded(out)
    meta = {k: v for run in of_kind(lines, "run") for k, v in run["meta"].items()}
    (run,) = load(out, cache=False)
    assert run.meta["model"] == "cs336-small (2 of 4 layers)" and run.meta["batch"] == 2
    assert "layers=2" in run.name and "sdpa" in run.name and "fused" in run.name
    assert "unprofiled_ns" not in meta
    names = {op["name"] for op in ops_of(lines).values()}
    assert {"attention", "adamw_fused"} <= names and "scores" not in names


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--mode", "train", "--model", "gemma-3-1b"], 2, "choose one of: cs336-small"),
        (["--mode", "train", "--layers", "40"], 2, "--layers 40: cs336-small has 1 to 12"),
        (["--mode", "train", "--dtype", "fp16"], 2, "training does not support --dtype fp16"),
        (["--mode", "train", "--quant", "q8_0"], 2, "training does not support --quant"),
        (["--mode", "train", "--weights", "somewhere"], 2, "training starts from random weights"),
        (["--mode", "train", "--model", "2.7B", "--context", "1024", "--batch", "900"], 5, "does not fit"),
        (["--layers", "4"], 2, "--layers requires --mode train (this is --mode decode)"),
        (["--model", "cs336-small"], 2, "cs336-small can only be trained; use --mode train"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    arguments: list[str], code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a.jsonl"
    assert main(["--out", str(out), "--device", "cpu", *arguments]) == code
    lines = recorded(out)
    assert said in of_kind(lines, "mark", path="error")[0]["name"]
    assert said in capsys.readouterr().err


def test_the_door_knows_before_torch_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--out", "/dev/null", "--check", "--mode", "train"]
    assert main(asked) == 0
    assert main([*asked, "--model", "nothing-like-it"]) == 2
    assert "unknown model to train nothing-like-it" in capsys.readouterr().err
