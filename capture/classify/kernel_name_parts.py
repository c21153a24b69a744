"""Split a kernel name, as profilers print it, into base name, template arguments and carried functor."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from capture.classify.demangle import demangle, extract_identifiers

_MAX_NAME_CHARS: Final = 1 << 14  # longer names are cut
_MAX_LAUNCHERS: Final = 12  # generic ones nested in one name; deeper ones are not searched
_MAX_OPEN_BRACKETS: Final = 200  # at once; more end the search for a closing bracket

_UNNAMED_NAMESPACE: Final = re.compile(
    r"<unnamed>(?:::)?|\(anonymous namespace\)(?:::)?|\{anonymous\}(?:::)?|_GLOBAL__N_\w*::"
)
_CALL: Final = re.compile(r"operator ?\(\)")
_SYMBOL_OPERATOR: Final = re.compile(r"operator(?:<=>|<<=?|>>=?|<=?|>=?|->\*?)(?=[\s(<])")
_CPP: Final = re.compile(r"^void |::|[\w>]\(|^[A-Za-z_]\w*<")
_DEVICE_SUFFIX: Final = re.compile(r"(?:\.kd| \[clone [^\]]*\]| \(\.kd\))+$")
_NOT_CPP_PREFIXES: Final = (
    "Mem", "[", "nn.Module", "autograd::engine", "<built-in", "<frozen", "Reformatting CopyNode ", "PWN(",
    "{ForeignNode[",
)  # fmt: skip
_FUSED_NODES: Final = re.compile(r"[\w/.:-]+ \+ ")  # of a graph, as TensorRT names them
_CUT_OFF: Final = re.compile(r"(?:\.\.\.|…)(?: \[\d+\])?$")
_TRITON_SIGNATURE: Final = re.compile(r"_0(?:d[ce]?|c)?1(?=\d*[dc])[0-9dce]*$")
_CLOSING_BRACKETS: Final = {"<": ">", "(": ")", "[": "]", "{": "}"}
_BRACKET: Final = re.compile(r"[<>(){}\[\]]")
_OPENING_OR_SPACE: Final = re.compile(r"[<({\[ ]")
_OPENING_OR_COMMA: Final = re.compile(r"[<({\[,]")
_TARGET: Final = re.compile(r"gfx\d\w*_t$")  # the GPU that composable kernels are compiled for
_INDUCTOR_NUMBER: Final = re.compile(r"^(triton_(?:poi|per|red|tem|for|spl)_fused\w*?)_\d+$")
_ENUM: Final = re.compile(r"^\([^()]*\)(?=-?\w)")

# generic launchers: the functor, collective or module they carry says what the kernel computes
_GENERIC_LAUNCHERS: Final = frozenset({
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
# template arguments that do not say what is computed
_UNINFORMATIVE: Final = frozenset({
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
    """The parts of a kernel name: base `a::b`, arguments `("float", "4")` of `void a::b<float, 4>(int)`."""

    text: str  # as printed, but demangled
    base: str  # namespaces and identifier; no template arguments, no parameters, no unnamed namespace
    arguments: tuple[str, ...]  # template arguments of the last identifier that has any
    inner: str  # base name of the functor, collective or module that a generic launcher carries, else empty

    @property
    def leaf(self) -> str:
        """The last identifier of the base name."""
        return self.base.rpartition("::")[2]

    @property
    def inner_leaf(self) -> str:
        """The last identifier of the carried name."""
        return self.inner.rpartition("::")[2]

    @property
    def is_cut(self) -> bool:
        """Whether a report truncated the name before the part that says what is computed."""
        rest, marks = _CUT_OFF.subn("", self.text)
        decisive = self.inner_leaf if self.leaf in _GENERIC_LAUNCHERS else self.leaf
        return bool(marks) and rest.endswith(decisive)


@lru_cache(maxsize=1 << 15)
def parse_kernel_name(name: str) -> KernelName:
    """Split a kernel name into its parts; a name that is not C++ is its own base name."""
    text = _DEVICE_SUFFIX.sub("", name[:_MAX_NAME_CHARS].strip())
    if text.startswith("_Z"):
        readable = demangle(text)
        if readable is None:
            identifiers = "::".join(i for i in extract_identifiers(text) if not i.startswith("_GLOBAL__N"))
            return KernelName(text, identifiers or text, (), "")
        text = readable
    is_plain = text.startswith(_NOT_CPP_PREFIXES) or _FUSED_NODES.match(text) or not _CPP.search(text)
    if is_plain or ".py(" in text:
        return KernelName(text, _strip_compiler_suffix(text), (), "")
    base, argument_text = _split_template(_normalise_spelling(_CUT_OFF.sub("", text)))
    arguments = _split_arguments(argument_text)
    return KernelName(text, base or text, arguments, _find_carried_name(base, arguments))


def _strip_compiler_suffix(text: str) -> str:
    """Strip what compilers append to a name that is not C++: Triton's signature, Inductor's number."""
    if match := _INDUCTOR_NUMBER.match(text):
        return match[1]
    return _TRITON_SIGNATURE.sub("", text) or text


def parse_dtype(argument: str) -> str | None:
    """Parse a template argument as a data type, such as `bf16` of `__nv_bfloat16`; None for anything else."""
    plain = argument.replace(" const", "").replace("const ", "").strip(" *&")
    return _DTYPES.get(plain) or _DTYPES.get(plain.rpartition("::")[2])


def parse_base_name(argument: str) -> str:
    """Parse the base name of a template argument: namespaces and identifier."""
    return _split_template(_normalise_spelling(argument))[0]


def parse_enum_value(argument: str) -> str | None:
    """Parse the value of an argument such as `(vllm::Fp8KVCacheDataType)0`; None for anything else."""
    match = _ENUM.match(argument)
    return argument[match.end() :] if match else None


def _find_carried_name(base: str, arguments: tuple[str, ...], depth: int = 0) -> str:
    """Find the base name that a generic launcher carries; empty if there is none."""
    if base.rpartition("::")[2] not in _GENERIC_LAUNCHERS or depth > _MAX_LAUNCHERS:
        return ""
    fallback = ""
    for argument in _iter_informative_arguments(arguments):
        inner, inner_arguments = _split_template(argument)
        if inner.rpartition("::")[2] not in _GENERIC_LAUNCHERS:
            return inner
        if carried := _find_carried_name(inner, _split_arguments(inner_arguments), depth + 1):
            return carried
        fallback = fallback or inner
    return fallback


def _iter_informative_arguments(arguments: tuple[str, ...]) -> Iterator[str]:
    """Yield the arguments that may name what is computed: no numbers, data types or layouts."""
    for argument in arguments:
        text = argument.removeprefix("&").strip("()") if argument.startswith("&") else argument
        leaf = _split_template(text)[0].rpartition("::")[2]
        is_name = leaf and not leaf[0].isdigit() and leaf not in _UNINFORMATIVE and not _TARGET.match(leaf)
        is_value = parse_dtype(argument) is not None or _ENUM.match(argument) or argument.endswith("*")
        if is_name and not is_value:
            yield text


def _normalise_spelling(text: str) -> str:
    """Give unnamed namespaces, lambdas and operators one spelling."""
    if "unnamed" in text or "anonymous" in text or "_GLOBAL" in text:
        text = _UNNAMED_NAMESPACE.sub("", text)
    if "operator" in text:
        text = _SYMBOL_OPERATOR.sub("operator_symbol", _CALL.sub("operator_call", text))
    return text


def _split_template(text: str) -> tuple[str, str]:
    """Split a name into its base name and the template arguments of its last template, as one text.

    The name ends at its parameter list; a space outside all brackets ends the type that the function returns.
    """
    base, arguments, start = "", "", 0
    while mark := _OPENING_OR_SPACE.search(text, start):
        base += text[start : mark.start()]
        char, at = mark[0], mark.start()
        start = mark.end()
        if char == " ":
            base = arguments = ""
        elif char == "(" and base:
            return base, arguments
        else:
            start = _find_closing_bracket(text, at) + 1
            if char == "<":
                arguments = text[at + 1 : start - 1]
    return base + text[start:], arguments


def _find_closing_bracket(text: str, start: int) -> int:
    """Find the bracket that closes the one at `start`; the end of the text if the name is truncated."""
    stack = [_CLOSING_BRACKETS[text[start]]]
    for mark in _BRACKET.finditer(text, start + 1):
        char = mark[0]
        if char in _CLOSING_BRACKETS:
            if char != "<" or text[mark.start() - 1] not in " -":
                stack.append(_CLOSING_BRACKETS[char])
        elif char == stack[-1]:
            stack.pop()
        elif char != ">" and char in stack:
            del stack[stack.index(char) :]  # a comparison within an expression left a bracket open
        if not stack:
            return mark.start()
        if len(stack) > _MAX_OPEN_BRACKETS:
            break
    return len(text)


def _split_arguments(text: str) -> tuple[str, ...]:
    """Split template arguments at the commas outside all brackets."""
    parts, start, at = [], 0, 0
    while mark := _OPENING_OR_COMMA.search(text, at):
        if mark[0] == ",":
            parts.append(text[start : mark.start()].strip())
            at = start = mark.end()
        else:
            at = _find_closing_bracket(text, mark.start()) + 1
    parts.append(text[start:].strip())
    return tuple(part for part in parts if part)
