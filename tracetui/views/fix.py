"""Fix: what could be recovered in a step, ranked, each item with its evidence and what usually helps."""

from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from capture.run import Run
from tracetui import units
from tracetui.analysis import roofline
from tracetui.analysis.ledger import BOUND, COMPUTE, GAP, LAUNCH, MEMORY, UNKNOWN, Ledger, ledger
from tracetui.look import Look
from tracetui.views import Answer, View

ADVICE: Final = {
    MEMORY: "a kernel that reads faster, fewer bytes (quantisation), or more rows a read (batch)",
    COMPUTE: "a kernel nearer the arithmetic roof, or a cheaper number format",
    LAUNCH: "fusing it with its neighbours: its work is less than a launch costs",
    GAP: "launching ahead: CUDA graphs, fewer launches, less work on the host between them",
    UNKNOWN: "record shapes (record_shapes=True, or a capture beside the trace) to know its bound",
}
FALSE_IF: Final = {
    MEMORY: "its bytes come from a cache, or the roof is not this device's",
    COMPUTE: "it computes in a format of another roof",
    LAUNCH: "it starts before its predecessor has ended",
    GAP: "another device, a copy or a collective was waited for",
    UNKNOWN: "",
}
BASIS: Final = {
    MEMORY: "its bytes at the memory's speed",
    COMPUTE: "its operations at the arithmetic's speed",
    LAUNCH: "the least time of a launch",
    GAP: "nothing ran",
    UNKNOWN: "no work is known of it",
}


def fix(runs: Sequence[Run], look: Look) -> Answer:
    """Return the ledger of a step, the most to recover first; the row `bound` closes the sum."""
    book = ledger(runs[0], look)
    if book is None:
        return Answer(pl.DataFrame(), ("no timed rows: there is nothing to account for",))
    rows = [_item(row, book) for row in book.items.iter_rows(named=True) if row["recoverable_ns"]]
    table = pl.DataFrame([*rows, _bound(book)], infer_schema_length=None)
    return Answer(table, tuple(_notes(runs[0], book)), key=("op",))


def _item(row: dict[str, Any], book: Ledger) -> dict[str, Any]:
    cause = row["cause"]
    share = 1 - row["recoverable_ns"] / row["own_ns"] if cause != GAP else None
    return {
        "id": f"{row['op']}:{cause}",
        "op": row["op"],
        "cause": cause,
        "recoverable_ns": round(row["recoverable_ns"] / book.steps),
        "share": row["recoverable_ns"] / book.step_ns,
        "low_ns": round(row["low_ns"] / book.steps),
        "high_ns": round(row["recoverable_ns"] / book.steps),
        "roof_share": share,
        "per_step": row["count"] / book.steps,
        "total_ns": row["recoverable_ns"],
        "advice": ADVICE[cause],
        "basis": BASIS[cause],
        "false_if": FALSE_IF[cause],
    }


def _bound(book: Ledger) -> dict[str, Any]:
    """Return the row that closes the sum: what the step needs at best."""
    per_step = round(book.bound_ns / book.steps)
    return {
        "id": BOUND, "op": BOUND, "cause": BOUND, "recoverable_ns": 0, "share": book.bound_ns / book.step_ns,
        "low_ns": 0, "high_ns": 0, "roof_share": None, "per_step": None, "total_ns": book.bound_ns,
        "advice": f"{units.duration(per_step)} of the step are {_needed(book)}",
        "basis": "the greatest of bytes, operations and launches of each kernel", "false_if": "",
    }  # fmt: skip


def _needed(book: Ledger) -> str:
    return "counted as needed" if book.unmodelled_ns else "needed at best"


def _notes(run: Run, book: Ledger) -> list[str]:
    each = [round(ns / book.steps) for ns in (book.step_ns, book.bound_ns, book.step_ns - book.bound_ns)]
    what = f"{book.phase} step" if book.phase else "step"
    step, bound, above = map(units.duration, each)
    notes = [f"a {what} takes {step}: {bound} are {_needed(book)}, {above} could be recovered"]
    if book.steps > 1:
        notes[0] += f" (mean of {book.steps:,} steps)"
    if book.unmodelled_ns:
        part = units.share(book.unmodelled_ns / book.step_ns)
        notes.append(f"{part} of the time is of kernels whose work is not known: it counts as needed")
    if book.strays == 1:
        notes.append("one kernel ran far from the rest of its step and is left out")
    elif book.strays:
        notes.append(f"{book.strays:,} kernels ran far from the rest of their steps and are left out")
    roof = roofline.roof_of(run)
    known = roofline.describe(roof, roofline.dtype_of(run)) if roof else ""
    notes.append(f"roof: {known}" if known else "no roof is known of this device (tracetui doctor --measure)")
    return notes


VIEW = View(
    "fix",
    "Fix",
    fix,
    needs=frozenset({"dur"}),
    columns=("op", "recoverable_ns", "share", "cause", "advice", "low_ns", "roof_share", "per_step"),
    label="op",
)
