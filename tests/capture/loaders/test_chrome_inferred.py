"""Layers and roles of graph replays in Chrome traces: against the tables made from the graphs' captures."""

import json
from pathlib import Path

import polars as pl
import pytest

from capture.graphs.capture_files import NO_CAPTURE
from capture.infer_structure import fill_inferred_layers
from capture.load_runs import load
from capture.run import Run
from tests.capture.loaders.test_chrome_steps import annotation, launch, opened
from tests.conftest import shared
from tracetui.look import Look
from tracetui.views import ask, load_view

BLOCK = (
    "rms_norm_kernel", "gemm_qkv_64x64", "rotary_embedding_kernel", "reshape_and_cache_kernel",
    "flash_fwd_kernel", "gemm_out_32x32", "rms_norm_kernel", "gemm_up_128x64", "act_and_mul_kernel",
    "gemm_down_64x32",
)  # fmt: skip
ROLES = (
    "norm", "attn.qkv", "attn.rope", "attn.kv", "attn.core",
    "attn.out", "norm", "mlp.gate_up", "mlp.act", "mlp.down",
)  # fmt: skip
LAYERS = 12


def replay(folder: Path, scope: str | None = None) -> Run:
    """A step of one graph launch: a model of twelve layers, with a product after the last."""
    names = (
        "vectorized_gather_kernel",
        *BLOCK * LAYERS,
        "rms_norm_kernel",
        "gemm_vocab_256x64",
        "argmax_kernel",
    )
    host, _ = launch(10, 1, 20)
    gpu = [
        annotation(name, 20 + 10 * i, 5, cat="kernel") | {"pid": 0, "tid": 7, "args": {"correlation": 1}}
        for i, name in enumerate(names)
    ]
    around = [annotation(scope, 5, 20)] if scope else []
    path = folder / "replay.jsonl"
    events = [annotation("step[DECODE bs=1]", 0, 30), *around, host, *gpu]
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return opened(path)


def kernels(run: Run) -> pl.DataFrame:
    return run.events.filter(pl.col("kind") == "kernel").sort("t").cast({pl.Categorical: pl.String})


def test_a_graph_replay_gets_layers_and_roles_and_says_so(tmp_path: Path) -> None:
    run = replay(tmp_path)
    inside = kernels(run)[1:-3]
    assert inside["layer"].to_list() == [layer for layer in range(LAYERS) for _ in BLOCK]
    assert inside["op"].to_list() == [*ROLES * LAYERS]
    outside = kernels(run)[-2:]
    assert outside["op"].to_list() == ["lm_head", "sample"] and outside["layer"].null_count() == 2
    output = (
        "layers and op names are guessed from a pattern of 10 kernels seen 12 times (97 % of the launches)"
    )
    assert run.meta["inferred"] == output
    assert f"{output}; confidence 1.00" in [n.message for n in run.log.notices if n.id == "inferred_layers"]
    for name, marked in (("layers", True), ("kernels", True), ("steps", False)):
        assert (output in ask(load_view(name), [run], Look()).notes) == marked


def test_a_layer_that_is_stated_stands(tmp_path: Path) -> None:
    """One kernel that says its layer is enough: nothing is inferred beside it."""
    run = replay(tmp_path, scope="model.layers.7")
    assert set(kernels(run)["layer"]) == {7}
    assert "inferred" not in run.meta and "inferred_layers" not in {n.id for n in run.log.notices}


@pytest.mark.parametrize(("shifted", "filled"), [(0, True), (1, False)], ids=["agreeing", "contradicting"])
def test_layers_that_are_stated_get_roles_where_the_block_agrees(
    tmp_path: Path, shifted: int, filled: bool
) -> None:
    """The layers of every second block are stated; one off, the block is not believed in anything."""
    run = replay(tmp_path)
    layer = pl.when(pl.col("layer") % 2 == 0).then(pl.col("layer") + shifted)
    events, evidence = fill_inferred_layers(run.events.drop("op").with_columns(layer))
    assert (evidence is not None) == filled
    rows = events.filter(pl.col("kind") == "kernel").sort("t")[1:-3]
    if filled:
        assert rows["op"].cast(pl.String).to_list() == [*ROLES * LAYERS]
        assert rows["layer"].to_list() == [number for number in range(LAYERS) for _ in BLOCK]
    else:
        assert "op" not in rows.columns


def test_stated_ops_stand_and_general_ones_are_refined(tmp_path: Path) -> None:
    run = replay(tmp_path)
    stated = pl.col("op").cast(pl.String).replace({"attn.core": "mine", "mlp.act": "mlp"})
    events = run.events.drop("layer").with_columns(op=stated.cast(pl.Categorical()))
    filled, evidence = fill_inferred_layers(events)
    ops = filled.filter(pl.col("kind") == "kernel").sort("t")["op"].cast(pl.String).to_list()[1:-3]
    assert evidence is not None and evidence.layers == LAYERS
    assert ops == ["mine" if op == "attn.core" else op for op in ROLES * LAYERS]


def test_an_op_that_is_no_place_in_a_model_gives_way(tmp_path: Path) -> None:
    """A gather before the first layer is the embedding, whose name says only that it indexes."""
    run = replay(tmp_path)
    assert kernels(run)["op"][0] == "embed"


def test_training_and_spans_alone_are_left_as_they_are(tmp_path: Path) -> None:
    run = replay(tmp_path)
    for events in (
        run.events.drop("layer").with_columns(phase=pl.lit("backward").cast(pl.Categorical())),
        run.events.drop("layer").filter(pl.col("kind") != "kernel"),
    ):
        filled, evidence = fill_inferred_layers(events)
        assert evidence is None and filled is events


SGLANG = {  # µs, by module and op, from the graph's capture
    "mlp.gate_up": 2418, "attn.qkv": 904, "attn.out": 602, "mlp.down": 1462, "lm_head": 397,
    "mlp.act": 324, "attn.rope": 196, "norm": 684, "sample": 54,
    "attn.core": 2128, "attn.kv": 174, "attn.copy": 347,
}  # fmt: skip
VLLM = {
    "moe.experts.up": 3273, "moe.experts.down": 3762, "lm_head": 277, "norm": 332, "attn.rope": 150,
    "attn.core": 724, "attn.kv": 136,
}  # fmt: skip


@pytest.mark.parametrize(
    ("folder", "layers", "expected"),
    [("sglang_qwen3_8b_decode", 36, SGLANG), ("vllm_gptoss_decode", 24, VLLM)],
)
def test_samples_of_serving_equal_the_reference_of_their_captures(
    folder: str, layers: int, expected: dict[str, int]
) -> None:
    """With the captures taken away."""
    (run,) = load(shared(f"samples/serving/{folder}/execution.json.gz"), cache=False, capture=NO_CAPTURE)
    rows = kernels(run)
    assert set(rows["layer"].drop_nulls()) == set(range(layers))
    times = dict(rows.group_by("op").agg(pl.col("dur").sum()).iter_rows())
    assert {op: round(times[op] / 1000) for op in expected} == pytest.approx(expected, abs=1)


@pytest.mark.parametrize("streams", [256, 300])
def test_layers_on_more_streams_than_are_looked_at_are_said(tmp_path: Path, streams: int) -> None:
    events = [
        annotation(name, 20 + 10 * i, 5, cat="kernel") | {"pid": 0, "tid": stream, "args": {"stream": stream}}
        for stream in range(streams)
        for i, name in enumerate(BLOCK * 3)
    ]
    path = tmp_path / "streams.json"
    path.write_text(json.dumps({"traceEvents": events}))
    message = next(n.message for n in opened(path).log.notices if n.id == "inferred_layers")
    assert ("256 busiest of 300 streams" in message) == (streams > 256)
