"""Save the user's choices in small text files, one per line, editable: columns of views and linked rows."""

from collections.abc import Mapping

from capture.clean_text import clean
from capture.errors import CaptureError
from capture.files import user_dirs
from capture.files.atomic import write_atomically
from tracetui.look import RowLink

COLUMNS_HEAD = """\
# Columns chosen on the screen with v: a view and its columns per line, separated by tabs.
# The section [columns] of the config file takes precedence.
"""


def load_columns() -> dict[str, tuple[str, ...]]:
    """Load the columns of each view."""
    file = user_dirs.find_columns_file()
    try:
        text = file.read_text("utf-8", "replace") if file else ""
    except OSError:
        return {}
    lines = (clean(line.replace("\t", " ")).split() for line in text.splitlines() if not line.startswith("#"))
    return {view: tuple(columns) for view, *columns in filter(None, lines) if columns}


def save_columns(columns: Mapping[str, tuple[str, ...]]) -> None:
    """Save the columns of all views atomically; raise CaptureError without a private folder."""
    place = user_dirs.find_columns_file()
    if place is None:
        raise CaptureError("there is no private folder to save columns in", todo="set XDG_STATE_HOME")
    lines = ("\t".join((view, *chosen)) + "\n" for view, chosen in sorted(columns.items()) if chosen)
    with write_atomically(place, overwrite=True) as file:
        file.write((COLUMNS_HEAD + "".join(lines)).encode())


LINKS_HEAD = """\
# Rows that are the same work under different names: diff reads this file, M on its screen writes it.
# A line has file of a, file of b, row of a, row of b, separated by tabs; * in file names matches anything.
"""


def load_links() -> tuple[RowLink, ...]:
    """Load the links; lines that are not links are skipped."""
    file = user_dirs.find_links_file()
    try:
        text = file.read_text("utf-8", "replace") if file else ""
    except OSError:
        return ()
    lines = (line.split("\t") for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return tuple(RowLink(clean(a), clean(b), fa, fb) for fa, fb, a, b in (p for p in lines if len(p) == 4))


def save_links(links: tuple[RowLink, ...]) -> None:
    """Save all links atomically; raise CaptureError without a private folder."""
    place = user_dirs.find_links_file()
    if place is None:
        raise CaptureError("there is no private folder to save links in", todo="set XDG_STATE_HOME")
    lines = ("\t".join((k.file_a, k.file_b, k.a, k.b)) + "\n" for k in links)
    with write_atomically(place, overwrite=True) as file:
        file.write((LINKS_HEAD + "".join(lines)).encode())
