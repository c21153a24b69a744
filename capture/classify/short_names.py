"""Shorten kernel names so that they fit a column and stay unique within a run.

The generated name of a matrix product or convolution is parsed: data type, layout, tile, library.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Final, NamedTuple

from capture.classify.kernel_name_parts import (
    KernelName,
    parse_base_name,
    parse_dtype,
    parse_enum_value,
    parse_kernel_name,
)
from capture.classify.kernel_rules import classify_kernel, parse_carried_op

# generated names of matrix products and convolutions
_MAX_NAME_CHARS: Final = 512  # only so much of a name is searched
_TENSILE_DTYPES: Final = {
    "B": "bf16", "H": "fp16", "S": "fp32", "D": "fp64", "C": "complex64", "Z": "complex128", "X": "tf32",
    "I": "int8", "I8": "int8", "F8": "fp8", "B8": "fp8 e5m2", "F8N": "fp8", "B8N": "fp8 e5m2", "F6": "fp6",
    "F4": "fp4", "4xi8": "int8",
}  # fmt: skip
_NVJET_DTYPES: Final = {
    "t": "bf16", "h": "fp16", "s": "fp32", "q": "fp8", "r": "fp8 e5m2", "o": "fp4", "d": "fp64", "i": "int8",
}  # fmt: skip
_DTYPES: Final = {
    "bf16": "bf16", "f16": "fp16", "fp16": "fp16", "f32": "fp32", "tf32": "tf32", "s8": "int8", "i8": "int8",
    "e4m3": "fp8", "e5m2": "fp8 e5m2", "f64": "fp64", "h": "fp16", "s": "fp32", "d": "fp64", "e2m1": "fp4",
    "f32f32": "fp32", "bf16bf16": "bf16", "f16f16": "fp16", "e4m3e4m3": "fp8", "i8i8": "int8",
    "tf32tf32": "tf32", "f64f64": "fp64", "bfloat16": "bf16", "float16": "fp16",
}  # fmt: skip
_DTYPE_PATTERN: Final = "|".join(sorted(_DTYPES, key=len, reverse=True))
_TENSILE: Final = re.compile(r"^Cijk_A(?P<a>lik|ilk)_B(?P<b>ljk|jlk)_(?P<type>[A-Z0-9x]+?)(?:S?_|$)")
_TENSILE_TILE: Final = re.compile(r"_MT(\d+)x(\d+)x(\d+)")
_NVJET: Final = re.compile(r"^nvjet_(?:sm\d+_)?(?P<type>[a-z]+)_(?P<m>\d+)x(?P<n>\d+)_(?P<k>\d+)x\d+")
_NVJET_LAYOUT: Final = re.compile(r"_([TN]{2})[TN]?$")
_XMMA: Final = re.compile(
    r"xmma_gemm_(?P<type>[a-z0-9]+)_\w*?_(?P<layout>[tn]{2})_n_tilesize(?P<tile>\d+x\d+x\d+)"
)
_CUTLASS: Final = re.compile(
    rf"cutlass_(?:\d+_)?(?:wmma_)?(?:tensorop|simt)_(?:(?P<type>{_DTYPE_PATTERN})_)?(?P<acc>[a-z])\d*gemm"
    rf"(?:_(?:relu|gelu|bias))?_?(?P<out>{_DTYPE_PATTERN})?_?(?P<m>\d+)x(?P<n>\d+)_(?P<k>\d+)x\d+_(?P<layout>[tn]{{2}})"
)
_CUBLAS: Final = re.compile(
    rf"^(?:ampere|volta|turing|maxwell|hopper|ada|pascal|kepler)_(?:(?P<type>{_DTYPE_PATTERN})_)?(?P<acc>[a-z])(?P<op>\d*)gemm_"
    rf"(?:(?P<out>{_DTYPE_PATTERN})_)?(?P<m>\d+)x(?P<n>\d+)"
)
_CONVOLUTION: Final = re.compile(
    r"(?P<way>fprop|dgrad|wgrad)(?:_implicit_gemm_(?P<type>[a-z0-9]+)_\w*tilesize(?P<tile>\d+x\d+x\d+)"
    rf"|_(?:optimized|analytic|few_channels|fixed_channels)(?:_(?P<out>{_DTYPE_PATTERN}))?_(?P<m>\d+)x(?P<n>\d+)_(?P<k>\d+)x)"
)
_IGEMM: Final = re.compile(
    r"^igemm_(?P<way>fwd|bwd|wrw)_gtc\w*?_(?P<type>bf16|fp16|fp32|int8)_\w*?_bt(?P<tile>\d+x\d+x\d+)"
)
_STAGES: Final = re.compile(r"stages_(\d+)x\d+")
_LAYOUT: Final = re.compile(r"_([tn]{2})(?:_v\d+)?$")

# all other names
_MAX_SHORT_CHARS: Final = 64  # of a short name, without the parts that distinguish it from others
_MAX_FUSED_CHARS: Final = 40  # of the ops that Inductor fused
_MAX_COMPARED_PARTS: Final = 160  # of a name
_TEMPLATE_SEPARATOR: Final = re.compile(r"[<>,]")
_UNDERLINES: Final = re.compile(r"_+")
_ENUM_TYPE: Final = re.compile(r"^\((?:\w+::)*(\w+)\)")
_HEAD_SIZES: Final = frozenset({"64", "72", "80", "96", "112", "128", "160", "192", "256", "512", "576"})
_GENERIC_NAMESPACES: Final = frozenset({
    "at", "native", "internal", "detail", "std", "cuda", "templates", "at_cuda_detail", "cublas", "kernels",
    "tensor_operation", "device", "kernel", "collective", "engines_precompiled", "dev", "cute",
})  # fmt: skip
_VERSION: Final = re.compile(r"^(?:ROCPRIM|CUB|THRUST|CCCL|V)_?\d\w*$")
_IDENTIFIER: Final = re.compile(r"[^ /]+")
_CONFIG: Final = re.compile(r"^wrapped_|_config$")
_KERNEL_SUFFIX: Final = re.compile(r"(?:_+kernel|Kernel)$")
_INDUCTOR: Final = re.compile(r"^triton_(poi|per|red|tem|for|spl)_fused_(.*?)_?(\d*)$")
_INDUCTOR_CPP: Final = re.compile(r"^graph_\d+_cpp_fused_(.*?)_?\d*$")  # of a processor
_INDUCTOR_KINDS: Final = {
    "poi": "pointwise", "per": "persistent reduction", "red": "reduction", "tem": "template",
    "for": "foreach", "spl": "split scan",
}  # fmt: skip
_ELEMENTWISE: Final = re.compile(r"elementwise|multi_tensor_apply")
_CUTE: Final = re.compile(r"^kernel_cutlass_(?:kernel_)?(.*?)(?:Kernel)?_object_at_")
_LAMBDA_TYPES: Final = re.compile(r"[{\[]lambda\(([^()]+)\)")
_WRAPPED_TYPE: Final = re.compile(r"(?:BinaryFunctor|[AB]UnaryFunctor|ReduceOp)<([^,<>]+)")
_FIRST_ARGUMENT: Final = re.compile(r"<([^,<>]+)")
_NUMBER: Final = re.compile(r"^(?:\(\w[\w ]*\))?(-?\d+)[uUlL]*$")
_FUNCTION: Final = re.compile(r"^&?\(?(?:[\w: ]+ )?((?:\w+::)*\w+)(?:<|\()")


class GemmName(NamedTuple):
    """The parts of a generated name; a part that the name lacks is empty."""

    dtype: str
    layout: str  # T or N per operand
    tile: str  # rows, columns and depth of a block's tile
    vendor: str  # the library whose generator wrote the name: Tensile, cutlass, xmma …
    kind: str = "GEMM"

    def __str__(self) -> str:
        words = (self.kind, self.dtype, self.layout, self.tile, f"({self.vendor})")
        return " ".join(word for word in words if word)


def parse_gemm_name(name: str) -> GemmName | None:
    """Parse a name that a library generated for a product or convolution; None for any other name."""
    name = name[:_MAX_NAME_CHARS]
    for pattern, parse in _GEMM_FORMATS:
        if match := pattern.search(name):
            return parse(match, name)
    return None


def _parse_tensile(match: re.Match[str], name: str) -> GemmName:
    prefixes = [match["type"][:width] for width in (3, 2, 1)]
    dtype = next((_TENSILE_DTYPES[prefix] for prefix in prefixes if prefix in _TENSILE_DTYPES), "")
    layout = ("T" if match["a"] == "lik" else "N") + ("T" if match["b"] == "jlk" else "N")
    tile = _TENSILE_TILE.search(name)
    return GemmName(dtype, layout, "x".join(tile.groups()) if tile else "", "Tensile")


def _parse_nvjet(match: re.Match[str], name: str) -> GemmName:
    layout = _NVJET_LAYOUT.search(name)
    dtype = _NVJET_DTYPES.get(match["type"][0], "")
    return GemmName(dtype, layout[1] if layout else "", _format_tile(match), "nvjet")


def _parse_xmma(match: re.Match[str], name: str) -> GemmName:
    return GemmName(_DTYPES.get(match["type"], match["type"]), match["layout"].upper(), match["tile"], "xmma")


def _parse_cutlass(match: re.Match[str], name: str) -> GemmName:
    dtype = match["type"] or match["out"] or ("tf32" if "1688gemm" in name else match["acc"])
    return GemmName(_DTYPES.get(dtype, dtype), match["layout"].upper(), _format_tile(match), "cutlass")


def _parse_cublas(match: re.Match[str], name: str) -> GemmName:
    stages, layout = _STAGES.search(name), _LAYOUT.search(name)
    tile = f"{match['m']}x{match['n']}" + (f"x{stages[1]}" if stages else "")
    dtype = match["type"] or match["out"] or match["acc"]
    return GemmName(_DTYPES.get(dtype, dtype), layout[1].upper() if layout else "", tile, "cuBLAS")


def _parse_convolution(match: re.Match[str], name: str) -> GemmName:
    dtype = match["type"] or match["out"] or ""
    library = "xmma" if "xmma" in name else "cutlass"
    tile = match["tile"] or _format_tile(match)
    return GemmName(_DTYPES.get(dtype, dtype), "", tile, library, f"conv {match['way']}")


def _parse_igemm(match: re.Match[str], name: str) -> GemmName:
    return GemmName(match["type"], "", match["tile"], "igemm", f"conv {match['way']}")


def _format_tile(match: re.Match[str]) -> str:
    return f"{match['m']}x{match['n']}x{match['k']}"


_GEMM_FORMATS: Final = (
    (_TENSILE, _parse_tensile), (_NVJET, _parse_nvjet), (_XMMA, _parse_xmma), (_CUTLASS, _parse_cutlass),
    (_CUBLAS, _parse_cublas), (_CONVOLUTION, _parse_convolution), (_IGEMM, _parse_igemm),
)  # fmt: skip


@lru_cache(maxsize=1 << 15)
def shorten_name(name: str) -> str:
    """Shorten a kernel name, for example to `GEMM bf16 TN 64x32x256 (Tensile)`; it may be ambiguous."""
    parsed = parse_kernel_name(name)
    if parsed.is_cut:
        return name  # completing a truncated name would be a guess
    if gemm := parse_gemm_name(parsed.inner or parsed.base):
        return str(gemm)
    if match := _INDUCTOR.match(parsed.base):
        fused = match[2] if len(match[2]) <= _MAX_FUSED_CHARS else match[2][: _MAX_FUSED_CHARS - 1] + "…"
        return " ".join(word for word in ("triton fused", fused, f"({_INDUCTOR_KINDS[match[1]]})") if word)
    if match := _INDUCTOR_CPP.match(parsed.base):
        return _truncate(f"cpp fused {match[1]}")
    if match := _CUTE.match(parsed.base):
        return _truncate(f"CuTe {match[1]}")
    if parsed.inner and (generic := _shorten_generic_kernel(parsed)):
        return generic
    return _truncate(_shorten_plain_name(parsed, name))


def shorten_names(names: Iterable[str]) -> dict[str, str]:
    """Map each name to a short name that is unique: by the parts that differ, then by a number."""
    by_short: dict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(names):
        by_short[shorten_name(name)].append(name)
    readable: dict[str, str] = {}
    for short, group in by_short.items():
        readable |= _add_distinguishing_parts(short, group)
    return _number_duplicates(readable)


def _add_distinguishing_parts(short: str, group: Sequence[str]) -> dict[str, str]:
    """Append to a shared short name the parts in which the names of a group differ, in brackets."""
    if len(group) == 1:
        return {group[0]: short}
    columns = list(zip_longest(*(_list_distinguishing_parts(name) for name in group), fillvalue=""))
    selected: list[tuple[str, ...]] = []
    distinct = 1
    for column in columns:
        combinations = len(set(zip(*selected, column, strict=True)))
        if combinations > distinct:
            selected.append(column)
            distinct = combinations
    rows = list(zip(*selected, strict=True)) if selected else [()] * len(group)
    return {
        name: f"{short} [{', '.join(part for part in row if part)}]" if any(row) else short
        for name, row in zip(group, rows, strict=True)
    }


def _number_duplicates(readable: dict[str, str]) -> dict[str, str]:
    """Append a number to the second and later names that still share a short name."""
    counts: Counter[str] = Counter()
    used = set(readable.values())
    result = {}
    for name, short in readable.items():
        counts[short] += 1
        numbered = short
        while counts[short] > 1 and (numbered := f"{short}~{counts[short]}") in used:
            counts[short] += 1
        result[name] = numbered
        used.add(numbered)
    return result


@lru_cache(maxsize=1 << 13)  # more names than one table has
def _list_distinguishing_parts(name: str) -> tuple[str, ...]:
    """List the parts of a name that may distinguish it: template arguments and their parts, or words."""
    parsed = parse_kernel_name(name)
    if not parsed.arguments:
        return tuple(_UNDERLINES.split(parsed.text)[:_MAX_COMPARED_PARTS])
    inner = (part.strip() for argument in parsed.arguments for part in _TEMPLATE_SEPARATOR.split(argument))
    words = (_ENUM_TYPE.sub(r"\1 ", part).rpartition("::")[2] for part in inner if part)
    return (*map(_shorten_argument, parsed.arguments), *words)[:_MAX_COMPARED_PARTS]


def _shorten_argument(argument: str) -> str:
    plain = parse_enum_value(argument) or parse_dtype(argument)
    return plain or parse_base_name(argument).rpartition("::")[2] or argument[:_MAX_SHORT_CHARS]


def _shorten_generic_kernel(parsed: KernelName) -> str:
    """Return a name such as `elementwise add bf16` for a generic PyTorch kernel; empty for any other."""
    if not _ELEMENTWISE.search(parsed.leaf) and parsed.leaf != "reduce_kernel":
        return ""
    op = classify_kernel(parsed.text).op
    word = parse_carried_op(parsed.inner)
    if parsed.leaf == "reduce_kernel":
        kind = "reduce"
    elif op in ("copy", "index"):
        kind, word = op, word.removeprefix("index").strip("_") if op == "index" else ""
    else:
        kind = "elementwise"
    dtype = "" if kind == "index" else _find_functor_dtype(parsed)  # indexing moves bytes of any format
    return " ".join(part for part in (kind, word, dtype) if part)


def _find_functor_dtype(parsed: KernelName) -> str:
    """Find the data type that a functor processes; empty if the name lacks it.

    The template around a functor names the type of the data; the functor's own argument may be a wider type;
    a lambda has the type among its parameters.
    """
    tail = parsed.text.partition(parsed.inner_leaf)[2] if parsed.inner else ""
    template = [m[1] for m in (_WRAPPED_TYPE.search(parsed.text), _FIRST_ARGUMENT.match(tail)) if m]
    lambdas = _LAMBDA_TYPES.findall(tail.partition(">(int")[0])
    parameters = ", ".join(lambdas).split(", ")
    dtypes = [dtype for argument in [*template, *parameters] if (dtype := parse_dtype(argument))]
    return next((dtype for dtype in dtypes if dtype != "bool"), dtypes[0] if dtypes else "")


def _shorten_plain_name(parsed: KernelName, name: str) -> str:
    """Shorten any other name to two specific namespaces, the identifier without `kernel`, and its variant."""
    base = parsed.inner if parsed.inner and not parsed.leaf.startswith("multi") else parsed.base
    if _is_plain_identifier(parsed):
        return _KERNEL_SUFFIX.sub("", base) if _IDENTIFIER.fullmatch(base) else base
    *outer, leaf = base.split("::")
    spaces = [space for space in outer if space not in _GENERIC_NAMESPACES and not _VERSION.match(space)]
    if leaf == "kernel" and spaces:  # the namespace names it
        return f"{spaces[-1]}<{_find_float_dtype(parsed)}>"
    short = "::".join([*spaces[:2], _KERNEL_SUFFIX.sub("", _CONFIG.sub("", leaf)) or leaf])
    variant = _list_variant_parts(parsed, name, is_carried=base != parsed.base)
    return f"{short}<{', '.join(variant)}>" if variant else short


def _is_plain_identifier(parsed: KernelName) -> bool:
    """Return whether a name has no namespaces, template arguments or parameters."""
    return parsed.text == parsed.base and "::" not in parsed.base


def _list_variant_parts(parsed: KernelName, name: str, *, is_carried: bool) -> list[str]:
    """List types and head size of an attention kernel; of others the function argument, such as `silu`."""
    if classify_kernel(name).category == "attention":
        return _list_attention_parts(parsed)
    functions = (_FUNCTION.match(a) for a in parsed.arguments if a.startswith("&") and not is_carried)
    return [_KERNEL_SUFFIX.sub("", m[1].rpartition("::")[2]) for m in functions if m][:1]


def _find_float_dtype(parsed: KernelName) -> str:
    """Find the first floating-point type among the template arguments; empty if there is none."""
    words = _TEMPLATE_SEPARATOR.split(", ".join(parsed.arguments))
    dtypes = [dtype for word in words if (dtype := parse_dtype(word.strip()))]
    return next((dtype for dtype in dtypes if dtype.startswith(("bf", "fp", "tf"))), "")


def _list_attention_parts(parsed: KernelName) -> list[str]:
    """List the data type, that of the KV cache if it differs, and the head size."""
    arguments = ", ".join(parsed.arguments)
    parts = [dtype] if (dtype := _find_float_dtype(parsed)) else []
    if "KVCacheDataType" in arguments:
        value = next((parse_enum_value(a) for a in parsed.arguments if "KVCacheDataType" in a), None)
        parts += ["fp8 kv"] if value == "1" else ["fp8 e5m2 kv"] if value == "2" else []
    numbers = (m[1] for a in _TEMPLATE_SEPARATOR.split(arguments) if (m := _NUMBER.match(a.strip())))
    return parts + [n for n in numbers if n in _HEAD_SIZES][:1]


def _truncate(text: str) -> str:
    return text if len(text) <= _MAX_SHORT_CHARS else text[: _MAX_SHORT_CHARS - 1] + "…"
