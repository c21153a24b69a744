"""The settings that hold, as lines that are a config file themselves, each with where it is from."""

import json
import os
from collections.abc import Iterable, Iterator
from typing import Final

from capture import places
from capture.text import clean
from tracetui import kept_columns
from tracetui.ui import THEMES
from tracetui.ui.config import Config, draws_ascii, theme
from tracetui.ui.keys import KEYS
from tracetui.ui.remap import typed_key

FILE: Final = "the file"
PLAIN: Final = "as it comes"


def lines(config: Config) -> Iterator[str]:
    """Yield the lines: where the file is, colours, characters, keys, columns."""
    place = places.config_file()
    told = clean(str(config.place or place), 4096) if config.place or place else "no home folder, so no file"
    yield f"# {told}" if config.place else f"# {told}: not there; these lines would be one"
    yield ""
    yield _theme(config)
    yield _characters(config)
    yield ""
    yield "[keys]"
    usual = {key.do: key for key in KEYS}
    for key in config.keys:
        names = [typed_key(name) for name in key.keys.split(",") if name]
        where = PLAIN if key == usual[key.do] else FILE
        yield f"{key.do} = {_listed(names)}  # {where}: {clean(key.short, 80)}"
    yield ""
    yield "[columns]"
    yield from _columns(config)


def _theme(config: Config) -> str:
    if "NO_COLOR" in os.environ:
        return f"theme = {_text(config.theme or THEMES[0])}  # without effect: NO_COLOR is set"
    few = theme(config) if not config.theme else None
    where = FILE if config.theme else "as the terminal has few colours" if few else PLAIN
    return f"theme = {_text(config.theme or few or THEMES[0])}  # {where}; of {', '.join(THEMES)}"


def _columns(config: Config) -> Iterator[str]:
    """Yield the columns of each view that has its own."""
    for view, columns in sorted({**kept_columns.kept(), **config.columns}.items()):
        where = FILE if view in config.columns else "chosen on the screen by v"
        yield f"{_text(view)} = {_listed(columns)}  # {where}"


def _characters(config: Config) -> str:
    where = FILE if config.ascii is not None else "as the terminal asks for it"
    return f"ascii = {'true' if draws_ascii(config) else 'false'}  # {where}"


def _listed(words: Iterable[str]) -> str:
    return f"[{', '.join(map(_text, words))}]"


def _text(word: str) -> str:
    """Return a word as TOML writes it, which is as JSON does."""
    return json.dumps(word)
