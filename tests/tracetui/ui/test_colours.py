"""The colours: what is written in them can be read, by WCAG's contrast, and none of them is needed."""

import math
from collections.abc import Sequence
from itertools import combinations

import polars as pl
import pytest
from rich.color import Color
from rich.style import Style

from capture.native.schema import CATEGORIES
from capture.run import Run
from tests.tracetui.runs import made
from tracetui.look import Look
from tracetui.ui.terminal.theme import NAMES, build_palette
from tracetui.views import ask, ink, load_view
from tracetui.views._grid import MIN_NUMBER_CELLS, draw_change, draw_change_legend
from tracetui.views.compare import draw_legend as row_legend
from tracetui.views.compare import select_cell_styles
from tracetui.views.ink import STYLES, DrawSize
from tracetui.views.layers import BOUNDS_PCT

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
    styles = build_palette(NAMES[theme])
    weak = {name: contrast(styles[""] + styles[name]) for name in styles}
    assert {name: round(value, 2) for name, value in weak.items() if value < READABLE} == {}


@pytest.mark.parametrize("theme", sorted(NAMES))
def test_each_category_has_a_colour_of_its_own(theme: str) -> None:
    styles = build_palette(NAMES[theme])
    assert set(SHOWN) <= set(CATEGORIES)
    assert len({str(styles[f"cat_{category}"]) for category in SHOWN}) == len(SHOWN)


def layered(times: list[int]) -> list[ink.Line]:
    """The heat map of one op, which takes so many ns in layer 0, 1 …"""
    rows = [
        {"kind": "kernel", "name": "gemv", "op": "mlp.down", "dur": d, "layer": n}
        for n, d in enumerate(times)
    ]
    shown, look = load_view("layers"), Look(cursor=(0, 0))
    assert shown.draw is not None
    return shown.draw(ask(shown, [made(rows)], look), look, DrawSize(80, 20))


def test_a_cell_of_the_heat_map_is_its_colour_and_says_how_far_from_the_median_it_is() -> None:
    lines = layered([1000, 1000, 1050, 1120, 1300, 2100, 1000, 700])
    cells = [line[2] for line in lines[1:9]]  # after name and total
    texts = [cell.text.rstrip("! ").strip() for cell in cells]
    # the median of the eight is 1025
    assert texts == ["·", "·", "·", "·", "+27%", "+105%", "·", "-32%"]
    assert [cell.style for cell in cells[1:]] == ["level"] * 3 + ["rise2", "rise3", "level", "fall2"]
    assert not any("█" in cell.text for cell in cells)


def test_noise_has_no_colour_however_little_else_there_is() -> None:
    cells = [line[2] for line in layered([100, 103, 97, 106, 94, 100])[1:7]]
    assert {cell.style for cell in cells[1:]} == {"level"}


def test_the_legend_names_each_colour_with_its_sign() -> None:
    legend = next(line for line in layered([100, 300]) if any(span.style == "rise3" for span in line[1:]))
    actual = {span.style: span.text.split() for span in legend if span.text.strip()}
    assert actual["level"] == ["·", "median"]
    assert [actual[f"rise{n}"] for n in (1, 2, 3)] == [
        ["▲" * n, f"+{bound:.0f}%"] for n, bound in enumerate(BOUNDS_PCT, 1)
    ]


@pytest.mark.parametrize("ascii", [False, True])
def test_each_cell_of_a_heat_map_says_without_colour_how_far_it_is(ascii: bool) -> None:
    """As wide as two cells or as ten: another sign, or another number, for each strength and direction."""
    for wide in range(2, 11):
        texts = [
            draw_change(percent, wide, BOUNDS_PCT, BOUNDS_PCT[0], ascii=ascii).text
            for percent in (-30, -12, 0, 12, 30, 130)
        ]
        assert len(set(texts)) == 6 and {len(text) for text in texts} == {wide}
        assert ascii <= all(text.isascii() for text in texts)
        if wide < MIN_NUMBER_CELLS:
            actual = " ".join(
                span.text for span in draw_change_legend(BOUNDS_PCT, "median", wide, DrawSize(80, 20, ascii))
            )
            assert all(text.strip() in actual.split() for text in texts)


def test_a_row_of_runs_that_differ_by_noise_has_no_colour() -> None:
    """Where the ramp went from the least to the largest of a row, 11 % were as hot as a tenfold time."""
    rows = pl.DataFrame(
        {"row": ["k"], "a_ns": [100], "b_ns": [104], "c_ns": [109], "d_ns": [130], "e_ns": [40]}
    )
    styles = [style for (style,) in select_cell_styles(rows).values()]
    assert styles == ["", "", "", "rise2", "fall2"]  # the median is 104
    actual = {span.style: span.text.strip() for span in row_legend(rows)}
    assert (actual["rise1"], actual["rise2"], actual["rise3"], actual["fall2"]) == (
        "+10%",
        "+25%",
        "+100%",
        "-25%",
    )


XTERM = [
    "#000000",
    "#cd0000",
    "#00cd00",
    "#cdcd00",
    "#0000ee",
    "#cd00cd",
    "#00cdcd",
    "#e5e5e5",
    "#7f7f7f",
    "#ff0000",
    "#00ff00",
    "#ffff00",
    "#5c5cff",
    "#ff00ff",
    "#00ffff",
    "#ffffff",
]


def as_xterm(style: Style) -> Style:
    """A style of sixteen colours with those of xterm, on black; what is dim has two thirds of its light."""
    front, back = (
        XTERM[c.number] if c is not None and c.number is not None else default
        for c, default in ((style.color, XTERM[7]), (style.bgcolor, XTERM[0]))
    )
    front, back = (back, front) if style.reverse else (front, back)
    if style.dim:
        front = "#" + "".join(f"{int(front[i : i + 2], 16) * 2 // 3:02x}" for i in (1, 3, 5))
    return Style.parse(f"{front} on {back}")


def test_sixteen_colours_can_be_read_too() -> None:
    styles = {name: as_xterm(style) for name, style in build_palette(NAMES["ansi"]).items()}
    weak = {name: round(contrast(s), 2) for name, s in styles.items() if contrast(s) < READABLE}
    assert weak == {}


def test_every_style_of_a_drawing_has_a_colour_in_every_theme() -> None:
    for theme in NAMES.values():
        assert set(STYLES) <= set(build_palette(theme))


def test_a_category_has_its_colour_in_the_summary_too() -> None:
    rows = [{"kind": "kernel", "name": c, "category": c, "dur": 10} for c in ("matmul", "attention", "moe")]
    shown = load_view("summary")
    assert shown.draw is not None
    lines = shown.draw(ask(shown, [made(rows)], Look()), Look(), DrawSize(80, 40))
    at = next(i for i, line in enumerate(lines) if line and line[0].text == "time by category")
    actual = {line[0].text.strip(): line[2].style for line in lines[at + 1 : at + 4]}
    assert actual == {c: f"cat_{c}" for c in ("matmul", "attention", "moe")}


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
    styles = build_palette(NAMES[theme])
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


CATEGORISED = ("matmul", "attention", "moe")
PAINTED = {c: f"cat_{c}" for c in CATEGORISED}


def categorised(slower: float = 1.0) -> Run:
    """A run of a kernel and an op of three categories each, over steps and layers, with work and scopes."""
    rows = [
        {"kind": "kernel", "name": f"k_{c}", "category": c, "op": f"o.{c}", "step": s, "phase": "decode",
         "dur": int((90 + s + 9 * i) * slower), "t": (s * 9 + layer * 3 + i) * 1000, "layer": layer,
         "path": f"step / k_{c}", "shape": f"m=1 n={i}", "flops": 1e6 * (1 + i), "bytes": 1e3}
        for s in range(12) for layer in (0, 1) for i, c in enumerate(CATEGORISED)
    ]  # fmt: skip
    steps = [
        {
            "kind": "step",
            "name": "step",
            "step": s,
            "t": s * 9000,
            "dur": 9000,
            "tokens": 1,
            "phase": "decode",
        }
        for s in range(12)
    ]
    return made([*rows, *steps])


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("kernels", "name"),
        ("tree", "scope"),
        ("shapes", "shape"),
        ("fix", "op"),
        ("calls", "scope"),
        ("diff", "name"),
        ("compare", "row"),
        ("sides", "name"),
    ],
)
def test_a_category_has_its_colour_in_the_tables_too(name: str, label: str) -> None:
    look = Look(focus=(("scope", "step"),)) if name == "calls" else Look()
    answer = ask(load_view(name), [categorised(), categorised(1.5)], look)
    dress = answer.table_style or load_view(name).table_style
    assert dress is not None and dress.legend is not None
    shown = dict(zip(answer.rows[label], dress.cell_styles(answer.rows)[label], strict=True))
    actual = {
        key.strip().rpartition("_")[2].rpartition(".")[2]: style for key, style in shown.items() if style
    }
    if name == "shapes":
        actual = {CATEGORISED[int(key.rpartition("=")[2])]: style for key, style in actual.items()}
    assert actual == PAINTED
    legend = {span.text.strip(): span.style for span in dress.legend(answer.rows)}
    assert PAINTED.items() <= legend.items()


def drawing(name: str) -> list[ink.Line]:
    """The drawing of a view of the categorised runs, with the cursor on none of its rows."""
    shown, look = load_view(name), Look(cursor=(9, 9))
    answer = ask(shown, [categorised(), categorised(1.5)], look)
    assert shown.draw is not None
    return shown.draw(answer, look, DrawSize(100, 40))


@pytest.mark.parametrize("name", ["growth", "layers", "roofline", "curves", "shifts", "waterfall"])
def test_a_category_has_its_colour_in_the_drawings_too(name: str) -> None:
    spans = [span for line in drawing(name) for span in line if span.style.startswith("cat_")]
    actual = [(span.text.strip().removeprefix("o."), span.style) for span in spans]
    for c in CATEGORISED:  # beside its op, and in the legend
        assert [style for text, style in actual if text == c][:2] == [f"cat_{c}"] * 2
    assert all(style == f"cat_{text}" for text, style in actual if text in CATEGORISED)


@pytest.mark.parametrize("name", ["summary", "now"])
def test_a_category_has_its_colour_in_bars_too(name: str) -> None:
    lines = [line for line in drawing(name) if all(span.style != "cursor" for span in line)]
    bars = [(ink.format_plain([line]), {s.style for s in line if "█" in s.text}) for line in lines]
    actual = {c: styles for c in CATEGORISED for text, styles in bars if f"k_{c} " in text and styles}
    assert len(actual) >= 2 and actual == {c: {f"cat_{c}"} for c in actual}


@pytest.mark.parametrize("category", CATEGORISED)
def test_what_is_of_one_category_has_its_colour_in_the_detail(category: str) -> None:
    shown, look = load_view("detail"), Look(focus=(("op", f"o.{category}"),))
    assert shown.draw is not None
    lines = shown.draw(ask(shown, [categorised()], look), look, DrawSize(100, 40))
    bars = {span.style for line in lines for span in line if "█" in span.text}
    curve = {span.style for line in lines for span in line if "━━" in span.text}
    assert bars == curve == {f"cat_{category}"}
    mixed = shown.draw(ask(shown, [categorised()], Look()), Look(), DrawSize(100, 40))
    assert {span.style for line in mixed for span in line if "█" in span.text} == {"series0"}


def test_what_is_printed_has_no_legend_of_colours() -> None:
    shown = load_view("layers")
    assert shown.draw is not None
    answer = ask(shown, [categorised()], Look())
    for seen in (True, False):
        drawn = shown.draw(answer, Look(), DrawSize(100, 40, colours=seen))
        assert seen == any("colours:" in ink.format_plain([line]) for line in drawn)


def test_nothing_is_told_of_colours_where_there_is_one_category_or_none() -> None:
    for category in ("matmul", None):
        row = {"kind": "kernel", "name": "k", "category": category, "dur": 10}
        answer = ask(load_view("kernels"), [made([row])], Look())
        dress = load_view("kernels").table_style
        assert dress is not None and dress.legend is not None and dress.legend(answer.rows) == ()
