"""FLOPs of traced operators against torch's own counter, bytes against the tensors that they touch."""

from collections import Counter
from math import prod
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capture.load_runs import load
from tests.bench.hidden_stacks import build_model, run_model

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
ARCHITECTURES = (
    "llama", "bert", "bloom", "deepseek_v3", "falcon_mamba", "gemma2", "gpt_oss", "jamba", "lfm2", "mamba2",
    "mixtral", "nemotron_h", "qwen2_moe", "qwen3_next", "t5", "vit", "wav2vec2", "whisper",
)  # fmt: skip
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "convolution")


def make_counter() -> Any:
    """Return a mode that sums the bytes of the operands and results of products."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class BytesCounter(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.bytes = Counter[str]()

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            name = func.overloadpacket.__name__
            if name in PRODUCTS:
                tensors = [a for a in (*args, result) if isinstance(a, torch.Tensor)]
                self.bytes[name] += sum(prod(t.shape) * t.element_size() for t in tensors)
            return result

    return BytesCounter()


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_work_of_products_is_that_of_the_counter(name: str, tmp_path: Path) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    model, path = build_model(name, torch), tmp_path / "trace.json"
    model.set_attn_implementation("eager")  # the counter knows no fused attention of processors
    model.set_experts_implementation("eager")  # … and no grouped products
    flops, moved = FlopCounterMode(display=False), make_counter()
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True)
    for mode in (flops, moved, profiler):
        torch.manual_seed(0)  # of the same tokens, which choose the same experts
        with torch.no_grad(), mode:
            run_model(model, torch)
    profiler.export_chrome_trace(str(path))
    (run,) = load(path, cache=False)
    rows = run.events.filter(pl.col("kind") == "kernel", pl.col("flops") > 0)
    sums = {row[0]: row[1:] for row in rows.group_by("name").agg(pl.col("flops", "bytes").sum()).iter_rows()}
    counted = {str(op).removeprefix("aten."): n for op, n in flops.get_flop_counts()["Global"].items()}
    assert counted and counted == {op: sums[f"aten::{op}"][0] for op in counted}
    assert dict(moved.bytes) == {op: sums[f"aten::{op}"][1] for op in counted}


@pytest.mark.parametrize("padding", ["same", "valid", 1])
@pytest.mark.parametrize(
    ("dims", "kernel", "dilation", "groups"), [(1, 4, 1, 1), (2, 3, 2, 2), (2, 4, 1, 1), (3, (2, 3, 4), 1, 1)]
)
def test_convolution_padded_by_word_has_work_of_counter(
    padding: Any, dims: int, kernel: Any, dilation: int, groups: int, tmp_path: Path
) -> None:
    """An even kernel pads one side more, which torch does in an operator of its own."""
    from torch.utils.flop_counter import FlopCounterMode

    build = getattr(torch.nn, f"Conv{dims}d")
    conv = build(4, 6, kernel, padding=padding, dilation=dilation, groups=groups)
    x, flops, moved = torch.randn(2, 4, *[17] * dims), FlopCounterMode(display=False), make_counter()
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True)
    for mode in (flops, moved, profiler):
        with torch.no_grad(), mode:
            conv(x)
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    (run,) = load(tmp_path / "trace.json", cache=False)
    rows = run.events.filter(pl.col("kind") == "kernel", pl.col("name") == "aten::convolution")
    assert rows.select("flops", "bytes").rows() == [(flops.get_total_flops(), moved.bytes["convolution"])]
