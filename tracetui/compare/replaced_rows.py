"""Name what ran instead: the kernels of one side that do the work of other kernels on the other side.

Rows that are matched by their role, shape or category are the same work by another code path. They are named
in the order in which they ran, within one layer: `flash attention → bmm + softmax + bmm`.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import polars as pl

from capture.classify.kernel_rules import classify_kernel
from capture.classify.short_names import shorten_name
from capture.run import Run
from tracetui import units
from tracetui.compare import params

ARROW: Final = " → "
WAYS_BY_WORK: Final = ("role", "shape", "category")  # of matching that do not depend on names
_MINOR_WORK: Final = (
    "copy",
    "elementwise",
    "reduce",
    "other",
)  # which tells less of how something is computed
_OWN_WORK: Final = " (own work)"  # of a module whose inner modules have rows of their own
_NODE: Final = re.compile(r"^[\w./-]+ \((\w+)\)$|^/[\w./-]+/([A-Z]\w+)$")
_OPERATOR_PARTS: Final = re.compile(r"^aten::_*|scaled_dot_product_|_for_cpu$")


def name_replacements(sides: Sequence[Run], rows: pl.DataFrame) -> pl.Series:
    """Name for each row what ran on either side, if that is not one kernel of the same name; else null."""
    is_other = pl.col("match").is_in(WAYS_BY_WORK) & (pl.col("members_a") != pl.col("members_b"))
    others = rows.with_row_index("row").filter(is_other).select("row", "phase", "members_a", "members_b")
    names: list[str | None] = [None] * rows.height
    orders = [_order_kernels(run, others, f"members_{s}") for run, s in zip(sides, "ab", strict=True)]
    for row, phase, *members in others.iter_rows():
        sides_of_row = zip(orders, members, strict=True)
        a, b = (_join_names(order.get((phase, *side), side)) for order, side in sides_of_row)
        names[row] = None if a == b else f"{a}{ARROW}{b}"
    return pl.Series("instead", names, dtype=pl.String)


def describe_merged_rows(rows: pl.DataFrame, carriers: pl.DataFrame) -> str:
    """Describe a module whose inner rows are gone because b runs it as one; empty if there is none.

    `carriers` are the changes of some phases.
    """
    phases = carriers["phase"].unique().to_list()
    rows = rows.filter(pl.col("phase").is_in(phases, nulls_equal=True))
    inner = rows.filter(pl.col("verdict") == "gone")
    for row in rows.iter_rows(named=True) if inner.height else ():
        if _has_lost_inner_rows(row):
            merged = carriers.filter(pl.col("name").is_in([row["name"], *inner["name"]]))
            change = units.format_difference(float(merged["delta_ns"].sum()))
            return f"{row['name_b']} runs as one row in b, {inner.height} rows inside it are gone: {change}"
    return ""


def _has_lost_inner_rows(row: dict[str, Any]) -> bool:
    """True if a module of a has inner rows and that of b none: b runs all of it as one."""
    return bool(row["name_a"]) and row["name_a"] == f"{row['name_b']}{_OWN_WORK}"


def has_other_contents() -> pl.Expr:
    """True for rows that are all of a module on one side and its own work on the other."""
    own_work = pl.lit(_OWN_WORK)
    a, b = pl.col("name_a"), pl.col("name_b")
    return ((a == b + own_work) | (b == a + own_work)).fill_null(value=False)


def _order_kernels(run: Run, rows: pl.DataFrame, column: str) -> dict[tuple[Any, ...], tuple[str, ...]]:
    """Order the kernels of rows that combine several, by their launches in one layer of a late step.

    Where layers are unknown it is what repeats within the step. A kernel that takes hardly any of the row's
    time and does not run there is left out.
    """
    several = rows.filter(pl.col(column).list.len() > 1).select("phase", column).unique()
    if several.is_empty() or not (run.has("t") and run.has("dur")):
        return {}
    places = [c for c in ("track", "step", "layer") if run.has(c)]
    phase = pl.col("phase").cast(pl.String) if run.has("phase") else pl.lit(None, pl.String).alias("phase")
    names = several[column].explode().unique()
    kernels = run.events.lazy().filter(pl.col("kind") == "kernel").drop_nulls(["t", *places[-1:]])
    kernels = kernels.select(pl.col("name").cast(pl.String), phase, "t", "dur", *places)
    launches = kernels.filter(pl.col("name").is_in(names.implode())).collect()
    orders = {}
    for phase_name, members in several.iter_rows():
        in_phase = pl.col("phase").eq_missing(pl.lit(phase_name, pl.String)) & pl.col("name").is_in(members)
        sorted_by_place = launches.filter(in_phase).sort(*places, "t", nulls_last=True)
        if sorted_by_place.height:
            end = sorted_by_place.tail(1).select(places)
            last = sorted_by_place.join(end, on=places, how="semi", nulls_equal=True, maintain_order="left")
            of_last = sorted_by_place.filter(pl.col("name").is_in(last["name"].implode()))
            times = (int(frame["dur"].sum()) for frame in (of_last, sorted_by_place))
            if next(times) >= params.MOST * next(times):
                orders[(phase_name, *members)] = _find_period(last["name"].to_list())
    return orders


def _find_period(names: Sequence[str]) -> tuple[str, ...]:
    """Find the shortest beginning whose repetition is the whole: `a b a b` → `a b`."""
    size = len(names)
    for length in range(1, size):
        if size % length == 0 and list(names[:length]) * (size // length) == list(names):
            return tuple(names[:length])
    return tuple(names)


def _join_names(names: Sequence[str]) -> str:
    """Join short names in their order, equal ones that follow each other once; of many the main work."""
    short = {_shorten(name): name for name in names}
    joined = [_shorten(name) for name in names]
    joined = [*joined[:1], *(after for before, after in pairwise(joined) if after != before)]
    is_minor = [classify_kernel(short[name]).category in _MINOR_WORK for name in joined]
    places = sorted(range(len(joined)), key=lambda at: (is_minor[at], at))[: params.MAX_NAMED]
    more = f" + {len(joined) - params.MAX_NAMED} more" if len(joined) > params.MAX_NAMED else ""
    return " + ".join(joined[at] for at in sorted(places)) + more


def _shorten(name: str) -> str:
    """Shorten the name of a kernel or operator: `aten::_flash_attention_for_cpu` to `flash attention`.

    Of a node of a graph, `/stem/Conv_quant (ConvInteger)` or `/stem/Conv`, its operator is the work.
    """
    if node := _NODE.search(name):
        return node[1] or node[2]
    if not name.startswith("aten::"):
        return shorten_name(name)
    return _OPERATOR_PARTS.sub("", name).replace("_", " ").strip()
