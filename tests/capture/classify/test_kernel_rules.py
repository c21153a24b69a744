"""What kernel names say, on a corpus of real ones."""

import re
import time
from collections import Counter

import pytest

from capture.classify.kernel_rules import (
    KERNEL_RULES,
    KernelRule,
    classify_kernel,
    parse_carried_op,
    parse_kernel_rules,
)
from capture.native.schema import CATEGORIES
from tests.capture.classify.corpus import corpus

# the operators that launched kernels → the category of their kernels
_OPERATORS = {
    "aten::mm": "matmul", "aten::addmm": "matmul", "aten::bmm": "matmul", "aten::add": "elementwise",
    "aten::mul": "elementwise", "aten::div": "elementwise", "aten::sub": "elementwise",
    "aten::eq": "elementwise", "aten::neg": "elementwise", "aten::copy_": "copy", "aten::cat": "copy",
    "aten::index": "copy", "aten::index_select": "copy", "aten::mean": "reduce", "aten::sum": "reduce",
    "aten::argmax": "reduce", "aten::cumsum": "reduce", "aten::cudnn_batch_norm": "norm",
    "aten::native_layer_norm": "norm", "aten::native_group_norm": "norm", "aten::miopen_convolution": "conv",
    "aten::_flash_attention_forward": "attention",
}  # fmt: skip
_PRODUCERS = (
    "aiter", "ck", "cublas", "cudnn", "cutlass", "deepgemm", "fla", "flashattention", "flashinfer", "ggml",
    "inductor", "machete", "mamba", "marlin", "metallic", "mlc", "nccl", "pytorch", "rccl", "sglang",
    "tensile", "triton", "trtllm", "vllm",
)  # fmt: skip


def test_corpus_is_large_and_broad() -> None:
    names = corpus()
    assert len(names) >= 600
    assert len({kernel.name for kernel in names}) == len(names)
    producers = Counter(kernel.producer for kernel in names)
    for producer in _PRODUCERS:
        assert producers[producer], producer


def test_no_name_of_the_corpus_is_wrong() -> None:
    wrong = [
        (
            kernel.name[:120],
            (kernel.op, kernel.category),
            (classified.op, classified.category),
            classified.rule_id,
        )
        for kernel in corpus()
        if ((classified := classify_kernel(kernel.name)).op, classified.category)
        != (kernel.op, kernel.category)
    ]
    assert not wrong, f"{len(wrong)} wrong, first {wrong[:5]}"


def test_categories_agree_with_the_operators_that_launched_the_kernels() -> None:
    labelled = [
        (kernel, _OPERATORS[operator[1]])
        for kernel in corpus()
        if (operator := re.search(r"\((\w+::\w+)\)$", kernel.source)) and operator[1] in _OPERATORS
    ]
    agreeing = [kernel for kernel, category in labelled if classify_kernel(kernel.name).category == category]
    assert len(labelled) > 100
    assert len(agreeing) / len(labelled) >= 0.97


@pytest.mark.parametrize("rule", KERNEL_RULES, ids=lambda rule: rule.id)
def test_example_of_a_rule_is_decided_by_it(rule: KernelRule) -> None:
    classified = classify_kernel(rule.example)
    assert classified.rule_id == rule.id, classified
    assert classified.basis.startswith(f"{rule.part}: ")


def test_every_category_has_a_rule() -> None:
    assert {rule.category for rule in KERNEL_RULES} == set(CATEGORIES)


def test_ids_of_rules_are_unique() -> None:
    assert len({rule.id for rule in KERNEL_RULES}) == len(KERNEL_RULES)


def test_a_table_with_a_wrong_line_is_refused() -> None:
    header = "id\tpart\tpattern\top\tcategory\texample\n"
    assert parse_kernel_rules(header) == ()
    for line in ("a\tleg\tx\t\tmatmul\tx", "a\tbase\tx\t\tnonsense\tx", "a\tbase\tx"):
        with pytest.raises(ValueError, match=r".+"):
            parse_kernel_rules(header + line + "\n")
    with pytest.raises(ValueError, match="other columns"):
        parse_kernel_rules("id\tpattern\n")


_NAMESPACED = "void at::native::(anonymous namespace)::"
_FLASHINFER = "void flashinfer::"
_FAULTS = (
    # attention is decided by what the kernel is called, before any cache among its template arguments
    (_FLASHINFER + "BatchDecodeWithPagedKVCacheKernel<(flashinfer::Mode)0>(int)", "attn.core", "attention"),
    (
        "_ZN7ck_tile6kentryILi1ENS_38FmhaBatchPrefillWithPagedKVCacheKernelIiEEEEvT0_",
        "attn.core",
        "attention",
    ),
    ("void paged_attention_ll4mi_reduce_kernel<(vllm::Fp8KVCacheDataType)0>(int)", "attn.core", "attention"),
    (_FLASHINFER + "activation::act_and_mul_kernel<x, &(float silu<y>(z))>(int)", "mlp.act", "elementwise"),
    (_FLASHINFER + "sampling::TopPSamplingFromProbKernel<1024u, float, int>(float*)", "sample", "sampling"),
    ("triton_poi_fused_addmm_gelu_3", "mlp.act", "elementwise"),
    ("triton_poi_fused_addmm_add_3", None, "elementwise"),
    ("triton_poi_fused_add_all_reduce_mul_0", None, "elementwise"),
    ("_topk_forward", "moe.router", "moe"),
    (_NAMESPACED + "upsample_nearest2d_out_frame<float>(float*)", "resample", "elementwise"),
    ("cudnn_infer_volta_scudnn_128x64_relu_small_nn_v1", "conv", "conv"),
    ("sage_fwd", "attn.core", "attention"),
    ("aten::broadcast_tensors", None, "other"),
    ("aten::baddbmm", None, "matmul"),  # scores of attention with a bias, as of Bloom
)


@pytest.mark.parametrize(("name", "op", "category"), _FAULTS)
def test_faults_of_the_field(name: str, op: str | None, category: str) -> None:
    classified = classify_kernel(name)
    assert (classified.op, classified.category) == (op, category), classified


def test_a_name_that_a_report_cut_off_keeps_its_category_but_claims_no_op() -> None:
    classified = classify_kernel(
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::Binar..."
    )
    assert (classified.op, classified.category) == (None, "elementwise")


def test_a_name_that_no_rule_knows() -> None:
    classified = classify_kernel("zyx")
    assert (classified.op, classified.category, classified.rule_id, classified.basis) == (
        None,
        "other",
        None,
        "",
    )


@pytest.mark.parametrize(
    ("inner", "op"),
    [
        ("at::native::CUDAFunctor_add", "add"),
        ("at::native::CUDAFunctorOnSelf_add", "add"),
        ("at::native::binary_internal::MulFunctor", "mul"),
        ("at::native::pow_tensor_scalar_kernel_impl", "pow"),
        ("at::native::launch_clamp_scalar", "clamp"),
        ("at::native::sum_functor::operator_call", "sum"),
        ("op_add", "add"),
        ("", ""),
    ],
)
def test_functors_are_named_in_a_word(inner: str, op: str) -> None:
    assert parse_carried_op(inner) == op


@pytest.mark.slow
def test_twenty_thousand_names_are_quick() -> None:
    names = [kernel.name for kernel in corpus() if not kernel.name.startswith("_Z")]
    many = {re.sub(r"\d+(?=\D*$)", str(i), name) for i in range(40) for name in names}
    begun = time.process_time()
    for name in sorted(many)[:20_000]:
        classify_kernel(name)
    assert time.process_time() - begun < 6  # a tenth of it on a machine of its own


@pytest.mark.parametrize(
    "name",
    [
        "", " ", "void ", "(", ")", "<", ">", "void <>()", "a<", "a>", "operator()", "void operator<(int)",
        "_Z", "_ZN", "_ZN1aI",
        "<" * 9000, "(" * 5000 + ")" * 5000, "_ZN" + "1a" * 5000, "_ZN1aI" + "S_" * 3000,
        "_Z" + "P" * 9000, "fprop_implicit_gemm_a_" * 600, "void " + "a<" * 4000 + ">" * 4000, "nccl" * 4000,
        "\x1b]0;x\x07\x00\u202e", "🧪" * 3000, "İ" * 500 + "gemm", "triton_poi_fused_" + "copy_" * 2000 + "x",
    ],
)  # fmt: skip
def test_hostile_names_neither_raise_nor_linger(name: str) -> None:
    begun = time.process_time()
    assert classify_kernel(name).category
    assert time.process_time() - begun < 2
