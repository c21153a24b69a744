"""Training: phases of a step, their kernels, matrix products and the rest, softmax against attention."""

from collections.abc import Sequence
from textwrap import wrap
from typing import Final

import polars as pl

from capture.run import Run
from tracetui.analysis.frames import selection
from tracetui.analysis.training import PARTS, compute_training_table, has_training_phases
from tracetui.look import Look
from tracetui.views import Answer, View, _category, find_missing_needs, ink
from tracetui.views.ink import DrawSize, Line

_TITLES: Final = {
    "time": "time of each phase and of the step",
    "top": "top kernels of each phase",
    "others": "other than matrix products",
    "matmul": "matrix products in the forward pass and in the whole step",
    "attention": "softmax against attention's products and its output projection, forward",
    "owners": "backward time by forward module",
    "memory": "peak memory of each phase",
}
_COLUMNS: Final = (
    "name", "phase", "total_ns", "bytes", "share", "time_ratio", "flop_ratio", "flops", "mean_ns", "count",
    "category",
)  # fmt: skip
_NUMBER_COLUMNS: Final = ("total_ns", "share", "time_ratio", "bytes")
# Notices of the import that explain these rows.
_NOTICES: Final = ("backward_other_thread", "backward_owners", "backward_strangers", "nvtx_lent", "names_cut")


def answer(runs: Sequence[Run], look: Look) -> Answer:
    """Return one row per figure of each part of the report."""
    run = runs[0]
    if not has_training_phases(run) and (
        selection.list_phases(run) or not selection.has_kind(run, "kernel") or not run.has("dur")
    ):
        return Answer(pl.DataFrame(), missing=find_missing_needs(VIEW, runs))
    rows, notes = compute_training_table(run, look)
    if rows["total_ns"].null_count() == rows.height:
        notes.append(selection.NO_MATCH)
    imported = [n.message for n in run.log.notices if n.id in _NOTICES]
    return Answer(rows, (*selection.note_selection(run, look), *notes, *imported), key=("name",))


def draw(answer: Answer, look: Look, size: DrawSize) -> list[Line]:
    """Draw part by part, each with the columns it has; the rest is scrolled to."""
    lines: list[Line] = []
    for part in PARTS if answer.rows.height else ():
        rows = answer.rows.filter(part=part)
        if rows.height:
            lines += [ink.make_line(), ink.make_line((_TITLES[part], "title")), *_draw_part(rows, size)]
    return ink.clip_lines(lines[1:], size.with_height(len(lines)))


def _draw_part(rows: pl.DataFrame, size: DrawSize) -> list[Line]:
    figures = rows.filter(pl.any_horizontal(pl.col(*_NUMBER_COLUMNS).is_not_null()))
    figures_only = figures.drop("part", "text")
    tones = _category.select_cell_styles(figures_only, names=("name",))
    table = ink.draw_table(figures_only, size.with_height(figures_only.height + 1), _COLUMNS, styles=tones)
    texts = rows.filter(pl.col("text").is_not_null()).select("phase", "name", "text").rows()
    sentences = [f"{', '.join(filter(None, (phase, name)))}: {text}" for phase, name, text in texts]
    wrapped = (ln for word in sentences for ln in wrap(word, max(10, size.width), subsequent_indent="  "))
    return [*(table if figures_only.height else ()), *(ink.make_line((ln, "dim")) for ln in wrapped)]


VIEW: Final = View(
    "training",
    "Training",
    answer,
    draw,
    needs=frozenset({"phase:forward", "phase:backward|table:softmax"}),
    not_merged_because="it measures the whole steps of one run",
    columns=("part", *_COLUMNS, "text"),
    answers_partly=True,
    row_key=("part", "phase", "name"),
)
