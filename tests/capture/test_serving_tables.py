"""Times by category and module of serving traces, against the reference's table; and how much has an op."""

import csv
import shutil
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from capture.load_runs import load
from tests.conftest import shared

NAME, OP, CATEGORY = (pl.col(c).cast(pl.String) for c in ("name", "op", "category"))
_TRITON = NAME.str.starts_with("triton_")
_PRODUCT = CATEGORY == "matmul"

# (category, module) of a row of the reference → which of our kernels it is about; None: all that is left
Rows = dict[tuple[str, str], pl.Expr | None]
SGLANG: Rows = {
    ("GEMM", "MergedColumnParallelLinear"): OP == "mlp.gate_up",
    ("InferenceAttention", "RadixAttention"): OP.is_in(["attn.core", "attn.kv"]),
    ("GEMM", "RowParallelLinear"): OP.is_in(["attn.out", "mlp.down"]),
    ("GEMM", "QKVParallelLinear"): OP == "attn.qkv",
    ("RMSNorm", "RMSNorm"): OP == "norm",
    ("GEMM", "LogitsProcessor"): (OP == "lm_head") & _PRODUCT,
    ("elementwise", "Qwen3Attention"): OP == "attn.copy",
    ("elementwise", "SiluAndMul"): OP == "mlp.act",
    ("RoPE_fwd", "RotaryEmbedding"): OP == "attn.rope",
    ("reduce", "Sampler"): OP == "sample",
    ("other", "VocabParallelEmbedding"): OP == "embed",
    ("elementwise", "NA"): None,
    ("other", "NA"): None,
    ("multi_tensor_apply", "NA"): None,
    ("elementwise", "LogitsProcessor"): None,
    ("reduce", "NA"): None,
}
VLLM: Rows = {
    ("other", "GraphModule"): (OP.str.starts_with("moe") & ~_TRITON & ~_PRODUCT) | (OP == "attn.rope"),
    ("GEMM", "GraphModule"): _PRODUCT & OP.is_in(["attn.qkv", "attn.out", "moe.router"]),
    ("InferenceAttention", "GraphModule"): OP.is_in(["attn.core", "attn.kv"]),
    ("triton", "GraphModule"): _TRITON,
    ("RMSNorm", "GraphModule"): OP == "norm",
    ("GEMM", "LogitsProcessor"): (OP == "lm_head") & _PRODUCT,
    ("elementwise", "NA"): None,
    ("other", "NA"): None,
}
SAMPLES = {"sglang_qwen3_8b_decode": SGLANG, "vllm_gptoss_decode": VLLM}


def reference(sample: str) -> dict[tuple[str, str], float]:
    """Return the ms of each category and module in the table made from the capture of the graph."""
    with (shared(f"samples/serving/{sample}") / "ops_summary_by_category.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    module = [row["parent_module"].removeprefix("nn.Module: ") for row in rows]
    keys = [(row["op category"], name) for row, name in zip(rows, module, strict=True)]
    return {key: float(row["total_direct_kernel_time_ms"]) for key, row in zip(keys, rows, strict=True)}


def kernels(path: Path) -> pl.DataFrame:
    (run,) = load(path, cache=False)
    return run.events.filter((pl.col("kind") == "kernel") & (pl.col("lens") == "gpu"))


@pytest.mark.corpus
@pytest.mark.parametrize("alone", [True, False], ids=["without its capture", "beside its capture"])
@pytest.mark.parametrize("sample", SAMPLES)
def test_times_by_category_and_module_are_those_of_the_reference(
    sample: str, alone: bool, tmp_path: Path
) -> None:
    """Every row of the table is asked for, and every kernel of the trace is in one of them."""
    path = shared(f"samples/serving/{sample}") / "execution.json.gz"
    if alone:
        path = Path(shutil.copy(path, tmp_path))
    rows, expected = kernels(path), reference(sample)
    assert set(SAMPLES[sample]) == set(expected)
    named = {key: which.fill_null(value=False) for key, which in SAMPLES[sample].items() if which is not None}
    for key, which in named.items():
        measured = int(rows.filter(which)["dur"].sum()) / 1e6
        assert measured == pytest.approx(expected[key], rel=0.005), key
    rest = int(rows.filter(~pl.any_horizontal(*named.values()))["dur"].sum()) / 1e6
    left = sum(ms for key, ms in expected.items() if key not in named)
    assert rest == pytest.approx(left, abs=0.005 * sum(expected.values()))
    assert int(rows.select(pl.sum_horizontal(*named.values()).max()).item()) == 1


# every trace of a language model among the samples → the least share of its GPU time that has an op
TRACES = {
    "serving/sglang_qwen3_8b_decode/execution.json.gz": 0.97,
    "serving/vllm_gptoss_decode/execution.json.gz": 0.97,
    "chrome_trace/sglang_Qwen3-8B_decode.json.gz": 0.95,
    "chrome_trace/bert-small-h100.json.gz": 0.95,
    "chrome_trace/bert-small-mi300.json.gz": 0.95,
    "nsys/h100_2gpu_1s.sqlite": 0.95,
}
# samples with device kernels on a timeline that are no traces of a language model's inference, and why
OTHERS = {
    "chrome_trace/backward_thread.json": "one kernel, made to show threads",
    "chrome_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz": "a toy of two linear layers that trains",
    "chrome_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz": "a convolutional network that trains",
    "chrome_trace/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz": "an accelerator with no names of kernels",
    "chrome_trace/triton_example.json.gz": "one kernel of a tutorial",
    "nsys/old_schema_saxpy.sqlite": "saxpy",
    "rocprof/kernel_trace.csv": "eight kernels of a test",
    "rocprof/memory_copy_trace.csv": "copies alone",
    "serving/sglang_qwen3_8b_decode/capture_bs_32_rank0.json.gz": "the capture of a graph",
    "serving/vllm_gptoss_decode/capture_bs_32_rank0.json.gz": "the capture of a graph",
}


@cache
def _on_a_timeline() -> frozenset[str]:
    """Return the samples of the formats that record kernels one by one."""
    root = shared("samples")
    folders = ("chrome_trace", "serving/*", "nsys", "rocprof")
    kinds = (".json", ".json.gz", ".sqlite", "trace.csv")
    files = [path for folder in folders for path in root.glob(f"{folder}/*") if path.name.endswith(kinds)]
    names = {str(path.relative_to(root)) for path in files}
    return frozenset(names - {"nsys/not_nsys.sqlite"})


def test_every_sample_is_listed() -> None:
    listed = set(TRACES) | set(OTHERS)
    assert _on_a_timeline() <= listed
    assert not set(TRACES) & set(OTHERS)


@pytest.mark.corpus
@pytest.mark.parametrize(("trace", "least"), TRACES.items(), ids=TRACES)
def test_the_op_is_known_for_most_of_the_time_of_a_language_model(trace: str, least: float) -> None:
    rows = kernels(shared(f"samples/{trace}"))
    assert rows.filter(pl.col("op").is_not_null())["dur"].sum() >= least * rows["dur"].sum()


BERT = {  # launches of the 26 products and 4 attentions of BERT-small, 4 layers: 4·(3 + 1 + 1 + 1) + 1 + 1
    "attn.qkv": 12, "attn.out": 4, "mlp.up": 4, "mlp.down": 4, "lm_head.transform": 1, "lm_head": 1,
}  # fmt: skip


@pytest.mark.parametrize("device", ["h100", "mi300"])
def test_every_product_of_bert_has_its_role(device: str) -> None:
    rows = kernels(shared(f"samples/chrome_trace/bert-small-{device}.json.gz"))
    products = rows.filter(_PRODUCT).group_by(op=OP).len()
    assert dict(products.iter_rows()) == BERT
    assert rows.filter(OP == "attn.core").height == 4
