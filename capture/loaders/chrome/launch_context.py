"""Add the context of each kernel's launch: host call, configuration, scopes, line of Python, operator.

An operator is linked by External id; it reports shapes, from which FLOPs and bytes follow.
"""

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import cache, lru_cache
from typing import Any, Final

import msgspec
import polars as pl

from capture.classify.name_rules import (
    MODULE_PREFIX,
    find_layer,
    find_phase,
    infer_op_and_category,
    infer_scope_roles,
)
from capture.classify.operator_call import OperatorCall, find_element_bytes, shorten_dtype
from capture.classify.operator_work import estimate_work
from capture.classify.step_annotations import StepAnnotation
from capture.dense_lookup import (
    build_columns,
    drop_columns,
    encode_categories,
    encode_dense,
    fill_nulls,
    find_rows,
    has_value,
    keep_where,
    put_columns,
)
from capture.import_log import Log
from capture.loaders._json_document import decode_or_none
from capture.loaders.chrome.trace_model import OPERATOR_CATEGORIES
from capture.loaders.chrome.trace_steps import find_last_before
from capture.native.schema import MAX_PATH_DEPTH, PATH_SEPARATOR

LAUNCH_CONFIG_COLUMNS: Final = ("grid", "block", "registers", "shared", "occupancy")
MESSAGE_COLUMNS: Final = ("message_shape", "message_dtype")
_SCHEMA: Final = {
    "grid": pl.Categorical(), "block": pl.Categorical(), "registers": pl.Int32(), "shared": pl.Int32(),
    "occupancy": pl.Float64(), "message_shape": pl.Categorical(), "message_dtype": pl.Categorical(),
}  # fmt: skip
SCOPE_SCHEMA: Final = {
    "path": pl.Categorical(), "layer": pl.Int32(), "op": pl.Categorical(), "is_products_only": pl.Boolean(),
}  # fmt: skip
_MAX_INT32: Final = (1 << 31) - 1
_MODULE_LAYER: Final = re.compile(r"nn\.Module: \w*(?:Layer|Block)_(\d{1,4})\b")
_FUNCTION: Final = re.compile(r"(?P<file>[^<(][^(]*)\.py\(\d+\): (?P<name>.*)")  # as torch writes it
_INSTALLED: Final = re.compile(r".*/(?:site-packages|dist-packages|lib/python3\.\d+|python|pytorch)/")
_LIBRARIES: Final = ("torch", "functorch", "triton", "numpy")
_KERNEL_LIBRARIES: Final = frozenset({  # in any folder: engines carry copies of them
    "aiter", "apex", "bitsandbytes", "causal_conv1d", "csrc", "cutlass", "deep_ep", "deep_gemm", "flash_attn",
    "flash_attn_interface", "flashinfer", "flashmla", "fla", "liger_kernel", "mamba_ssm", "nvidia",
    "sgl_kernel", "tilelang", "transformer_engine", "triton_kernels", "tvm", "tvm_ffi", "vllm_flash_attn",
    "xformers",
})  # fmt: skip
_WRAPPERS: Final = re.compile(r"torch_guard|kernel_shape_profiler|vllm/compilation/")  # around every call
_WRAPPER_NAMES: Final = re.compile(r"__torch_(?:function|dispatch)__|\w*wrapper\w*")
_GENERATED: Final = re.compile(r"torchinductor_|/inductor_cache/|/c[a-z2-7]{51}$")  # files of Inductor
_SCRIPT_NAMES: Final = {"test", "code", "profile", "cmd", "trace"}  # of user scripts and of the library
_STANDARD_LIBRARY: Final = sys.stdlib_module_names - _SCRIPT_NAMES
_ATTENTION_NAMES: Final = "attention|attn"  # of operators whose work may depend on the sums of their step
_MAX_WINDOW_SHARE: Final = 0.6  # of the time of whole attention, up to which other kernels have read a part
_FORWARD: Final = "forward"  # name of a pass
_UNKNOWN_CATEGORY: Final = "other"
_COLLECTIVE_OPERATOR: Final = "c10d::"
_WORK_SCHEMA: Final = {
    "shape": pl.Categorical(), "dtype": pl.Categorical(), "flops": pl.Float64(), "bytes": pl.Float64(),
    "operator_op": pl.Categorical(), "operator_category": pl.Categorical(),
}  # fmt: skip


class _LaunchConfigFields(msgspec.Struct, gc=False):
    """The launch configuration as profilers write it, and what torch says of the kernel of a collective."""

    grid: Any = None
    block: Any = None
    registers: Any = msgspec.field(default=None, name="registers per thread")
    shared: Any = msgspec.field(default=None, name="shared memory")
    occupancy: Any = msgspec.field(default=None, name="est. achieved occupancy %")
    collective: Any = msgspec.field(default=None, name="Collective name")
    sent: Any = msgspec.field(default=None, name="In msg nelems")
    received: Any = msgspec.field(default=None, name="Out msg nelems")
    element_type: Any = msgspec.field(default=None, name="dtype")
    group_size: Any = msgspec.field(default=None, name="Group size")


_DECODER: Final = msgspec.json.Decoder(_LaunchConfigFields)


def with_launches(kernels: pl.DataFrame, host_calls: pl.DataFrame) -> pl.DataFrame:
    """Add the host call that launched each kernel: `launch`, `launch_dur` and `launcher` (its label).

    Also adds `host_t` and `host_thread`, time and thread of that call, or of the kernel if it has none.
    """
    row = find_rows(host_calls["correlation"], kernels["correlation"], keep="first")
    t, dur, label, thread = (host_calls[column][row] for column in ("t", "dur", "label", "thread"))
    host_t, host_thread = fill_nulls(t, kernels["t"]), fill_nulls(thread, kernels["thread"])
    added = {"launch": t, "launch_dur": dur, "launcher": label, "host_t": host_t, "host_thread": host_thread}
    return put_columns(kernels, *(column.alias(name) for name, column in added.items()))


def with_launch_config(kernels: pl.DataFrame) -> pl.DataFrame:
    """Replace the arguments of kernels by the columns of their launch configuration and of their message."""
    without_args = drop_columns(kernels, "args")
    index, texts = encode_categories(kernels["args"])
    if texts.is_empty():
        return without_args
    columns = build_columns([_parse_launch(text) for text in texts], _SCHEMA)
    return put_columns(without_args, *(c[index] for c in columns if c.null_count() < c.len()))


def _parse_launch(text: str) -> tuple[object, ...]:
    """Parse the columns of `_SCHEMA`; None for what is missing."""
    launch = decode_or_none(_DECODER.decode, text) or _LaunchConfigFields()
    occupancy = float(launch.occupancy) if type(launch.occupancy) in (int, float) else None
    registers, shared = _check_int32(launch.registers), _check_int32(launch.shared)
    message = _parse_message(launch)
    return _format_sizes(launch.grid), _format_sizes(launch.block), registers, shared, occupancy, *message


def _parse_message(launch: _LaunchConfigFields) -> tuple[str | None, str | None]:
    """Parse shape and type of what a collective moves: the larger of what a rank gives and gets.

    Annotations of graphs state numbers as texts.

    >>> _parse_message(_LaunchConfigFields(collective="allreduce", sent="8", element_type="Half"))
    ('n=8 bytes=16', 'fp16')
    """
    if not isinstance(launch.collective, str):
        return None, None
    sizes = [_parse_count(value) for value in (launch.sent, launch.received)]
    dtype = shorten_dtype(launch.element_type) if isinstance(launch.element_type, str) else None
    if not any(sizes):
        return None, dtype
    count = max(filter(None, sizes))
    width, group = find_element_bytes(str(launch.element_type)), _parse_count(launch.group_size)
    parts = (f"n={count}", f"bytes={count * width:.0f}" if width else "", f"group={group}" if group else "")
    return " ".join(filter(None, parts)), dtype


def _parse_count(value: object) -> int | None:
    """Parse a positive number, also written as a text."""
    text = str(value) if type(value) in (int, str) else ""
    return int(text) or None if text.isascii() and text.isdecimal() and len(text) <= 18 else None


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


class FunctionOwner(IntEnum):
    """Whose code a recorded Python function is, by how much it tells of a kernel that it launches."""

    INTERPRETER = 0  # Python, torch, Triton, numpy, built-in functions: they only pass a call on
    LIBRARY = 1  # of kernels, or a wrapper around every call, or generated by a compiler
    PROGRAM = 2  # the user's, a model's or an engine's, such as vLLM


def find_function_owner(name: str) -> FunctionOwner:
    """Find whose code a recorded Python function is, by its name in a trace: `file.py(line): name`."""
    match = _FUNCTION.match(name)
    if match is None:
        return FunctionOwner.INTERPRETER
    file = _INSTALLED.sub("", match["file"])
    parts = file.split("/")
    if parts[0] in _LIBRARIES or parts[0] in _STANDARD_LIBRARY:
        return FunctionOwner.INTERPRETER
    is_wrapper = _WRAPPERS.search(file) or _WRAPPER_NAMES.fullmatch(match["name"])
    if is_wrapper or _GENERATED.search(file) or not _KERNEL_LIBRARIES.isdisjoint(parts):
        return FunctionOwner.LIBRARY
    return FunctionOwner.PROGRAM


def with_forward_passes(scopes: pl.DataFrame) -> pl.DataFrame:
    """Add a scope `forward` for each pass of FSDP2, which marks only begin and end of each module.

    A pass lasts from the begin of the outermost module to the end of the mark behind it.
    """
    name, is_begin = pl.col("name").cast(pl.String), pl.col("sign") == 1
    begins, ends = (name.str.starts_with(f"FSDP::{side}_forward") for side in ("pre", "post"))
    marks = (
        scopes.with_columns(sign=pl.when(begins).then(1).when(ends).then(-1))
        .drop_nulls("sign")
        .sort("thread", "t")
    )
    if marks.is_empty():
        return scopes
    depth = pl.col("sign").cum_sum().over("thread")
    outermost = marks.filter(((depth == 1) & is_begin) | ((depth == 0) & ~is_begin))
    end = pl.col("t").shift(-1) + pl.col("dur").shift(-1)
    passes = outermost.with_columns(dur=end.over("thread") - pl.col("t"), name=pl.lit(_FORWARD))
    passes = passes.filter(is_begin & pl.col("dur").is_not_null()).cast({"name": scopes["name"].dtype})
    return pl.concat([scopes, passes.select(scopes.columns)])


def with_paths(kernels: pl.DataFrame, scopes: pl.DataFrame, log: Log | None = None) -> pl.DataFrame:
    """Add the path of the scopes that were open at (`host_t`, `host_thread`) of each kernel.

    Also adds the layer that the path names, and the op that it implies (`is_products_only`: for matrix
    products only). `scopes` have name, t, dur and thread; `log` notes those too deep for a path.
    """
    deep_count = 0

    def find_paths(of_thread: pl.DataFrame, times: pl.Series) -> list[pl.Series]:
        nonlocal deep_count
        changes, paths, deep_scopes = _list_scope_changes(of_thread)
        deep_count += deep_scopes
        codes = {path: code for code, path in enumerate(dict.fromkeys(paths))}
        code_series = pl.Series([codes[path] for path in paths], dtype=pl.UInt32)
        codes_at = code_series[find_last_before(pl.Series(changes), times)]
        return [column[codes_at] for column in _build_path_columns(list(codes))]

    with_columns = _add_by_thread(kernels, scopes, find_paths)
    if deep_count and log:
        text = f"scopes nested deeper than {MAX_PATH_DEPTH}, left out of paths"
        log.note("deep_scopes", text, count=deep_count)
    return with_columns


def with_lines(kernels: pl.DataFrame, functions: pl.DataFrame) -> pl.DataFrame:
    """Add `line`: the label of the innermost function at each kernel's launch, of a program, else a library.

    `functions` have label, t, dur, thread and owner.
    """
    if functions.is_empty():
        return kernels

    def find_lines(of_thread: pl.DataFrame, times: pl.Series) -> list[pl.Series]:
        of_program = of_thread.filter(pl.col("owner") == FunctionOwner.PROGRAM)
        innermost = [_find_innermost(frames, times) for frames in (of_program, of_thread)]
        return [pl.select(pl.coalesce(innermost)).to_series().alias("line")]

    return _add_by_thread(kernels, functions, find_lines)


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
    return build_columns(rows, SCOPE_SCHEMA)


@cache
def _find_module_layer(path: str | None) -> int | None:
    """Find a layer that only the counter of a module names; others are read from the path later."""
    match = _MODULE_LAYER.search(path or "")
    return int(match[1]) if match else None


def _list_scope_changes(scopes: pl.DataFrame) -> tuple[list[int], list[str | None], int]:
    """List the times at which the path of one thread changes, and the path from then on.

    A path ends at its MAX_PATH_DEPTH-th scope; also returns how many scopes are deeper.
    """
    times: list[int] = []
    paths: list[str | None] = []
    ends: list[int] = []
    open_paths: list[str] = []
    deep_count = 0

    def close_innermost() -> None:
        end = ends.pop()
        if len(ends) < MAX_PATH_DEPTH:
            times.append(end)
            open_paths.pop()
            paths.append(open_paths[-1] if open_paths else None)

    ordered = scopes.sort("t", "dur", descending=[False, True])
    for name, t, dur in zip(*(ordered[c].to_list() for c in ("name", "t", "dur")), strict=True):
        while ends and ends[-1] <= t:
            close_innermost()
        ends.append(min(t + dur, ends[-1]) if ends else t + dur)
        if len(ends) > MAX_PATH_DEPTH:
            deep_count += 1
            continue
        open_paths.append(open_paths[-1] + PATH_SEPARATOR + name if open_paths else name)
        times.append(t)
        paths.append(open_paths[-1])
    while ends:
        close_innermost()
    return times, paths, deep_count


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


class OperandFields(msgspec.Struct, gc=False):
    """The operands of a call as profilers write them."""

    dims: Any = msgspec.field(default=(), name="Input Dims")
    types: Any = msgspec.field(default=(), name="Input type")
    values: Any = msgspec.field(default=(), name="Concrete Inputs")


_OPERANDS_DECODER: Final = msgspec.json.Decoder(OperandFields)


def with_operators(
    kernels: pl.DataFrame, rows: pl.DataFrame, labels: pl.DataFrame, steps: Mapping[int, StepAnnotation]
) -> pl.DataFrame:
    """Add `shape`, `dtype`, `flops` and `bytes` of the operator call that launched each kernel.

    Also adds `operator_op` and `operator_category`, which the operator's name implies. The kernels of one
    call share its work by duration. `steps` has the annotations of steps, for attention over a cache.
    """
    is_memset = pl.Series([name.startswith("Memset") for name in labels["name"]], dtype=pl.Boolean)
    if is_memset.any():
        kernels = kernels.with_columns(external_id=pl.when(~is_memset[kernels["label"]]).then("external_id"))
    if kernels["external_id"].null_count() == kernels.height:
        return kernels
    is_operator = pl.Series([cat in OPERATOR_CATEGORIES for cat in labels["cat"]], dtype=pl.Boolean)
    is_call = has_value(rows["external_id"]) & is_operator[rows["label"]]
    if not is_call.any():
        return kernels
    ids, operator, operands = (rows[column].filter(is_call) for column in ("external_id", "label", "args"))
    row = find_rows(ids, kernels["external_id"], keep="last")  # ids may be reused
    linked = put_columns(kernels, operator[row].alias("operator"), operands[row].alias("operands"))
    if linked["operator"].null_count() == linked.height:
        return kernels
    return with_work(linked, labels["name"], steps)


def with_work(linked: pl.DataFrame, names: pl.Series, steps: Mapping[int, StepAnnotation]) -> pl.DataFrame:
    """Add the work of operator calls to their kernels, as `with_operators` does.

    Consumes the columns `operator` (index into `names`) and `operands`; `external_id` identifies the call.
    """
    attention_step = pl.Series([None], dtype=pl.Int64).new_from_index(0, linked.height)
    if steps and "step" in linked.columns:
        is_attention = names.str.contains(_ATTENTION_NAMES)[linked["operator"]]
        attention_step = keep_where(linked["step"], is_attention)
    linked = put_columns(linked, attention_step.alias("attention_step"))
    code, row = encode_dense(_build_work_key(linked))
    columns = ("operator", "operands", "attention_step")
    works = _build_work_columns([linked[column][row] for column in columns], names, steps)
    linked = _forget_windows(put_columns(linked, *(column[code] for column in works)))
    ids = linked["external_id"]
    if ids.n_unique() - bool(ids.null_count()) < ids.count():
        share = pl.col("dur") / pl.col("dur").sum().over("external_id")
        linked = linked.with_columns(pl.col("flops", "bytes") * share.fill_nan(None))
    return drop_columns(linked, *columns)


def _forget_windows(linked: pl.DataFrame) -> pl.DataFrame:
    """Forget the work of attention calls that read only a part of the context; `k=` of their shape is `k<`.

    No operand states a sliding window. But calls with equal operands in one step, by other kernels and in a
    much shorter time than the longest one, cannot have read as much.
    """
    if not linked["attention_step"].count():
        return linked
    calls = linked.filter(pl.col("attention_step").is_not_null(), pl.col("flops").is_not_null())
    if calls.is_empty():
        return linked
    key = ["operator", "operands", "attention_step"]
    by_call = calls.group_by("external_id", *key).agg(
        pl.col("dur").sum(), pl.col("label").sort_by("dur").last()
    )
    longest = pl.col("dur") == pl.col("dur").max()
    by_call = by_call.with_columns(
        most=pl.col("dur").max().over(key), kernel=pl.col("label").filter(longest).first().over(key)
    )
    is_part = (pl.col("label") != pl.col("kernel")) & (pl.col("dur") < _MAX_WINDOW_SHARE * pl.col("most"))
    parts = by_call.filter(is_part)["external_id"]
    if parts.is_empty():
        return linked
    is_part = pl.col("external_id").is_in(parts.implode()) & pl.col("attention_step").is_not_null()
    return linked.with_columns(
        pl.when(~is_part.fill_null(value=False)).then(pl.col("flops", "bytes")),
        shape=pl.when(is_part)
        .then(pl.col("shape").cast(pl.String).str.replace(" k=", " k<", literal=True))
        .otherwise(pl.col("shape").cast(pl.String))
        .cast(pl.Categorical()),
    )


def _build_work_key(linked: pl.DataFrame) -> pl.Series:
    """Build an integer that is equal for calls of equal work, null for no call."""
    operand_code, operands = encode_categories(linked["operands"])
    operand = fill_nulls(operand_code.cast(pl.Int64), pl.Series([operands.len()]))
    key = linked["operator"].cast(pl.Int64) * (operands.len() + 1) + operand
    last_step = linked["attention_step"].max()
    if not isinstance(last_step, int):
        return key
    return key * (last_step + 2) + fill_nulls(linked["attention_step"], pl.Series([-1])) + 1


def _build_work_columns(
    calls: Sequence[pl.Series], names: pl.Series, steps: Mapping[int, StepAnnotation]
) -> list[pl.Series]:
    """Build the columns of `_WORK_SCHEMA` of calls, given by operator, operands and step of attention."""
    rows = []
    operators, *others = calls
    for name, operands, number in zip(names[operators], *others, strict=True):
        call = None if operands is None else _parse_call(name, operands)
        step = steps.get(number)
        work = call and estimate_work(msgspec.structs.replace(call, step=step) if step else call)
        op, category = infer_op_and_category(name)
        reported: tuple[Any, ...] = (None,) * 4
        if work:
            reported = work.shape, work.dtype, work.flops, work.bytes
        elif name.startswith(_COLLECTIVE_OPERATOR) and operands is not None:
            reported = _describe_message(operands), None, None, None
        elif call:
            reported = *call.describe_node(), None, None
        rows.append((*reported, op, None if category == _UNKNOWN_CATEGORY else category))
    return build_columns(rows, _WORK_SCHEMA)


@lru_cache(maxsize=1 << 12)
def _describe_message(operands: str) -> str | None:
    """Describe what a collective moves: `n=` the elements of its first operand, a tensor or a list of them.

    The element type of a list is not reported, so bytes are unknown.
    """
    fields = decode_or_none(_OPERANDS_DECODER.decode, operands)
    first = next(filter(None, map(_as_list, _as_list(fields.dims))), []) if fields else []
    tensors = [first] if all(type(n) is int for n in first) else [_as_list(dims) for dims in first]
    count = sum(math.prod(_parse_dims(dims)) for dims in tensors if dims)
    return f"n={count}" if count > 0 else None


@lru_cache(maxsize=1 << 12)
def _parse_call(name: str, operands: str) -> OperatorCall | None:
    """Parse the operands of a call; None if they are invalid."""
    fields = decode_or_none(_OPERANDS_DECODER.decode, operands)
    if fields is None:
        return None
    dims = tuple(_parse_dims(d) for d in _as_list(fields.dims))
    types = tuple(str(t) for t in _as_list(fields.types))
    return OperatorCall(name, dims, types, tuple(str(v) for v in _as_list(fields.values)))


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _parse_dims(dims: object) -> tuple[int, ...]:
    """Parse the dims of one tensor; empty for anything else, such as a list of tensors."""
    sizes = tuple(_as_list(dims))
    return sizes if all(type(n) is int for n in sizes) else ()
