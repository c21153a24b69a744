"""Names alone, on traces of serving engines: the same times as a reference that knows the operators."""

import csv
from functools import cache

import polars as pl
import pytest

from capture.classify.kernel_rules import classify_kernel
from capture.graphs.capture_files import NO_CAPTURE
from capture.load_runs import load
from tests.conftest import shared

SGLANG, VLLM = "sglang_qwen3_8b_decode", "vllm_gptoss_decode"


@cache
def kernels(sample: str) -> pl.DataFrame:
    """Return name, ns, op and category of a sample's kernels, the latter by their names alone."""
    (run,) = load(shared(f"samples/serving/{sample}") / "execution.json.gz", cache=False, capture=NO_CAPTURE)
    rows = run.events.filter((pl.col("kind") == "kernel") & (pl.col("lens") == "gpu"))
    sums = rows.group_by(pl.col("name").cast(pl.String)).agg(pl.col("dur").sum())
    said = [classify_kernel(name) for name in sums["name"]]
    op = pl.Series([one.op for one in said], dtype=pl.String)
    return sums.with_columns(op=op, category=pl.Series([one.category for one in said]))


def reference(sample: str, column: str, value: str, time: str = "total_direct_kernel_time_sum") -> float:
    """Return the µs of the reference's rows in which a column holds a value."""
    with (shared(f"samples/serving/{sample}") / "ops_summary.csv").open(newline="") as file:
        return sum(float(row[time]) for row in csv.DictReader(file) if value in row[column])


@pytest.mark.parametrize(
    ("sample", "ours", "theirs"),
    [
        (SGLANG, pl.col("category") == "matmul", ("Categories", "'GEMM'")),
        (SGLANG, pl.col("op") == "attn.core", ("name", "sglang_profiler::attention")),
        (SGLANG, pl.col("op") == "attn.kv", ("name", "sglang::store_cache")),
        (SGLANG, pl.col("op") == "norm", ("Categories", "'RMSNorm'")),
        (SGLANG, pl.col("op") == "attn.rope", ("Categories", "'RoPE_fwd'")),
        (SGLANG, pl.col("op") == "mlp.act", ("name", "sgl_kernel::silu_and_mul")),
        (SGLANG, pl.col("op") == "sample", ("name", "aten::argmax")),
        (VLLM, pl.col("category") == "matmul", ("Categories", "'GEMM'")),
        (VLLM, pl.col("op").is_in(["attn.core", "attn.kv"]), ("Categories", "'InferenceAttention'")),
        (VLLM, pl.col("op") == "norm", ("Categories", "'RMSNorm'")),
        (VLLM, pl.col("op") == "moe.sort", ("name", "SortTokens")),
        (VLLM, pl.col("op") == "moe.router", ("name", "TopK")),
        (
            VLLM,
            pl.col("category") == "moe",
            ("name", "vllm::moe_forward", "total_subtree_kernel_time_sum"),
        ),
    ],
    ids=lambda value: None if isinstance(value, str | tuple) else str(value),
)
def test_times_are_those_of_the_reference(sample: str, ours: pl.Expr, theirs: tuple[str, str]) -> None:
    measured = int(kernels(sample).filter(ours)["dur"].sum()) / 1000
    assert measured == pytest.approx(reference(sample, *theirs), rel=0.0005)


@pytest.mark.parametrize(("sample", "share"), [(SGLANG, 0.40), (VLLM, 0.88)])
def test_only_plain_products_have_no_op_by_their_names(sample: str, share: float) -> None:
    rows = kernels(sample)
    with_op = rows.filter(pl.col("op").is_not_null())["dur"].sum() / rows["dur"].sum()
    left = rows.filter(pl.col("op").is_null() & (pl.col("category") != "matmul"))["dur"].sum()
    assert with_op > share
    assert left / rows["dur"].sum() < 0.002
