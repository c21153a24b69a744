"""Training: the phases of a step, their kernels, matrix products and the rest, softmax against attention."""

from collections.abc import Sequence
from textwrap import wrap
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis import select
from tracetui.analysis.passes import marked
from tracetui.analysis.training import PARTS, training_table
from tracetui.look import Look
from tracetui.views import Answer, View, _category, ink, missing
from tracetui.views.ink import Line, Size

_TITLES: Final = {
    "time": "time of each phase, and of the step",
    "top": "kernels that take most of each phase",
    "others": "what is no matrix product",
    "matmul": "matrix products in the forward pass and in the whole step",
    "attention": "softmax against attention's products and its output projection, forward",
    "owners": "whose work the backward pass is",
    "memory": "memory that each phase takes at most",
}
_COLUMNS: Final = (
    "name",
    "phase",
    "total_ns",
    "bytes",
    "share",
    "time_ratio",
    "flop_ratio",
    "flops",
    "mean_ns",
    "count",
    "category",
)
_FIGURES: Final = ("total_ns", "share", "time_ratio", "bytes")
# By an import, of what these rows are.
_NOTICES: Final = ("backward_other_thread", "backward_owners", "backward_strangers", "nvtx_lent", "names_cut")


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row a figure of each part of the report."""
    run = runs[0]
    if not marked(run) and (select.phases(run) or not select.has_kind(run, "kernel") or not run.has("dur")):
        return Answer(pl.DataFrame(), missing=missing(VIEW, runs))
    rows, notes = training_table(run, look)
    if rows["total_ns"].null_count() == rows.height:
        notes.append(select.NOTHING)
    imported = [n.message for n in run.log.notices if n.id in _NOTICES]
    return Answer(rows, (*select.notes(run, look), *notes, *imported), key=("name",))


def draw(answer: Answer, look: Look, size: Size) -> list[Line]:
    """Draw part by part, each with the columns that it has; more lines than the pane are scrolled."""
    lines: list[Line] = []
    for part in PARTS if answer.rows.height else ():
        rows = answer.rows.filter(part=part)
        if rows.height:
            lines += [ink.line(), ink.line((_TITLES[part], "title")), *_part(rows, size)]
    return ink.clip(lines[1:], Size(size.width, len(lines), size.ascii))


def _part(rows: pl.DataFrame, size: Size) -> list[Line]:
    """Return figures as a table, and in words what has no figures."""
    figures = rows.filter(pl.any_horizontal(pl.col(*_FIGURES).is_not_null()))
    shown = figures.drop("part", "text")
    tones = _category.tones(shown, names=("name",))
    table = ink.table(shown, Size(size.width, shown.height + 1, size.ascii), _COLUMNS, tones=tones)
    texts = rows.filter(pl.col("text").is_not_null()).select("phase", "name", "text").rows()
    words = [f"{', '.join(filter(None, (phase, name)))}: {text}" for phase, name, text in texts]
    wrapped = (ln for word in words for ln in wrap(word, max(10, size.width), subsequent_indent="  "))
    return [*(table if shown.height else ()), *(ink.line((ln, "dim")) for ln in wrapped)]


VIEW: Final = View(
    "training",
    "Training",
    answer,
    draw,
    needs=frozenset({"phase:forward", "phase:backward|table:softmax"}),
    alone="it measures the whole steps of one run",
    columns=("part", *_COLUMNS, "text"),
    partly=True,
    row_key=("part", "phase", "name"),
)
