"""Shapes and work of kernels in Chrome traces, from the calls that launched them, computed by hand."""

import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capture.loaders.chrome import lenient_reader, trace
from capture.loaders.chrome.trace_to_run import convert_to_run
from capture.run import Run
from capture.source import Source
from tests.bench._chrome_maker import write
from tests.capture.loaders.test_chrome_steps import annotation, opened, written
from tests.conftest import shared

BF16 = "c10::BFloat16"
COLUMNS = ("shape", "flops", "bytes")


def operator(name: str, external: int, dims: list[Any], types: list[str], **args: Any) -> dict[str, Any]:
    event = annotation(name, 10 * external, 5, cat="cpu_op")
    return event | {"args": {"External id": external, "Input type": types, "Input Dims": dims, **args}}


def kernel(name: str, ts: int, dur: int, external: int | None, cat: str = "kernel") -> dict[str, Any]:
    args = {"correlation": ts} | ({} if external is None else {"External id": external})
    return annotation(name, ts, dur, cat=cat) | {"pid": 0, "tid": 7, "args": args}


def kernels(run: Run) -> pl.DataFrame:
    return run.events.filter(pl.col("kind") == "kernel").sort("t").cast({pl.Categorical: pl.String})


def test_kernels_of_one_call_share_its_work_by_their_durations(tmp_path: Path) -> None:
    """(32, 4096) × (4096, 24576) in bf16: 6.442 GFLOP, 193.75 MiB. A memset has no part in it."""
    run = written(
        tmp_path,
        operator("aten::mm", 1, [[32, 4096], [4096, 24576]], [BF16, BF16]),
        kernel("gemm_split", 100, 30, 1),
        kernel("reduce_splits", 130, 10, 1),
        kernel("Memset (Device)", 140, 5, 1, cat="gpu_memset"),
        kernel("alone", 150, 10, None),
    )
    flops, moved = 2 * 32 * 4096 * 24576, 2 * (32 * 4096 + 4096 * 24576 + 32 * 24576)
    assert (round(flops / 1e9, 3), moved / 2**20) == (6.442, 193.75)
    shape = "m=32 n=24576 k=4096"
    assert kernels(run).select(COLUMNS).rows() == [
        (shape, flops * 0.75, moved * 0.75),
        (shape, flops * 0.25, moved * 0.25),
        (None, None, None),
        (None, None, None),
    ]


def test_the_operator_says_what_its_kernels_name_leaves_open(tmp_path: Path) -> None:
    """But a name that says something is believed."""
    run = written(
        tmp_path,
        operator("aten::addmm", 1, [[8], [4, 16], [16, 8]], [BF16] * 3),
        operator("aten::_softmax", 2, [[4, 8]], [BF16]),
        kernel("k1", 100, 5, 1),
        kernel("k2", 200, 5, 2),
        kernel("rms_norm_kernel", 300, 5, 1),
        kernel("k3", 400, 5, 9),
    )
    assert kernels(run)["category"].to_list() == ["matmul", "softmax", "norm", "other"]
    assert kernels(run)["shape"].to_list()[1] == "4×8"


@pytest.mark.parametrize(
    "name", ["vllm::unified_attention_with_output", "flash_attn::flash_attn_varlen_func"]
)
def test_attention_over_a_cache_takes_the_sums_of_its_step(tmp_path: Path, name: str) -> None:
    """Decode of 4 sequences over 100 keys in all: 4·heads·size FLOPs for each pair of query and key."""
    words = "execute_4_context_0(sq0sk0sqsq0sqsk0)_generation_4(sq4sk100sqsq4sqsk100)"
    call = operator(
        name, 1,
        [[4, 8, 64], [4, 2, 64], [4, 2, 64], [999, 16, 2, 64]], [BF16] * 4,
    )  # fmt: skip
    launch = annotation("cudaLaunchKernel", 12, 1, cat="cuda_runtime") | {"args": {"correlation": 100}}
    run = written(tmp_path, annotation(words, 0, 50), call, launch, kernel("k", 100, 5, 1))
    (row,) = kernels(run).select("step", *COLUMNS).rows()
    new, cached = 2 * 4 * 8 * 64 * 2 + 2 * 4 * 2 * 64 * 2, 2 * (100 - 4) * 2 * 64 * 2
    assert row == (1, "q=4 k=100 h=8/2 d=64", 4.0 * 8 * 64 * 100, new + cached)


def by_both(path: Path) -> list[pl.DataFrame]:
    """The kernels of a file, by the fastest reader and by the lenient one."""
    out = []
    for read in (trace.read_document, lenient_reader.read_document):
        source = Source.from_path(path)
        out.append(kernels(convert_to_run(read(source), source)))
    return out


def test_both_readers_give_shapes_and_work_of_printed_traces(tmp_path: Path) -> None:
    """The maker's products are (1, 1152) × (1152, 6912)."""
    path = tmp_path / "trace.json"
    write(path, 0.3)
    scanned, parsed = by_both(path)
    assert scanned.select(COLUMNS).equals(parsed.select(COLUMNS))
    work = (2.0 * 1152 * 6912, 2.0 * (1152 + 1152 * 6912 + 6912))
    products = scanned.filter(pl.col("shape") == "m=1 n=6912 k=1152")
    assert products.height > 26
    assert set(products.select("flops", "bytes").rows()) == {work}


@pytest.mark.parametrize(("causal", "share"), [("True", 0.5), ("False", 1.0)])
def test_both_readers_know_whether_attention_is_causal(tmp_path: Path, causal: str, share: float) -> None:
    path = tmp_path / "trace.json"
    write(path, 0.1)
    text = re.sub(
        r'("name": ")aten::bmm(".*?"Concrete Inputs": )\[.*?\](, "Input type": )\[.*?\]'
        r'(.*?"Input Dims": )\[.*?\](, "Ev)',
        r'\1aten::_scaled_dot_product_flash_attention\2["", "", "", "0.", "CAUSAL"]'
        r'\3["float", "float", "float", "Scalar", "Scalar"]'
        r"\4[[1, 2, 32, 8], [1, 2, 32, 8], [1, 2, 32, 8], [], []]\5",
        path.read_text(), flags=re.DOTALL,
    )  # fmt: skip
    path.write_text(text.replace("CAUSAL", causal))
    scanned, parsed = by_both(path)
    assert scanned.select(COLUMNS).equals(parsed.select(COLUMNS))
    attention = scanned.filter(pl.col("shape") == "b=1 h=2/2 q=32 k=32 d=8")
    assert set(attention["flops"]) == {4.0 * 2 * 32 * 32 * 8 * share}


def test_every_product_of_bert_has_its_shape_and_work() -> None:
    """141 tokens, four layers of 512 and 2048, a vocabulary of 30522: products with a bias, in bf16."""
    run = opened(shared("samples/chrome_trace/bert-small-h100.json.gz"))
    rows = kernels(run).filter(pl.col("category") == "matmul")
    sizes = {(512, 512): 17, (2048, 512): 4, (512, 2048): 4, (30522, 512): 1}
    expected = {
        f"m=141 n={n} k={k}": (
            count,
            count * 2.0 * 141 * n * k,
            count * 2.0 * (141 * k + k * n + 141 * n + n),
        )
        for (n, k), count in sizes.items()
    }
    actual = rows.group_by("shape").agg(pl.len(), pl.col("flops").sum(), pl.col("bytes").sum())
    assert {shape: tuple(values) for shape, *values in actual.iter_rows()} == expected
