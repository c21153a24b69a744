"""Select the host ops that represent the work in a trace without a device."""

from typing import Final, Literal

import polars as pl

from capture.loaders.chrome.trace_model import OPERATOR_CATEGORIES, CompleteEvents

OpPart = Literal["work", "wrapper", "passing", "idle"]

_ATEN: Final = "aten::"
_SCOPE_CATEGORIES: Final = ("user_annotation", "python_function")
# ops that only dispatch to others, which represent the work
_WRAPPERS: Final = frozenset({
    "linear", "matmul", "einsum", "layer_norm", "rms_norm", "group_norm", "softmax", "log_softmax",
    "scaled_dot_product_attention", "conv1d", "conv2d", "conv3d", "multi_head_attention_forward",
    "_grouped_mm", "grouped_mm",
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
    "view_as",
})  # fmt: skip


def classify_cpu_op(name: str) -> OpPart:
    """Classify an op: it works, wraps one that works, passes through (may wrap one), or is idle."""
    bare = name.removeprefix(_ATEN)
    if bare in _IDLE:
        return "idle"
    if bare == name:
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


def is_host_leaf(complete: CompleteEvents) -> pl.Series:
    """Whether each row is an op that works; an innermost span, if no op is recorded."""
    labels = complete.labels.with_columns(pl.col("cat").fill_null(""))
    is_span = pl.col("kind") == "span"
    is_op = labels.select(is_op=pl.col("cat").is_in(OPERATOR_CATEGORIES) & is_span)["is_op"]
    if is_op.any():
        parts = [classify_cpu_op(name) for name in labels["name"]]
    else:
        is_op = labels.select(is_op=~pl.col("cat").is_in(_SCOPE_CATEGORIES) & is_span)["is_op"]
        parts = ["wrapper"] * labels.height
    label = complete.rows["label"]
    rows = complete.rows.select("t", "dur", complete.expand_label("thread"), row=pl.int_range(pl.len()))
    part = pl.Series(parts, dtype=pl.String).cast(pl.Categorical()).gather(label)
    working = select_working_ops(rows.with_columns(part=part).filter(is_op.gather(label)))
    return pl.select(pl.int_range(complete.rows.height).is_in(working["row"].implode()))[:, 0]
