"""Which ops of a CPU trace do the work: the outermost ones that are neither wrappers nor views."""

from typing import Final, Literal

import polars as pl

Part = Literal["work", "wrapper", "passing", "idle"]

_OWN: Final = "aten::"
# ops that only dispatch to others; the op below them is the one to name
_WRAPPERS: Final = frozenset({
    "linear", "matmul", "einsum", "layer_norm", "rms_norm", "group_norm", "softmax", "log_softmax",
    "scaled_dot_product_attention", "conv1d", "conv2d", "conv3d", "multi_head_attention_forward",
    "_grouped_mm", "grouped_mm",
})  # fmt: skip
# the same, where nothing below them means that there was nothing to do
_PASSING: Final = frozenset({
    "reshape", "contiguous", "to", "_to_copy", "type_as", "float", "half", "repeat_interleave", "flatten",
    "tensor_split", "chunk", "__getitem__", "index_put", "where", "one_hot", "pad", "constant_pad_nd",
    "stack", "expand_as", "item", "is_nonzero",
})  # fmt: skip
# ops that make a view, allocate or ask for metadata: no work, whatever their time
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


def part_of(name: str) -> Part:
    """Return what part an op has in the work: it does it, wraps what does, may wrap something, or is idle."""
    bare = name.removeprefix(_OWN)
    if bare in _IDLE:
        return "idle"
    if bare == name:
        if name.startswith("autograd::") or name.endswith("Backward0"):
            return "passing"
        return "work" if "::" in name else "wrapper"
    if bare in _PASSING:
        return "passing"
    return "wrapper" if bare in _WRAPPERS else "work"


def working_ops(ops: pl.DataFrame) -> pl.DataFrame:
    """Return the ops (place, t, dur, part) that stand for the work of each place, in order of start.

    Of nested ops the outermost one that does work counts, with all that it calls; a wrapper counts where
    nothing in it does.
    """
    end = pl.col("t") + pl.col("dur")
    here = (
        ops.filter(pl.col("part") != "idle")
        .sort("place", "t", "dur", descending=[False, False, True])
        .with_columns(end=end)
    )
    work = pl.when(pl.col("part") == "work").then("end")
    covered = work.cum_max().shift(1).forward_fill().over("place")
    outer = here.filter((pl.col("t") >= covered).fill_null(value=True))
    holds = (pl.col("t").shift(-1) < pl.col("end")) & (pl.col("place").shift(-1) == pl.col("place"))
    kept = outer.filter((pl.col("part") == "work") | ~holds.fill_null(value=False))
    return kept.filter(pl.col("part") != "passing").drop("end")
