"""A kernel's name as profilers print it, taken apart: namespaces, template arguments, and what it wraps."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from capture.classify.demangle import demangle, plain_identifiers

_LOOKED_AT: Final = 1 << 14  # characters of a name that are read
_DEEPEST: Final = 12  # wrappers that are looked through
_MOST_OPEN: Final = 200  # brackets that are followed at once

_UNNAMED: Final = re.compile(
    r"<unnamed>(?:::)?|\(anonymous namespace\)(?:::)?|\{anonymous\}(?:::)?|_GLOBAL__N_\w*::"
)
_CALL: Final = re.compile(r"operator ?\(\)")
_SYMBOL_OPERATOR: Final = re.compile(r"operator(?:<=>|<<=?|>>=?|<=?|>=?|->\*?)(?=[\s(<])")
_CPP: Final = re.compile(r"^void |::|[\w>]\(|^[A-Za-z_]\w*<")
_KD: Final = re.compile(r"(?:\.kd| \[clone [^\]]*\]| \(\.kd\))+$")
_NO_CPP: Final = ("Mem", "[", "nn.Module", "autograd::engine", "<built-in", "<frozen")
_CUT: Final = re.compile(r"(?:\.\.\.|…)(?: \[\d+\])?$")
_TRITON_SIGNATURE: Final = re.compile(r"_0(?:d[ce]?|c)?1(?=\d*[dc])[0-9dce]*$")
_CLOSES: Final = {"<": ">", "(": ")", "[": "]", "{": "}"}
_BRACKET: Final = re.compile(r"[<>(){}\[\]]")
_MARK: Final = re.compile(r"[<({\[ ]")
_SEPARATOR: Final = re.compile(r"[<({\[,]")
_INDUCTOR_NUMBER: Final = re.compile(r"^(triton_(?:poi|per|red|tem|for|spl)_fused\w*?)_\d+$")
_ENUM: Final = re.compile(r"^\([^()]*\)(?=-?\w)")

# names that only carry another one, which says what the kernel computes
_WRAPPERS: Final = frozenset({
    "AUnaryFunctor", "BUnaryFunctor", "BinaryFunctor", "BinaryOpFunctor", "BinaryOpListAlphaFunctor",
    "BinaryOpScalarFunctor", "Kernel", "Kernel2", "PointwiseOpScalarFunctor", "ReduceOp", "UnaryOpFunctor",
    "_assert_async_cuda_kernel", "_kernel_agent", "_scatter_gather_elementwise_kernel",
    "bin_bcast_unravel", "device_kernel", "distribution_elementwise_grid_stride_kernel",
    "distribution_nullary_kernel", "elementwise_kernel", "elementwise_kernel_manual_unroll",
    "elementwise_kernel_with_index", "enable_2x_kernel_for_sm75", "enable_2x_kernel_for_sm80",
    "enable_2x_kernel_for_sm89", "enable_3x_kernel_for_sm10", "enable_3x_kernel_for_sm9x",
    "enable_sm100_only", "enable_sm100_to_sm120", "enable_sm100f_only", "enable_sm10x",
    "enable_sm120_family", "enable_sm120_only", "enable_sm80_to_sm89", "enable_sm89_to_sm90",
    "enable_sm90", "enable_sm90_only", "enable_sm90_or_later", "func_wrapper_t", "generic_kernel",
    "gpu_index_kernel", "gpu_kernel", "gpu_kernel_impl", "gpu_kernel_impl_nocast", "gpu_kernel_with_index",
    "index_elementwise_kernel", "index_kernel_impl", "k_bin_bcast", "k_bin_bcast_unravel", "kentry",
    "legacy_elementwise_kernel", "multi_tensor_apply_for_fused_optimizer", "multi_tensor_apply_kernel",
    "reduce_kernel", "run_global", "static_kernel", "trampoline_kernel", "unary_gated_op_kernel",
    "unary_op_kernel", "unrolled_elementwise_kernel", "unrolled_elementwise_kernel_for_multi_outputs",
    "vectorized_elementwise_kernel", "vectorized_templated_elementwise_kernel",
})  # fmt: skip
# template arguments that say nothing of what is computed
_MUTE: Final = frozenset({
    "Array", "C", "FusedOptimizerTensorListMetadata", "LoadWithCast", "LoadWithoutCast",
    "OffsetCalculator", "OpaqueType", "complex", "StoreWithCast", "StoreWithoutCast", "TensorInfo",
    "TensorListMetadata", "TensorListScalarListMetadata", "TrivialOffsetCalculator", "Var", "array",
    "default_config", "false", "integral_constant", "sequence", "true", "tuple",
})  # fmt: skip
_DTYPES: Final = {
    "float": "fp32", "double": "fp64", "int": "int32", "unsigned int": "uint32", "long": "int64",
    "unsigned long": "uint64", "long long": "int64", "short": "int16", "unsigned short": "uint16",
    "char": "int8", "signed char": "int8", "unsigned char": "uint8", "bool": "bool", "half": "fp16",
    "__half": "fp16", "_Float16": "fp16", "half_t": "fp16", "Half": "fp16", "__half2": "fp16",
    "float16": "fp16", "bf16": "bf16", "BFloat16": "bf16", "__nv_bfloat16": "bf16", "__nv_bfloat162": "bf16",
    "__hip_bfloat16": "bf16", "hip_bfloat16": "bf16", "bfloat16_t": "bf16", "nv_bfloat16": "bf16",
    "float_e4m3_t": "fp8", "float_e5m2_t": "fp8 e5m2", "__nv_fp8_e4m3": "fp8", "__nv_fp8_e5m2": "fp8 e5m2",
    "Float8_e4m3fn": "fp8", "Float8_e4m3fnuz": "fp8", "Float8_e5m2": "fp8 e5m2", "fp8_t": "fp8",
    "__hip_fp8_e4m3_fnuz": "fp8", "__hip_fp8_e4m3": "fp8", "float_e2m1_t": "fp4", "__nv_fp4_e2m1": "fp4",
    "tfloat32_t": "tf32", "int8_t": "int8", "uint8_t": "uint8", "int32_t": "int32", "int64_t": "int64",
}  # fmt: skip


class KernelName(NamedTuple):
    """A kernel's name taken apart."""

    text: str  # as printed, demangled where it was mangled
    base: str  # namespaces and identifier; no template arguments, no parameters, no unnamed namespace
    arguments: tuple[str, ...]  # template arguments of the last identifier that has any
    inner: str  # base name of what a wrapper carries (functor, collective, module); empty where none

    @property
    def leaf(self) -> str:
        """The last identifier of the base name."""
        return self.base.rpartition("::")[2]

    @property
    def cut(self) -> bool:
        """Whether a report cut the name off before it said what is computed."""
        rest, marks = _CUT.subn("", self.text)
        decisive = self.inner_leaf if self.leaf in _WRAPPERS else self.leaf
        return bool(marks) and rest.endswith(decisive)

    @property
    def inner_leaf(self) -> str:
        """The last identifier of what the wrapper carries."""
        return self.inner.rpartition("::")[2]


@lru_cache(maxsize=1 << 15)
def parse(name: str) -> KernelName:
    """Return a kernel's name taken apart; what is no C++ name is its own base name."""
    text = _KD.sub("", name[:_LOOKED_AT].strip())
    if text.startswith("_Z"):
        readable = demangle(text)
        if readable is None:
            identifiers = "::".join(i for i in plain_identifiers(text) if not i.startswith("_GLOBAL__N"))
            return KernelName(text, identifiers or text, (), "")
        text = readable
    if not _CPP.search(text) or text.startswith(_NO_CPP) or ".py(" in text:
        return KernelName(text, _plain_base(text), (), "")
    base, listed = _split(_normal(_CUT.sub("", text)))
    arguments = _listed(listed)
    return KernelName(text, base or text, arguments, _carried(base, arguments))


def _plain_base(text: str) -> str:
    """Return a name that is no C++ name without what compilers append: a signature, a running number."""
    if match := _INDUCTOR_NUMBER.match(text):
        return match[1]
    return _TRITON_SIGNATURE.sub("", text) or text


def dtype_of(argument: str) -> str | None:
    """Return the short name of a number format that a template argument spells; None for anything else."""
    plain = argument.replace(" const", "").replace("const ", "").strip(" *&")
    return _DTYPES.get(plain) or _DTYPES.get(plain.rpartition("::")[2])


def base_of(argument: str) -> str:
    """Return the base name of a template argument: namespaces and identifier."""
    return _split(_normal(argument))[0]


def enum_value(argument: str) -> str | None:
    """Return the value of an argument like `(vllm::Fp8KVCacheDataType)0`; None where it is none."""
    match = _ENUM.match(argument)
    return argument[match.end() :] if match else None


def _carried(base: str, arguments: tuple[str, ...], depth: int = 0) -> str:
    """Return the base name of what a wrapper carries; empty where there is nothing that tells."""
    if base.rpartition("::")[2] not in _WRAPPERS or depth > _DEEPEST:
        return ""
    weaker = ""
    for argument in _informative(arguments):
        inner, within = _split(argument)
        if inner.rpartition("::")[2] not in _WRAPPERS:
            return inner
        if carried := _carried(inner, _listed(within), depth + 1):
            return carried
        weaker = weaker or inner
    return weaker


def _informative(arguments: tuple[str, ...]) -> Iterator[str]:
    """Yield the arguments that may say what is computed: no numbers, number formats or layouts."""
    for argument in arguments:
        text = argument.removeprefix("&").strip("()") if argument.startswith("&") else argument
        base = _split(text)[0]
        leaf = base.rpartition("::")[2]
        says = leaf and not leaf[0].isdigit() and leaf not in _MUTE
        if says and dtype_of(argument) is None and not _ENUM.match(argument) and not argument.endswith("*"):
            yield text


def _normal(text: str) -> str:
    """Return a name with one spelling for unnamed namespaces, lambdas and operators."""
    if "unnamed" in text or "anonymous" in text or "_GLOBAL" in text:
        text = _UNNAMED.sub("", text)
    if "operator" in text:
        text = _SYMBOL_OPERATOR.sub("operator_symbol", _CALL.sub("operator_call", text))
    return text


def _split(text: str) -> tuple[str, str]:
    """Return a base name, and the template arguments of its last template as one text.

    The name ends at its parameter list; what stands before a space outside all brackets is what is returned
    by the function.
    """
    base, arguments, start = "", "", 0
    while mark := _MARK.search(text, start):
        base += text[start : mark.start()]
        char, at = mark[0], mark.start()
        start = mark.end()
        if char == " ":
            base = arguments = ""
        elif char == "(" and base:
            return base, arguments
        else:
            start = _closing(text, at) + 1
            if char == "<":
                arguments = text[at + 1 : start - 1]
    return base + text[start:], arguments


def _closing(text: str, start: int) -> int:
    """Return where the bracket that opens at `start` closes; the end of the text where it is cut."""
    stack = [_CLOSES[text[start]]]
    for mark in _BRACKET.finditer(text, start + 1):
        char = mark[0]
        if char in _CLOSES:
            if char != "<" or text[mark.start() - 1] not in " -":
                stack.append(_CLOSES[char])
        elif char == stack[-1]:
            stack.pop()
        elif char != ">" and char in stack:
            del stack[stack.index(char) :]  # a comparison within an expression left a bracket open
        if not stack:
            return mark.start()
        if len(stack) > _MOST_OPEN:
            break
    return len(text)


def _listed(text: str) -> tuple[str, ...]:
    """Return arguments that commas outside all brackets separate."""
    parts, start, at = [], 0, 0
    while mark := _SEPARATOR.search(text, at):
        if mark[0] == ",":
            parts.append(text[start : mark.start()].strip())
            at = start = mark.end()
        else:
            at = _closing(text, mark.start()) + 1
    parts.append(text[start:].strip())
    return tuple(part for part in parts if part)
