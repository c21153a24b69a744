"""Pieces of a drawing: widths, scales, and that nothing rests on colour or on Unicode alone."""

import itertools
import random
import subprocess
import sys

import polars as pl
import pytest

from tests.conftest import FIXTURES
from tracetui import glyphs, units
from tracetui.glyphs import count_cells, fit_cells
from tracetui.views import charts, ink
from tracetui.views.ink import DrawSize, Line


def widths(lines: list[Line]) -> set[int]:
    return {count_cells("".join(s.text for s in ln)) for ln in lines}


@pytest.mark.parametrize("text", ["matmul", "a" * 300, "注意力内核", "ééé", "mixed 注意 text", ""])
@pytest.mark.parametrize("width", [1, 2, 5, 12, 40])
def test_a_fitted_text_fills_its_cells(text: str, width: int) -> None:
    assert count_cells(fit_cells(text, width)) == width
    assert count_cells(fit_cells(text, width, right=True, ascii=True)) == width


def test_a_long_name_keeps_both_ends() -> None:
    assert fit_cells("sm80_xmma_gemm_f32f32_cublas", 11) == "sm80_…ublas"
    assert fit_cells("abcdef", 4, ascii=True) == "ab~f"


def test_a_sparkline_is_scaled_to_its_largest() -> None:
    assert glyphs.draw_sparkline([0, 1, 2, 4, 8, None, 8], 7) == "▁▂▃▅█ █"  # eighths of the largest
    assert (
        glyphs.draw_sparkline([1, 1, 3, 3], 2, ascii=True) == glyphs.ASCII_BLOCKS[2] + glyphs.ASCII_BLOCKS[7]
    )


def test_thinning_keeps_the_spike_and_its_place() -> None:
    points = [(float(x), 1.0) for x in range(10_000)]
    points[7777] = (7777.0, 99.0)
    points[123] = (123.0, -5.0)
    thin = charts.thin_points(points, 160)
    assert len(thin) <= 160 and (7777.0, 99.0) in thin and (123.0, -5.0) in thin
    assert [x for x, _ in thin] == sorted(x for x, _ in thin)
    assert charts.thin_points(points[:100], 160) == points[:100]


@pytest.mark.parametrize(
    "size", [DrawSize(80, 12), DrawSize(40, 8), DrawSize(130, 20), DrawSize(60, 10, ascii=True)]
)
def test_a_chart_fills_its_size_and_tells_its_series_apart(size: DrawSize) -> None:
    series = {"rising": [(x, 2.0 * x) for x in range(50)], "flat": [(x, 30.0) for x in range(50)]}
    lines = charts.draw_chart(series, size, x_label="context", y_text=units.format_duration)
    assert len(lines) == size.height
    assert max(widths(lines[1:])) == size.width
    styles = {s.style for ln in lines[1:] for s in ln}
    assert {"series0", "series1"} <= styles and styles <= set(ink.STYLES)
    text = ink.format_plain(lines)
    assert "rising" in text and "98 ns" in text and "context" in text and "\x1b" not in text
    assert text.isascii() == size.ascii


def test_a_chart_of_one_value_or_of_nothing_is_no_error() -> None:
    assert charts.draw_chart({}, DrawSize(80, 20)) == []
    assert charts.draw_chart({"a": []}, DrawSize(80, 20)) == []
    assert charts.draw_chart({"a": [(0.0, 0.0)]}, DrawSize(80, 20))
    assert charts.draw_chart({"a": [(0.0, 1.0)]}, DrawSize(10, 3)) == []


def test_a_chart_prints_nothing_beside_itself(capfd: pytest.CaptureFixture[str]) -> None:
    """Places that no float tells apart, of which plotext prints a warning of its own."""
    assert charts.draw_chart({"a": [(1e17, 1.0), (1e17, 2.0)]}, DrawSize(80, 20))
    assert capfd.readouterr() == ("", "")


def test_charts_start_plotext_only_when_drawn() -> None:
    profile = str(FIXTURES / "native" / "flat.jsonl")
    code = (
        "import sys; from tracetui.cli import main\n"
        f"main(['report', 'kernels', {profile!r}, '--format', 'json', '--no-cache'])\n"
        "print('plotext' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.endswith("False\n")


def test_a_table_shows_what_fits_and_keeps_the_cursor_in_sight() -> None:
    rows = pl.DataFrame(
        {"name": [f"kernel {i}" for i in range(100)], "total_ns": range(100), "empty": [None] * 100}
    )
    lines = ink.draw_table(rows, DrawSize(30, 11), ("name", "total_ns", "empty"), cursor=60)
    assert len(lines) == 11
    assert ink.format_plain(lines[:1]).split() == ["name", "total"]
    (marked,) = [ln for ln in lines if ln[0].style == "cursor"]
    assert "kernel 60" in marked[0].text and "60 ns" in marked[0].text
    narrow = ink.draw_table(rows, DrawSize(12, 5), ("name", "total_ns"))
    assert ink.format_plain(narrow[:1]).split() == ["name"]


def test_bars_are_as_long_as_their_share_of_the_largest() -> None:
    lines = ink.draw_bars([4, 2, 0], ["a", "b", "c"], DrawSize(41, 9))
    assert ["".join(s.text for s in ln).count("█") for ln in lines] == [20, 10, 0]
    assert "66.7%" in ink.format_plain(lines[:1])


def test_a_sparkline_shows_shape_where_values_differ_little_and_a_line_where_only_noise_is() -> None:
    rising = [100.0 + 0.5 * i for i in range(16)]  # by 7.5 %
    assert "".join(dict.fromkeys(glyphs.draw_sparkline(rising, 16))) == "▄▅▆▇█"
    stepped = [100.0] * 8 + [106.0] * 8
    assert glyphs.draw_sparkline(stepped, 16) == glyphs.draw_sparkline(stepped, 16)[:1] * 8 + "█" * 8
    rng = random.Random(3)
    noise = [[rng.gauss(100, 2) for _ in range(16)] for _ in range(200)]
    assert sum(glyphs.draw_sparkline(values, 16) == "─" * 16 for values in noise) >= 190
    spiked = [*noise[0][:7], 900.0, *noise[0][8:]]
    assert glyphs.draw_sparkline(spiked, 16) == "─" * 7 + "█" + "─" * 8
    wild = [rng.choice([10.0, 100.0]) for _ in range(16)]
    assert set(glyphs.draw_sparkline(wild, 16)) == {"▁", "█"}, "a large scatter is no flat line"
    assert glyphs.draw_sparkline([5.0], 16) == "" and glyphs.draw_sparkline([0.0, 0.0], 16) == "──"


def test_a_course_stays_where_it_is_while_it_grows() -> None:
    """Sixteen cells: 17 to 32 values are drawn in pairs, 33 to 64 by four; what was drawn stays."""
    values = [float(v) for v in (1, 3, 5, 7, 8, 8, 6, 2) * 8]
    drawn = [glyphs.draw_stable_sparkline(values[:n], 16) for n in range(17, 65)]
    assert [len(text) for text in drawn[:4]] == [9, 9, 10, 10] and len(drawn[-1]) == 16
    for before, after in itertools.pairwise(drawn):
        if len(after) >= len(before):
            assert after[: len(before) - 1] == before[:-1]
    assert glyphs.draw_stable_sparkline([2.0, 6.0, 4.0], 2) == glyphs.draw_sparkline([4.0, 4.0], 2) == "──"


def test_a_course_with_one_value_far_out_is_not_flat() -> None:
    calm = [4.0, 5, 6, 7, 8, 7, 6, 5]
    assert glyphs.draw_stable_sparkline([90.0, *calm], 16) == glyphs.draw_sparkline([8.0, *calm], 16)
    steep = [1.0, 1, 1, 1, 10, 10]  # here they are too many to be left out
    assert glyphs.draw_stable_sparkline(steep, 16) == glyphs.draw_sparkline(steep, 16)
