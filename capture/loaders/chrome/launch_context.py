"""Add the context of each kernel's launch: host call, configuration, annotated scopes, line of Python."""

import re
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import msgspec
import polars as pl

from capture.classify.module_rules import MODULE_PREFIX
from capture.classify.name_rules import find_layer, find_phase, infer_scope_roles
from capture.dense_lookup import find_positions, find_rows
from capture.loaders._json_document import decode_or_none
from capture.loaders.chrome.trace_steps import find_last_before
from capture.native.schema import PATH_SEPARATOR

LAUNCH_CONFIG_COLUMNS: Final = ("grid", "block", "registers", "shared", "occupancy")
_SCHEMA: Final = {
    "grid": pl.Categorical(), "block": pl.Categorical(), "registers": pl.Int32(), "shared": pl.Int32(),
    "occupancy": pl.Float64(),
}  # fmt: skip
SCOPE_SCHEMA: Final = {
    "path": pl.Categorical(), "layer": pl.Int32(), "op": pl.Categorical(), "is_products_only": pl.Boolean(),
}  # fmt: skip
_MAX_INT32: Final = (1 << 31) - 1
_MODULE_LAYER: Final = re.compile(r"nn\.Module: \w*(?:Layer|Block)_(\d{1,4})\b")

_FUNCTION: Final = re.compile(r"(?P<file>[^<(][^(]*)\.py\(\d+\): ")  # as torch writes it: file.py(line): name
_INSTALLED: Final = re.compile(r".*/(?:site-packages|dist-packages|lib/python3\.\d+|python|pytorch)/")
_LIBRARIES: Final = ("torch", "functorch", "triton", "numpy")
_WRAPPER_MODULES: Final = ("torch_guard", "kernel_shape_profiler")  # around every call
_SCRIPT_NAMES: Final = {"test", "code", "profile", "cmd", "trace"}  # of user scripts and of the library
_STANDARD_LIBRARY: Final = sys.stdlib_module_names - _SCRIPT_NAMES


class _LaunchConfigFields(msgspec.Struct, gc=False):
    """The launch configuration as profilers write it."""

    grid: Any = None
    block: Any = None
    registers: Any = msgspec.field(default=None, name="registers per thread")
    shared: Any = msgspec.field(default=None, name="shared memory")
    occupancy: Any = msgspec.field(default=None, name="est. achieved occupancy %")


_DECODER: Final = msgspec.json.Decoder(_LaunchConfigFields)


def with_launches(kernels: pl.DataFrame, host_calls: pl.DataFrame) -> pl.DataFrame:
    """Add the host call that launched each kernel: `launch`, `launch_dur` and `launcher` (its label).

    Also adds `host_t` and `host_thread`, time and thread of that call, or of the kernel if it has none.
    """
    row = find_rows(host_calls["correlation"], kernels["correlation"], keep="first")
    calls = host_calls.select(launch="t", launch_dur="dur", launcher="label", host_thread="thread")
    kernels = kernels.with_columns(column.gather(row) for column in calls)
    host_t, host_thread = pl.coalesce("launch", "t"), pl.coalesce("host_thread", "thread")
    return kernels.with_columns(host_t=host_t, host_thread=host_thread)


def with_launch_config(kernels: pl.DataFrame) -> pl.DataFrame:
    """Replace the arguments of kernels by the columns of their launch configuration."""
    texts = kernels["args"].unique().drop_nulls()
    without_args = kernels.drop("args")
    if texts.is_empty():
        return without_args
    configs = [_parse_launch(text) for text in texts.cast(pl.String)]
    table = pl.DataFrame(configs, schema=_SCHEMA, orient="row")
    index = find_positions(kernels["args"], texts)
    columns = [c for c in LAUNCH_CONFIG_COLUMNS if table[c].null_count() < table.height]
    return without_args.with_columns(table[c].gather(index) for c in columns)


def _parse_launch(text: str) -> tuple[str | None, str | None, int | None, int | None, float | None]:
    """Parse grid, block, registers, shared memory and occupancy; None for what is missing."""
    launch = decode_or_none(_DECODER.decode, text) or _LaunchConfigFields()
    occupancy = float(launch.occupancy) if type(launch.occupancy) in (int, float) else None
    registers, shared = _check_int32(launch.registers), _check_int32(launch.shared)
    return _format_sizes(launch.grid), _format_sizes(launch.block), registers, shared, occupancy


def _format_sizes(value: object) -> str | None:
    """Format up to three sizes as `64x8x1`; None for anything else."""
    if not isinstance(value, list) or not 0 < len(value) <= 3 or any(_check_int32(n) is None for n in value):
        return None
    return "x".join(map(str, value))


def _check_int32(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= _MAX_INT32 else None


def is_scope(cat: str | None, name: str) -> bool:
    """Whether a host row is a scope by which kernels are grouped: an annotation, module, phase or layer."""
    if cat == "user_annotation":
        return True
    if cat == "python_function":
        return name.startswith(MODULE_PREFIX)
    return find_layer(name) is not None or find_phase(name) is not None


def is_user_function(name: str) -> bool:
    """Whether a recorded Python function is code of the user, a model or an engine, such as vLLM.

    Those of Python, torch, Triton and numpy, built-in and frozen ones only pass a call on.
    """
    match = _FUNCTION.match(name)
    if match is None:
        return False
    parts = _INSTALLED.sub("", match["file"]).split("/")
    is_library = parts[0] in _LIBRARIES or parts[0] in _STANDARD_LIBRARY
    return not is_library and parts[-1] not in _WRAPPER_MODULES


def with_paths(kernels: pl.DataFrame, scopes: pl.DataFrame) -> pl.DataFrame:
    """Add the path of the scopes that were open at (`host_t`, `host_thread`) of each kernel.

    Also adds the layer that the path names, and the op that it implies (`is_products_only`: for matrix
    products only). `scopes` have name, t, dur and thread.
    """

    def find_paths(of_thread: pl.DataFrame, times: pl.Series) -> list[pl.Series]:
        changes, paths = _list_scope_changes(of_thread)
        codes = {path: code for code, path in enumerate(dict.fromkeys(paths))}
        code_series = pl.Series([codes[path] for path in paths], dtype=pl.UInt32)
        codes_at = code_series.gather(find_last_before(pl.Series(changes), times))
        return [column.gather(codes_at) for column in _build_path_columns(list(codes))]

    return _add_by_thread(kernels, scopes, find_paths)


def with_lines(kernels: pl.DataFrame, functions: pl.DataFrame) -> pl.DataFrame:
    """Add `line`: the label of the innermost function (label, t, dur, thread) at each kernel's launch."""
    if functions.is_empty():
        return kernels
    return _add_by_thread(kernels, functions, lambda of_thread, times: [_find_innermost(of_thread, times)])


def _add_by_thread(
    kernels: pl.DataFrame,
    intervals: pl.DataFrame,
    find_columns: Callable[[pl.DataFrame, pl.Series], list[pl.Series]],
) -> pl.DataFrame:
    """Add columns to the kernels of each thread from the intervals of that thread."""
    parts = []
    for (thread,), of_thread in intervals.partition_by("thread", as_dict=True).items():
        launched = kernels.filter(pl.col("host_thread") == thread)
        parts.append(launched.with_columns(find_columns(of_thread, launched["host_t"])))
    others = kernels.filter(~pl.col("host_thread").is_in(intervals["thread"].unique().implode()))
    return pl.concat([*parts, others], how="diagonal")


def _build_path_columns(paths: Sequence[str | None]) -> list[pl.Series]:
    """Build path, layer, op and is_products_only of each path."""
    roles_by_path = infer_scope_roles(paths)
    roles = (roles_by_path.get(path or "") for path in paths)
    rows = [
        (path, _find_module_layer(path), role and role.op, role and role.is_products_only)
        for path, role in zip(paths, roles, strict=True)
    ]
    return pl.DataFrame(rows, schema=SCOPE_SCHEMA, orient="row").get_columns()


@cache
def _find_module_layer(path: str | None) -> int | None:
    """Find a layer that only the counter of a module names; others are read from the path later."""
    match = _MODULE_LAYER.search(path or "")
    return int(match[1]) if match else None


def _list_scope_changes(scopes: pl.DataFrame) -> tuple[list[int], list[str | None]]:
    """List the times at which the innermost scope of one thread changes, and the path from then on."""
    times: list[int] = []
    paths: list[str | None] = []
    ends: list[int] = []
    open_paths: list[str] = []

    def close_innermost() -> None:
        times.append(ends.pop())
        open_paths.pop()
        paths.append(open_paths[-1] if open_paths else None)

    ordered = scopes.sort("t", "dur", descending=[False, True])
    for name, t, dur in zip(*(ordered[c].to_list() for c in ("name", "t", "dur")), strict=True):
        while ends and ends[-1] <= t:
            close_innermost()
        ends.append(min(t + dur, ends[-1]) if ends else t + dur)
        open_paths.append(open_paths[-1] + PATH_SEPARATOR + name if open_paths else name)
        times.append(t)
        paths.append(open_paths[-1])
    while ends:
        close_innermost()
    return times, paths


def _find_innermost(functions: pl.DataFrame, times: pl.Series) -> pl.Series:
    """Find the label of the innermost function of one thread at each time; null if none is open.

    Functions nest: the innermost at a time is the last that started at the depth of the stack at that time.
    """
    functions = functions.sort("t", "dur", descending=[False, True], maintain_order=True)
    ends = (functions["t"] + functions["dur"]).sort()
    ended_before = ends.search_sorted(functions["t"], side="right").cast(pl.Int64)
    starts = functions.select("t", "label", end=pl.col("t") + pl.col("dur")).with_columns(
        depth=pl.int_range(1, pl.len() + 1) - ended_before
    )
    started = functions["t"].search_sorted(times, side="right").cast(pl.Int64)
    ended = ends.search_sorted(times, side="right").cast(pl.Int64)
    launches = pl.DataFrame({"time": times, "depth": started - ended}).with_row_index("row").sort("time")
    matched = launches.join_asof(
        starts, left_on="time", right_on="t", by="depth", strategy="backward", check_sortedness=False
    ).sort("row")
    return matched.select(pl.when(pl.col("end") > pl.col("time")).then("label").alias("line"))["line"]
