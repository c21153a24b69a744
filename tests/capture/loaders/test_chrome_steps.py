"""Steps that serving engines annotate in Chrome traces: hand-made traces, and samples by their own words."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capture.load_runs import load
from capture.loaders import find_loaders
from capture.run import Run
from capture.source import Source
from tests.conftest import shared
from tracetui.analysis.layers import compute_layer_table
from tracetui.analysis.time.step_table import compute_decode_rate, compute_step_table
from tracetui.look import Look

DECODE = "execute_{0}_context_0(sq0sk0sqsq0sqsk0)_generation_{0}(sq{0}sk{1}sqsq{0}sqsk{1})"
MIXED = "execute_10_context_1(sq8sk20sqsq64sqsk160)_generation_2(sq2sk50sqsq2sqsk50)"


def opened(path: Path) -> Run:
    source = Source.from_path(path)
    (loader,) = find_loaders(source.head)
    (run,) = loader.load(source)
    return run


def written(folder: Path, *events: dict[str, Any]) -> Run:
    path = folder / "trace.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return opened(path)


def annotation(name: str, ts: int, dur: int, tid: int = 1, cat: str = "user_annotation") -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur}


def launch(ts: int, correlation: int, starts: int) -> list[dict[str, Any]]:
    """One launch on the host and the kernel that it starts."""
    host = annotation("cudaLaunchKernel", ts, 1, cat="cuda_runtime")
    gpu = annotation("k", starts, 5, cat="kernel") | {"pid": 0, "tid": 7}
    return [event | {"args": {"correlation": correlation}} for event in (host, gpu)]


def steps(run: Run) -> list[tuple[Any, ...]]:
    rows = run.events.filter(pl.col("kind") == "step").sort("t")
    columns = ("step", "phase", "batch", "tokens", "context")
    rows = rows.with_columns(pl.lit(None).alias(c) for c in columns if c not in rows.columns)
    return rows.select(pl.col(columns)).cast({"phase": pl.String}).rows()


def kernel_steps(run: Run) -> list[tuple[int | None, str | None]]:
    rows = run.events.filter(pl.col("kind") == "kernel").sort("t")
    return rows.select("step", pl.col("phase").cast(pl.String)).rows()


def test_annotations_of_vllm_are_steps_in_order_of_time(tmp_path: Path) -> None:
    """The kernel of the first step runs while the second is being launched."""
    run = written(
        tmp_path,
        annotation(DECODE.format(32, 640), 200, 50),
        annotation(MIXED, 100, 50),
        *launch(110, 1, 210),
        *launch(220, 2, 300),
        *launch(400, 3, 410),
    )
    assert steps(run) == [(1, "mixed", 3, 10, 23), (2, "decode", 32, 32, 20)]
    assert kernel_steps(run) == [(1, "mixed"), (2, "decode"), (None, None)]


@pytest.mark.parametrize("outside", [True, False])
def test_the_more_detailed_of_two_annotations_of_one_step_opens_it(tmp_path: Path, outside: bool) -> None:
    """The other stays a span of the host, in no step's place and in no path."""
    wide, narrow = (100, 90), (110, 70)
    detailed, short = (wide, narrow) if outside else (narrow, wide)
    run = written(
        tmp_path,
        annotation(DECODE.format(4, 80), *detailed),
        annotation("step[DECODE bs=4]", *short),
        annotation("step[DECODE bs=4]", 300, 50),
        *launch(120, 1, 500),
        *launch(310, 2, 600),
    )
    assert steps(run) == [(1, "decode", 4, 4, 20), (2, "decode", 4, 4, None)]
    assert kernel_steps(run) == [(1, "decode"), (2, "decode")]
    spans = run.events.filter(pl.col("kind") == "span", pl.col("name").cast(pl.String).str.contains("step"))
    assert spans["dur"].to_list() == [short[1] * 1000]
    assert "path" not in run.events.columns


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("step[DECODE bs=64 g_sq=128 g_sqsq=256 g_sqsk=262144 g_sk=131072]", ("decode", 64, 128, 2048)),
        ("step[EXTEND bs=2 toks=14721]", ("prefill", 2, 14721, None)),
        ("execute_context_2(6144)_generation_3(3)", ("mixed", 5, 6147, None)),
        ("prefill[bs=2 tok=14721 ctx=[7803, 6918]]", ("prefill", 2, 14721, 7360)),
        ("execute_diffusion_1_1024x1024", (None, 1, None, None)),
    ],
)
def test_what_other_engines_say_of_a_step(tmp_path: Path, name: str, facts: tuple[Any, ...]) -> None:
    """A speculative step counts all its tokens, not its sequences."""
    assert steps(written(tmp_path, annotation(name, 0, 50), *launch(5, 1, 10))) == [(1, *facts)]


def test_steps_of_an_engine_go_before_those_of_the_profiler(tmp_path: Path) -> None:
    run = written(
        tmp_path,
        annotation("ProfilerStep#7", 0, 1000),
        annotation(DECODE.format(1, 9), 10, 50),
        annotation(DECODE.format(1, 10), 110, 50),
        *launch(20, 1, 30),
        *launch(120, 2, 130),
    )
    assert steps(run) == [(1, "decode", 1, 1, 9), (2, "decode", 1, 1, 10)]
    assert kernel_steps(run) == [(1, "decode"), (2, "decode")]


def test_a_step_lasts_until_the_next_annotation_begins(tmp_path: Path) -> None:
    """What lies between is of the step before; an empty annotation ends a step, a pause is of none."""
    decode = "execute_context_0(0)_generation_2(2)"
    run = written(
        tmp_path,
        *(annotation(decode, 100 * n, 60) for n in range(4)),
        annotation("execute_context_0(0)_generation_0(0)", 390, 1),
        annotation(decode, 5000, 60),
        annotation("sample", 5070, 20, cat="cpu_op"),
        *(event for n, ts in enumerate((80, 395, 4000, 5080)) for event in launch(ts, n, ts + 3)),
    )
    rows = run.events.filter(pl.col("kind") == "step").sort("t")
    assert rows["dur"].to_list() == [100_000, 100_000, 100_000, 90_000, 90_000]
    assert run.events.filter(pl.col("kind") == "kernel").sort("t")["step"].to_list() == [1, None, None, 5]


def test_steps_of_a_real_server_agree_with_its_readme() -> None:
    """Decode steps take 128.6 ms from begin to begin for 13 tokens; each holds the sampling behind it."""
    name = "samples/real_vllm/eager_prefill_mixed_decode.pt.trace.json.gz"
    (run,) = load(shared(name), cache=False)
    table = compute_step_table(run, Look(phase="decode"))
    assert table["wall_ns"].sum() == pytest.approx(128.6e6, abs=5e4)
    assert compute_decode_rate(run) == pytest.approx(101.1, abs=0.05)
    kernels = run.events.filter(pl.col("kind") == "kernel")
    greedy = kernels.filter(pl.col("name").cast(pl.String).str.contains("greedy_argmax"))
    assert greedy["step"].to_list() == list(range(1, 10))


def test_an_annotation_without_requests_is_no_step(tmp_path: Path) -> None:
    run = written(
        tmp_path,
        annotation("execute_context_0(0)_generation_2(2)", 0, 50),
        annotation("execute_context_0(0)_generation_0(0)", 100, 50),
        annotation("execute_context_0(0)_generation_1(1)", 200, 50),
        *launch(210, 1, 220),
    )
    assert [step[:3] for step in steps(run)] == [(1, "decode", 2), (2, "decode", 1)]


def test_kernels_that_the_recording_did_not_see_launched_belong_to_the_step_before(tmp_path: Path) -> None:
    """Those of a later step without a launch stay in the step of their time."""
    unlaunched = [annotation("k", ts, 5, cat="kernel") | {"pid": 0, "tid": 7} for ts in (5, 25, 120, 160)]
    marks = [annotation(f"ProfilerStep#{n}", 100 * (n - 3), 90) for n in (3, 4)]
    run = written(
        tmp_path, *marks, *unlaunched[:2], *launch(10, 1, 40), *unlaunched[2:], *launch(130, 2, 140)
    )
    assert run.events.filter(pl.col("kind") == "kernel").sort("t")["step"].to_list() == [
        None,
        None,
        3,
        4,
        4,
        4,
    ]


def test_kernels_without_a_launch_in_a_second_step_move_to_the_first(tmp_path: Path) -> None:
    unlaunched = [annotation("k", ts, 5, cat="kernel") | {"pid": 0, "tid": 7} for ts in (5, 105)]
    marks = [annotation(f"ProfilerStep#{n}", 100 * (n - 3), 90) for n in (3, 4)]
    run = written(tmp_path, *marks, *unlaunched, *launch(110, 1, 140))
    assert run.events.filter(pl.col("kind") == "kernel").sort("t")["step"].to_list() == [3, 3, 4]


def test_the_tail_of_the_step_before_is_in_no_layer_of_the_next_one() -> None:
    """Of 24 layers, the file shows the last ten of the step before; by its README."""
    (run,) = load(shared("samples/carried_over/qwen_mi300.json.gz"), cache=False)
    kernels = run.events.filter(pl.col("kind") == "kernel")
    gates = kernels.filter(pl.col("op").cast(pl.String) == "mlp.gate").group_by("step").len()
    assert dict(gates.iter_rows()) == {6: 24, None: 11}
    tail = kernels.filter(pl.col("step").is_null())["layer"].drop_nulls()
    assert (tail.min(), tail.max()) == (13, 23)
    table = compute_layer_table(run, Look(), "op").filter(pl.col("op") == "mlp.gate")
    assert table["count"].to_list() == [1] * 24
    assert not table["odd"].any()


def test_graphs_and_captures_are_no_steps(tmp_path: Path) -> None:
    run = written(
        tmp_path,
        annotation("## Call CompiledFxGraph fpd72yox ##", 0, 50),
        annotation("capture_32_DECODE", 100, 500),
        *launch(110, 1, 120),
        *(annotation("hipLaunchKernel", 200 + i, 1, cat="cuda_runtime") for i in range(40)),
    )
    assert steps(run) == []
    notices = {n.id: n.message for n in run.log.notices}
    assert notices["graph_capture"] == (
        "this is the capture of a graph (batch 32, decode): 41 launches were recorded and 1 kernels ran; "
        "open it with its execution trace"
    )


@pytest.mark.parametrize(
    ("folder", "context", "duration"),
    [("sglang_qwen3_8b_decode", 1025, 465_716_634), ("vllm_gptoss_decode", 1721, 2_408_598)],
)
def test_samples_of_serving_open_with_one_decode_step(folder: str, context: int, duration: int) -> None:
    """Everything that ran on the device was launched within it."""
    run = opened(shared(f"samples/serving/{folder}/execution.json.gz"))
    assert steps(run) == [(1, "decode", 32, 32, context)]
    assert run.events.filter(pl.col("kind") == "step")["dur"].to_list() == [duration]
    assert set(kernel_steps(run)) == {(1, "decode")}
    assert "graph_capture" not in {n.id for n in run.log.notices}


@pytest.mark.parametrize(
    ("folder", "said"),
    [("sglang_qwen3_8b_decode", "546 launches were recorded and 2 kernels ran"),
     ("vllm_gptoss_decode", "launches were recorded and 10 kernels ran")],
)  # fmt: skip
def test_a_capture_alone_says_that_it_is_one(folder: str, said: str) -> None:
    run = opened(shared(f"samples/serving/{folder}/capture_bs_32_rank0.json.gz"))
    (notice,) = (n.message for n in run.log.notices if n.id == "graph_capture")
    assert said in notice


@pytest.mark.parametrize(("decodes", "is_steps"), [(4, True), (1, False)])
def test_ranges_of_a_program_are_steps_if_decode_is_one_per_token(
    decodes: int, is_steps: bool, tmp_path: Path
) -> None:
    """One range called decode per prefill is a whole answer, and no step."""
    names = ["prefill", *["decode"] * decodes]
    ranges = [annotation(name, 100 * n, 90) for n, name in enumerate(names)]
    operators = [annotation("aten::mm", 100 * n + 10, 50, cat="cpu_op") for n in range(len(names))]
    run = written(tmp_path, *ranges, *operators)
    phases = [(n + 1, name, None, None, None) for n, name in enumerate(names)]
    assert steps(run) == (phases if is_steps else [])


@pytest.mark.parametrize(("name", "count"), [("iteration", 3), ("iteration", 1), ("optimizer", 3)])
def test_ranges_around_the_passes_of_a_loop_are_steps(name: str, count: int, tmp_path: Path) -> None:
    ranges = [annotation(name, 100 * n, 90) for n in range(count)]
    operators = [annotation("aten::mm", 100 * n + 10, 50, cat="cpu_op") for n in range(count)]
    run = written(tmp_path, *ranges, *operators)
    is_loop = name == "iteration" and count > 1
    assert steps(run) == [(n + 1, None, None, None, None) for n in range(count) if is_loop]
