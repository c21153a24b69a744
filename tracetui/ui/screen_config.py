"""The config file: theme, characters, keys and columns of the screen, read once when a screen starts.

Nothing that is printed or written for a program depends on it. `tracetui config` prints it.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

from capture.clean_text import clean
from capture.errors import UsageError, suggest_nearest
from capture.files import user_dirs
from tracetui.ui import THEMES
from tracetui.ui.key_table import KEYS, KeyBinding
from tracetui.ui.terminal import tty

FEW_COLOURS_THEME: Final = "ansi"
MOST_BYTES: Final = 1 << 16  # nobody writes a longer file by hand
SETTINGS: Final = ("theme", "ascii", "keys", "columns")
FROM_FILE: Final = "from the file"
BY_DEFAULT: Final = "default"


class ScreenConfig(Struct, frozen=True):
    """The settings of the config file; None, and the default keys, for what it does not set."""

    path: Path | None = None  # None: there is no file
    theme: str | None = None
    ascii: bool | None = None
    keys: tuple[KeyBinding, ...] = KEYS
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by view

    def check_views(self) -> None:
        """Raise UsageError for columns of an unknown view; this loads the list of views."""
        from tracetui.views import load_view

        for name in self.columns:
            try:
                load_view(name)
            except UsageError as e:
                raise UsageError(
                    f"columns: {e.what}", where=clean(str(self.path), 4096), todo=e.todo
                ) from None


def read_config() -> ScreenConfig:
    """Return the settings of the user's config file. Raise UsageError if it is unreadable or invalid."""
    path = user_dirs.find_config_file()
    text = _read_text(path) if path else None
    if path is None or text is None:
        return ScreenConfig()
    import tomllib  # most users have no such file

    label = clean(str(path), 4096)
    try:
        return parse_config(tomllib.loads(text), path)
    except (tomllib.TOMLDecodeError, RecursionError) as e:
        raise UsageError("invalid TOML", where=label, why=clean(str(e), 200)) from None
    except UsageError as e:
        raise UsageError(e.what, where=label, why=e.why, todo=e.todo) from None


def parse_config(settings: Mapping[str, Any], path: Path | None = None) -> ScreenConfig:
    """Return the settings of a parsed file. Raise UsageError for an unknown setting or an invalid value.

    Checked by hand: typed decoding (msgspec) reports `$.keys[...]` and never the entry that is wrong.
    """
    for name in settings:
        if name not in SETTINGS:
            todo = suggest_nearest(name, SETTINGS, f"choose one of: {', '.join(SETTINGS)}")
            raise UsageError(f"no setting is called {clean(name, 80)!r}", todo=todo)
    theme, ascii = settings.get("theme"), settings.get("ascii")
    if theme is not None and theme not in THEMES:
        todo = f"choose one of: {', '.join(THEMES)}"
        raise UsageError(f"theme: no theme is called {clean(repr(theme), 80)}", todo=todo)
    if ascii is not None and not isinstance(ascii, bool):
        raise UsageError(f"ascii: {clean(repr(ascii), 80)} is neither true nor false")
    columns = dict(_iter_word_lists(settings, "columns", 'kernels = ["total", "share"]'))
    return ScreenConfig(path, theme, ascii, _build_key_table(settings), columns)


def _build_key_table(settings: Mapping[str, Any]) -> tuple[KeyBinding, ...]:
    """Return the key table; the names of keys (and Textual) are loaded only if the user chose some."""
    words_by_command = dict(_iter_word_lists(settings, "keys", 'sort = "s"'))
    if not words_by_command:
        return KEYS
    from tracetui.ui.key_remap import remap_keys

    return remap_keys(words_by_command)


def _iter_word_lists(
    settings: Mapping[str, Any], name: str, example: str
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each entry of a table whose values are strings or lists of strings."""
    table = settings.get(name, {})
    if not isinstance(table, dict):
        raise UsageError(f"{name}: must be a table", todo=f"write [{name}], and below it {example}")
    for entry, value in table.items():
        words = [value] if isinstance(value, str) else value
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            what = f"{name}: {clean(entry, 80)} must be a string or a list of strings"
            raise UsageError(what, todo=f"example: {example}")
        yield entry, tuple(words)


def _read_text(path: Path) -> str | None:
    """Return the text of the file, or None if there is none. Raise UsageError if it is unreadable."""
    label = clean(str(path), 4096)
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as e:
        raise UsageError("cannot be read", where=label, why=(e.strerror or "").lower()) from None
    if len(content) > MOST_BYTES:
        raise UsageError("is too long for a config file", where=label)
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise UsageError("is not UTF-8 text", where=label) from None


def choose_theme(config: ScreenConfig) -> str | None:
    """Return the theme of the file, else one for a terminal with few colours; None: the default theme."""
    return config.theme or (None if tty.has_many_colours() else FEW_COLOURS_THEME)


def should_draw_ascii(config: ScreenConfig) -> bool:
    """Whether to draw with ASCII only: as the file says, else as the terminal needs it."""
    return config.ascii if config.ascii is not None else not tty.can_show_unicode()


def iter_config_lines(config: ScreenConfig) -> Iterator[str]:
    """Yield all settings as lines of a config file, each with a comment on where it comes from."""
    from tracetui.ui.key_remap import format_config_key

    path = config.path or user_dirs.find_config_file()
    label = clean(str(path), 4096) if path else "no home folder, so no file"
    yield f"# {label}" if config.path else f"# {label}: does not exist; these lines could be its content"
    yield ""
    yield _format_theme(config)
    source = FROM_FILE if config.ascii is not None else "as the terminal needs it"
    yield f"ascii = {'true' if should_draw_ascii(config) else 'false'}  # {source}"
    yield ""
    yield "[keys]"
    defaults = {key.command: key for key in KEYS}
    for key in config.keys:
        names = [format_config_key(name) for name in key.keys.split(",") if name]
        source = BY_DEFAULT if key == defaults[key.command] else FROM_FILE
        yield f"{key.command} = {_format_list(names)}  # {source}: {clean(key.short, 80)}"
    yield ""
    yield "[columns]"
    yield from _iter_column_lines(config)


def _format_theme(config: ScreenConfig) -> str:
    if "NO_COLOR" in os.environ:
        return f"theme = {json.dumps(config.theme or THEMES[0])}  # without effect: NO_COLOR is set"
    theme = choose_theme(config)
    source = FROM_FILE if config.theme else "the terminal has few colours" if theme else BY_DEFAULT
    return f"theme = {json.dumps(theme or THEMES[0])}  # {source}; of {', '.join(THEMES)}"


def _iter_column_lines(config: ScreenConfig) -> Iterator[str]:
    from tracetui import saved_choices

    for view, columns in sorted({**saved_choices.load_columns(), **config.columns}.items()):
        source = FROM_FILE if view in config.columns else "chosen on the screen with v"
        yield f"{json.dumps(view)} = {_format_list(columns)}  # {source}"


def _format_list(words: Iterable[str]) -> str:
    """Return a list of strings in TOML, whose strings are those of JSON."""
    return f"[{', '.join(map(json.dumps, words))}]"
