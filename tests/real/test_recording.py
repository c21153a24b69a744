"""Programs that import torch in their own way, alone and recorded: the same result, and what they made."""

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from capture.load_runs import load
from capture.run import Run
from tests.real import PROGRAMS, find_program
from tracetui.analysis.time.step_table import compute_decode_rate
from tracetui.look import Look
from tracetui.views import ask, load_view

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
QUIET = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}


def record(folder: Path, *command: str, **environment: str) -> Run:
    """Run a program alone and recorded, compare its result and exit code, and return the recording.

    The result is the last line that is no log of a process: vLLM writes its log to standard output as well.
    """
    ours = {**os.environ, **QUIET, **environment}
    alone = subprocess.run(command, env=ours, capture_output=True, text=True, check=False)
    recorder = [sys.executable, "-m", "tracetui", "record", "--quiet", "-o", str(folder / "prof.jsonl"), "--"]
    recorded = subprocess.run([*recorder, *command], env=ours, capture_output=True, text=True, check=False)
    results = [(read_result(done.stdout), done.returncode) for done in (alone, recorded)]
    assert results[0] == results[1] and results[0][0], recorded.stderr[-2000:]
    (run,) = load(folder / "prof.jsonl", cache=False)
    return run


def read_result(output: str) -> list[str]:
    return [line for line in output.splitlines() if "pid=" not in line][-1:]


def count_steps(run: Run) -> dict[tuple[str, int | None, int | None], int]:
    """Return the number of steps of each phase, batch and number of tokens."""
    steps = run.events.filter(pl.col("kind") == "step").with_columns(pl.col("phase").cast(pl.String))
    return {row[:3]: row[3] for row in steps.group_by("phase", "batch", "tokens").len().rows()}


def test_generate_of_transformers_imported_first(tmp_path: Path) -> None:
    run = record(tmp_path, find_program("host"), str(PROGRAMS / "generate.py"))
    assert run.meta["model"] == "LlamaForCausalLM"
    assert count_steps(run) == {("prefill", 2, 2): 1, ("decode", 2, 2): 15}


def test_the_encoder_of_a_t5_is_apart_from_its_decoder(tmp_path: Path) -> None:
    run = record(tmp_path, find_program("host"), str(PROGRAMS / "encoder_decoder.py"))
    assert run.meta["model"] == "T5ForConditionalGeneration"
    assert count_steps(run) == {("prefill", 1, 1): 2, ("decode", 1, 1): 30}
    modules = run.events.filter(kind="kernel", lens="wall").select(pl.col("path").cast(pl.String), "layer")
    stacks = modules.drop_nulls().select(pl.col("path").str.split(" / ").list.first(), "layer").unique()
    assert sorted(stacks.rows()) == [(stack, n) for stack in ("decoder", "encoder") for n in range(3)]
    encoder = run.events.filter(pl.col("path").cast(pl.String).str.starts_with("encoder"), lens="wall")
    first, second = run.events.filter(pl.col("kind") == "step").sort("t")["step"].gather([0, 16])
    assert set(encoder["step"]) == {first, second}, "each text's encoder is in the first step of that text"


DECODED = [("decode", 1, 1, context) for context in range(11, 22)]
CONTEXTS = {  # phase, tokens that were produced, sequences, context
    "static": [("prefill", 1, 1, 10), *DECODED],
    "beams": [("prefill", 1, 4, 10), *[("decode", 1, 4, context) for *_, context in DECODED]],
    "chunks": [("prefill", 1, 1, 16), ("prefill", 1, 1, 32), ("prefill", 1, 1, 48),
               *[("decode", 1, 1, context) for context in range(49, 53)]],
    "interleaved": [("prefill", 1, 1, 8), ("prefill", 1, 1, 9),
                    *[("decode", 1, 1, 9 + at + more) for at in range(4) for more in range(2)]],
}  # fmt: skip


@pytest.mark.parametrize("way", CONTEXTS)
def test_contexts_are_those_that_were_sent(way: str, tmp_path: Path) -> None:
    run = record(tmp_path, find_program("host"), str(PROGRAMS / "contexts.py"), way)
    steps = run.events.filter(pl.col("kind") == "step").sort("t")
    assert steps.select(pl.col("phase").cast(pl.String), "tokens", "batch", "context").rows() == CONTEXTS[way]


def test_an_assistants_tokens_are_counted_when_they_are_accepted(tmp_path: Path) -> None:
    """The draft proposes one token or two at a time; its rows are apart."""
    run = record(tmp_path, find_program("host"), str(PROGRAMS / "contexts.py"), "assisted")
    steps = run.events.filter(pl.col("kind") == "step").sort("t")
    phases = steps["phase"].cast(pl.String).to_list()
    assert phases[0] == "prefill" and set(phases[1:]) <= {"verify", "decode"} and "verify" in phases
    assert 12 - 3 <= steps["tokens"].sum() <= 12, "the first and the last call may have accepted one more"
    assert steps["context"].max() in (21, 22)
    ops = run.events.filter(pl.col("op").cast(pl.String) == "draft")
    assert ops.height and ops["layer"].null_count() == ops.height


def test_drafts_that_are_looked_up_in_the_prompt_are_verified(tmp_path: Path) -> None:
    """No other model is called, and of a text that repeats itself every draft is accepted whole."""
    run = record(tmp_path, find_program("host"), str(PROGRAMS / "contexts.py"), "lookup")
    steps = run.events.filter(pl.col("kind") == "step").sort("t")
    phases = steps["phase"].cast(pl.String).to_list()
    assert phases[0] == "prefill" and set(phases[1:]) <= {"verify", "decode"} and "verify" in phases
    assert 12 - 4 <= steps["tokens"].sum() <= 12, "what the last call accepted is unknown"
    assert steps["context"][0] == 10 and steps["context"].max() <= 21 + 3


def test_a_training_of_accelerate_launched_by_its_command(tmp_path: Path) -> None:
    launch = [find_program("host", "accelerate"), "launch", "--cpu", "--num_processes", "1"]
    run = record(tmp_path, *launch, str(PROGRAMS / "accelerated.py"))
    assert (run.events["kind"] == "step").sum() == 10


def test_collectives_within_backward_are_unknown_and_not_0_ns(tmp_path: Path) -> None:
    """DDP calls them from C++: wall times have none, windows of the profiler may have some."""
    command = [find_program("host", "torchrun"), "--nproc-per-node", "2", str(PROGRAMS / "data_parallel.py")]
    run = record(tmp_path, *command)
    answer = ask(load_view("ranks"), [run], Look(lens="wall"))
    assert answer.rows.select("comm_ns", "comm_share", "exposed_share").null_count().row(0) == (2, 2, 2)
    assert answer.rows["work_ns"].min() > 0
    assert any(note.startswith("no collectives are recorded") for note in answer.notes)


def test_a_model_with_the_hooks_of_accelerate(tmp_path: Path) -> None:
    run = record(tmp_path, find_program("host"), str(PROGRAMS / "dispatched.py"))
    assert run.meta["model"] == "LlamaForCausalLM"
    assert count_steps(run) == {("prefill", 2, 2): 1, ("decode", 2, 2): 15}


def test_three_clients_of_fastapi(tmp_path: Path) -> None:
    """Four requests of 24 tokens each, in threads: steps, tokens and speed as the program counts them."""
    clock = tmp_path / "clock.json"
    run = record(tmp_path, find_program("vllm"), str(PROGRAMS / "fastapi_clients.py"), str(clock))
    assert count_steps(run) == {("prefill", 1, 1): 12, ("decode", 1, 1): 12 * 23}
    own = json.loads(clock.read_text())
    print(f"{compute_decode_rate(run):.2f} tok/s, own clock {own['tokens'] / own['seconds']:.2f}")
    assert own["tokens"] == 12 * 23
    assert compute_decode_rate(run) == pytest.approx(own["tokens"] / own["seconds"], rel=0.02)


@pytest.mark.parametrize("processes", ["0", "1"], ids=["in the program", "in a process of its own"])
def test_vllm_without_a_server(processes: str, model: Path, tmp_path: Path) -> None:
    """56 tokens of four prompts, then 23 of each; rehearsals have no tokens.

    An engine in a process of its own may begin with the prompts that have reached it.
    """
    command = [find_program("vllm"), str(PROGRAMS / "offline.py"), str(model)]
    run = record(tmp_path, *command, VLLM_ENABLE_V1_MULTIPROCESSING=processes)
    assert run.meta["model"] == "Qwen3ForCausalLM"
    steps = {key: count for key, count in count_steps(run).items() if key[0] != "forward"}
    if processes == "0":
        assert steps == {("prefill", 4, 56): 1, ("decode", 4, 4): 23}
    assert sum((tokens or 0) * count for (_, _, tokens), count in steps.items()) == 56 + 4 * 23
    assert all(batch == tokens <= 4 for phase, batch, tokens in steps if phase == "decode")
    rotary = run.events.filter(pl.col("name").cast(pl.String).str.contains("rotary"))
    assert rotary.height and rotary["layer"].null_count() == rotary.height, "all layers share it"
