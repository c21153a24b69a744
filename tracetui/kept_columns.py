"""Keep which columns of each view a person chose, in a small file: a view a line, readable and editable."""

from collections.abc import Mapping

from capture import places
from capture.atomic import whole_file
from capture.errors import CaptureError
from capture.text import clean

HEAD = """\
# Columns that were chosen on the screen by v, with a tab after the view and after each column.
# What [columns] of the config file says of a view goes before this.
"""


def kept() -> dict[str, tuple[str, ...]]:
    """Return the columns of each view in the file."""
    place = places.columns_file()
    try:
        text = place.read_text("utf-8", "replace") if place else ""
    except OSError:
        return {}
    lines = (clean(line.replace("\t", " ")).split() for line in text.splitlines() if not line.startswith("#"))
    return {view: tuple(columns) for view, *columns in filter(None, lines) if columns}


def keep(columns: Mapping[str, tuple[str, ...]]) -> None:
    """Write the columns of all views, whole or not at all. Raise CaptureError without a private folder."""
    place = places.columns_file()
    if place is None:
        raise CaptureError("there is no private folder to keep columns in", todo="set XDG_STATE_HOME")
    lines = ("\t".join((view, *chosen)) + "\n" for view, chosen in sorted(columns.items()) if chosen)
    with whole_file(place, overwrite=True) as file:
        file.write((HEAD + "".join(lines)).encode())
