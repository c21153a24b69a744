"""Display names of kernels: short, and unique within an answer."""

from collections.abc import Iterable
from itertools import islice
from typing import Final

READABLE_CHARS: Final = 40  # names up to this length stay as they are
NAME_COLUMNS: Final = frozenset({"name", "name_a", "name_b", "scope"})  # with names of kernels
_MANGLED_PREFIXES: Final = ("_Z", "__Z")
_MAX_NAMES: Final = 4096  # shortened per answer; later rows are negligible


def map_display_names(names: Iterable[str]) -> dict[str, str]:
    """Map each name that is too long to its display name; different names stay different.

    Indentation of a name is kept.
    """
    from capture.classify.short_names import shorten_names  # a screen starts without names

    forms: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        forms.setdefault(name.lstrip(" "), []).append(name)
    long = dict.fromkeys(islice(filter(_is_unreadable, forms), _MAX_NAMES))
    short = {
        name: as_
        for name, as_ in shorten_names(long).items()
        if len(as_) < len(name) and (as_ not in forms or as_ in long)  # different from every other name
    }
    return {form: form.removesuffix(name) + as_ for name, as_ in short.items() for form in forms[name]}


def format_display_name(name: str) -> str:
    """Return the display name of one name; it may coincide with that of another."""
    from capture.classify.short_names import shorten_name

    return shorten_name(name) if _is_unreadable(name) else name


def _is_unreadable(name: str) -> bool:
    return len(name) > READABLE_CHARS or name.startswith(_MANGLED_PREFIXES)
