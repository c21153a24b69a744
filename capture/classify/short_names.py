"""Names of kernels that fit a column: short, readable, and never ambiguous within a run."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Final

from capture.classify.base_name import KernelName, base_of, dtype_of, enum_value, parse
from capture.classify.gemm_names import gemm_of
from capture.classify.kernel_names import carried_op, classify

_LONGEST: Final = 64  # characters of a short name; what distinguishes names may make one longer
_MOST_FUSED: Final = 40  # characters of the list of what Inductor fused
_MOST_PARTS: Final = 160  # parts of a name that are compared
_WITHIN: Final = re.compile(r"[<>,]")
_UNDERLINES: Final = re.compile(r"_+")
_ENUM_TYPE: Final = re.compile(r"^\((?:\w+::)*(\w+)\)")
_HEADS: Final = frozenset({"64", "72", "80", "96", "112", "128", "160", "192", "256", "512", "576"})

_DULL: Final = frozenset({
    "at", "native", "internal", "detail", "std", "cuda", "templates", "at_cuda_detail", "cublas", "kernels",
    "tensor_operation", "device", "kernel", "collective", "engines_precompiled", "dev", "cute",
})  # fmt: skip
_VERSION: Final = re.compile(r"^(?:ROCPRIM|CUB|THRUST|CCCL|V)_?\d\w*$")
_IDENTIFIER: Final = re.compile(r"[^ /]+")
_CONFIG: Final = re.compile(r"^wrapped_|_config$")
_ENDING: Final = re.compile(r"(?:_+kernel|Kernel)$")
_INDUCTOR: Final = re.compile(r"^triton_(poi|per|red|tem|for|spl)_fused_(.*?)_?(\d*)$")
_HOW: Final = {
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
def short_name(name: str) -> str:
    """Return a short and readable name of a kernel; two kernels may share one."""
    parsed = parse(name)
    if parsed.cut:
        return name  # completing what a report cut off would be a guess
    gemm = gemm_of(parsed.inner or parsed.base)
    if gemm:
        return str(gemm)
    if match := _INDUCTOR.match(parsed.base):
        fused = match[2] if len(match[2]) <= _MOST_FUSED else match[2][: _MOST_FUSED - 1] + "…"
        return " ".join(word for word in ("triton fused", fused, f"({_HOW[match[1]]})") if word)
    if match := _CUTE.match(parsed.base):
        return _capped(f"CuTe {match[1]}")
    if parsed.inner and (generic := _generic(parsed)):
        return generic
    return _capped(_plain(parsed, name))


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return each name's short name, told apart from the others' by what differs, then by a number."""
    by_short: dict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(names):
        by_short[short_name(name)].append(name)
    readable: dict[str, str] = {}
    for short, group in by_short.items():
        readable |= _apart(short, group)
    return _numbered(readable)


def _apart(short: str, group: Sequence[str]) -> dict[str, str]:
    """Return names that share a short one with what differs between them in brackets behind it."""
    if len(group) == 1:
        return {group[0]: short}
    columns = list(zip_longest(*(_parts(name) for name in group), fillvalue=""))
    chosen: list[tuple[str, ...]] = []
    distinct = 1
    for column in columns:
        kinds = len(set(zip(*chosen, column, strict=True)))
        if kinds > distinct:
            chosen.append(column)
            distinct = kinds
    rows = list(zip(*chosen, strict=True)) if chosen else [()] * len(group)
    return {
        name: f"{short} [{', '.join(part for part in row if part)}]" if any(row) else short
        for name, row in zip(group, rows, strict=True)
    }


def _numbered(readable: dict[str, str]) -> dict[str, str]:
    """Return the names with a number behind those that still share one."""
    taken: Counter[str] = Counter()
    used = set(readable.values())
    result = {}
    for name, short in readable.items():
        taken[short] += 1
        numbered = short
        while taken[short] > 1 and (numbered := f"{short}~{taken[short]}") in used:
            taken[short] += 1
        result[name] = numbered
        used.add(numbered)
    return result


@lru_cache(maxsize=1 << 13)  # more than one answer shows shortened
def _parts(name: str) -> tuple[str, ...]:
    """Return what may set a name apart: its template arguments and what stands in them, or its words."""
    parsed = parse(name)
    if not parsed.arguments:
        return tuple(_UNDERLINES.split(parsed.text)[:_MOST_PARTS])
    within = (part.strip() for argument in parsed.arguments for part in _WITHIN.split(argument))
    parts = (
        *(_argument(argument) for argument in parsed.arguments),
        *(_ENUM_TYPE.sub(r"\1 ", part).rpartition("::")[2] for part in within if part),
    )
    return parts[:_MOST_PARTS]


def _argument(argument: str) -> str:
    """Return a template argument in few characters."""
    if value := enum_value(argument):
        return value
    return dtype_of(argument) or base_of(argument).rpartition("::")[2] or argument[:_LONGEST]


def _generic(parsed: KernelName) -> str:
    """Return the short name of a kernel of PyTorch's that carries a functor; empty for its other kernels."""
    if not _ELEMENTWISE.search(parsed.leaf) and parsed.leaf != "reduce_kernel":
        return ""
    op = classify(parsed.text).op
    word = carried_op(parsed.inner)
    if parsed.leaf == "reduce_kernel":
        kind = "reduce"
    elif op in ("copy", "index"):
        kind, word = op, word.removeprefix("index").strip("_") if op == "index" else ""
    else:
        kind = "elementwise"
    dtype = "" if kind == "index" else _carried_type(parsed)  # indexing moves bytes of any format
    return " ".join(part for part in (kind, word, dtype) if part)


def _carried_type(parsed: KernelName) -> str:
    """Return the number format that a functor works on; empty where the name does not say.

    A wrapper around a functor names the format of the data, the functor may name a wider one; a functor that
    is a lambda names it in the lambda's parameters.
    """
    behind = parsed.text.partition(parsed.inner_leaf)[2] if parsed.inner else ""
    given = [m[1] for m in (_WRAPPED_TYPE.search(parsed.text), _FIRST_ARGUMENT.match(behind)) if m]
    lambdas = _LAMBDA_TYPES.findall(behind.partition(">(int")[0])
    taken = ", ".join(lambdas).split(", ")
    every = [dtype for argument in [*given, *taken] if (dtype := dtype_of(argument))]
    return next((dtype for dtype in every if dtype != "bool"), every[0] if every else "")


def _plain(parsed: KernelName, name: str) -> str:
    """Return namespaces that tell something, the identifier without `kernel`, and what sets it apart."""
    base = parsed.inner if parsed.inner and not parsed.leaf.startswith("multi") else parsed.base
    if _is_word(parsed):
        return _ENDING.sub("", base) if _IDENTIFIER.fullmatch(base) else base
    *outer, leaf = base.split("::")
    spaces = [space for space in outer if space not in _DULL and not _VERSION.match(space)]
    if leaf == "kernel" and spaces:  # its namespace is its name
        return f"{spaces[-1]}<{_data_type(parsed)}>"
    shown = "::".join([*spaces[:2], _without_kernel(leaf)])
    variant = _variant(parsed, name, carried=base != parsed.base)
    return f"{shown}<{', '.join(variant)}>" if variant else shown


def _is_word(parsed: KernelName) -> bool:
    """Return whether a name has neither namespaces nor template arguments nor parameters."""
    return parsed.text == parsed.base and "::" not in parsed.base


def _without_kernel(identifier: str) -> str:
    return _ENDING.sub("", _CONFIG.sub("", identifier)) or identifier


def _variant(parsed: KernelName, name: str, *, carried: bool) -> list[str]:
    """Return which variant of a kernel this is, as far as readers want to know at once."""
    if classify(name).category == "attention":
        return _attention(parsed)
    return [] if carried else _functions(parsed)


def _functions(parsed: KernelName) -> list[str]:
    """Return the functions among the template arguments: `silu` of an activation kernel."""
    functions = (_FUNCTION.match(a) for a in parsed.arguments if a.startswith("&"))
    return [_ENDING.sub("", m[1].rpartition("::")[2]) for m in functions if m][:1]


def _data_type(parsed: KernelName) -> str:
    """Return the first floating number format among the template arguments; empty for none."""
    every = (_wide_type(a.strip()) for a in re.split(r"[<>,]", ", ".join(parsed.arguments)))
    return next((dtype for dtype in every if dtype), "")


def _attention(parsed: KernelName) -> list[str]:
    """Return number format, format of the cache where it differs, and width of a head."""
    within = ", ".join(parsed.arguments)
    parts = [dtype] if (dtype := _data_type(parsed)) else []
    if "KVCacheDataType" in within:
        value = next((enum_value(a) for a in parsed.arguments if "KVCacheDataType" in a), None)
        parts += ["fp8 kv"] if value == "1" else ["fp8 e5m2 kv"] if value == "2" else []
    numbers = (m[1] for a in re.split(r"[<>,]", within) if (m := _NUMBER.match(a.strip())))
    return parts + [n for n in numbers if n in _HEADS][:1]


def _wide_type(argument: str) -> str | None:
    dtype = dtype_of(argument)
    return dtype if dtype and dtype.startswith(("bf", "fp", "tf")) else None


def _capped(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
