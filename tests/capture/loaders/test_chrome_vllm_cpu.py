"""Products of a real vLLM on a processor, against the operand sizes in the file itself."""

import gzip
import json
from collections import defaultdict

import polars as pl
import pytest

from capture.device_roofs import read_roof
from capture.load_runs import load_all
from tests.capture.graphs._replays import kernels
from tests.conftest import shared
from tracetui.look import Look
from tracetui.views import ask, load_view

TRACE = "samples/real_vllm/eager_prefill_mixed_decode.pt.trace.json.gz"
PRODUCTS = ("_C::onednn_mm", "_C::weight_packed_linear")
HERE = "mem=34GB/s,bf16=190G,fp32=80G"  # as `doctor --measure` finds it on a machine of that kind


def test_products_have_the_work_of_their_operands_and_stay_below_the_roof() -> None:
    """2·M·N·K of `(out [M, N], x [M, K], …)` of all calls; no row above 105 % of the roof."""
    true: dict[str, float] = defaultdict(float)
    with gzip.open(shared(TRACE)) as file:
        for event in json.load(file)["traceEvents"]:
            if event["name"] in PRODUCTS:
                (m, n), (_, k) = event["args"]["Input Dims"][:2]
                true[event["name"]] += 2 * m * n * k
    (run,) = load_all([shared(TRACE)], cache=False, roof=read_roof(HERE))
    rows = kernels(run).filter(pl.col("name").cast(pl.String).is_in(PRODUCTS))
    sums = dict(rows.group_by(pl.col("name").cast(pl.String)).agg(pl.col("flops").sum()).rows())
    assert sums == pytest.approx(true)
    for view in ("kernels", "shapes"):
        shares = ask(load_view(view), [run], Look()).rows["roof_share"].drop_nulls()
        assert shares.max() <= 1.05  # type: ignore[operator]
