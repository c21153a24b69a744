"""Serving traces with the captures of their graphs, against the reference tables made of both."""

import ast
import csv
import sys

import polars as pl
import pytest

from capture.graphs.capture_files import NO_CAPTURE
from capture.load_runs import load
from capture.run import Run
from tests.capture.graphs._replays import kernels
from tests.conftest import shared
from tracetui.analysis.shapes import compute_shape_table
from tracetui.look import Look
from tracetui.views import ask, load_view

SAMPLES = ("sglang_qwen3_8b_decode", "vllm_gptoss_decode")
MIB = 1 << 20


def opened(sample: str, capture: str | None = None) -> Run:
    (run,) = load(shared(f"samples/serving/{sample}/execution.json.gz"), cache=False, capture=capture)
    return run


def table(sample: str, name: str) -> list[dict[str, str]]:
    csv.field_size_limit(sys.maxsize)
    with shared(f"samples/serving/{sample}/{name}.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(("sample", "count"), [(SAMPLES[0], 544), (SAMPLES[1], 421)])
def test_every_replayed_kernel_of_the_samples_is_aligned(sample: str, count: int) -> None:
    run = opened(sample)
    assert f"{count} of {count} kernels aligned, 100 % of their time" in run.meta["captured"]


def true_shapes(sample: str) -> dict[str, tuple[float, float, float]]:
    """Return shape → GFLOP, MiB and TB/s of a launch, from the reference's tables of products and norms."""
    rows = {}
    for row in table(sample, "GEMM"):
        rows["m={} n={} k={}".format(*(row[f"param: {c}"] for c in "MNK"))] = row
    for row in table(sample, "RMSNorm_fwd"):
        if "add" not in row["name"]:  # the same shape as without an addition, and other work
            rows["×".join(map(str, ast.literal_eval(row["param: op_shape"])))] = row
    work = ("GFLOPS_first", "Data Moved (MB)_first", "TB/s_mean")
    return {shape: tuple(float(row[c]) for c in work) for shape, row in rows.items()}  # type: ignore[misc]


@pytest.mark.parametrize("sample", SAMPLES)
def test_work_and_rates_equal_the_reference_tables(sample: str) -> None:
    """FLOPs and bytes of each launch, and its rate, within 1 %: products, and norms without an addition."""
    rows = kernels(opened(sample)).filter(pl.col("category").is_in(["matmul", "norm"]))
    adding = pl.col("name").str.contains("Lb1ELb0ELb1ELi1E|with_add|FusedAddEnumE1")
    held = 0
    for shape, (gflop, mib, rate) in true_shapes(sample).items():
        mine = rows.filter((pl.col("shape") == shape) & ~adding)
        if mine.is_empty():
            continue
        held += 1
        assert mine["flops"].to_list() == pytest.approx([1e9 * gflop] * mine.height, rel=0.01), shape
        assert mine["bytes"].to_list() == pytest.approx([MIB * mib] * mine.height, rel=0.01), shape
        rates = mine["bytes"] / mine["dur"] / 1e3
        assert rates.mean() == pytest.approx(rate, rel=0.01), shape
    assert held >= 4


@pytest.mark.parametrize("sample", SAMPLES)
def test_attention_has_the_work_of_its_step(sample: str) -> None:
    """The capture was made with a dummy context: the sums of the step's annotation count."""
    (row, *_) = (r for r in table(sample, "InferenceAttention_fwd") if r["param: g_sqsk"])
    rows = kernels(opened(sample)).filter(op="attn.core").filter(pl.col("shape").str.starts_with("q=32 k="))
    layers = rows["layer"].n_unique()
    assert rows["flops"].sum() == pytest.approx(layers * 1e9 * float(row["GFLOPS_first"]), rel=0.01)
    assert rows["bytes"].sum() == pytest.approx(layers * MIB * float(row["Data Moved (MB)_first"]), rel=0.01)


def test_experts_have_the_work_of_the_reference_and_are_the_first_to_fix() -> None:
    """FLOPs within 1 %; bytes with the scales of MXFP4 (a byte for 32 weights), which the reference lacks."""
    run = opened(SAMPLES[1])
    rows = kernels(run)
    for row in table(SAMPLES[1], "MoE_unfused_fwd"):
        mine = rows.filter(op="moe.experts." + row["name"].rpartition("_")[2])
        assert mine.height == 24
        assert mine["flops"].to_list() == pytest.approx([1e9 * float(row["GFLOPS_first"])] * 24, rel=0.01)
        mib = float(row["Data Moved (MB)_first"])
        assert mine["bytes"].to_list() == pytest.approx([MIB * mib * 1.0625] * 24, rel=0.01)
    answer = ask(load_view("fix"), [run], Look())
    assert answer.rows["op"][:2].to_list() == ["moe.experts.down", "moe.experts.up"]
    assert (answer.rows["recoverable_ns"][:2] / 1e6).to_list() == pytest.approx([3.04, 1.84], abs=0.01)
    assert any("31.6 of 32 experts are read (32 tokens × 4 each)" in note for note in answer.notes)


def test_layers_with_a_window_do_not_exceed_the_roof() -> None:
    """Every other layer reads 128 of 1,721 tokens: its context would be 158.6 % of the roof."""
    run = opened(SAMPLES[1])
    windowed = kernels(run).filter(pl.col("shape") == "q=32 k<55086 h=64/8 d=64")
    assert (
        windowed.height == 12 and set(windowed["layer"] % 2) == {0} and windowed["flops"].null_count() == 12
    )
    shares = ask(load_view("kernels"), [run], Look()).rows["roof_share"].drop_nulls()
    assert shares.max() <= 1.0  # type: ignore[operator]


@pytest.mark.parametrize("sample", SAMPLES)
def test_times_of_modules_equal_the_reference(sample: str) -> None:
    """By the innermost module of the capture, within 0.5 %."""
    true: dict[str, float] = {}
    for row in table(sample, "ops_summary_by_category"):
        if row["parent_module"] != "NA":
            module = row["parent_module"].removeprefix("nn.Module: ")
            true[module] = true.get(module, 0.0) + float(row["total_direct_kernel_time_ms"])
    innermost = pl.col("path").str.extract(r".*nn\.Module: (\w+)_\d+")
    sums = kernels(opened(sample)).group_by(module=innermost).agg(pl.col("dur").sum() / 1e6)
    mine = dict(sums.drop_nulls("module").rows())
    assert mine == pytest.approx(true, rel=0.005)


def test_layers_of_the_capture_are_those_of_the_block() -> None:
    """The layers that the modules state, and those inferred with the capture taken away, are the same."""
    stated, inferred = (kernels(opened(SAMPLES[0], capture)) for capture in (None, NO_CAPTURE))
    both = stated.select("t", "layer", "op").join(inferred.select("t", "layer", "op"), on="t")
    assert both.filter(pl.col("layer").eq_missing(pl.col("layer_right"))).height >= 0.99 * both.height
    roles = both.filter(pl.col("layer").is_not_null())
    assert (roles["op"] == roles["op_right"]).all()


def test_the_product_of_gate_and_up_reads_as_the_reference_has_it() -> None:
    """36 × (32, 4096) × (24576, 4096): 6.442 GFLOP and 193.75 MiB a launch, 3.03 TB/s, 57.1 % of 5.3 TB/s."""
    rows = compute_shape_table(opened(SAMPLES[0]), Look())
    (row,) = rows.filter(pl.col("shape") == "m=32 n=24576 k=4096").to_dicts()
    assert (row["count"], row["op"], row["bound"]) == (36, "mlp.gate_up", "memory")
    assert row["flops_per_launch"] == 6.442450944e9 and row["bytes_per_launch"] == 193.75 * MIB
    assert row["byte_per_s"] == pytest.approx(3.03e12, rel=0.005)
    assert row["roof_share"] == pytest.approx(0.571, abs=0.0005)


def test_the_first_three_to_fix_are_those_of_the_reference() -> None:
    """To the roof: attention 1.21 ms, gate_up 1.04, down 0.77, by the reference's own bytes and times."""
    first = ask(load_view("fix"), [opened(SAMPLES[0])], Look()).rows.head(3)
    assert first["op"].to_list() == ["attn.core", "mlp.gate_up", "mlp.down"]
    assert (first["recoverable_ns"] / 1e6).to_list() == pytest.approx([1.21, 1.04, 0.77], abs=0.005)


def test_a_card_without_a_name_is_told_by_its_properties() -> None:
    """Eight devices with an empty name, 304 processors and 192 GiB each: an MI300X, and its roof."""
    run = opened(SAMPLES[1])
    assert run.meta["device"] == "AMD Instinct MI300X"
    (guess,) = (text for text in run.meta["guess"] if text.startswith("device"))
    assert "304 multiprocessors, 192 GiB and capability 9.4" in guess
    answer = ask(load_view("fix"), [run], Look())
    assert any(note.startswith("roof: 5,300 GB/s") for note in answer.notes)
    rows = {row["op"]: row for row in answer.rows.to_dicts()}
    # 24 products of (32, 2880) × (2880, 5120) in 16 bits at 5.3 TB/s, and what the reference says they took
    least = 24 * 2 * (32 * 2880 + 2880 * 5120 + 32 * 5120) / 5300
    qkv = [r for r in table(SAMPLES[1], "GEMM") if (r["name"], r["param: N"]) == ("aten::addmm", "5120")]
    took = sum(float(r["Kernel Time (µs)_sum"]) for r in qkv)
    assert rows["attn.qkv"]["recoverable_ns"] == pytest.approx(took * 1000 - least, rel=0.01)
