"""The host ops that represent the work of a trace without a device."""

import polars as pl
import pytest

from capture.loaders.chrome.host_leaves import classify_cpu_op, select_working_ops

WORKING = {
    "a product in its wrappers": (
        [("aten::linear", 0, 40), ("aten::t", 1, 4), ("aten::matmul", 10, 29), ("aten::mm", 11, 27),
         ("aten::resolve_conj", 12, 1), ("aten::silu", 60, 10)],
        ["aten::mm", "aten::silu"],
    ),
    "a wrapper that nothing works in": ([("aten::linear", 0, 40), ("aten::t", 1, 4)], ["aten::linear"]),
    "a conversion that had nothing to do": ([("aten::to", 0, 4), ("aten::silu", 5, 5)], ["aten::silu"]),
    "an op of an engine in Python around its kernel": (
        [("vllm::unified_attention", 0, 40), ("_C::attention", 5, 9)], ["_C::attention"],
    ),
    "a scope of the user's around ops": ([("mine", 0, 40), ("aten::mm", 5, 9)], ["aten::mm"]),
    "a scope of the user's alone": ([("mine", 0, 40), ("aten::mm", 50, 9)], ["mine", "aten::mm"]),
}  # fmt: skip


@pytest.mark.parametrize(("ops", "working"), WORKING.values(), ids=WORKING)
def test_working_ops_are_the_outermost_that_do_work(
    ops: list[tuple[str, int, int]], working: list[str]
) -> None:
    rows = pl.DataFrame(ops, schema=["name", "t", "dur"], orient="row")
    parts = pl.Series([classify_cpu_op(name) for name in rows["name"]])
    threads = pl.concat([rows.with_columns(part=parts, thread=pl.lit(thread)) for thread in (1, 2)])
    assert select_working_ops(threads)["name"].to_list() == working * 2
