"""Which ops of a CPU trace do the work: the outermost ones that are neither wrappers nor views."""

from typing import Final

import numpy as np
import numpy.typing as npt

# ops that only dispatch to others; the op below them is the one to name
_WRAPPERS: Final = frozenset(
    [
        "linear",
        "matmul",
        "einsum",
        "reshape",
        "contiguous",
        "to",
        "_to_copy",
        "type_as",
        "float",
        "half",
        "layer_norm",
        "rms_norm",
        "group_norm",
        "softmax",
        "log_softmax",
        "scaled_dot_product_attention",
        "conv1d",
        "conv2d",
        "conv3d",
        "dropout",
        "repeat_interleave",
        "flatten",
        "tensor_split",
        "chunk",
        "split",
        "__getitem__",
        "index_put",
        "where",
        "one_hot",
        "pad",
        "constant_pad_nd",
        "multi_head_attention_forward",
        "_grouped_mm",
        "grouped_mm",
        "movedim",
        "stack",
        "expand_as",
        "item",
        "is_nonzero",
    ]
)

# ops that make a view, allocate or ask for metadata: no work, whatever their time
_IDLE: Final = frozenset(
    [
        "as_strided",
        "view",
        "_unsafe_view",
        "reshape_alias",
        "_reshape_alias",
        "t",
        "transpose",
        "permute",
        "expand",
        "slice",
        "select",
        "narrow",
        "unsqueeze",
        "unsqueeze_",
        "squeeze",
        "squeeze_",
        "split",
        "split_with_sizes",
        "unbind",
        "unfold",
        "alias",
        "detach",
        "detach_",
        "empty",
        "empty_like",
        "empty_strided",
        "resize_",
        "resize_as_",
        "set_",
        "resolve_conj",
        "resolve_neg",
        "result_type",
        "lift_fresh",
        "numpy_T",
        "mT",
        "mH",
        "T",
        "diagonal",
        "dropout",
        "_local_scalar_dense",
        "as_strided_",
        "new_empty",
        "new_empty_strided",
        "new_zeros",
        "zeros",
        "ones",
        "full",
        "zeros_like",
        "ones_like",
        "full_like",
        "zero_",
        "fill_",
        "arange",
        "linspace",
        "scalar_tensor",
        "is_pinned",
        "movedim",
        "unflatten",
        "view_as",
    ]
)


def working_ops(
    names: list[str], starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the indices, in order of start, of the aten ops of one thread that do work of their own.

    Of nested ops the outermost one that is no wrapper counts, with all that it calls. Wrappers,
    views, allocations and what is not an aten op are left out.
    """
    order = np.lexsort((-ends, starts))
    chosen: list[int] = []
    busy_until = np.iinfo(np.int64).min
    for at in order.tolist():
        name = names[at]
        if not name.startswith("aten::") or starts[at] < busy_until:
            continue
        bare = name[6:]
        if bare not in _WRAPPERS and bare not in _IDLE:
            busy_until = int(ends[at])
            chosen.append(at)
    return np.array(chosen, dtype=np.int64)
