"""Pictures of points: an SVG of the screen drawn as PNG, with the fonts of this machine and no browser."""

from typing import Any, Final

from capture.errors import UsageError

# Fonts with the bars, boxes and dots of a screen, the fullest first.
FONTS: Final = (
    "DejaVu Sans Mono",
    "Menlo",
    "Cascadia Mono",
    "Noto Sans Mono",
    "Liberation Mono",
    "Consolas",
    "Courier New",
)
ZOOM: Final = 1.5  # points of the picture to one of the SVG: sharp on a dense screen
_PROBE: Final = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40">{}</svg>'
_LETTER: Final = '<text x="5" y="30" font-size="30" font-family="monospace">M</text>'


def png(svg: str) -> bytes:
    """Return a picture of the screen as PNG; raise UsageError without the library, or without a font."""
    try:
        import resvg_py
    except ImportError:
        raise UsageError("no PNG can be drawn", todo='pip install "tracetui[png]", or write .svg') from None
    options = {"monospace_family": _font(resvg_py), "font_family": _font(resvg_py), "zoom": ZOOM}
    return bytes(resvg_py.svg_to_bytes(svg_string=svg, **options))


def _font(resvg: Any) -> str:
    """Return the first of FONTS that draws a letter here; raise UsageError where none does."""
    blank = bytes(resvg.svg_to_bytes(svg_string=_PROBE.format("")))
    for family in FONTS:
        probe = resvg.svg_to_bytes(svg_string=_PROBE.format(_LETTER), monospace_family=family)
        if bytes(probe) != blank:
            return family
    todo = f"install {FONTS[0]}, or write .svg"
    raise UsageError("no PNG can be drawn: no monospaced font is here", todo=todo)
