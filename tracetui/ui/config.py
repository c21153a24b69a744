"""The config file: the colours, characters and keys that a person wants; read once, when a screen starts.

Nothing that is printed or written for a program hangs on it.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

from capture import places
from capture.errors import UsageError
from capture.nearest import did_you_mean
from capture.text import clean
from tracetui.ui import THEMES
from tracetui.ui.keys import KEYS, Key
from tracetui.ui.terminal import tty

FEW: Final = "ansi"  # the theme for terminals of few colours
LARGEST: Final = 1 << 16  # bytes of a file that a person writes by hand
SETTINGS: Final = ("theme", "ascii", "keys", "columns")


class Config(Struct, frozen=True):
    """What a person wants; None and the key table as it comes where nothing is said."""

    place: Path | None = None  # the file; None: there is none
    theme: str | None = None
    ascii: bool | None = None
    keys: tuple[Key, ...] = KEYS
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of views

    def check_views(self) -> None:
        """Raise UsageError for columns of a view that there is not; this loads the list of them."""
        from tracetui.views import view

        for name in self.columns:
            try:
                view(name)
            except UsageError as e:
                raise UsageError(
                    f"columns: {e.what}", where=clean(str(self.place), 4096), todo=e.todo
                ) from None


def read() -> Config:
    """Return what the config file says. Raise UsageError for a file that cannot be read, and for what it says
    that nobody knows.
    """
    place = places.config_file()
    text = _text(place) if place else None
    if place is None or text is None:
        return Config()
    import tomllib  # most people have no such file

    label = clean(str(place), 4096)
    try:
        return parsed(tomllib.loads(text), place)
    except (tomllib.TOMLDecodeError, RecursionError) as e:
        raise UsageError("is no TOML", where=label, why=clean(str(e), 200)) from None
    except UsageError as e:
        raise UsageError(e.what, where=label, why=e.why, todo=e.todo) from None


def parsed(said: Mapping[str, Any], place: Path | None = None) -> Config:
    """Return the settings of a file. Raise UsageError for one that is none, or cannot have its value."""
    for name in said:
        if name not in SETTINGS:
            todo = did_you_mean(name, SETTINGS, f"choose one of: {', '.join(SETTINGS)}")
            raise UsageError(f"no setting is called {clean(name, 80)!r}", todo=todo)
    theme, ascii = said.get("theme"), said.get("ascii")
    if theme is not None and theme not in THEMES:
        raise UsageError(f"theme: {_told(theme)} is none", todo=f"choose one of: {', '.join(THEMES)}")
    if ascii is not None and not isinstance(ascii, bool):
        raise UsageError(f"ascii: {_told(ascii)} is neither true nor false")
    columns = dict(_lists(said, "columns", 'kernels = ["total", "share"]'))
    return Config(place, theme, ascii, _keys(dict(_lists(said, "keys", 'sort = "s"'))), columns)


def _keys(wanted: Mapping[str, tuple[str, ...]]) -> tuple[Key, ...]:
    """Return the key table; what knows the names of keys is loaded for who chose some."""
    if not wanted:
        return KEYS
    from tracetui.ui.remap import remapped

    return remapped(wanted)


def theme(wanted: Config) -> str | None:
    """Return the colours that the file says, else those of a terminal that has few; None: the usual ones."""
    return wanted.theme or (None if tty.has_many_colours() else FEW)


def draws_ascii(wanted: Config) -> bool:
    """Return whether to keep to ASCII: as the file says, else as the terminal asks for it."""
    return wanted.ascii if wanted.ascii is not None else not tty.speaks_unicode()


def _lists(said: Mapping[str, Any], name: str, example: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each entry of a table of texts, or of lists of texts."""
    table = said.get(name, {})
    if not isinstance(table, dict):
        raise UsageError(
            f"{name}: this is a table of its own", todo=f"write [{name}], and below it {example}"
        )
    for entry, value in table.items():
        words = [value] if isinstance(value, str) else value
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise UsageError(f"{name}: {clean(entry, 80)} is no text and no list of texts", todo=example)
        yield entry, tuple(words)


def _told(value: object) -> str:
    return clean(repr(value), 80)


def _text(place: Path) -> str | None:
    """Return the text of the file; None where there is none. Raise UsageError where it cannot be read."""
    label = clean(str(place), 4096)
    try:
        with place.open("rb") as file:
            content = file.read(LARGEST + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as e:
        raise UsageError("cannot be read", where=label, why=(e.strerror or "").lower()) from None
    if len(content) > LARGEST:
        raise UsageError("is too long for a config file", where=label)
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise UsageError("is no text in UTF-8", where=label) from None
