"""Select what represents the work in a trace without a device: thunks, ops or self times of spans."""

import re
from typing import Final, Literal, NamedTuple

import polars as pl

from capture.loaders.chrome.trace_model import OPERATOR_CATEGORIES, CompleteEvents
from capture.native.schema import HOST_COLLECTIVE_PATTERN

OpPart = Literal["work", "wrapper", "passing", "idle"]
Basis = Literal["thunks", "operators", "spans"]

_ATEN: Final = "aten::"
_PROFILER_OPS: Final = "profiler::"  # the own work of the profiler
_THUNK_END: Final = "end: "  # XLA's thunks on a processor are marked so where they end
_FUNCTION_CATEGORY: Final = "python_function"
_LOOP_PART: Final = "_contextvars.Context.run"  # by which an event loop runs a part of a task
# code that Inductor compiled, and what torch.compile does around it
_COMPILED: Final = ("## Call CompiledFxGraph", "Torch-Compiled Region")
_COMPILER: Final = (*_COMPILED, "TorchDynamo", "Pregraph bytecode", "AOTDispatcher")
_ENGINE_WRAPPER: Final = "vllm::unified_"  # Python of vLLM around its kernel of attention and of the cache
# ops that only dispatch to others, which represent the work
_WRAPPERS: Final = frozenset({
    "linear", "matmul", "einsum", "layer_norm", "rms_norm", "group_norm", "softmax", "log_softmax",
    "scaled_dot_product_attention", "conv1d", "conv2d", "conv3d", "_convolution_mode",
    "multi_head_attention_forward", "_native_multi_head_attention", "_transformer_encoder_layer_fwd",
    "_grouped_mm", "grouped_mm", "gru", "lstm", "rnn_tanh", "rnn_relu", "gru_cell", "lstm_cell",
    "rnn_tanh_cell", "rnn_relu_cell", "bilinear", "tensordot", "inner", "batch_norm", "instance_norm",
})  # fmt: skip
# the same, but without an op inside them there was nothing to do
_PASSING: Final = frozenset({
    "reshape", "contiguous", "to", "_to_copy", "type_as", "float", "half", "repeat_interleave", "flatten",
    "tensor_split", "chunk", "__getitem__", "index_put", "where", "one_hot", "pad", "constant_pad_nd",
    "stack", "expand_as", "item", "is_nonzero",
})  # fmt: skip
# ops that create a view, allocate or query metadata: no work, however long they take
_IDLE: Final = frozenset({
    "as_strided", "view", "_unsafe_view", "reshape_alias", "_reshape_alias", "t", "transpose", "permute",
    "expand", "slice", "select", "narrow", "unsqueeze", "unsqueeze_", "squeeze", "squeeze_", "split",
    "split_with_sizes", "unbind", "unfold", "alias", "detach", "detach_", "empty", "empty_like",
    "empty_strided", "resize_", "resize_as_", "set_", "resolve_conj", "resolve_neg", "result_type",
    "lift_fresh", "numpy_T", "mT", "mH", "T", "diagonal", "dropout", "_local_scalar_dense", "as_strided_",
    "new_empty", "new_empty_strided", "new_zeros", "zeros", "ones", "full", "zeros_like", "ones_like",
    "full_like", "zero_", "fill_", "arange", "linspace", "scalar_tensor", "is_pinned", "movedim", "unflatten",
    "view_as", "transpose_", "swapaxes", "swapdims", "unsafe_chunk", "unsafe_split",
    "unsafe_split_with_sizes", "cudnn_is_acceptable",
})  # fmt: skip


def classify_cpu_op(name: str) -> OpPart:
    """Classify an op: it works, wraps one that works, passes through (may wrap one), or is idle."""
    bare = name.removeprefix(_ATEN)
    if bare in _IDLE or name.startswith((_PROFILER_OPS, *_COMPILER)):
        return "idle"
    if bare == name:
        if name.startswith(_ENGINE_WRAPPER):
            return "wrapper"
        if re.match(HOST_COLLECTIVE_PATTERN, name):
            return "work"
        if name.startswith("autograd::") or name.endswith("Backward0"):
            return "passing"
        return "work" if "::" in name else "wrapper"
    if bare in _PASSING:
        return "passing"
    return "wrapper" if bare in _WRAPPERS else "work"


def select_working_ops(ops: pl.DataFrame) -> pl.DataFrame:
    """Select the ops (thread, t, dur, part) that represent the work of each thread, by start time.

    Of nested ops the outermost working one counts, including all that it calls; a wrapper counts only if
    nothing inside it works.
    """
    ops = (
        ops.filter(pl.col("part") != "idle")
        .sort("thread", "t", "dur", descending=[False, False, True])
        .with_columns(end=pl.col("t") + pl.col("dur"))
    )
    is_work = pl.col("part") == "work"
    covered_until = pl.when(is_work).then("end").cum_max().shift(1).forward_fill().over("thread")
    outermost = ops.filter((pl.col("t") >= covered_until).fill_null(value=True))
    has_inner = (pl.col("t").shift(-1) < pl.col("end")) & (pl.col("thread").shift(-1) == pl.col("thread"))
    leaves = outermost.filter(is_work | ~has_inner.fill_null(value=False))
    return leaves.filter(pl.col("part") != "passing").drop("end")


class HostWork(NamedTuple):
    """The work of a trace without a device."""

    complete: CompleteEvents  # with a row (`is_self_time`) for the self time of each span around others
    is_work: pl.Series  # of each row
    basis: Basis


def find_host_work(complete: CompleteEvents) -> HostWork:
    """Find the rows that are the work: XLA's thunks; else ops that work, and compiled code; else every span.

    Of an op, and of a collective that its backend runs, all counts that it calls, of the others the time that
    they take themselves.
    """
    rows = complete.rows.select(
        "label", "t", "dur", complete.expand_label("thread"), row=pl.int_range(pl.len())
    )
    labels = complete.labels.select(pl.col("cat").fill_null(""), "name", is_span=pl.col("kind") == "span")
    names, is_op = labels["name"], labels["cat"].is_in(OPERATOR_CATEGORIES) & labels["is_span"]
    ends = names.filter(names.str.starts_with(_THUNK_END)).str.strip_prefix(_THUNK_END)
    is_thunk = names.is_in(ends.implode()) & labels["is_span"]
    if is_thunk.any():
        return _build_work(complete, [], _measure_self_times(_select(rows, is_thunk)), "thunks")
    if not is_op.any():
        spans = _move_tasks(_select(rows, labels["is_span"]), complete.labels)
        return _build_work(complete, [], _measure_self_times(spans), "spans")
    parts = [classify_cpu_op(name) for name in names]
    part = pl.Series("part", parts, dtype=pl.String).cast(pl.Categorical())[rows["label"]]
    is_collective = names.str.contains(HOST_COLLECTIVE_PATTERN) & labels["is_span"]
    working = select_working_ops(_select(rows.with_columns(part), is_op | is_collective))
    is_code = next(filter(pl.Series.any, map(names.str.starts_with, _COMPILED)), None)
    if is_code is None:
        return _build_work(complete, [working["row"]], None, "operators")
    spans = _select(rows, labels["is_span"] & (labels["cat"] != _FUNCTION_CATEGORY))
    code = _measure_self_times(spans).filter(pl.col("row").is_in(_select(rows, is_code)["row"].implode()))
    return _build_work(complete, [working["row"]], code, "operators")


def _select(rows: pl.DataFrame, is_selected: pl.Series) -> pl.DataFrame:
    return rows.filter(is_selected[rows["label"]])


def _move_tasks(spans: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    """Move the spans of asyncio's tasks, which have threads of their own (viztracer), to that of their loop.

    A task is a thread all of whose spans are within parts that the one event loop runs.
    """
    spans = spans.with_columns(end=pl.col("t") + pl.col("dur"), process=labels["device"][spans["label"]])
    is_part = (labels["name"] == _LOOP_PART)[spans["label"]]
    parts = spans.filter(is_part).select("process", "t", "thread", part_end="end").drop_nulls().sort("t")
    if parts["thread"].n_unique() != 1:
        return spans.drop("end", "process")
    loop = pl.lit(parts["thread"][0], spans["thread"].dtype)
    others = spans.filter(pl.col("thread") != loop).drop_nulls("end").sort("t")
    inside = others.join_asof(parts.drop("thread"), on="t", by="process", check_sortedness=False)
    is_inside = (pl.col("end") <= pl.col("part_end")).fill_null(value=False)
    tasks = inside.group_by("thread").agg(is_inside.all()).filter("end")["thread"]
    thread = pl.when(pl.col("thread").is_in(tasks.implode())).then(loop).otherwise("thread")
    return spans.with_columns(thread=thread).drop("end", "process")


def _measure_self_times(spans: pl.DataFrame) -> pl.DataFrame:
    """Measure `self_ns` of each span (thread, t, dur, row): its duration, if known, less the spans inside."""
    import numpy as np  # only here, it is not needed at startup

    from capture.interval_nesting import compute_self_times, find_enclosing_scopes

    is_timed = pl.col("t").is_not_null() & pl.col("dur").is_not_null()
    untimed = spans.filter(~is_timed).select("row", "dur", self_ns="dur")
    spans = spans.filter(is_timed)
    spans = spans.sort("thread", "t", "dur", descending=[False, False, True], maintain_order=True)
    end = (spans["t"] + spans["dur"]).to_numpy()
    thread, start = spans["thread"].cast(pl.Int64).to_numpy(), spans["t"].to_numpy()
    enclosing = find_enclosing_scopes(thread, start, end, np.ones(len(thread), dtype=bool))
    self_ns = pl.Series(compute_self_times(thread, start, end, enclosing))
    return pl.concat([spans.select("row", "dur", self_ns=self_ns), untimed])


def _build_work(
    complete: CompleteEvents, working: list[pl.Series], measured: pl.DataFrame | None, basis: Basis
) -> HostWork:
    """Build the work from rows that count in full, and spans of which the self time counts."""
    rows = complete.rows
    if measured is not None:
        measured = measured.sort("row")
        working = [*working, measured.filter(pl.col("self_ns").eq_missing(pl.col("dur")))["row"]]
        is_on_host = (complete.labels["lens"] == "host")[rows["label"][measured["row"]]]
        is_part = pl.col("self_ns").is_between(0, pl.col("dur"), closed="none")
        measured = measured.filter(is_on_host & is_part)  # lanes inside a kernel stay as they are
    is_work = pl.select(pl.int_range(rows.height).is_in(pl.concat(working).implode()))[:, 0]
    if measured is None or measured.is_empty():
        return HostWork(complete, is_work, basis)
    own_rows = rows[measured["row"]].with_columns(dur=measured["self_ns"], is_self_time=pl.lit(value=True))
    rows = pl.concat([rows, own_rows], how="diagonal")
    is_work = pl.concat([is_work, pl.Series([True]).new_from_index(0, own_rows.height)])
    return HostWork(CompleteEvents(rows, complete.labels), is_work, basis)
