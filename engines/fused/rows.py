"""The rows of a fused step: those of the plan, joined as the kernels join their ops."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

from engines.models.spec import Spec
from engines.plan import Row

_FINISHED: Final = frozenset({"attn.out", "mlp.down"})
_SMALL: Final = frozenset({"norm", "attn.rope", "attn.kv", "residual"})


def fused_rows(spec: Spec, planned: Sequence[Row], row_bytes: int) -> tuple[Row, ...]:
    """Return the plan's rows, joined where one kernel does several; what stays in a kernel is not moved.

    `row_bytes` is what one number of the stream takes for all sequences.
    """
    return tuple(_joined(spec, group, row_bytes) for group in _groups(planned))


def _groups(planned: Sequence[Row]) -> Iterator[list[Row]]:
    """Group runs of small ops; the activation goes with its product, the phases of sampling together.

    What follows a product that is added to the stream is done at its end.
    """

    def kind(row: Row) -> str:
        return "small" if row.op in _SMALL else {"mlp.act": "mlp.gate_up"}.get(row.op, row.op)

    finished: list[Row] = []
    for _, rows in groupby(planned, key=kind):
        group = finished + list(rows)
        finished = group if group[-1].op in _FINISHED else []
        if not finished:
            yield group


def _joined(spec: Spec, group: list[Row], row_bytes: int) -> Row:
    """Return the row of one kernel that does all rows of a group."""
    first = group[0]
    if len(group) == 1:
        return first
    unmoved = sum(_handed_on(spec, row) for row in group[:-1])
    return replace(
        first,
        name="+".join(row.name for row in group),
        op=first.op if first.op != "residual" else "norm",
        flops=(sum(r.flops[0] for r in group), 0.0),
        bytes=(sum(r.bytes[0] for r in group) - 2 * row_bytes * unmoved, 0.0),
    )


def _handed_on(spec: Spec, row: Row) -> int:
    """Return how many numbers of a sequence an op leaves for the next one."""
    if row.op == "attn.rope":
        return spec.kv_width
    if row.op == "mlp.gate_up":
        return 2 * spec.ffn
    if row.op == "sample":
        return 0
    return spec.query_width + spec.kv_width if row.name == "qk_norm" else spec.hidden
