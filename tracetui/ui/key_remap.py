"""Replace keys of the key table by the user's, written as people write them: `ctrl+f`, `/`, `F5`.

Not by Textual's `App.set_keymap`: a clash must be reported before the screen starts, but the keymap drops the
other command at a key press. `lens = []` takes all keys from a command, but the keymap leaves the default.
And it is applied anew at each key press (0.2 ms for one command, 3 ms for all).
"""

from collections.abc import Mapping, Sequence
from typing import Final

from textual.keys import _character_to_key, format_key  # those of Textual's driver and footer

from capture.errors import UsageError, suggest_nearest
from tracetui.ui.key_table import KEYS, TAB_KEYS, KeyBinding

ALWAYS_QUIT: Final = "ctrl+c"  # quits, whatever else the user chooses
MODIFIERS: Final = ("ctrl", "alt", "shift")
KEY_LABELS: Final = {
    "enter": "Enter", "tab": "Tab", "space": "Space", "escape": "Esc", "backspace": "Backspace",
    "delete": "Del", "insert": "Ins", "home": "Home", "end": "End", "pageup": "PgUp", "pagedown": "PgDn",
    "up": "↑", "down": "↓", "left": "←", "right": "→", **{f"f{n}": f"F{n}" for n in range(1, 25)},
}  # fmt: skip
KEY_SYNONYMS: Final = {
    "esc": "escape", "del": "delete", "ins": "insert", "pgup": "pageup", "pgdn": "pagedown",
    "return": "enter",
}  # fmt: skip
# A terminal sends the same.
TERMINAL_SYNONYMS: Final = {"ctrl+i": "tab", "ctrl+m": "enter", "ctrl+left_square_bracket": "escape"}


def remap_keys(words_by_command: Mapping[str, Sequence[str]]) -> tuple[KeyBinding, ...]:
    """Return the key table with other keys for some commands; without keys, a command is in the palette only.

    Raise UsageError for an unknown command, an invalid key, and a key of two commands.
    """
    commands = {key.command for key in KEYS}
    for command in words_by_command:
        if command not in commands:
            todo = suggest_nearest(command, commands, "tracetui config lists all")
            raise UsageError(f"keys: no command is called {command!r}", todo=todo)
    table = [_with_keys(key, words_by_command.get(key.command)) for key in KEYS]
    _check_duplicates(table)
    return tuple(table)


def parse_key(word: str) -> str:
    """Return the name that Textual gives to a key. Raise UsageError for an invalid key."""
    *modifiers, key = [word] if len(word) == 1 else _split_modifiers(word)
    if len(key) == 1 and modifiers == ["shift"] and key.isalpha():
        return key.upper()
    named = _find_key_name(key.lower() if "ctrl" in modifiers else key)
    if not named or any(m not in MODIFIERS for m in modifiers):
        raise UsageError(
            f"keys: {word!r} is not a key", todo='write it like "x", "/", "ctrl+f", "f5" or "space"'
        )
    name = "+".join([m for m in MODIFIERS if m in modifiers] + [named])
    return TERMINAL_SYNONYMS.get(name, name)


def format_config_key(name: str) -> str:
    """Return a key, named as Textual does, as one writes it in the config file."""
    *modifiers, key = name.split("+")
    return "+".join([*modifiers, key if key in KEY_LABELS else format_key(key)])


def _with_keys(key: KeyBinding, words: Sequence[str] | None) -> KeyBinding:
    """Return the command with other keys; without words, with its own."""
    if words is None:
        return key
    names = list(dict.fromkeys(map(parse_key, words)))
    if key.command == "quit" and ALWAYS_QUIT not in names:
        names.append(ALWAYS_QUIT)
    labelled = [name for name in names if name != ALWAYS_QUIT] or names
    return key._replace(keys=",".join(names), label=" ".join(map(_format_label, labelled)))


def _check_duplicates(table: Sequence[KeyBinding]) -> None:
    owners = dict.fromkeys(TAB_KEYS, "a view")
    for key in table:
        for name in filter(None, key.keys.split(",")):
            if name in owners:
                what = f"keys: {_format_label(name)} is the key of both {owners[name]} and {key.command}"
                raise UsageError(what, todo="give each command keys of its own")
            owners[name] = key.command


def _split_modifiers(word: str) -> list[str]:
    """Return the modifiers, then the key, which may be a plus."""
    parts = word[:-1].split("+") if word.endswith("++") else word.split("+")
    lead = [part.strip().lower() for part in parts[:-1]]
    last = "+" if word.endswith("++") else parts[-1].strip()
    return [*lead, last]


def _find_key_name(word: str) -> str:
    """Return the name that Textual gives to a key, written as a character or a word, or an empty text."""
    if len(word) > 1:
        word = KEY_SYNONYMS.get(word.lower(), word.lower())
        if word in KEY_LABELS:
            return word
        word = format_key(word)
        if not word.isascii():
            return ""
    return _character_to_key(word) if len(word) == 1 and word.isprintable() else ""


def _format_label(name: str) -> str:
    """Return a key as the screen shows it."""
    *modifiers, key = name.split("+")
    label = KEY_LABELS.get(key) or format_key(key)
    return "+".join([*(m.capitalize() for m in modifiers), label.upper() if modifiers else label])
