"""Names of kernels taken apart, and mangled ones read."""

import re
import shutil
import subprocess

import pytest

from capture.classify.demangle import demangle, extract_identifiers
from capture.classify.kernel_name_parts import (
    parse_base_name,
    parse_dtype,
    parse_enum_value,
    parse_kernel_name,
)
from tests.capture.classify.corpus import corpus


@pytest.mark.parametrize(
    ("name", "base", "arguments", "inner"),
    [
        ("softmax_kernel", "softmax_kernel", (), ""),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)", (), ""),
        ("gemv_qkv_fused (Q)", "gemv_qkv_fused (Q)", (), ""),
        ("rms_norm(float*)", "rms_norm", (), ""),
        ("quantize_q8_1(float const*) (.kd)", "quantize_q8_1", (), ""),
        ("void k<1, a<b, c>, (x)0>(int, y<z>)", "k", ("1", "a<b, c>", "(x)0"), ""),
        ("void (anonymous namespace)::store_kvcache<2048l, 4>(int)", "store_kvcache", ("2048l", "4"), ""),
        ("void <unnamed>::fused_rope_kernel<(bool)0>(<unnamed>::P)", "fused_rope_kernel", ("(bool)0",), ""),
        (
            "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, 7>(cublasGemvParamsEx<int>)",
            "internal::gemvx::kernel",
            ("int", "7"),
            "",
        ),
        (
            "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::"
            "BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> > >"
            "(at::TensorIteratorBase&, at::native::MulFunctor<float> const&)::{lambda(int)#1}>(int, x)",
            "at::native::elementwise_kernel",
            None,
            "at::native::binary_internal::MulFunctor",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<(int)4, at::native::log_kernel_cuda(at::"
            "TensorIteratorBase &)::[lambda() (instance 2)]::operator ()() const::[lambda(float) (instance "
            "1)], std::array<char *, 2>>(int)",
            "at::native::vectorized_elementwise_kernel",
            None,
            "at::native::log_kernel_cuda",
        ),
        (
            "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<x> > >(int)",
            "cutlass::device_kernel",
            None,
            "flash::FlashAttnFwdSm90",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<(int)4, at::native::Binar...",
            "at::native::vectorized_elementwise_kernel",
            ("(int)4", "at::native::Binar"),
            "at::native::Binar",
        ),
        ("matmul_kernel_0d1d2d3de4de5de6de7c8de9c10de11c", "matmul_kernel", (), ""),
        ("kernel_unified_attention_2d", "kernel_unified_attention_2d", (), ""),
        ("triton_poi_fused_add_mul_12", "triton_poi_fused_add_mul", (), ""),
        ("_ZN5aiter3fooEi", "aiter::foo", (), ""),
    ],
)  # fmt: skip
def test_parse(name: str, base: str, arguments: tuple[str, ...] | None, inner: str) -> None:
    parsed = parse_kernel_name(name)
    assert parsed.base == base
    assert arguments is None or parsed.arguments == arguments
    assert parsed.inner == inner


def test_parts_of_a_parsed_name() -> None:
    parsed = parse_kernel_name(
        "void at::native::reduce_kernel<1, at::native::ReduceOp<float, at::native::MeanOps<float> > >(x)"
    )
    assert (parsed.leaf, parsed.inner_leaf, parsed.is_cut) == ("reduce_kernel", "MeanOps", False)
    assert (
        parse_kernel_name("void a::b...").is_cut
        and not parse_kernel_name("void a::b<(int)128, ... [3]").is_cut
    )
    assert parse_kernel_name(
        "void at::native::elementwise_kernel<(int)128, void at::native::gp... [3]"
    ).is_cut
    assert parse_kernel_name("void at::native::elementwise_kernel<(int)128, ...").is_cut


@pytest.mark.parametrize(
    ("argument", "dtype"),
    [
        ("c10::BFloat16", "bf16"),
        ("__half const*", "fp16"),
        ("cutlass::float_e4m3_t", "fp8"),
        ("unsigned int", "uint32"),
        ("at::native::X", None),
        ("128", None),
    ],
)
def test_number_formats(argument: str, dtype: str | None) -> None:
    assert parse_dtype(argument) == dtype


def test_template_arguments_are_read() -> None:
    assert parse_base_name("a::b<c>::d<e>(f)") == "a::b::d"
    assert parse_enum_value("(vllm::Fp8KVCacheDataType)1") == "1"
    assert parse_enum_value("128") is None


@pytest.mark.parametrize(
    ("mangled", "readable"),
    [
        ("_Z3fooi", "foo"),
        ("_ZN1a1bIiEEvT_", "a::b<int>"),
        ("_ZN1a1bILi3ELb1ELj8ELl9EEEvv", "a::b<3, true, 8u, 9l>"),
        ("_ZN1a1bILin3EEEvv", "a::b<-3>"),
        ("_ZN1a1bILNS_1eE2EEEvv", "a::b<(a::e)2>"),
        ("_ZN1a1bIDF16bDF16_DhEEvv", "a::b<bf16, _Float16, half>"),
        ("_ZN1a1bINS_1cIiEES2_EEvv", "a::b<a::c<int>, a::c<int>>"),
        ("_ZN1a1bIJifEEEvDpT_", "a::b<int, float>"),
        ("_ZN1a1bIPFviEEEvv", "a::b<void (*)(int)>"),
        ("_ZN1a1bIXadL_Z1giEEEEvv", "a::b<&g(int)>"),
        ("_ZN12_GLOBAL__N_11bIRKiEEvv", "(anonymous namespace)::b<int const&>"),
        ("_ZZN1a1fEvENKUliE0_clEi", "a::f()::{lambda(int)#2}::operator()"),
        ("_ZN1a1bIA4_iEEvv", "a::b<int [4]>"),
        (
            "_ZN7sgl_hip10activation18act_and_mul_kernelI14__hip_bfloat16TnPFT_RKS3_EXadL_Z4siluIS2_ES3_S5_EEEEvPS3_PS4_i",
            "sgl_hip::activation::act_and_mul_kernel<__hip_bfloat16, "
            "&(silu<__hip_bfloat16>(__hip_bfloat16 const&))>",
        ),
        (
            "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16ELb0ELb0ELb1ELi1EEEvPT0_PT_PfS4_S4_S4_diiiiiiib",
            "aiter::add_rmsnorm_quant_kernel<bf16, bf16, 256, 16, false, false, true, 1>",
        ),
    ],
)  # fmt: skip
def test_demangle(mangled: str, readable: str) -> None:
    assert demangle(mangled) == readable


@pytest.mark.parametrize(
    "name", ["foo", "_Z", "_ZN", "_Z9", "_ZN3foo", "_ZN1aIS9_EE", "_Z" + "P" * 500, "_ZN1aIE"]
)
def test_names_that_are_not_understood_give_none(name: str) -> None:
    assert demangle(name) is None or demangle(name)  # never raises
    assert extract_identifiers(name) is not None


def test_a_mangled_name_beyond_the_reader_falls_back_to_its_identifiers() -> None:
    assert parse_kernel_name("_ZN5aiter6kernelIDvW4_fEEvv").base == "aiter::kernel"


def test_mangled_names_of_the_corpus_are_understood() -> None:
    mangled = [kernel.name for kernel in corpus() if kernel.name.startswith("_Z")]
    assert len(mangled) > 10
    assert all(demangle(name) for name in mangled)


@pytest.mark.skipif(not shutil.which("c++filt"), reason="no c++filt to compare with")
def test_demangled_names_are_those_of_the_system() -> None:
    mangled = [kernel.name for kernel in corpus() if kernel.name.startswith("_Z")]
    run = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True, check=True)
    for name, theirs in zip(mangled, run.stdout.replace("std::bfloat16_t", "bf16").splitlines(), strict=True):
        if not theirs.startswith("_Z"):  # older ones do not know today's number formats
            assert re.sub(r"\s", "", demangle(name) or "?") in re.sub(r"\s", "", theirs)
