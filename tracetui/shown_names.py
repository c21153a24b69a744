"""Write names so that they can be read: long ones of kernels by their short names, never two alike."""

from collections.abc import Iterable
from itertools import islice
from typing import Final

READABLE: Final = 40  # characters; a name that is no longer stays as it is
COLUMNS: Final = frozenset({"name", "name_a", "name_b", "scope"})  # that hold names of kernels
_MANGLED: Final = ("_Z", "__Z")
_MOST: Final = 4096  # names of one answer that are shortened; those beyond weigh nothing


def shown_names(names: Iterable[str]) -> dict[str, str]:
    """Return how names are shown that are not shown as they are; different names never look alike.

    A name may be indented, which it stays.
    """
    from capture.classify.short_names import short_names  # a screen has no names before it has read

    forms: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        forms.setdefault(name.lstrip(" "), []).append(name)
    long = dict.fromkeys(islice(filter(_is_unreadable, forms), _MOST))
    short = {
        name: as_
        for name, as_ in short_names(long).items()
        if len(as_) < len(name) and (as_ not in forms or as_ in long)  # no other name looks like it
    }
    return {form: form.removesuffix(name) + as_ for name, as_ in short.items() for form in forms[name]}


def shown_name(name: str) -> str:
    """Return how one name is shown that stands alone; two names may look alike."""
    from capture.classify.short_names import short_name

    return short_name(name) if _is_unreadable(name) else name


def _is_unreadable(name: str) -> bool:
    return len(name) > READABLE or name.startswith(_MANGLED)
