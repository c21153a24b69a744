"""What steps compute, and how, read from the names and shapes of operators in traces."""

from dataclasses import replace
from typing import Any

import pytest

from capture.run import Run
from tests.tracetui.runs import MS, made
from tracetui.compare.diff import compare_runs
from tracetui.compare.pairing.equal_work import find_work_differences
from tracetui.compare.words.decision import describe_decision
from tracetui.look import Look


def differences(a: Run, b: Run) -> list[str]:
    return list(map(str, find_work_differences(a, b, "context")))


def routed(width: int, expert_calls: int) -> Run:
    """A run of a projection in 96 steps, and of two products for each expert that a router chose for them."""
    shapes = [f"m=1 n={width} k={width}"] * 96
    shapes += [f"m=1 n={4 * width} k={width}", f"m=1 n={width} k={2 * width}"] * expert_calls
    row = {"kind": "kernel", "name": "mm", "category": "matmul", "lens": "host", "dur": MS}
    return made([row | {"t": at * MS, "shape": shape} for at, shape in enumerate(shapes)])


def test_experts_of_another_size_are_other_work_though_their_number_varies() -> None:
    a, b = routed(256, 196), routed(384, 198)
    assert differences(a, b) == ["weights of products 1024×256 and 1536×384"]
    assert differences(a, routed(256, 196)) == []


def traced(tokens: list[int], scans: int = 0, cross: int = 0) -> Run:
    """A run of steps that read as many tokens, with a head of the last one, without phases or contexts.

    With products of a state for each token but one, if `scans`; with attention to as many words of a source.
    """
    product = {"kind": "kernel", "name": "mm", "category": "matmul", "lens": "host", "dur": MS}
    rows = list[dict[str, Any]]()
    for step, m in enumerate(tokens):
        shapes = [f"m={m} n=512 k=512"] * 4 + ["m=512 n=1 k=16"] * scans * (m - 1) + ["m=1 n=900 k=512"]
        of_step = [product | {"shape": shape} for shape in shapes]
        for keys in (step + 1, cross) * bool(cross):
            shape = f"b=1 h=8 q={m} k={keys} d=64"
            of_step.append(product | {"name": "flash", "category": "attention", "shape": shape})
        times = ({"t": (100 * step + at) * MS, "step": step} for at in range(len(of_step)))
        rows += [{"kind": "step", "name": "step", "t": 100 * step * MS, "dur": 99 * MS, "step": step}]
        rows += [row | time for row, time in zip(of_step, times, strict=True)]
    return made(rows)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ({"tokens": [32] + [1] * 11}, {"tokens": [*range(32, 44)]}, "tokens per step 1 and 38"),
        ({"tokens": [5] + [1] * 11}, {"tokens": [9] + [1] * 11}, "prompt 5 and 9"),
        ({"tokens": [5] + [1] * 11, "scans": 2}, {"tokens": [9] + [1] * 11, "scans": 2}, "prompt 5 and 9"),
        ({"tokens": [1] * 12, "cross": 48}, {"tokens": [1] * 12, "cross": 160}, "context 48 and 160"),
        ({"tokens": [5] + [1] * 11}, {"tokens": [5] + [1] * 11}, ""),
    ],
    ids=["no cache", "prompt", "prompt of a state space", "text of an encoder", "nothing"],
)
def test_tokens_of_steps_are_read_from_most_products_of_each(a: Any, b: Any, expected: str) -> None:
    assert differences(traced(**a), traced(**b)) == ([expected] if expected else [])


def computed(*shapes: str, flops: int = 10, category: str = "matmul") -> Run:
    """A run of products or convolutions of these shapes, of equal FLOPs."""
    row = {"kind": "kernel", "name": "work", "category": category, "lens": "host", "dur": MS, "flops": flops}
    return made([row | {"t": at * MS, "shape": shape} for at, shape in enumerate(shapes)])


def drafted(*queries: int) -> Run:
    """Steps whose attention reads a cache with so many new tokens, over and over."""
    row = {"kind": "kernel", "name": "flash", "category": "attention", "lens": "host", "dur": MS}
    sizes = enumerate(queries * 4)
    return made(
        [row | {"step": at, "t": 9 * at * MS, "shape": f"b=1 h=4 q={q} k=90 d=32"} for at, q in sizes]
    )


def test_drafts_of_other_lengths_are_other_work_and_prompts_of_many_are_not() -> None:
    (work,) = find_work_differences(drafted(1, 1, 1, 4), drafted(1, 1, 1, 6), "context")
    assert str(work) == "tokens per step 1–4 and 1–6" and work.is_work
    assert differences(drafted(1, 1, 7, 4), drafted(1, 5, 1, 6)) == []
    assert differences(drafted(1, 1, 1, 4), drafted(1, 1, 1, 4)) == []


def attending(batches: list[int]) -> Run:
    """A run of attention of these batches, as in the windows of an image, in one step for each."""
    row = {"kind": "kernel", "name": "flash", "category": "attention", "lens": "host", "dur": MS}
    return made(
        [
            row | {"step": at, "t": 9 * at * MS, "shape": f"b={b} h=4 q=9 k=9 d=8"}
            for at, b in enumerate(batches)
        ]
    )


def test_equal_runs_with_attention_of_several_batches_have_one_batch() -> None:
    batches = [*range(2, 34)]
    assert differences(attending(batches), attending(batches[::-1])) == []
    assert differences(attending(batches), attending([2 * batch for batch in batches])) == ["batch 2 and 4"]


def test_a_batch_of_attention_is_not_compared_with_that_of_images() -> None:
    """Attention of a video has its frames as a batch; by products it has none, and convolutions have one."""
    row = {"kind": "kernel", "lens": "host", "dur": MS, "step": 0}
    image = row | {"name": "conv", "category": "conv", "t": 0}
    flash = row | {"name": "aten::_flash_attention", "category": "attention", "t": 9 * MS}
    flash["shape"] = "b=8 h=4 q=9 k=9 d=8"
    softmax = row | {"name": "aten::_softmax", "category": "softmax", "t": 9 * MS}
    runs = [
        made([image | {"shape": f"{count}×3×64×64 * 8×3×4×4"}, attention], work="operators")
        for count, attention in ((1, flash), (1, softmax), (2, softmax))
    ]
    way = "attention flash and products + softmax"
    assert differences(runs[0], runs[1]) == [way]
    assert differences(runs[0], runs[2]) == ["batch 1 and 2", way]


def test_another_attention_is_not_called_another_cache() -> None:
    """Its products are those of one of two models, whose contexts vary."""
    row = {"kind": "kernel", "lens": "host", "dur": MS, "op": "attn.core"}
    flash = row | {"name": "aten::_scaled_dot_product_flash_attention_for_cpu", "category": "attention"}
    product, softmax = (row | {"name": f"aten::{name}"} for name in ("bmm", "_softmax"))
    fused, explicit = list[dict[str, Any]](), list[dict[str, Any]]()
    for step in range(12):
        at = {"step": step, "t": 9 * step * MS}
        fused.append(flash | at | {"shape": "b=8 h=1 q=1 k=101 d=64"})
        sizes = f"m=1 n={40 + step} k=64 b=8", f"m=1 n=64 k={40 + step} b=8"
        explicit += [product | at | {"category": "matmul", "shape": size} for size in sizes]
        explicit.append(softmax | at | {"category": "softmax"})
    meta = {"work": "operators"}
    assert differences(made(fused, **meta), made(explicit, **meta)) == [
        "attention flash and products + softmax"
    ]


def test_more_experts_for_each_token_are_other_work_though_their_number_varies() -> None:
    """Of twelve steps one finds an expert idle, so that no count of products is that of all steps."""
    row = {"kind": "kernel", "name": "mm", "category": "matmul", "lens": "host", "dur": MS}
    rows = row | {"shape": "m=1 n=8 k=64", "flops": 1000}, row | {"shape": "m=1 n=128 k=64", "flops": 16_000}
    a, b = (
        made([
            part | {"step": step, "t": (10 * step + at) * MS}
            for step in range(12)
            for at, part in enumerate([rows[0], *[rows[1]] * (experts - (step == 5))])
        ])
        for experts in (2, 4)
    )  # fmt: skip
    assert differences(a, b) == ["work of products 33.00 kFLOP and 65.00 kFLOP"] and differences(a, a) == []
    assert find_work_differences(a, b, "context")[0].is_work


def test_the_same_weights_compute_more_for_larger_images() -> None:
    a, b = (
        computed(f"2×3×{n}×{n} * 8×3×7×7", f"2×8×{n // 2}×{n // 2} * 9×8×3×3", flops=n * n, category="conv")
        for n in (64, 96)
    )
    assert differences(a, b) == ["images 2×3×64×64 and 2×3×96×96"] and differences(a, a) == []
    router = "m=1 n=8 k=64"
    scores = computed("m=1 n=99 k=64 b=8", router, flops=10**6)
    assert differences(scores, computed(router, flops=10**6)) == []


def test_sums_of_gradients_over_a_batch_are_no_weights() -> None:
    a, b = (
        made([
            {"kind": "kernel", "name": "mm", "category": "matmul", "lens": "host", "dur": MS, "t": at * MS,
             "phase": phase, "shape": shape}
            for at, (phase, shape) in enumerate((
                ("forward", f"m={batch} n=256 k=64"), ("backward", f"m=64 n=256 k={batch}"),
            ))
        ])
        for batch in (32, 128)
    )  # fmt: skip
    assert differences(a, b) == ["rows of products 32 and 128"]


def test_the_batch_of_images_is_that_of_their_convolutions() -> None:
    """Products of gradients have other operands: 10 rows of a batch of 8 were called other work than 16."""
    a, b = (
        made([
            {"kind": "kernel", "name": category, "category": category, "lens": "host", "dur": MS,
             "t": at * MS, "phase": phase, "shape": shape}
            for at, (category, phase, shape) in enumerate((
                ("conv", None, f"{batch}×3×32×32 * 32×3×3×3"), ("matmul", None, f"m={batch} n=10 k=128"),
                ("matmul", "backward", f"m={max(batch, 10)} n=128 k=10"),
            ))
        ])
        for batch in (8, 16)
    )  # fmt: skip
    assert differences(a, b) == ["batch 8 and 16"] and differences(a, a) == []
    assert find_work_differences(a, b, "context")[0].is_about("backward")


def test_other_prompts_are_other_work_of_a_decode_whose_context_is_unknown() -> None:
    """As in a profile of vLLM, whose attention has no shape."""
    a, b = (
        made([
            {"kind": kind, "name": kind, "category": "matmul", "lens": "host", "dur": MS, "t": step * MS,
             "phase": phase, "shape": f"m={tokens} n=512 k=512", "step": step}
            for step, (phase, tokens) in enumerate((("prefill", prompt), ("decode", 2), ("decode", 2)))
            for kind in ("step", "kernel")
        ])
        for prompt in (96, 320)
    )  # fmt: skip
    (work,) = find_work_differences(a, b, "context")
    assert str(work) == "prefill tokens per step 96 and 320" and work.is_about("decode")


def test_tokens_of_a_prefill_are_those_of_its_sequences() -> None:
    """As vLLM marks its steps: `execute_context_3(120)_generation_0(0)`."""
    a, b = (
        made([
            {"kind": kind, "name": kind, "category": "matmul", "lens": "host", "dur": MS, "t": step * MS,
             "phase": phase, "shape": f"m={tokens} n=512 k=512", "step": step, "tokens": tokens, "batch": 3}
            for step, (phase, tokens) in enumerate((("prefill", prompt), ("decode", 3), ("decode", 3)))
            for kind in ("step", "kernel")
        ])
        for prompt in (120, 300)
    )  # fmt: skip
    (work,) = find_work_differences(a, b, "context")
    assert str(work) == "prefill prompt 40 and 100" and work.is_about("decode") and work.is_work


@pytest.mark.parametrize(
    ("meta", "source"),
    [({"work": "operators"}, "record_shapes=True"), ({"producer": "JAX profiler"}, "*.xplane.pb")],
)
def test_sizes_that_no_file_states_are_said_to_be_unknown(meta: Any, source: str) -> None:
    """A batch three times as large was compared without a word."""
    row = {"kind": "kernel", "name": "aten::mm", "category": "matmul", "lens": "host", "dur": MS}
    runs = [made([row | {"t": at * MS} for at in range(9)], **meta) for _ in range(2)]
    line = f"  sizes of the work are unknown: {source} states them"
    assert line in describe_decision(compare_runs(runs, Look()), Look().terms)
    inputs = [replace(run, meta=run.meta | {"program inputs": {"4x8": 1}}) for run in runs]
    assert line not in describe_decision(compare_runs(inputs, Look()), Look().terms)


def test_integer_nodes_of_onnxruntime_are_quantised() -> None:
    """Nodes have no number format: as onnxruntime names them in a model that quantize_dynamic made."""
    a, b = (
        made(
            [{"kind": "kernel", "name": n, "category": "matmul", "lens": "host", "dur": MS, "t": at * MS}
             for at, n in enumerate(names)],
            producer="ONNX Runtime",
        )
        for names in (("/up/MatMul", "/down"), ("/up/MatMul_quant (DynamicQuantizeMatMul)", "/down"))
    )  # fmt: skip
    assert differences(a, b) == ["quant none and int8"] and differences(b, b) == []


def test_context_that_does_not_grow_is_the_size_that_divides_no_weights() -> None:
    """As of a step of onnxruntime with a cache of a fixed size, beside a head size of 64."""
    a, b = (
        made([
            {"kind": "kernel", "name": shape, "category": "matmul", "op": op, "lens": "host", "dur": MS,
             "step": step, "t": (9 * step + at) * MS, "shape": shape}
            for step in range(6)
            for at, (op, shape) in enumerate((
                ("attn.qkv", "m=1 n=256 k=256"), ("attn.core", f"m=1 n={length} k=64 b=4"),
                ("attn.out", f"m=1 n=64 k={length} b=4"),
            ))
        ])
        for length in (129, 385)
    )  # fmt: skip
    (work,) = find_work_differences(a, b, "context")
    assert str(work) == "context 129 and 385" and work.is_work and differences(a, a) == []


def test_products_without_a_guessed_role_are_no_more_of_them() -> None:
    """onnxruntime casts what has no kernel for fp16: casts hide the pattern that roles are guessed from."""
    a, b = (
        made([
            {"kind": "kernel", "name": name, "category": category, "lens": "host", "dur": MS, "step": step,
             "t": (9 * step + at) * MS, "op": op, "shape": "m=1 n=64 k=64" if category == "matmul" else None}
            for step in range(6)
            for at, (name, category, op) in enumerate(nodes)
        ], producer="ONNX Runtime")
        for nodes in (
            (("/q/MatMul", "matmul", "attn.qkv"), ("/v/MatMul", "matmul", "attn.core")),
            (("InsertedPrecisionFreeCast_x", "copy", None), ("/q/MatMul", "matmul", None),
             ("/v/MatMul", "matmul", None)),
        )
    )  # fmt: skip
    assert differences(a, b) == ["inserted casts no and yes"] and differences(b, b) == []


def test_experts_of_a_fused_operator_are_named_by_its_shape() -> None:
    """vLLM's experts are one operator, which is no product: twice as many were compared as equal work."""
    a, b = (
        made([
            {"kind": "kernel", "name": n, "category": n, "lens": "host", "dur": MS, "t": at * MS, "shape": s}
            for at, (n, s) in enumerate((("matmul", "m=2 n=8 k=64"), ("moe", f"m=2 n=64 k=64 e=8/{chosen}")))
        ])
        for chosen in (2, 4)
    )  # fmt: skip
    assert differences(a, b) == ["experts per token 2 of 8 and 4 of 8"] and differences(a, a) == []
    assert find_work_differences(a, b, "context")[0].is_work


def launched(steps: int = 10, **counts: int) -> Run:
    """A run of steps with kernels of these names as often; the last step is cut."""
    rows = list[dict[str, Any]]()
    for step in range(steps):
        names = [f"aten::{name}" for name, count in counts.items() for _ in range(count)]
        row = {"kind": "kernel", "lens": "host", "dur": MS, "step": step}
        names = names[: 1 if step == steps - 1 else None]
        rows += [row | {"name": name, "t": (100 * step + at) * MS} for at, name in enumerate(names)]
    return made(rows)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ({"gelu": 3, "erf": 2}, {"gelu": 12, "erf": 2}, ["launches per step of gelu 3 and 12"]),
        ({"gelu": 3, "erf": 3}, {"gelu": 9, "erf": 9}, ["launches per step of erf, gelu 3 and 9"]),
        ({"gelu": 3, "erf": 2}, {"gelu": 3}, []),  # what has one side is a row of its own
        ({"gelu": 3, "erf": 2}, {"gelu": 3, "erf": 2}, []),
    ],
)
def test_launches_per_step_are_named_if_nothing_else_differs(a: Any, b: Any, expected: list[str]) -> None:
    assert differences(launched(**a), launched(**b)) == expected
    assert compare_runs((launched(**a), launched(**b)), Look()).comparability.ok


def layered(feeds: int = 1, heads: int = 1, *, by_products: bool = False) -> Run:
    """Steps of three layers whose feed-forward runs so often, and a head; attention is a kernel, or loops."""
    mm = {"name": "aten::mm", "category": "matmul", "dtype": "fp32"}
    score = [mm | {"shape": "m=1 n=90 k=32"}, {"name": "aten::_softmax"}, mm | {"shape": "m=1 n=32 k=90"}]
    flash = {"name": "aten::_scaled_dot_product_flash_attention_for_cpu", "category": "attention"}
    attention = score * 8 if by_products else [flash | {"shape": "b=1 h=8 q=1 k=90 d=32"}]
    feed = [mm | {"shape": "m=1 n=1024 k=256"}, {"name": "aten::silu"}, mm | {"shape": "m=1 n=256 k=1024"}]
    layer = [mm | {"shape": "m=1 n=768 k=256"}, *attention, mm | {"shape": "m=1 n=256 k=256"}, *feed * feeds]
    of_step = [*layer * 3, *[mm | {"shape": "m=1 n=900 k=256"}] * heads]
    of_all = {"kind": "kernel", "lens": "host", "dur": MS}
    rows = [
        row | of_all | {"step": step, "t": (1000 * step + at) * MS}
        for step in range(8)
        for at, row in enumerate(of_step)
    ]
    return made(rows, work="operators")


@pytest.mark.parametrize(
    ("b", "expected"),
    [
        (layered(feeds=4), ["products per step 13 and 31"]),
        (layered(heads=5), ["products per step 13 and 17"]),
        (layered(by_products=True), ["attention flash and products + softmax"]),
        (layered(), []),
    ],
    ids=["feed-forward", "head", "attention in loops", "equal"],
)
def test_products_that_run_again_are_no_other_work(b: Run, expected: list[str]) -> None:
    compared = compare_runs((layered(), b), Look())
    assert list(map(str, compared.works)) == expected
    assert not any(work.is_work for work in compared.works)


def test_optimizer_is_read_from_its_own_operators() -> None:
    """Gradients are clipped by operators of the kind foreach; an update by hand is none of PyTorch's."""
    rows = [
        {"kind": "kernel", "name": "aten::mm", "dur": 5, "phase": phase} for phase in ("forward", "backward")
    ]
    optimizer = [{"kind": "span", "name": "Optimizer.step#SGD.step", "dur": 9}]
    optimizer += [{"kind": "kernel", "name": "aten::add_", "dur": 5, "phase": "optimizer"}]
    clip = [{"kind": "kernel", "name": "aten::_foreach_mul_", "dur": 5}]
    plain, clipped, by_hand = (
        made(rows + more, work="operators") for more in (optimizer, optimizer + clip, [])
    )
    assert differences(plain, clipped) == []
    assert differences(plain, by_hand) == ["optimizer SGD (one parameter at a time) and none of torch.optim"]


def test_number_format_of_convolutions_is_that_of_the_run() -> None:
    row = {
        "kind": "kernel",
        "name": "aten::convolution",
        "category": "conv",
        "dur": 5,
        "shape": "2×3×8 * 4×3×2",
    }
    a, b = (made([row | {"dtype": dtype}]) for dtype in ("fp32", "fp64"))
    assert differences(a, b) == ["dtype fp32 and fp64"]
