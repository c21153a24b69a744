"""llama.cpp's slots, recorded in the program: tokens and their rate against the program's own count."""

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from capture.load_runs import load
from tests.real import PROGRAMS, find_program
from tracetui.analysis.time.step_table import compute_decode_rate

pytestmark = pytest.mark.slow
STEPS = 120


@pytest.mark.parametrize("slots", [1, 3])
def test_each_sequence_of_a_batch_gets_a_token(tmp_path: Path, slots: int) -> None:
    """Three sequences were one token a step, and their number was called beams."""
    python, model, out = find_program("llamacpp"), tmp_path / "tiny.gguf", tmp_path / "slots.jsonl"
    if subprocess.run([python, "-c", "import llama_cpp"], capture_output=True, check=False).returncode:
        pytest.skip("llama-cpp-python is absent")
    subprocess.run([python, str(PROGRAMS / "make_gguf.py"), str(model)], check=True)
    command = [sys.executable, "-m", "tracetui", "record", "--quiet", "-o", str(out), "--", python]
    program = [str(PROGRAMS / "llama_slots.py"), str(model), str(slots), str(STEPS)]
    result = subprocess.run([*command, *program], capture_output=True, text=True, check=True)
    tokens, seconds = map(float, result.stdout.split())
    (run,) = load(out, cache=False)
    steps = run.events.filter(pl.col("kind") == "step")
    decodes = steps.filter(pl.col("phase").cast(pl.String) == "decode")
    assert (decodes.height, decodes["tokens"].sum()) == (STEPS, tokens)
    assert set(decodes["batch"]) == {slots} and steps.height == STEPS + slots
    assert compute_decode_rate(run) == pytest.approx(tokens / seconds, rel=0.05)
