"""Work of operators: FLOPs and bytes by hand, and against the reference tables of two serving traces."""

import ast
import csv
import sys

import pytest

from capture.classify.experts_work import estimate_experts_touched, estimate_grouped_product
from capture.classify.operator_call import OperatorCall
from capture.classify.operator_work import estimate_work
from capture.classify.step_annotations import parse_step_annotation
from tests.conftest import shared

BF16, F32, FP8 = "c10::BFloat16", "float", "c10::Float8_e4m3fn"
MIB = 1 << 20


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("aten::convolution", ("", "", "", "[2, 2]", "[1, 0]", "[1, 2]", "False", "[0, 0]", "2")),
        ("aten::mkldnn_convolution", ("", "", "", "[1, 0]", "[2, 2]", "[1, 2]", "2")),
        ("aten::cudnn_convolution", ("", "", "[1, 0]", "[2, 2]", "[1, 2]", "2", "False")),
        ("aten::slow_conv_dilated2d", ("", "", "[3, 3]", "", "[2, 2]", "[1, 0]", "[1, 2]")),
    ],
)
def test_a_convolution_by_hand(name: str, values: tuple[str, ...]) -> None:
    """(1, 4, 8, 9) by (6, 2, 3, 3): 4 × 3 results of 6 channels, of 2 × 3 × 3 products each."""
    call = OperatorCall(name, ((1, 4, 8, 9), (6, 2, 3, 3), (6,)), (F32,) * 3, values)
    work = estimate_work(call)
    assert work is not None
    assert (work.flops, work.bytes) == (2 * 4 * 3 * 6 * 18, 4 * (288 + 108 + 6 + 72))
    transposed = ("", "", "", "[2, 2]", "[1, 0]", "[1, 2]", "True")
    assert estimate_work(OperatorCall("aten::convolution", call.dims, call.types, transposed)) is None
    assert estimate_work(OperatorCall(name, call.dims, call.types)) is None


@pytest.mark.parametrize(
    ("name", "dims", "types", "gflop", "mib"),
    [  # figures computed by hand
        ("aten::mm", ((32, 4096), (4096, 24576)), (BF16, BF16), 6.442450944, 193.75),
        ("aten::linear", ((2, 3, 8), (16, 8), (16,)), (F32, F32, F32), 1536e-9, 1152 / MIB),
        ("aten::addmm", ((32,), (32, 2880), (2880, 32)), (BF16, BF16, BF16), 0.00589824, 370752 / MIB),
        ("aten::bmm", ((4, 2, 8), (4, 8, 16)), (BF16, BF16), 2048e-9, 1408 / MIB),
        ("aten::mul", ((64, 64), (64, 64)), (F32, F32), 4096e-9, 3 * 16384 / MIB),
        ("aten::mul", ((64, 1), (2, 1, 32)), (F32, F32), 4096e-9, 4 * (64 + 64 + 4096) / MIB),
        ("aten::lt", ((64, 64), ()), (F32, "Scalar"), 4096e-9, (4 + 1) * 4096 / MIB),
        ("aten::masked_fill", ((64, 64), (64, 64), ()), (F32, "bool", "Scalar"), 4096e-9, 9 * 4096 / MIB),
        ("aten::clone", ((64, 64), ()), (BF16, "Scalar"), 0.0, 2 * 2 * 4096 / MIB),
        # out, x, bias or weight, as vLLM's build for processors records them
        ("_C::onednn_mm", ((32, 2816), (32, 512), (), ()), (BF16, BF16, "", "long int"), 0.092274688,
         2 * (32 * 512 + 512 * 2816 + 32 * 2816) / MIB),
        ("_C::onednn_mm", ((2, 8), (2, 4), (8,), ()), (BF16, BF16, BF16, ""), 128e-9,
         2 * (2 * 4 + 4 * 8 + 2 * 8 + 8) / MIB),
        ("_C::weight_packed_linear", ((32, 1024), (32, 512), (1024, 512), (), ()), (BF16,) * 3 + ("", ""),
         0.033554432, 2 * (32 * 512 + 512 * 1024 + 32 * 1024) / MIB),
        # per row and per column, and by blocks of 128 × 128
        ("aten::_scaled_mm", ((16, 256), (256, 128), (16, 1), (1, 128)), (FP8, FP8, F32, F32), 1048576e-9,
         (16 * 256 + 256 * 128 + 2 * 16 * 128 + 4 * (16 + 128)) / MIB),
        ("aten::_scaled_mm", ((16, 256), (256, 128), (16, 2), (2, 1)), (FP8, FP8, F32, F32), 1048576e-9,
         (16 * 256 + 256 * 128 + 2 * 16 * 128 + 4 * (32 + 2)) / MIB),
        ("aten::_int_mm", ((16, 256), (256, 128)), ("signed char",) * 2, 1048576e-9,
         (16 * 256 + 256 * 128 + 4 * 16 * 128) / MIB),
        ("aten::embedding", ((8192, 512), (32,), (), ()), (BF16, "long int", "", ""), 0.0,
         (2 * 32 * 512 * 2 + 32 * 8) / MIB),
        ("aten::mean", ((32, 512), (), ()), (F32, "", ""), 16384e-9, 4 * 16384 / MIB),
        ("aten::copy_", ((32, 32), (32, 32)), (F32, BF16), 0.0, (4096 + 2048) / MIB),
        ("aten::_flash_attention_forward", ((1, 4, 2, 8), (1, 4, 2, 8), (1, 4, 2, 8)), (BF16,) * 3,
         1024e-9, 512 / MIB),
        ("aten::_flash_attention_forward", ((1, 4, 2, 8), (1, 6, 1, 8), (1, 6, 1, 8)), (BF16,) * 3,
         1536e-9, (2 * 128 + 2 * 96) / MIB),
        ("aten::scaled_dot_product_attention", ((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)), (BF16,) * 3,
         1024e-9, 512 / MIB),
    ],
)  # fmt: skip
def test_by_hand(
    name: str, dims: tuple[tuple[int, ...], ...], types: tuple[str, ...], gflop: float, mib: float
) -> None:
    work = estimate_work(OperatorCall(name, dims, types))
    assert work is not None
    assert work.flops / 1e9 == pytest.approx(gflop) and work.bytes / MIB == pytest.approx(mib)


@pytest.mark.parametrize(("axes", "results"), [("[1]", 32), ("[-1, 0]", 2), ("[]", 0), ("", 0)])
def test_a_reduction_over_stated_axes_writes_its_results(axes: str, results: int) -> None:
    work = estimate_work(OperatorCall("aten::sum", ((4, 2, 8), (), ()), (F32, "", ""), ("", axes, "False")))
    assert work is not None and work.bytes == 4 * (64 + results)


def test_prompt_attention_leaves_out_half_of_its_square() -> None:
    step = parse_step_annotation("execute_4_context_1(sq4sk4sqsq16sqsk16)_generation_0(sq0sk0sqsq0sqsk0)")
    call = OperatorCall("vllm::unified_attention", ((4, 2, 8), (4, 1, 8), (4, 1, 8)), (BF16,) * 3, step=step)
    work = estimate_work(call)
    assert work is not None and work.flops == 2 * 2 * (8 + 8) * (16 - 8)
    assert work.bytes == (2 * 4 * 2 * 8 + 2 * 4 * 8) * 2


@pytest.mark.parametrize(
    "call",
    [
        OperatorCall("aten::mm", ((32, 4096), (4095, 8)), (BF16, BF16)),
        OperatorCall("aten::mm", ((32, 4096),), (BF16,)),
        OperatorCall("aten::mm", ((0, 4), (4, 4)), (BF16, BF16)),
        OperatorCall("aten::mm", ((2, 4), (4, 4)), ("what", BF16)),
        OperatorCall("vllm::unified_attention", ((4, 2, 8), (4, 1, 8), (4, 1, 8)), (BF16,) * 3),
        OperatorCall("aten::nonzero", ((4, 2),), (BF16,)),
        OperatorCall("aten::add", (), ()),
    ],
)
def test_what_is_not_stated_is_not_guessed(call: OperatorCall) -> None:
    assert estimate_work(call) is None


def test_a_mixture_touches_the_experts_that_chance_touches() -> None:
    assert estimate_experts_touched(8, 8, 1) == 8 and estimate_experts_touched(8, 1, 1) == pytest.approx(1)
    up = estimate_grouped_product(32, 4, 32, 3072, 6144, (2, 0.5, 2), "fp4", scattered=False)
    down = estimate_grouped_product(32, 4, 32, 3072, 3072, (2, 0.5, 2), "fp4", scattered=True)
    assert up.flops / 1e9 == pytest.approx(4.831838208) and down.flops / 1e9 == pytest.approx(2.415919104)
    assert down.bytes / MIB == pytest.approx(142.93016346657365, rel=1e-6)


MODELLED = ("GEMM", "RMSNorm", "RoPE_fwd", "InferenceAttention")


@pytest.mark.parametrize("sample", ["sglang_qwen3_8b_decode", "vllm_gptoss_decode"])
def test_equal_to_the_reference_tables(sample: str) -> None:
    """Within 1 % of `unified_perf_summary.csv`, for every row of products, norms, rope and attention."""
    csv.field_size_limit(sys.maxsize)
    keys = {"sglang_qwen3_8b_decode": 32785, "vllm_gptoss_decode": 55086}[sample]
    step = parse_step_annotation(
        f"execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk{keys}sqsq32sqsk{keys})"
    )
    compared = 0
    with shared(f"samples/serving/{sample}/unified_perf_summary.csv").open() as f:
        for row in csv.DictReader(f):
            if row["op category"] not in MODELLED or not row["GFLOPS"]:
                continue
            call = OperatorCall(
                row["name"], ast.literal_eval(row["Input Dims"]), ast.literal_eval(row["Input type"]),
                ast.literal_eval(row["Concrete Inputs"]), step,
            )  # fmt: skip
            work = estimate_work(call)
            assert work is not None, row["name"]
            assert work.flops / 1e9 == pytest.approx(float(row["GFLOPS"]), rel=0.01), row["name"]
            assert work.bytes / MIB == pytest.approx(float(row["Data Moved (MB)"]), rel=0.01), row["name"]
            compared += 1
    assert compared >= 8


@pytest.mark.parametrize(
    ("name", "first", "second", "weights", "moved"),
    [
        ("vllm::outplace_fused_experts", (4, 12, 8), (4, 8, 6), BF16, 416 + 224),
        (
            "sglang::inplace_fused_experts",
            (4, 12, 4),
            (4, 8, 3),
            "unsigned char",
            164 + 98,
        ),  # 4 bits a number
    ],
)
def test_experts_by_hand(
    name: str, first: tuple[int, ...], second: tuple[int, ...], weights: str, moved: float
) -> None:
    """Two tokens of 8, of which each takes one of four experts: 1.75 of them are touched if it is even.

    Up: 2 · 2 · 8 · 12 operations; 1.75 · 96 weights, 2 · 8 read, 2 · 12 written.
    Down: 2 · 2 · 6 · 8 operations; 1.75 · 48 weights, 2 · 6 read, 2 · 8 written.
    """
    dims = ((2, 8), first, second, (2, 1), (2, 1))
    work = estimate_work(OperatorCall(name, dims, (BF16, weights, weights, F32, "int")))
    assert work is not None and (work.flops, work.bytes) == (384 + 192, moved)
    assert work.shape == "m=2 n=12 k=8 e=4/1" and work.model == "experts"


def test_experts_whose_number_a_token_is_not_told_have_no_answer() -> None:
    """Router logits tell how many experts there are, not how many are taken, and not how wide they are."""
    assert estimate_work(OperatorCall("vllm::moe_forward", ((32, 3072), (32, 32)), (BF16, BF16))) is None
    dims = ((2, 8), (4, 12, 8), (4, 8, 6), (2, 4))
    assert estimate_work(OperatorCall("aiter::fused_moe", dims, (BF16,) * 4)) is None


@pytest.mark.parametrize(
    ("kernel", "flops", "moved", "dtype"),
    [  # 2 tokens × 1 of 4 experts touch 4 (1 - 0.75²) = 1.75; hidden 64; 0.53125 bytes a weight
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1", 2 * 2 * 64 * 64,
         1.75 * 64 * 64 * 0.53125 + 2 * 64 * 2 + 2 * 64 * 2, "bf16"),
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu", 2 * 2 * 64 * 128,
         1.75 * 64 * 128 * 0.53125 + 2 * 64 * 2 + 2 * 64 * 2, "bf16"),
        ("_matmul_ogs_NNT_bf16xfp8xmxfp4_128x128x128x1", 2 * 2 * 64 * 64,
         1.75 * 64 * 64 * 0.53125 + 2 * 64 * 1 + 2 * 64 * 2, "fp8"),
    ],
)  # fmt: skip
def test_a_kernel_of_experts_by_hand(kernel: str, flops: float, moved: float, dtype: str) -> None:
    call = OperatorCall(
        f"vllm::moe_forward / {kernel}", ((2, 64), (2, 4), ()), (BF16, BF16, ""), ("", "", "1")
    )
    work = estimate_work(call)
    assert work and (work.flops, work.bytes, work.dtype) == (flops, pytest.approx(moved), dtype)


@pytest.mark.parametrize(
    ("kernel", "moved"),
    [  # 2 tokens of 64 numbers, of which each takes 2 of 4 experts
        ("_finalize_matmul_scatter_bf16", (2 * 2 + 2) * 64 * 2), ("_topk_forward", 2 * 4 * 2),
        ("_sum_bitmatrix_rows", 2 * 2 * 8), ("_combined_routing_compute", 2 * 2 * 8),
    ],
)  # fmt: skip
def test_a_kernel_that_moves_choices_by_hand(kernel: str, moved: float) -> None:
    name, dims = f"vllm::moe_forward / {kernel}", ((2, 64), (2, 4), ())
    work = estimate_work(OperatorCall(name, dims, (BF16, BF16, ""), ("", "", "2")))
    assert work and work.bytes == moved
    assert estimate_work(OperatorCall(name, dims, (BF16, BF16, ""), ("", "", "5"))) is None


@pytest.mark.parametrize(
    ("name", "dims", "values", "moved"),
    [
        ("triton_poi_fused__to_copy_1", ((8, 64), (8, 64)), ("", "", "512"), 512 * (4 + 2)),
        ("triton_poi_fused_constant_pad_nd_0", ((8, 60), (8, 64)), ("", "", "512"), 480 * 4 + 512 * 2),
        ("triton_red_fused_mean_2", ((8, 64), (8,)), ("", "", "8", "64"), 512 * 4 + 8 * 2),
        ("triton_poi_fused_embedding_0", ((999, 64), (8, 64)), ("", "", "512"), None),  # some of its rows
        ("triton_poi_fused_0", ((8, 64), (8, 64)), ("", ""), None),
        ("triton_tem_fused_mm_0", ((8, 64), (8, 64)), ("", "", "512"), None),
    ],
)
def test_a_generated_kernel_moves_each_operand_that_its_loop_covers(
    name: str, dims: tuple[tuple[int, ...], ...], values: tuple[str, ...], moved: float | None
) -> None:
    scalars = ((),) * (len(values) - 2)
    types = (F32, BF16, *("Scalar" for _ in scalars))
    work = estimate_work(OperatorCall(name, (*dims, *scalars), types, values))
    assert (work and work.bytes) == moved


@pytest.mark.parametrize(("window", "pairs"), [("-1", 20), ("3", None)])
def test_attention_of_a_processor_has_heads_before_positions(window: str, pairs: int | None) -> None:
    """Two queries of 4 heads look at 20 keys of 2 heads, of blocks of 16 positions."""
    step = parse_step_annotation("execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk20sqsq2sqsk20)")
    dims = ((2, 4, 8), (64, 2, 16, 8), (64, 2, 16, 8), (2, 4, 8), (3,), (2,), (), (), (), ())
    values = ("",) * 6 + ("0.125", "True", "", window)
    call = OperatorCall("_C::cpu_attention_with_kv_cache", dims, (BF16,) * 4 + ("int",) * 6, values, step)
    work = estimate_work(call)
    assert (work and work.flops) == (pairs and 4 * 4 * 8 * pairs)
    assert work is None or work.bytes == 2 * (2 * 2 * 4 * 8 + 2 * 20 * 2 * 8)


@pytest.mark.parametrize("values", [(), ("", "many"), ("9",)])
def test_a_kernel_of_experts_without_their_number_has_no_work(values: tuple[str, ...]) -> None:
    kernel = "vllm::moe_forward / _matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1"
    assert estimate_work(OperatorCall(kernel, ((2, 64), (2, 4)), (BF16, BF16), values)) is None
