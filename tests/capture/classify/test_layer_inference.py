"""Layers and roles out of the order of kernels, against made sequences and the samples' references."""

import gzip
import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from capture.classify import layer_inference as blocks_module
from capture.classify.layer_inference import InferredLayers, KernelSequence, infer_layers
from tests.capture.classify._sequences import (
    ACT,
    DENSE,
    GEMM,
    GEMMA_GLOBAL,
    GEMMA_LOCAL,
    HEAD,
    LINEAR,
    MLA_DENSE,
    MLA_MOE,
    MOE,
    NORM,
    OSS_GLOBAL,
    OSS_LOCAL,
    TAIL,
)
from tests.conftest import shared


def codes(values: Iterable[object]) -> tuple[np.ndarray, list[str]]:
    """Return the place of each value among the distinct ones, and those."""
    distinct: dict[object, int] = {}
    places = [distinct.setdefault(value, len(distinct)) for value in values]
    return np.array(places, dtype=np.int64), [str(value) for value in distinct]


def infer(names: Sequence[str], **columns: np.ndarray) -> InferredLayers:
    ids, distinct = codes(names)
    start = np.arange(len(ids), dtype=np.int64) * 10
    return infer_layers(KernelSequence(ids, distinct, start, np.full(len(ids), 7, dtype=np.int64), **columns))


def roles(blocks: InferredLayers) -> list[str | None]:
    return [blocks.roles[code] if code >= 0 else None for code in blocks.role.tolist()]


def kinds(blocks: InferredLayers) -> list[str]:
    """Return the kind of each layer of the first pass."""
    first = (blocks.pass_index == 0) & (blocks.layer >= 0)
    pairs = dict(zip(blocks.layer[first].tolist(), blocks.kind[first].tolist(), strict=True))
    return [blocks.kinds[pairs[layer]] for layer in sorted(pairs)]


def expected(head: int, blocks: Sequence[Sequence[str]], tail: int) -> list[int]:
    """Return the layer of each kernel of one pass."""
    return [-1] * head + [n for n, block in enumerate(blocks) for _ in block] + [-1] * tail


def test_layers_of_one_kind_with_a_stray_kernel() -> None:
    names = [*HEAD, *DENSE * 36, *TAIL]
    stray = len(HEAD) + 5 * len(DENSE) + 9
    names.insert(stray, "void at::native::vectorized_elementwise_kernel<4, at::native::neg_kernel_cuda>")
    blocks = infer(names)
    layers = expected(len(HEAD), [DENSE] * 36, len(TAIL))
    layers.insert(stray, -1)
    assert blocks.layer.tolist() == layers
    assert blocks.evidence.unmatched == 1
    assert (blocks.evidence.period, blocks.evidence.layers) == (len(DENSE), 36)
    assert blocks.evidence.confidence > 0.9
    assert roles(blocks)[len(HEAD) : len(HEAD) + len(DENSE)] == [
        "attn.norm", "attn.qkv", "attn.rope", "attn.kv", "attn.core", "attn.core", "attn.out",
        "mlp.norm", "mlp.gate_up", "mlp.act", "mlp.down",
    ]  # fmt: skip
    assert roles(blocks)[-len(TAIL) :] == ["final_norm", "lm_head", None, "sample"]


def test_alternating_attention_is_one_layer_each() -> None:
    pattern = [OSS_LOCAL, OSS_GLOBAL] * 12
    blocks = infer([*HEAD, *(name for block in pattern for name in block), *TAIL])
    assert blocks.layer.tolist() == expected(len(HEAD), pattern, len(TAIL))
    assert kinds(blocks) == ["attention a + experts", "attention b + experts"] * 12
    assert {"moe.router", "moe.experts.up", "moe.experts.down", "moe.combine"} <= set(blocks.roles)


@pytest.mark.parametrize(
    ("pattern", "labels"),
    [
        ([GEMMA_LOCAL] * 5 + [GEMMA_GLOBAL], ["attention a + mlp"] * 5 + ["attention b + mlp"]),
        ([LINEAR] * 3 + [MOE], ["state space + experts"] * 3 + ["attention + experts"]),
    ],
    ids=["five local to one global", "three linear to one full"],
)
def test_layers_of_several_kinds(pattern: list[list[str]], labels: list[str]) -> None:
    pattern, labels = pattern * 4, labels * 4
    blocks = infer([*HEAD, *(name for block in pattern for name in block), *TAIL])
    assert blocks.layer.tolist() == expected(len(HEAD), pattern, len(TAIL))
    assert kinds(blocks) == labels


def test_dense_layers_then_experts() -> None:
    pattern = [MLA_DENSE] * 3 + [MLA_MOE] * 58
    blocks = infer([*HEAD, *(name for block in pattern for name in block), *TAIL])
    assert blocks.layer.tolist() == expected(len(HEAD), pattern, len(TAIL))
    assert kinds(blocks) == ["attention + mlp"] * 3 + ["attention + experts"] * 58
    assert "moe.shared" in blocks.roles


@pytest.mark.parametrize("stated", [False, True])
def test_each_step_counts_its_layers_anew(stated: bool) -> None:
    single = [*HEAD, *DENSE * 6, *TAIL]
    steps = {"step": np.repeat(np.arange(5), len(single))} if stated else {}
    blocks = infer(single * 5, **steps)
    assert blocks.layer.tolist() == expected(len(HEAD), [DENSE] * 6, len(TAIL)) * 5
    assert blocks.evidence.passes == 5
    assert sorted(set(blocks.pass_index.tolist())) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("lost", [0, 4, 9], ids="{} at the end".format)
def test_a_trace_that_begins_and_ends_within_a_step(lost: int) -> None:
    """No layer is numbered wrongly; what is left of the first one, or of a single one, may stay open."""
    single = [*HEAD, *DENSE * 6, *TAIL]
    layers = expected(len(HEAD), [DENSE] * 6, len(TAIL))
    for late in range(len(single)):
        blocks = infer((single * 4)[late : 4 * len(single) - lost])
        pairs = list(zip(blocks.layer.tolist(), (layers * 4)[late:], strict=False))
        assert all(layer in (-1, true) for layer, true in pairs), late
        assert sum(layer != true for layer, true in pairs) <= 5 + len(DENSE), late


def test_warm_up_in_front_stays_outside() -> None:
    warm = ["cublasLt::splitKreduce_kernel", "sm90_xmma_gemm_bf16", "Memset (Device)"] * 40
    blocks = infer([*warm, *HEAD, *DENSE * 24, *TAIL])
    assert blocks.layer.tolist() == expected(len(warm) + len(HEAD), [DENSE] * 24, len(TAIL))


def test_what_runs_once_before_a_loop_does_not_hide_its_passes() -> None:
    """Noise is made once; each pass of a denoiser, which embeds no tokens, begins and ends with a product."""
    noise = ["void at::native::distribution_elementwise_grid_stride_kernel<float, 4>"] * 3
    layer = ["aten::mm", "aten::_scaled_dot_product_flash_attention_for_cpu", "aten::mm", "aten::add"]
    layer += ["aten::mm", "aten::silu", "aten::mm", "aten::add"]
    single = ["aten::addmm", "aten::mul", *layer * 4, "aten::mul", "aten::addmm", "aten::sub"]
    blocks = infer([*noise, *single * 6])
    assert blocks.layer.tolist() == expected(3, [], 0) + expected(2, [layer] * 4, 3) * 6
    assert blocks.evidence.passes == 6
    bare = infer([*noise, *layer * 24])
    assert bare.evidence.passes == 1, "layers alone may be of any number of passes"


def test_side_streams_take_the_layer_that_runs() -> None:
    block = [*DENSE[:7], "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", *DENSE[7:]]
    names = [*HEAD, *block * 8, *TAIL]
    stream = np.array([20 if "nccl" in name else 7 for name in names])
    blocks = infer(names, stream=stream)
    assert blocks.layer.tolist() == expected(len(HEAD), [block] * 8, len(TAIL))
    assert {role for role, name in zip(roles(blocks), names, strict=True) if "nccl" in name} == {"comm"}


def test_a_rare_kernel_of_a_side_stream_belongs_to_no_layer() -> None:
    block = [*DENSE[:7], "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", *DENSE[7:]]
    names = [*HEAD, *block * 8, *TAIL]
    place = len(HEAD) + 3 * len(block) + 5
    names.insert(place, "checksum_kernel")
    stream = np.array([20 if "nccl" in name or "checksum" in name else 7 for name in names])
    layers = infer(names, stream=stream).layer
    assert layers[place] == -1
    assert np.delete(layers, place).tolist() == expected(len(HEAD), [block] * 8, len(TAIL))


def test_two_streams_with_layers_are_told_apart() -> None:
    single = [*HEAD, *DENSE * 8, *TAIL]
    names = [name for name in single for _ in range(2)]
    blocks = infer(names, stream=np.tile([1, 2], len(single)))
    layers = expected(len(HEAD), [DENSE] * 8, len(TAIL))
    assert blocks.layer[::2].tolist() == blocks.layer[1::2].tolist() == layers


def test_names_without_meaning_repeat_all_the_same() -> None:
    local = [f"k{i}" for i in range(17)]
    other = [*local[:8], "k20", "k21", *local[9:]]
    blocks = infer(["a", "b", "c", *(local + other) * 12, "d"])
    assert blocks.evidence.method == "period"
    assert blocks.evidence.layers == 24
    assert blocks.evidence.confidence <= 0.5
    assert blocks.roles == ()


REFUSED = {
    "nothing repeats": ([f"kernel_{i % 13}_{i % 7}_{i * i % 11}" for i in range(120)], "repeats"),
    "empty": ([], "no kernels"),
    "one kernel": (["flash_fwd_kernel"], "repeats"),
    "attention without products": (["gemm_a", "flash_fwd_kernel", "rms_norm", "silu"] * 12, "no matrix"),
    "neither norm nor activation": (["gemm_a", "flash_fwd_kernel", "gemm_b", "x"] * 12, "neither norm nor"),
    "mixers and feed-forwards apart": (
        [*HEAD, *[*LINEAR[:6], *LINEAR[:6], NORM, GEMM.format(1), ACT, GEMM.format(2), *DENSE] * 4],
        "layer",
    ),
    "an unknown mixer between": (
        [*HEAD, *[*DENSE, NORM, GEMM.format(1), "mystery", GEMM.format(2), *DENSE[-4:]] * 6, *TAIL],
        "two feed-forwards",
    ),
}


@pytest.mark.parametrize(("names", "reason"), REFUSED.values(), ids=REFUSED)
def test_refuses_with_a_reason(names: list[str], reason: str) -> None:
    blocks = infer(names)
    assert blocks.evidence.method == "none"
    assert reason in (blocks.evidence.reason or "")
    assert set(blocks.layer.tolist()) <= {-1}
    assert set(blocks.role.tolist()) <= {-1}
    assert blocks.evidence.confidence == 0.0


def test_a_pass_that_is_refused_leaves_the_others() -> None:
    good = [*HEAD, *DENSE * 6, *TAIL]
    bad = ["sm90_xmma_gemm", "mystery"] * 9
    names = [*good, *bad, *good]
    blocks = infer(names, step=np.repeat([0, 1, 2], [len(good), len(bad), len(good)]))
    layers = expected(len(HEAD), [DENSE] * 6, len(TAIL))
    assert blocks.layer.tolist() == [*layers, *[-1] * len(bad), *layers]
    assert (blocks.evidence.passes, blocks.evidence.refused) == (2, 1)
    assert blocks.evidence.reason


def test_longer_steps_cost_what_distinct_sequences_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand equal steps are looked at once."""
    seen: list[int] = []
    build = blocks_module.build_template

    def count(ids: np.ndarray, *rest: Any) -> blocks_module.PassTemplate:
        seen.append(len(ids))
        return build(ids, *rest)

    monkeypatch.setattr(blocks_module, "build_template", count)
    single = [*HEAD, *DENSE * 12, *TAIL]
    blocks = infer(single * 1000)
    assert blocks.evidence.passes == 1000
    assert len(seen) == 1


@pytest.mark.parametrize("sample", ["sglang_qwen3_8b_decode", "vllm_gptoss_decode"])
def test_samples_agree_with_their_reference(sample: str) -> None:
    """Times by role are those of the reference tables, which come from the capture traces."""
    with gzip.open(shared(f"samples/serving/{sample}/execution.json.gz")) as file:
        events = [e for e in json.load(file)["traceEvents"] if e.get("cat") in ("kernel", "gpu_memcpy")]
    events.sort(key=lambda event: event["ts"])
    duration = np.array([round(event["dur"] * 1000) for event in events], dtype=np.int64)
    stream = np.array([event["args"]["stream"] for event in events])
    blocks = infer([event["name"] for event in events], stream=stream)
    spent: dict[str | None, float] = dict.fromkeys(roles(blocks), 0.0)
    for role, time in zip(roles(blocks), (duration / 1e6).tolist(), strict=True):
        spent[role] += time
    layers, reference = REFERENCES[sample]
    assert blocks.evidence.layers == layers
    for names, ms in reference.items():
        assert sum(spent[name] for name in names.split()) == pytest.approx(ms, abs=0.001), names


REFERENCES = {
    "sglang_qwen3_8b_decode": (
        36,
        {
            "mlp.gate_up": 2.418, "attn.core attn.kv": 2.301, "attn.out mlp.down": 2.064, "attn.qkv": 0.904,
            "attn.norm attn.qk_norm mlp.norm final_norm": 0.684, "lm_head": 0.397, "mlp.act": 0.324,
            "attn.rope": 0.196, "sample": 0.054,
        },
    ),
    "vllm_gptoss_decode": (
        24,
        {
            "moe.experts.up": 3.273, "moe.experts.down": 3.762, "moe.dispatch": 0.375, "moe.combine": 0.137,
            "attn.core attn.kv": 0.861, "attn.norm mlp.norm final_norm": 0.332, "lm_head": 0.277,
            "attn.rope": 0.150,
        },
    ),
}  # fmt: skip
