"""Keys that a person wants in place of those of the key table, as people write keys: `ctrl+f`, `/`, `F5`."""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from textual.keys import KEY_NAME_REPLACEMENTS

from capture.errors import UsageError
from capture.nearest import did_you_mean
from tracetui.ui.keys import KEYS, TABS, Key

ALWAYS: Final = "ctrl+c"  # of quit, whatever else a person chooses
MODIFIERS: Final = ("ctrl", "alt", "shift")
NAMED: Final = {
    "enter": "Enter", "tab": "Tab", "space": "Space", "escape": "Esc", "backspace": "Backspace",
    "delete": "Del", "insert": "Ins", "home": "Home", "end": "End", "pageup": "PgUp", "pagedown": "PgDn",
    "up": "↑", "down": "↓", "left": "←", "right": "→", **{f"f{n}": f"F{n}" for n in range(1, 25)},
}  # fmt: skip
OTHER_WORDS: Final = {"esc": "escape", "del": "delete", "ins": "insert", "pgup": "pageup", "pgdn": "pagedown",
                      "return": "enter"}  # fmt: skip
THE_SAME: Final = {"ctrl+i": "tab", "ctrl+m": "enter", "ctrl+left_square_bracket": "escape"}  # to a terminal


def remapped(wanted: Mapping[str, Sequence[str]]) -> tuple[Key, ...]:
    """Return the key table with other keys for some commands; none leave a command to the palette. Raise
    UsageError for what is no command or no key, and for a key that two commands would have.
    """
    known = {key.do for key in KEYS}
    for command in wanted:
        if command not in known:
            todo = did_you_mean(command, known, "tracetui config lists all")
            raise UsageError(f"keys: no command is called {command!r}", todo=todo)
    table = tuple(_with_keys(key, wanted[key.do]) if key.do in wanted else key for key in KEYS)
    _refuse_doubles(table)
    return table


def key_name(word: str) -> str:
    """Return a key as Textual names it, from how a person writes it; raise UsageError for what is none."""
    *modifiers, key = [word] if len(word) == 1 else _parts(word)
    if len(key) == 1 and modifiers == ["shift"] and key.isalpha():
        return key.upper()
    named = _of_character(key.lower() if "ctrl" in modifiers else key) if len(key) == 1 else _of_word(key)
    if not named or any(m not in MODIFIERS for m in modifiers):
        raise UsageError(
            f"keys: {word!r} is no key", todo='write it like "x", "/", "ctrl+f", "f5" or "space"'
        )
    name = "+".join([m for m in MODIFIERS if m in modifiers] + [named])
    return THE_SAME.get(name, name)


def typed_key(name: str) -> str:
    """Return a key as a person would write it into the file."""
    *modifiers, key = name.split("+")
    return "+".join([*modifiers, key if key in NAMED else _character(key)])


def written_keys(names: Iterable[str]) -> str:
    """Return keys as the screen shows them, with a space between."""
    return " ".join(_written(name) for name in names if name)


def _with_keys(key: Key, words: Sequence[str]) -> Key:
    names = list(dict.fromkeys(map(key_name, words)))
    if key.do == "quit" and ALWAYS not in names:
        names.append(ALWAYS)
    shown = [name for name in names if name != ALWAYS] or names
    return key._replace(keys=",".join(names), shown=written_keys(shown))


def _refuse_doubles(table: Sequence[Key]) -> None:
    owners = dict.fromkeys(TABS, "a view")
    for key in table:
        for name in filter(None, key.keys.split(",")):
            if name in owners:
                what = f"keys: {_written(name)} would be the key of {owners[name]} and of {key.do}"
                todo = "give each keys of its own"
                raise UsageError(what, todo=todo)
            owners[name] = key.do


def _parts(word: str) -> list[str]:
    """Return modifiers and the key behind them; the key may be a plus."""
    parts = word[:-1].split("+") if word.endswith("++") else word.split("+")
    lead = [part.strip().lower() for part in parts[:-1]]
    last = "+" if word.endswith("++") else parts[-1].strip()
    return [*lead, last]


def _of_character(character: str) -> str:
    """Return the name of the key of a character; empty for one that no key types."""
    if character.isalnum():
        return character
    if not character.isprintable():
        return ""
    name = unicodedata.name(character, "").lower().replace("-", "_").replace(" ", "_")
    return KEY_NAME_REPLACEMENTS.get(name, name)


def _of_word(word: str) -> str:
    """Return the name of a key that is no character; empty for what is none."""
    name = OTHER_WORDS.get(word.lower(), word.lower())
    if name in NAMED:
        return name
    names = {_of_character(chr(code)) for code in range(ord("!"), 0x7F) if not chr(code).isalnum()}
    return name if name in names else ""


def _written(name: str) -> str:
    """Return one key as the screen shows it."""
    *modifiers, key = name.split("+")
    shown = NAMED.get(key) or _character(key)
    return "+".join([*(m.capitalize() for m in modifiers), shown.upper() if modifiers else shown])


def _character(name: str) -> str:
    """Return what the key of a name types."""
    if len(name) == 1:
        return name
    typed = (chr(code) for code in range(ord("!"), 0x7F))
    return next((c for c in typed if not c.isalnum() and _of_character(c) == name), name)
