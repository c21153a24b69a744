"""What is noted at an event of a Perfetto trace, and what its category means in words of Chrome traces."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from capture.loaders._protobuf import Value, WireError, double, inner, number, signed, text

Strings = Mapping[int, str]
Known = dict[Value, tuple[str, Any]]

_DEEPEST: Final = 16
_SHORT: Final = 32  # bytes of an annotation that is kept for the next time it comes
_MOST_KNOWN: Final = 10_000
_TOO_DEEP: Final = "…"
_ENTRY: Final = 11
_HOLDING: Final = (_ENTRY, 12)  # fields of an annotation that are annotations: of a dictionary, of a list
_ROCM: Final = re.compile(r"^(?:rocm_)?(\w+)$")

# categories of rocprofv3, rocprof-sys and Proton → those of PyTorch's profiler
_CATEGORIES: Final = {
    "kernel_dispatch": "kernel",
    "memory_copy": "gpu_memcpy",
    "hip_api": "cuda_runtime",
    "hip_runtime_api": "cuda_runtime",
    "hip_compiler_api": "cuda_runtime",
    "hsa_api": "cuda_runtime",
    "rccl_api": "cuda_runtime",
    "marker_api": "user_annotation",
    "scope": "user_annotation",
}
# what only one kind of event notes, for writers that state no category
_TELLING: Final = (
    ("grid", "kernel"),
    ("memory bandwidth (GB/s)", "gpu_memcpy"),
    ("cbid", "cuda_runtime"),
    ("Python id", "python_function"),
    ("Python module id", "python_function"),
    ("Ev Idx", "cpu_op"),
    ("Record function id", "cpu_op"),
    ("Input Dims", "cpu_op"),
)
_CORRELATIONS: Final = ("correlation_id", "corr_id")
_METADATA: Final = "metadata"  # of Kineto: members of a JSON object, without its braces


def annotations(values: Sequence[Value], names: Strings, strings: Strings, known: Known) -> dict[str, Any]:
    """Return the debug annotations of an event by their names; `known` keeps those that come again."""
    noted = []
    for value in values:
        one = known.get(value)
        if one is None:
            one = _annotation(value, names, strings, 0)
            if isinstance(value, bytes) and len(value) <= _SHORT:
                if len(known) >= _MOST_KNOWN:
                    known.clear()
                known[value] = one
        noted.append(one)
    return dict(noted)


def category(stated: str | None, args: Mapping[str, Any], name: str) -> str | None:
    """Return the category of an event as PyTorch's profiler names it; None where nothing tells."""
    if stated:
        match = _ROCM.match(stated)
        return _CATEGORIES.get(match[1] if match else stated, stated)
    told = next((cat for key, cat in _TELLING if key in args), None)
    return "gpu_memset" if told == "gpu_memcpy" and name.startswith("Memset") else told


def arguments(noted: Mapping[str, Any]) -> dict[str, Any]:
    """Return annotations under the names that PyTorch's profiler gives to the same facts."""
    args = dict(noted)
    if isinstance(metadata := args.get(_METADATA), str):
        args |= _members(metadata)
    if "call_stack_0" in args:  # of Proton: an annotation for each scope, from the outermost on
        stack = (args.get(f"call_stack_{i}") for i in range(len(args)))
        args["call_stack"] = [scope for scope in stack if isinstance(scope, str)]
    for key in _CORRELATIONS:
        if isinstance(args.get(key), int):
            args.setdefault("correlation", args[key])
    threads, block = args.get("grid_size"), args.get("workgroup_size")
    if isinstance(threads, int) and isinstance(block, int) and block > 0:
        args |= {"grid": [threads // block, 1, 1], "block": [block, 1, 1]}
    if isinstance(args.get("group_segment_size"), int):
        args.setdefault("shared memory", args["group_segment_size"])
    return args


def _members(metadata: str) -> dict[str, Any]:
    try:
        members = msgspec.json.decode(f"{{{metadata}}}")
    except (ValueError, RecursionError):
        return {}
    return members if isinstance(members, dict) else {}


def _annotation(message: Value, names: Strings, strings: Strings, depth: int) -> tuple[str, Any]:
    """Return name and value of one annotation."""
    name, value = "", None
    entries: dict[str, Any] = {}
    items: list[Any] = []
    for n, v in inner(message):
        if n == 1:
            name = names.get(number(v), f"annotation {number(v)}")
        elif n == 10:
            name = text(v)
        elif n in _HOLDING and depth < _DEEPEST:
            key, held = _annotation(v, names, strings, depth + 1)
            if n == _ENTRY:
                entries[key] = held
            else:
                items.append(held)
        elif n == 17:
            value = strings.get(number(v), "")
        else:
            value = _plain(n, v, depth, value)
    return name, entries or items or value


def _plain(n: int, v: Value, depth: int, before: Any) -> Any:
    """Return the value in a field of an annotation; what was there before where it holds none."""
    if n in _HOLDING:
        return _TOO_DEEP
    if n == 8:
        return _nested(v, depth + 1)
    return _PLAIN[n](v) if n in _PLAIN else before


def _nested(message: Value, depth: int) -> Any:
    """Return a value of the older form of nesting."""
    if depth > _DEEPEST:
        return _TOO_DEEP
    keys: list[str] = []
    values: list[Any] = []
    items: list[Any] = []
    leaf: Any = None
    for n, v in inner(message):
        if n == 2:
            keys.append(text(v))
        elif n == 3:
            values.append(_nested(v, depth + 1))
        elif n == 4:
            items.append(_nested(v, depth + 1))
        elif n in _NESTED_PLAIN:
            leaf = _PLAIN[_NESTED_PLAIN[n]](v)
    return dict(zip(keys, values, strict=False)) or items or leaf


def _real(value: Value) -> float:
    if not isinstance(value, int):
        raise WireError("bytes stand where a number is expected")
    return double(value)


_PLAIN: Final[Mapping[int, Callable[[Value], Any]]] = {
    2: lambda v: bool(number(v)),
    3: number,
    4: lambda v: signed(number(v)),
    5: _real,
    6: text,
    7: number,
    9: text,
}
_NESTED_PLAIN: Final = {5: 4, 6: 5, 7: 2, 8: 6}
