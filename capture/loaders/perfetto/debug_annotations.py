"""Decode Perfetto debug annotations, and map categories and arguments to those of PyTorch's profiler."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from capture.loaders._json_document import decode_or_none
from capture.loaders._protobuf import (
    Value,
    WireError,
    decode_submessage,
    to_double,
    to_number,
    to_signed,
    to_text,
)

Strings = Mapping[int, str]
AnnotationCache = dict[Value, tuple[str, Any]]

_MAX_DEPTH: Final = 16
_MAX_CACHED_BYTES: Final = 32
_MAX_CACHE_ENTRIES: Final = 10_000
_TOO_DEEP: Final = "…"
_ENTRY_FIELD: Final = 11
_CONTAINER_FIELDS: Final = (_ENTRY_FIELD, 12)  # annotations inside an annotation: of a dictionary, of a list
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
# argument of only one kind of event, for writers without categories
_CATEGORY_BY_ARGUMENT: Final = (
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
_METADATA: Final = "metadata"  # of Kineto: members of a JSON object without its braces


def decode_annotations(
    values: Sequence[Value], names: Strings, strings: Strings, cache: AnnotationCache
) -> dict[str, Any]:
    """Decode the debug annotations of an event by name; short ones are cached."""
    pairs = []
    for value in values:
        pair = cache.get(value)
        if pair is None:
            pair = _decode_annotation(value, names, strings, 0)
            if isinstance(value, bytes) and len(value) <= _MAX_CACHED_BYTES:
                if len(cache) >= _MAX_CACHE_ENTRIES:
                    cache.clear()
                cache[value] = pair
        pairs.append(pair)
    return dict(pairs)


def map_category(category: str | None, args: Mapping[str, Any], name: str) -> str | None:
    """Map a category to PyTorch's; infer a missing one from the arguments, else None."""
    if category:
        match = _ROCM.match(category)
        return _CATEGORIES.get(match[1] if match else category, category)
    inferred = next((cat for key, cat in _CATEGORY_BY_ARGUMENT if key in args), None)
    return "gpu_memset" if inferred == "gpu_memcpy" and name.startswith("Memset") else inferred


def map_arguments(annotations: Mapping[str, Any]) -> dict[str, Any]:
    """Rename annotations to what PyTorch's profiler calls the same values."""
    args = dict(annotations)
    if isinstance(metadata := args.get(_METADATA), str):
        args |= _parse_metadata(metadata)
    if "call_stack_0" in args:  # of Proton: one annotation per scope, outermost first
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


def _parse_metadata(metadata: str) -> dict[str, Any]:
    members = decode_or_none(msgspec.json.decode, f"{{{metadata}}}")
    return members if isinstance(members, dict) else {}


def _decode_annotation(message: Value, names: Strings, strings: Strings, depth: int) -> tuple[str, Any]:
    name, value = "", None
    entries: dict[str, Any] = {}
    items: list[Any] = []
    for number, held in decode_submessage(message):
        if number == 1:
            name = names.get(to_number(held), f"annotation {to_number(held)}")
        elif number == 10:
            name = to_text(held)
        elif number in _CONTAINER_FIELDS and depth < _MAX_DEPTH:
            key, entry = _decode_annotation(held, names, strings, depth + 1)
            if number == _ENTRY_FIELD:
                entries[key] = entry
            else:
                items.append(entry)
        elif number == 17:
            value = strings.get(to_number(held), "")
        elif number == 8:
            value = _decode_nested(held, depth + 1)
        elif number in _DECODERS:
            value = _DECODERS[number](held)
    return name, entries or items or value


def _decode_nested(message: Value, depth: int) -> Any:
    """Decode a value of the older form of nesting."""
    if depth > _MAX_DEPTH:
        return _TOO_DEEP
    keys: list[str] = []
    values: list[Any] = []
    items: list[Any] = []
    leaf: Any = None
    for number, value in decode_submessage(message):
        if number == 2:
            keys.append(to_text(value))
        elif number == 3:
            values.append(_decode_nested(value, depth + 1))
        elif number == 4:
            items.append(_decode_nested(value, depth + 1))
        elif number in _NESTED_FIELDS:
            leaf = _DECODERS[_NESTED_FIELDS[number]](value)
    return dict(zip(keys, values, strict=False)) or items or leaf


def _decode_double(value: Value) -> float:
    if not isinstance(value, int):
        raise WireError("expected a number, found bytes")
    return to_double(value)


_DECODERS: Final[Mapping[int, Callable[[Value], Any]]] = {
    2: lambda v: bool(to_number(v)),
    3: to_number,
    4: lambda v: to_signed(to_number(v)),
    5: _decode_double,
    6: to_text,
    7: to_number,
    9: to_text,
    **dict.fromkeys(_CONTAINER_FIELDS, lambda _: _TOO_DEEP),
}
_NESTED_FIELDS: Final = {5: 4, 6: 5, 7: 2, 8: 6}
