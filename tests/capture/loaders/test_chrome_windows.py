"""Attention that reads a window of its context: no operand says so, and no work is invented for it."""

import json

import polars as pl
import pytest

from capture.classify.step_annotations import StepAnnotation, parse_step_annotation
from capture.loaders.chrome.launch_context import with_work

NAMES = pl.Series(["vllm::unified_attention_with_output"])
STEP = "execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk600sqsq2sqsk600)"
OPERANDS = json.dumps({"Input Dims": [[2, 8, 64], [2, 2, 64]], "Input type": ["c10::BFloat16"] * 2})
WHOLE_BYTES = 2 * 2 * 8 * 64 * 2 + 2 * 2 * 2 * 64 * 2 + 2 * 598 * 2 * 64 * 2  # queries, new keys, cached keys


def linked(durations: list[int], kernels: list[int]) -> pl.DataFrame:
    """Return one call of one kernel per layer."""
    annotation = parse_step_annotation(STEP)
    assert annotation is not None
    steps: dict[int, StepAnnotation] = {1: annotation}
    calls = pl.DataFrame(
        {"dur": durations, "label": kernels, "external_id": range(len(durations))}
    ).with_columns(operator=0, step=1, operands=pl.lit(OPERANDS, pl.Categorical))
    return with_work(calls, NAMES, steps)


def test_every_other_layer_by_another_kernel_in_a_third_of_the_time_has_no_work() -> None:
    rows = linked([14, 42, 13, 41], [0, 1, 0, 1])
    assert rows["bytes"].to_list() == [None, WHOLE_BYTES, None, WHOLE_BYTES]
    assert rows["shape"].to_list() == ["q=2 k<600 h=8/2 d=64", "q=2 k=600 h=8/2 d=64"] * 2


@pytest.mark.parametrize(
    ("durations", "kernels"),
    [([14, 42, 13, 41], [1, 1, 1, 1]), ([38, 42, 37, 41], [0, 1, 0, 1])],
    ids=["one kernel", "similar times"],
)
def test_otherwise_each_layer_reads_its_whole_context(durations: list[int], kernels: list[int]) -> None:
    assert linked(durations, kernels)["bytes"].to_list() == [WHOLE_BYTES] * 4
