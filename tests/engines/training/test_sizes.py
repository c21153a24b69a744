"""The CS336 family as numbers: parameters, bytes, flops, and what is refused."""

import re
from dataclasses import replace

import pytest

from capture.errors import EngineError, UsageError
from engines.training.model_sizes import SIZES, ModelSize, check_fits, find_size
from engines.training.training_plan import PlacedOp, plan_backward, plan_forward, plan_optimizer

GB = 10**9
TINY = ModelSize("tiny", 16, 24, 2, 2, vocab=40, batch=2, context=7)


def products(rows: tuple[PlacedOp, ...]) -> float:
    return sum(r.flops[0] for r in rows if r.category == "matmul")


@pytest.mark.parametrize(
    ("name", "millions", "states_gb", "short", "long"),
    [
        ("small", 128.6, 2.1, 126, 1145),
        ("medium", 423.2, 6.8, 429, 3795),
        ("large", 969.4, 15.5, 992, 8610),
        ("xl", 1998.2, 32.0, 2050, 17527),
        ("2.7b", 3406.8, 54.5, 3484, 29073),
    ],
)
def test_the_family(name: str, millions: float, states_gb: float, short: float, long: float) -> None:
    """Parameters, bytes of the optimizer's states, and GFLOP of a forward pass at 128 and 1024 positions."""
    size = find_size(name)
    assert size is find_size(f"cs336-{name}") and size.name.lower() == f"cs336-{name}"
    assert round(size.parameters / 1e6, 1) == millions
    assert round(size.count_state_bytes() / 1e9, 1) == states_gb
    for context, wanted in ((128, short), (1024, long)):
        rows = plan_forward(replace(size, context=context))
        assert products(rows) / 1e9 == pytest.approx(wanted, rel=5e-3)


@pytest.mark.parametrize("size", [TINY, replace(SIZES["cs336-2.7B"], context=256)], ids=["tiny", "2.7B"])
def test_flops_are_their_closed_forms(size: ModelSize) -> None:
    """Products by their shapes; attention by the seed's formulas, times batch and layers."""
    d, f, t, n = size.width, size.ffn, size.tokens, size.layers
    linear = n * (4 * 2 * t * d * d + 3 * 2 * t * d * f) + 2 * t * d * size.vocab
    scores = n * size.batch * size.heads * size.context**2
    forward = plan_forward(size)
    assert products(forward) == linear + 2 * 2 * scores * size.head_dim
    assert products(plan_backward(size)) == 2 * products(forward)
    softmax = sum(r.flops[0] for r in forward if r.category == "softmax")
    assert softmax == 5 * scores, "largest, difference, power, sum, quotient"
    (fused,) = {
        sum(
            r.flops[0]
            for r in plan_forward(replace(size, has_explicit_attention=False))
            if r.category == "attention"
        )
    }
    assert fused == 2 * 2 * scores * size.head_dim
    for optimizer in ("cs336", "foreach", "fused"):
        assert sum(r.flops[0] for r in plan_optimizer(size, optimizer)) == 12 * size.parameters


def test_products_in_bf16_move_half_the_bytes_and_do_the_same_work() -> None:
    pairs = zip(plan_forward(TINY), plan_forward(replace(TINY, is_mixed_precision=True)), strict=True)
    for exact, mixed in pairs:
        assert exact.flops == mixed.flops
        if exact.category == "matmul":
            assert mixed.bytes[0] == exact.bytes[0] / 2
        if exact.category == "norm":
            assert mixed.bytes == exact.bytes
    stream = {
        row.name: row.bytes[0]
        for row in plan_forward(replace(TINY, is_mixed_precision=True))
        if row.layer == 0
    }
    assert stream["attn_residual"] == pytest.approx(TINY.tokens * TINY.width * (4 + 2 + 4))
    assert stream["rope_q"] == TINY.tokens * TINY.width * (2 + 4)
    assert stream["softmax_exp"] == 0, "on some devices it is in fp32"


def test_a_row_stands_in_its_module() -> None:
    rows = {row.scope: row for row in (*plan_forward(TINY), *plan_optimizer(TINY, "cs336"))}
    scores = rows["forward / layers.1 / attn / scores"]
    assert (scores.layer, scores.op, scores.category) == (1, "attn.core", "matmul")
    assert rows["forward / loss"].layer is None
    assert rows["forward / lm_head / lm_head"].path == "forward / lm_head"
    assert rows["optimizer / layers.0 / ffn / w2 / adamw"].layer == 0
    assert rows["optimizer / lm_head / adamw"].build_plan_entry(3) == {
        "id": 3, "name": "adamw", "kind": "kernel", "category": "elementwise", "lens": "wall",
        "op": "optimizer", "shape": "n=640", "flops": [12 * 640, 0], "bytes": [20 * 4 * 640, 0],
        "path": "optimizer / lm_head",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("said", "wanted"),
    [("cs336-smal", "did you mean cs336-small?"), ("gpt-5", "cs336-small, cs336-medium, cs336-large")],
)
def test_an_unknown_size_is_answered_with_known_ones(said: str, wanted: str) -> None:
    with pytest.raises(UsageError, match=re.escape(wanted)):
        find_size(said)


def test_a_size_that_does_not_fit_is_refused_with_the_sum_and_what_would() -> None:
    check_fits(SIZES["cs336-small"], 24 * GB)
    with pytest.raises(EngineError) as refused:
        check_fits(SIZES["cs336-2.7B"], 24 * GB)
    output = str(refused.value)
    assert "weights, gradients and moments take 54.5 GB" in output and "24.0 GB are free" in output
    (layers,) = re.findall(r"--layers (\d+)", output)
    assert SIZES["cs336-2.7B"].with_layers(int(layers)).estimate_bytes() <= 24 * GB
    assert SIZES["cs336-2.7B"].with_layers(int(layers) + 1).estimate_bytes() > 24 * GB
    assert "cs336-large" in output and "cs336-xl" not in output


def test_on_a_processor_what_malloc_keeps_is_reckoned_with() -> None:
    small = SIZES["cs336-small"]
    host = replace(small, is_on_cpu=True)
    assert 1.3 < host.estimate_bytes() / small.estimate_bytes() < 1.4
    check_fits(small, 3 * GB)
    with pytest.raises(EngineError, match=r"--layers 8 \(2\.\d GB\)"):
        check_fits(host, 3 * GB)


def test_less_at_once_is_offered_where_that_is_what_does_not_fit() -> None:
    with pytest.raises(EngineError, match=r"--context 512 .*--batch 1 "):
        check_fits(replace(SIZES["cs336-small"], context=1024), 10 * GB)
    with pytest.raises(EngineError, match="no size of the family fits"):
        check_fits(SIZES["cs336-small"], GB // 10)


def test_a_part_is_named_as_one() -> None:
    part = SIZES["cs336-small"].with_layers(3)
    assert part.name == "cs336-small (3 of 12 layers)"
    assert part.parameters < SIZES["cs336-small"].parameters / 2
    assert SIZES["cs336-small"].with_layers(12) is SIZES["cs336-small"]
    for layers in (0, 13):
        with pytest.raises(UsageError, match="cs336-small has 1 to 12"):
            SIZES["cs336-small"].with_layers(layers)
