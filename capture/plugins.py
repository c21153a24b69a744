"""Objects that other installed packages register under an entry-point group: loaders, views, model families.

A package registers one in its `pyproject.toml`: a table `[project.entry-points."tracetui.loaders"]` with the
line `my_format = "my_package.my_module"`. Looking a group up takes some 20 ms, so do it only when needed.
"""

from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from capture.clean_text import clean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_MAX_CHARS: Final = 300


class Plugin(NamedTuple):
    """One entry point of another package: the loaded object, or why it cannot be used."""

    name: str
    package: str  # the package, its version and what it registers: `acme 1.0 (acme.loader)`
    value: Any = None
    problem: str = ""  # empty if it can be used


def list_entry_point_names(group: str) -> list[str]:
    """List the names of the entry points of a group, sorted, without importing them."""
    return [clean(point.name, _MAX_CHARS) for point in _find_entry_points(group)]


@cache
def load_entry_points(group: str) -> tuple[Plugin, ...]:
    """Import the entry points of a group, sorted by name; an error in a package becomes its `problem`."""
    return tuple(_load(point) for point in _find_entry_points(group))


def describe_error(error: BaseException) -> str:
    """Describe an error on one line: `ImportError: No module named 'x'`."""
    message = " ".join(str(error).split())
    return clean(f"{type(error).__name__}: {message}".removesuffix(": "), _MAX_CHARS)


def _find_entry_points(group: str) -> "list[EntryPoint]":
    from importlib.metadata import entry_points

    return sorted(entry_points(group=group), key=lambda point: (point.name, point.value))


def _load(point: "EntryPoint") -> Plugin:
    package = f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"
    plugin = Plugin(clean(point.name, _MAX_CHARS), clean(f"{package} ({point.value})", _MAX_CHARS))
    try:
        return plugin._replace(value=point.load())
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as e:  # even SystemExit must not end a run
        return plugin._replace(problem=describe_error(e))
