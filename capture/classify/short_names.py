"""Shorten kernel names so that they fit a column and stay unique within a run."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Final

from capture.classify.gemm_names import parse_gemm_name
from capture.classify.kernel_name_parts import (
    KernelName,
    parse_base_name,
    parse_dtype,
    parse_enum_value,
    parse_kernel_name,
)
from capture.classify.kernel_rules import classify_kernel, parse_carried_op

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
_ENDING: Final = re.compile(r"(?:_+kernel|Kernel)$")
_INDUCTOR: Final = re.compile(r"^triton_(poi|per|red|tem|for|spl)_fused_(.*?)_?(\d*)$")
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
    """Shorten the name of a PyTorch kernel that carries a functor to `elementwise add bf16`; else empty."""
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

    The wrapper of a functor names the type of the data, the functor itself perhaps a wider one; a lambda
    names it in its parameters.
    """
    tail = parsed.text.partition(parsed.inner_leaf)[2] if parsed.inner else ""
    template = [m[1] for m in (_WRAPPED_TYPE.search(parsed.text), _FIRST_ARGUMENT.match(tail)) if m]
    lambdas = _LAMBDA_TYPES.findall(tail.partition(">(int")[0])
    parameters = ", ".join(lambdas).split(", ")
    dtypes = [dtype for argument in [*template, *parameters] if (dtype := parse_dtype(argument))]
    return next((dtype for dtype in dtypes if dtype != "bool"), dtypes[0] if dtypes else "")


def _shorten_plain_name(parsed: KernelName, name: str) -> str:
    """Shorten any other name to specific namespaces, the identifier without `kernel`, and its variant."""
    base = parsed.inner if parsed.inner and not parsed.leaf.startswith("multi") else parsed.base
    if _is_word(parsed):
        return _ENDING.sub("", base) if _IDENTIFIER.fullmatch(base) else base
    *outer, leaf = base.split("::")
    spaces = [space for space in outer if space not in _GENERIC_NAMESPACES and not _VERSION.match(space)]
    if leaf == "kernel" and spaces:  # the namespace names it
        return f"{spaces[-1]}<{_find_float_dtype(parsed)}>"
    short = "::".join([*spaces[:2], _ENDING.sub("", _CONFIG.sub("", leaf)) or leaf])
    variant = _list_variant_parts(parsed, name, is_carried=base != parsed.base)
    return f"{short}<{', '.join(variant)}>" if variant else short


def _is_word(parsed: KernelName) -> bool:
    """Whether a name has no namespaces, template arguments or parameters."""
    return parsed.text == parsed.base and "::" not in parsed.base


def _list_variant_parts(parsed: KernelName, name: str, *, is_carried: bool) -> list[str]:
    """List types and sizes of attention, or the first function that it applies, such as `silu`."""
    if classify_kernel(name).category == "attention":
        return _list_attention_parts(parsed)
    functions = (_FUNCTION.match(a) for a in parsed.arguments if a.startswith("&") and not is_carried)
    return [_ENDING.sub("", m[1].rpartition("::")[2]) for m in functions if m][:1]


def _find_float_dtype(parsed: KernelName) -> str:
    """Find the first floating-point type among the template arguments; empty for none."""
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
