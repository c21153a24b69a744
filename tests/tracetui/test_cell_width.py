"""Widths in terminal cells: cut and padded texts, and printed tables with CJK characters and emoji."""

import pytest
from pyte.screens import wcwidth  # type: ignore[attr-defined]  # a terminal's own measure

from tests.tracetui.ui.hand import decode
from tracetui.glyphs import clip_cells, count_cells, fit_cells, fit_code_line
from tracetui.look import Look
from tracetui.report_formats import format_report
from tracetui.views import load_view

NAMES = ("gemm_down", "カーネル_行列積", "注意力", "e\u0301te\u0301_norm", "sampler_👍🏽_👨‍👩‍👧_end")


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("ascii", 5), ("é", 1), ("e\u0301", 1), ("日本", 4), ("ﾊﾝｶｸ", 4), ("…", 1), ("👍", 2),
        ("👍🏽", 2), ("👨‍👩‍👧", 2), ("❤️", 2), ("", 0),
    ],
)  # fmt: skip
def test_count_cells_measures_as_terminals_do(text: str, cells: int) -> None:
    assert count_cells(text) == cells
    if len(text) == 1:
        assert wcwidth(text) == cells


@pytest.mark.parametrize("name", [*NAMES, "x" * 5000, "長" * 5000])
@pytest.mark.parametrize("right", [False, True])
def test_fit_cells_fills_the_width_exactly(name: str, right: bool) -> None:
    for width in range(30):
        assert count_cells(fit_cells(name, width, right=right)) == width
        assert count_cells(clip_cells(name, width)) <= width
    text = fit_cells(name, 7, ascii=True)
    assert "…" not in text and ("~" in text or count_cells(name) <= 7)


@pytest.mark.parametrize("cut", [False, True])
def test_printed_table_keeps_columns_straight_with_wide_names(cut: bool) -> None:
    text = format_report(load_view("kernels"), [decode(names=NAMES)], Look(), "table", width=90, cut=cut)
    rows = [line for line in text.splitlines() if line and not line.startswith("note:")]
    heading = next(i for i, line in enumerate(rows) if "total" in line)
    end = rows[heading].index("total") + len("total")  # numbers end below the end of their heading
    values = [clip_cells(row, end) for row in rows[heading + 1 : heading + 1 + len(NAMES)]]
    assert len(values) == len(NAMES) and all(count_cells(value) == end for value in values)
    assert all(value[-1] != " " and row[len(value) : len(value) + 1] in ("", " ")
               for value, row in zip(values, rows[heading + 1 :], strict=False))  # fmt: skip


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (40, "vllm/layers/moe.py(269): fused_experts  "), (38, "vllm/layers/moe.py(269): fused_experts"),
        (30, "vllm/layers/moe.py(269): fuse…"), (24, "vllm/layers/moe.py(269)…"),
        (23, "vllm/layers/moe.py(269)"), (12, "…moe.py(269)"), (0, ""),
    ],
)  # fmt: skip
def test_fit_code_line_keeps_the_file_and_the_line(width: int, text: str) -> None:
    assert fit_code_line("vllm/layers/moe.py(269): fused_experts", width) == text
