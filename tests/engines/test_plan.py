"""The plan's figures against torch's own count and against sums done by hand."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from engines.fused.fused_step import build_fused_plan
from engines.models.catalogue import find_preset
from engines.models.spec import count_active_parameters, count_parameters
from engines.plan import PlannedOp, StepLoad, plan_device_ops
from tests.engines import tiny

EXPERTS = ("moe.experts.up", "moe.experts.down")


def matmul_flops(rows: tuple[PlannedOp, ...]) -> float:
    return sum(r.flops[0] for r in rows if r.category == "matmul" or r.op in EXPERTS)


@pytest.mark.corpus
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "granular"])
@pytest.mark.parametrize("family", (*tiny.SPECS, *tiny.MORE))
@pytest.mark.parametrize(("batch", "tokens"), [(1, 1), (3, 1), (2, 11)])
def test_products_count_as_torch_counts_them(family: str, fused: bool, batch: int, tokens: int) -> None:
    """torch counts no attention on the CPU, so that its total is that of the products."""
    spec = (tiny.SPECS | tiny.MORE)[family]
    model = tiny.decoder(spec, tiny.weights(spec), batch=batch, fused=fused)
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        model.set_input(torch.zeros(batch, tokens, dtype=torch.long), 0)
        for op in model.ops:
            op()
    counts = counter.get_flop_counts()["Global"]
    products = sum(n for op, n in counts.items() if "attention" not in str(op) and "bmm" not in str(op))
    assert matmul_flops(model.plan_step(tokens)) == products > 0


def test_a_token_reads_every_weight_once() -> None:
    """Products' bytes less what they move beside weights: all parameters but norms, 16 bits each."""
    spec = find_preset("gemma-3-1b")
    rows = plan_device_ops(spec, StepLoad(weight_bytes=2, stream_bytes=0), ())
    norms = 26 * (4 * 1152 + 2 * 256) + 1152
    assert sum(r.bytes[0] for r in rows if r.category == "matmul") == 2 * (count_parameters(spec) - norms)


def test_a_token_reads_the_experts_that_it_takes() -> None:
    """Of 128 experts of a layer 8; the router is read in fp32, twice what counts as a weight here."""
    spec = find_preset("qwen3-30b-a3b")
    rows = plan_device_ops(spec, StepLoad(weight_bytes=2, stream_bytes=0), ())
    norms, router = 48 * (2 * 2048 + 2 * 128) + 2048, 48 * 128 * 2048
    counted = sum(r.bytes[0] for r in rows if r.category == "matmul" or r.op in EXPERTS)
    embedding = 151936 * 2048  # one row of it is looked up
    assert counted == pytest.approx(2 * (count_active_parameters(spec) - norms - embedding + router))
    idle = 48 * 120 * 3 * 2048 * 768
    assert count_parameters(spec) - count_active_parameters(spec) == idle


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("family", (*tiny.SPECS, *tiny.MORE))
def test_every_row_has_a_scope_of_its_own(family: str, ranks: int) -> None:
    """What a profiler saw under a scope is the work of one row, or else of nobody."""
    spec = (tiny.SPECS | tiny.MORE)[family]
    rows = plan_device_ops(spec, StepLoad(ranks=ranks), ("sample_argmax",))
    assert len({row.scope for row in rows}) == len(rows)
    joined = build_fused_plan(spec, plan_device_ops(spec, StepLoad(), ("sample_argmax",)), 4)
    assert len({row.scope for row in joined}) == len(joined)


def test_several_tokens_share_experts() -> None:
    """By hand: of 5 experts, of which each of three tokens takes 2, 5·(1 - (3/5)³) are expected."""
    spec = tiny.MORE["gpt_oss"]
    rows = plan_device_ops(spec, StepLoad(batch=3, weight_bytes=1, stream_bytes=0), ())
    [wide, *_] = (r for r in rows if r.op == "moe.experts.up")
    assert wide.bytes[0] == pytest.approx(5 * (1 - 0.6**3) * 2 * 96 * 64)
    assert wide.flops == (2 * 3 * 2 * 2 * 96 * 64, 0) and wide.shape == "m=3 n=192 k=64 e=5/2"


def test_rows_of_a_mixture_have_the_roles_of_recorded_ones() -> None:
    rows = plan_device_ops(tiny.MORE["qwen3_moe"], StepLoad(), ())
    of_layer = [(r.name, r.op) for r in rows if r.layer == 0][-8:]
    assert of_layer == [
        ("attn_residual", "residual"), ("ffn_norm", "norm"), ("router", "moe.router"),
        ("experts_gate_up", "moe.experts.up"), ("experts_act", "moe.experts.act"),
        ("experts_down", "moe.experts.down"), ("moe_combine", "moe.combine"), ("ffn_residual", "residual"),
    ]  # fmt: skip
    assert "ffn_gate_up" in [r.name for r in rows if r.layer == 1], "the dense layer keeps its own"


def test_attention_grows_with_the_context_up_to_its_window() -> None:
    rows = plan_device_ops(find_preset("gemma-3-1b"), StepLoad(), ("sample_argmax",))
    attention = [r for r in rows if r.name == "attention"]
    assert len(attention) == 26
    assert {r.flops for r in attention} == {(0, 4 * 4 * 256)}
    assert {r.bytes[1] for r in attention} == {2 * 256 * 4}
    assert [r.layer for r in attention if r.window is None] == [5, 11, 17, 23]
    assert {r.window for r in attention} == {None, 512}


def test_a_prefill_counts_the_pairs_it_looks_at() -> None:
    spec = tiny.SPECS["gemma3"]
    rows = plan_device_ops(spec, StepLoad(tokens=11, start=3), ())
    pairs = {
        window: sum(1 for q in range(3, 14) for k in range(q + 1) if window is None or q - k < window)
        for window in (8, None)
    }
    actual = {r.window: r.flops[0] for r in rows if r.name == "attention"}
    assert actual == {window: 4 * 4 * 16 * n for window, n in pairs.items()}


def test_names_are_those_people_know() -> None:
    """The names of a granular decode step of seedlike profiles, in order."""
    rows = plan_device_ops(find_preset("qwen2.5-0.5b"), StepLoad(fused=False), ("sample_argmax",))
    assert [r.name for r in rows if r.layer in (None, 0)] == [
        "embed", "attn_norm", "q_proj", "k_proj", "v_proj", "rope", "kv_append", "attention", "o_proj",
        "attn_residual", "ffn_norm", "ffn_gate", "ffn_up", "ffn_act", "ffn_down", "ffn_residual",
        "final_norm", "lm_head", "sample_argmax",
    ]  # fmt: skip
    q = next(r for r in rows if r.name == "q_proj")
    assert (q.shape, q.op, q.scope) == ("m=1 n=896 k=896", "attn.q", "L0.attn.q")


def test_a_plan_entry_holds_what_is_known() -> None:
    row = PlannedOp("attention", "attn.core", "attention", 3, "b=1", (0, 8), (4, 2), 512)
    assert row.build_plan_entry(7) == {
        "id": 7, "name": "attention", "kind": "kernel", "op": "attn.core", "category": "attention",
        "lens": "wall", "layer": 3, "shape": "b=1", "window": 512, "flops": [0, 8], "bytes": [4, 2],
    }  # fmt: skip
