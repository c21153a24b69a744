"""Short names: readable, as the corpus states them, and never ambiguous."""

import pytest

from capture.classify.short_names import parse_gemm_name, shorten_name, shorten_names
from tests.capture.classify.corpus import corpus


def test_short_names_are_as_stated() -> None:
    stated = [kernel for kernel in corpus() if kernel.short]
    assert len(stated) >= 40
    for kernel in stated:
        assert shorten_name(kernel.name) == kernel.short


def test_short_names_are_short() -> None:
    for kernel in corpus():
        if not kernel.name.endswith(("...", "…")):
            assert len(shorten_name(kernel.name)) <= 80


def test_short_names_of_a_run_are_never_ambiguous() -> None:
    names = [kernel.name for kernel in corpus()]
    readable = shorten_names(names)
    assert list(readable) != [] and set(readable) == set(names)
    assert len(set(readable.values())) == len(names)


def test_names_that_read_alike_are_told_apart_by_what_differs() -> None:
    name = "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi{}ELi{}ELb0ELb0ELb1ELi1EEEvPT0_PT_PfS4_S4_S4_di"
    wide, narrow = name.format(256, 16), name.format(64, 8)
    assert shorten_names([wide]) == {wide: "aiter::add_rmsnorm_quant"}
    assert shorten_names([wide, narrow]) == {
        wide: "aiter::add_rmsnorm_quant [256]",
        narrow: "aiter::add_rmsnorm_quant [64]",
    }


def test_names_that_differ_nowhere_else_are_numbered() -> None:
    first, second = "void a::b_kernel<1>(int)", "void a::b_kernel<1>(float)"
    assert shorten_names([first, second]) == {first: "a::b", second: "a::b~2"}
    taken = "a::b~2"
    assert len(set(shorten_names([first, second, taken]).values())) == 3


def test_a_name_that_a_report_cut_off_stays() -> None:
    name = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::Binar..."
    assert shorten_name(name) == name
    assert shorten_name("void marlin::Marlin<(long)1125899906910725, (long)112…") == "marlin::Marlin"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("volta_sgemm_32x128_tn", "GEMM fp32 TN 32x128 (cuBLAS)"),
        ("ampere_bf16_s16816gemm_bf16_64x64_ldg8_f2f_stages_64x5_tn", "GEMM bf16 TN 64x64x64 (cuBLAS)"),
        ("nvjet_hsh_64x8_64x16_4x1_v_bz_TNT", "GEMM fp16 TN 64x8x64 (nvjet)"),
        ("nvjet_qqtst_128x64_128x6_1x2_h_bz_TNT", "GEMM fp8 TN 128x64x128 (nvjet)"),
        ("cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4", "GEMM tf32 NN 128x128x32 (cutlass)"),
        ("Cijk_Ailk_Bjlk_HHS_BH_MT64x64x32_MI16x16x1", "GEMM fp16 NT 64x64x32 (Tensile)"),
        ("Cijk_Alik_Bljk_F8BS_BH_MT256x128x64_MI16x16x1", "GEMM fp8 TN 256x128x64 (Tensile)"),
        ("softmax_kernel", None),
    ],
)  # fmt: skip
def test_products_that_libraries_generate(name: str, short: str | None) -> None:
    gemm = parse_gemm_name(name)
    assert (str(gemm) if gemm else None) == short
