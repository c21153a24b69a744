"""Keep which rows a person linked, in a small file: a link a line, readable and editable."""

from capture import places
from capture.atomic import whole_file
from capture.errors import CaptureError
from capture.text import clean
from tracetui.look import Link

HEAD = """\
# Rows that are the same work although their names differ: diff reads this file, M on its screen writes it.
# A line holds file of a, file of b, row of a, row of b, with tabs between; in file names * is anything.
"""


def kept() -> tuple[Link, ...]:
    """Return the links of the file; lines that are none are passed over."""
    place = places.links_file()
    try:
        text = place.read_text("utf-8", "replace") if place else ""
    except OSError:
        return ()
    lines = (line.split("\t") for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return tuple(Link(clean(a), clean(b), fa, fb) for fa, fb, a, b in (p for p in lines if len(p) == 4))


def keep(links: tuple[Link, ...]) -> None:
    """Write all links, whole or not at all; raise CaptureError where there is no private folder."""
    place = places.links_file()
    if place is None:
        raise CaptureError("there is no private folder to keep links in", todo="set XDG_STATE_HOME")
    lines = ("\t".join((k.file_a, k.file_b, k.a, k.b)) + "\n" for k in links)
    with whole_file(place, overwrite=True) as file:
        file.write((HEAD + "".join(lines)).encode())
