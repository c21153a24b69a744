"""Palettes: the colour of each style name, and the Textual themes that go with them.

Good is blue and bad is orange, which everybody can distinguish; views add a sign to both.
"""

from collections.abc import Mapping
from typing import Final

from rich.style import Style
from textual.theme import Theme

from tracetui.views.ink import ANSI_STYLES, STYLES

DARK_SHADES: Final = ("#14344d", "#134b6b", "#17628a", "#3187a8")
LIGHT_SHADES: Final = ("#d4e4ee", "#b5d3e4", "#8fbfd8", "#66a8c9")
SERIES: Final = ("#56b4e9", "#e69f00", "#2fbf8f", "#cc79a7", "#f0e442", "#d98356")
LIGHT_SERIES: Final = ("#0072b2", "#b35900", "#00785a", "#9c3f76", "#7a6a00", "#a33b12")
CATEGORY: Final = {
    "matmul": "#56b4e9", "attention": "#e69f00", "norm": "#2fbf8f", "elementwise": "#cc79a7",
    "softmax": "#d98356", "reduce": "#a897e0", "conv": "#49a8a8", "moe": "#f0e442", "ssm": "#93cf55",
    "sampling": "#ff9da7", "quantize": "#b3886b", "copy": "#94a3b3", "comm": "#e8635f", "wait": "#7a8895",
    "host": "#938a6c", "other": "#b9b3a9",
}  # fmt: skip
LIGHT_CATEGORY: Final = {
    "matmul": "#0072b2", "attention": "#b35900", "norm": "#00785a", "elementwise": "#9c3f76",
    "softmax": "#a33b12", "reduce": "#5d4aa8", "conv": "#1c6b6b", "moe": "#7a6a00", "ssm": "#466f12",
    "sampling": "#b03a54", "quantize": "#744d33", "copy": "#56636f", "comm": "#b3221e", "wait": "#66727c",
    "host": "#6a6248", "other": "#67625a",
}  # fmt: skip
# Distinct in lightness and hue: found by a search for the largest least distance under every colour vision.
BLIND_CATEGORY: Final = {
    **CATEGORY, "matmul": "#5388e6", "attention": "#bf8009", "norm": "#60ff8b", "copy": "#ffffff",
    "comm": "#d95256", "moe": "#f5d300", "wait": "#a5abb3",
}  # fmt: skip
BLIND_SHADES: Final = ("#23324f", "#33466b", "#55607a", "#83827c")


def _build_category_styles(colours: Mapping[str, str], text: str) -> dict[str, str]:
    """Return the styles of the categories, as foreground, and as background of text of a colour."""
    foreground = {f"cat_{category}": colour for category, colour in colours.items()}
    return foreground | {f"on_{category}": f"{text} on {colour}" for category, colour in colours.items()}


_DARK: Final = {
    "": "#d3d9e0 on #12161b", "dim": "#7f8b97", "bold": "bold", "title": "bold #ffffff",
    "name": "#e6edf3", "number": "#d3d9e0", "good": "#56b4e9", "bad": "#f0a04b", "warn": "bold #f0d97a",
    "accent": "#7cc4f0", "cursor": "#ffffff on #1f4e79", "bar": "#aab4be on #1c232b",
    "bar_on": "bold #ffffff on #1f4e79", "bar_warn": "bold #f0d97a on #1c232b",
    "head": "bold #9fb1c1 on #1c232b",
    **{f"shade{i}": f"{'#0b1116' if i > 3 else '#d3d9e0'} on {c}" for i, c in enumerate(DARK_SHADES, 1)},
    "fall3": "#0b1116 on #56b4e9", "fall2": "#e6edf3 on #2a6c99", "fall1": "#d3d9e0 on #1c3a50",
    "level": "#7f8b97 on #16202c", "rise1": "#d3d9e0 on #4a3420", "rise2": "#fff3e4 on #94602a",
    "rise3": "#0b1116 on #f0a04b",
    **{f"series{i}": c for i, c in enumerate(SERIES)},
    **_build_category_styles(CATEGORY, "#0b1116"),
}  # fmt: skip
_LIGHT: Final = {
    "": "#1f2429 on #fbfbf9", "dim": "#58616a", "bold": "bold", "title": "bold #000000",
    "name": "#101418", "number": "#1f2429", "good": "#0060a0", "bad": "#a84b00", "warn": "bold #8a5a00",
    "accent": "#00609a", "cursor": "#ffffff on #2b6ca3", "bar": "#3b444d on #e6e8e6",
    "bar_on": "bold #ffffff on #2b6ca3", "bar_warn": "bold #8a4b00 on #e6e8e6",
    "head": "bold #46525d on #e6e8e6",
    **{f"shade{i}": f"#1f2429 on {c}" for i, c in enumerate(LIGHT_SHADES, 1)},
    "fall3": "#ffffff on #0060a0", "fall2": "#101418 on #8fbfd8", "fall1": "#101418 on #d4e4ee",
    "level": "#646d76 on #f3f3f0", "rise1": "#101418 on #f3dfc6", "rise2": "#101418 on #e3ac6c",
    "rise3": "#ffffff on #a84b00",
    **{f"series{i}": c for i, c in enumerate(LIGHT_SERIES)},
    **_build_category_styles(LIGHT_CATEGORY, "#ffffff"),
}  # fmt: skip
_BLIND: Final = {
    **_DARK,
    **{f"shade{i}": f"{'#0b1116' if i > 3 else '#ffffff'} on {c}" for i, c in enumerate(BLIND_SHADES, 1)},
    **_build_category_styles(BLIND_CATEGORY, "#0b1116"),
}  # fmt: skip
PALETTES: Final[Mapping[str, Mapping[str, str]]] = {
    "tracetui-dark": _DARK, "tracetui-light": _LIGHT, "tracetui-colour-blind": _BLIND,
    "ansi-dark": ANSI_STYLES, "ansi-light": ANSI_STYLES,
}  # fmt: skip
NAMES: Final = {"dark": "tracetui-dark", "light": "tracetui-light", "ansi": "ansi-dark",
                "colour-blind": "tracetui-colour-blind"}  # fmt: skip
THEMES: Final = (
    Theme("tracetui-colour-blind", primary="#4f9dff", background="#12161b", surface="#12161b",
          panel="#1c232b", foreground="#d3d9e0", accent="#7cc4f0", warning="#f0d97a", error="#f0a04b"),
    Theme("tracetui-dark", primary="#56b4e9", background="#12161b", surface="#12161b", panel="#1c232b",
          foreground="#d3d9e0", accent="#7cc4f0", warning="#f0d97a", error="#f0a04b"),
    Theme("tracetui-light", primary="#0060a0", background="#fbfbf9", surface="#fbfbf9", panel="#e6e8e6",
          foreground="#1f2429", accent="#00609a", warning="#8a5a00", error="#a84b00", dark=False),
)  # fmt: skip


def choose_theme(requested: str | None, colours: bool) -> str:
    """Return the name of the theme at the start; without colours, the plain one."""
    return NAMES.get(requested or "dark", "tracetui-dark") if colours else "ansi-dark"


def build_palette(theme: str) -> dict[str, Style]:
    """Return the style of each style name."""
    words = PALETTES.get(theme, _DARK)
    return {name: Style.parse(words.get(name, "")) for name in (*STYLES, *words)}
