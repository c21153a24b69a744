"""What the screen shows as SVG that loads nothing: whoever looks at it has a monospaced font."""

import re
from typing import Any, Final

from textual.app import App

_WEB_FONTS: Final = re.compile(r"@font-face \{.*?\}", re.DOTALL)  # with addresses that a viewer would ask


def svg_of(app: App[Any]) -> str:
    """Return what an app shows now."""
    return _WEB_FONTS.sub("", app.export_screenshot(title="tracetui"), count=2)
