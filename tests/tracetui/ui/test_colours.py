"""The colours: what is written in them can be read, by WCAG's contrast, and none of them is needed."""

import math
from collections.abc import Sequence
from itertools import combinations

import pytest
from rich.color import Color
from rich.style import Style

from capture.native.schema import CATEGORIES
from tests.tracetui.runs import made
from tracetui.look import Look
from tracetui.ui.terminal.theme import NAMES, palette
from tracetui.views import ask, ink, view
from tracetui.views.ink import STYLES, Size
from tracetui.views.layers import BOUNDS

READABLE = 4.5  # WCAG 2.2, 1.4.3
SHOWN = ("matmul", "attention", "norm", "copy", "comm", "moe", "wait")


def luminance(colour: Color) -> float:
    """WCAG's relative luminance."""
    parts = [part / 255 for part in colour.get_truecolor()]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(style: Style) -> float:
    assert style.color is not None and style.bgcolor is not None
    dark, light = sorted((luminance(style.color), luminance(style.bgcolor)))
    return (light + 0.05) / (dark + 0.05)


def test_the_measure_is_that_of_the_standard() -> None:
    """Black on white has 21, a colour on itself 1, and #767676 on white is the palest grey that passes."""
    assert contrast(Style.parse("#000000 on #ffffff")) == pytest.approx(21)
    assert contrast(Style.parse("#123456 on #123456")) == 1
    assert (
        contrast(Style.parse("#777777 on #ffffff")) < READABLE < contrast(Style.parse("#767676 on #ffffff"))
    )


@pytest.mark.parametrize("theme", ["dark", "light", "colour-blind"])
def test_all_that_is_written_can_be_read(theme: str) -> None:
    styles = palette(NAMES[theme])
    weak = {name: contrast(styles[""] + styles[name]) for name in styles}
    assert {name: round(value, 2) for name, value in weak.items() if value < READABLE} == {}


@pytest.mark.parametrize("theme", sorted(NAMES))
def test_each_category_has_a_colour_of_its_own(theme: str) -> None:
    styles = palette(NAMES[theme])
    assert set(SHOWN) <= set(CATEGORIES)
    assert len({str(styles[f"cat_{category}"]) for category in SHOWN}) == len(SHOWN)


def layered(times: list[int]) -> list[ink.Line]:
    """The heat map of one op, which takes so many ns in layer 0, 1 …"""
    rows = [
        {"kind": "kernel", "name": "gemv", "op": "mlp.down", "dur": d, "layer": n}
        for n, d in enumerate(times)
    ]
    shown, look = view("layers"), Look(cursor=(0, 0))
    assert shown.draw is not None
    return shown.draw(ask(shown, [made(rows)], look), look, Size(80, 20))


def test_a_cell_of_the_heat_map_is_its_colour_and_says_how_far_from_the_median_it_is() -> None:
    lines = layered([100, 100, 105, 112, 130, 210, 100, 70])
    cells = [line[1] for line in lines[1:9]]
    texts = [cell.text.rstrip("! ").strip() for cell in cells]
    # the median of the eight is 102.5
    assert texts == ["·", "·", "·", "·", "+27%", "+105%", "·", "-32%"]
    assert [cell.style for cell in cells[1:]] == ["level"] * 3 + ["rise2", "rise3", "level", "fall2"]
    assert not any("█" in cell.text for cell in cells)


def test_noise_has_no_colour_however_little_else_there_is() -> None:
    cells = [line[1] for line in layered([100, 103, 97, 106, 94, 100])[1:7]]
    assert {cell.style for cell in cells[1:]} == {"level"}


def test_the_legend_names_each_colour_with_its_sign() -> None:
    legend = next(line for line in layered([100, 300]) if any(span.style == "rise3" for span in line[1:]))
    told = {span.style: span.text.split() for span in legend if span.text.strip()}
    assert told["level"] == ["·", "median"]
    assert [told[f"rise{n}"] for n in (1, 2, 3)] == [
        ["▲" * n, f"+{bound:.0f}%"] for n, bound in enumerate(BOUNDS, 1)
    ]


def test_every_style_of_a_drawing_has_a_colour_in_every_theme() -> None:
    for theme in NAMES.values():
        assert set(STYLES) <= set(palette(theme))


def test_a_category_has_its_colour_in_the_summary_too() -> None:
    rows = [{"kind": "kernel", "name": c, "category": c, "dur": 10} for c in ("matmul", "attention", "moe")]
    shown = view("summary")
    assert shown.draw is not None
    lines = shown.draw(ask(shown, [made(rows)], Look()), Look(), Size(80, 40))
    at = next(i for i, line in enumerate(lines) if line and line[0].text == "time by category")
    told = {line[0].text.strip(): line[2].style for line in lines[at + 1 : at + 4]}
    assert told == {c: f"cat_{c}" for c in ("matmul", "attention", "moe")}


# Severe forms in linear RGB, by Machado, Oliveira and Fernandes 2009, table of severity 1.0.
BLINDNESS = {
    "protanopia": (
        (0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900),
    ),
}  # fmt: skip
TOLD_APART = 25.0  # CIE76; 2.3 is just noticed side by side


def lab(colour: Color, matrix: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """CIELAB of a colour as it is seen through a matrix in linear RGB; white is D65."""
    parts = [part / 255 for part in colour.get_truecolor()]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    red, green, blue = (
        min(1.0, max(0.0, sum(m * v for m, v in zip(row, linear, strict=True)))) for row in matrix
    )
    x = (0.4124564 * red + 0.3575761 * green + 0.1804375 * blue) / 0.95047
    y = 0.2126729 * red + 0.7151522 * green + 0.0721750 * blue
    z = (0.0193339 * red + 0.1191920 * green + 0.9503041 * blue) / 1.08883
    f, g, h = (v ** (1 / 3) if v > 216 / 24389 else (24389 / 27 * v + 16) / 116 for v in (x, y, z))
    return 116 * g - 16, 500 * (f - g), 200 * (g - h)


def closest(theme: str, matrix: Sequence[Sequence[float]]) -> float:
    """How far the two categories are apart that look most alike."""
    styles = palette(NAMES[theme])
    seen = [lab(colour, matrix) for c in SHOWN if (colour := styles[f"cat_{c}"].color) is not None]
    assert len(seen) == len(SHOWN)
    return min(math.dist(a, b) for a, b in combinations(seen, 2))


def test_the_measure_of_colours_is_that_of_the_standard() -> None:
    plain = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    assert lab(Color.parse("#ffffff"), plain) == pytest.approx((100, 0, 0), abs=0.02)
    assert lab(Color.parse("#ff0000"), plain) == pytest.approx((53.24, 80.09, 67.20), abs=0.02)
    red, green = (lab(Color.parse(c), BLINDNESS["deuteranopia"]) for c in ("#b05050", "#6b7a3a"))
    assert (
        math.dist(red, green) < math.dist(*(lab(Color.parse(c), plain) for c in ("#b05050", "#6b7a3a"))) / 3
    )


@pytest.mark.parametrize("kind", sorted(BLINDNESS))
def test_whoever_is_colour_blind_tells_the_categories_apart(kind: str) -> None:
    assert closest("colour-blind", BLINDNESS[kind]) >= TOLD_APART


def test_a_category_has_its_colour_in_the_tables_too() -> None:
    rows = [
        {"kind": "kernel", "name": f"k_{c}", "category": c, "op": c, "dur": 10, "path": f"step / k_{c}"}
        for c in ("matmul", "attention", "moe")
    ]
    for name, label in (("kernels", "name"), ("tree", "scope")):
        answer = ask(view(name), [made(rows)], Look())
        dress = answer.dress or view(name).dress
        assert dress is not None and dress.legend is not None
        shown = dict(zip(answer.rows[label], dress.tones(answer.rows)[label], strict=True))
        told = {key.strip(): style for key, style in shown.items() if style}
        assert told == {f"k_{c}": f"cat_{c}" for c in ("matmul", "attention", "moe")}
        legend = {span.text.strip(): span.style for span in dress.legend(answer.rows)[1:]}
        assert legend == {c: f"cat_{c}" for c in ("matmul", "attention", "moe")}


def test_nothing_is_told_of_colours_where_there_is_one_category_or_none() -> None:
    for category in ("matmul", None):
        row = {"kind": "kernel", "name": "k", "category": category, "dur": 10}
        answer = ask(view("kernels"), [made([row])], Look())
        dress = view("kernels").dress
        assert dress is not None and dress.legend is not None and dress.legend(answer.rows) == ()
