"""Render the screen's SVG as PNG with the fonts of this machine, without a browser."""

from importlib.util import find_spec
from typing import Any, Final

from capture.errors import UsageError

# Fonts with block and box characters, the most complete first.
FONT_FAMILIES: Final = (
    "DejaVu Sans Mono", "Menlo", "Cascadia Mono", "Noto Sans Mono", "Liberation Mono", "Consolas",
    "Courier New",
)  # fmt: skip
PIXELS_PER_POINT: Final = 1.5  # pixels per unit of the SVG: sharp on dense displays
_PROBE: Final = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40">{}</svg>'
_LETTER: Final = '<text x="5" y="30" font-size="30" font-family="monospace">M</text>'


def has_png_library() -> bool:
    """Return whether the library that draws PNG files is installed."""
    return find_spec("resvg_py") is not None


def render_png(svg: str) -> bytes:
    """Render an SVG of the screen as PNG; raise UsageError if the library or a font is missing."""
    try:
        import resvg_py
    except ImportError:
        raise UsageError("cannot draw a PNG", todo='pip install "tracetui[png]", or write .svg') from None
    font = _find_font(resvg_py)
    options = {"monospace_family": font, "font_family": font, "zoom": PIXELS_PER_POINT}
    return bytes(resvg_py.svg_to_bytes(svg_string=svg, **options))


def _find_font(resvg: Any) -> str:
    """Return the first of FONT_FAMILIES that draws a letter here; raise UsageError if none does."""
    blank = bytes(resvg.svg_to_bytes(svg_string=_PROBE.format("")))
    for family in FONT_FAMILIES:
        probe = resvg.svg_to_bytes(svg_string=_PROBE.format(_LETTER), monospace_family=family)
        if bytes(probe) != blank:
            return family
    todo = f"install {FONT_FAMILIES[0]}, or write .svg"
    raise UsageError("cannot draw a PNG: no monospaced font found", todo=todo)
