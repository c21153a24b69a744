"""The config file: what it may say, what becomes of what it says, and how it is refused."""

import tomllib
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from capture.errors import UsageError
from tests.tracetui.in_process import tracetui
from tests.tracetui.ui.hand import decode, play, press, screen
from tracetui.ui import THEMES, config
from tracetui.ui.app import Explorer
from tracetui.ui.keys import KEYS, names_by_key
from tracetui.ui.options import Options
from tracetui.ui.remap import key_name, remapped
from tracetui.verbs import _shared

Pilots = Pilot[Any]


def written(folder: Path, text: str | bytes) -> dict[str, str]:
    """Put a config file into a folder; return the environment in which it holds."""
    place = folder / "tracetui" / "config"
    place.parent.mkdir()
    place.write_bytes(text.encode() if isinstance(text, str) else text)
    return {"XDG_CONFIG_HOME": str(folder)}


def _keys(text: str) -> list[str]:
    """The lines of the table of keys."""
    return text.split("[keys]\n")[1].split("\n\n")[0].splitlines()


def test_without_a_file_everything_is_as_it_comes_and_what_is_printed_is_such_a_file(tmp_path: Path) -> None:
    told = tracetui("config", env={"XDG_CONFIG_HOME": str(tmp_path), "COLORTERM": "truecolor"})
    assert told.returncode == 0 and f"# {tmp_path}/tracetui/config: not there" in told.stdout
    said = tomllib.loads(told.stdout)
    assert said["theme"] == "dark" and set(said["keys"]) == {key.do for key in KEYS}
    assert said["keys"]["filter"] == ["/"] and said["keys"]["help"] == ["?", "f1"]
    assert all("# as it comes" in line for line in _keys(told.stdout))
    again = config.parsed(said)
    assert names_by_key(again.keys) == names_by_key()


def test_what_the_file_says_is_printed_with_its_origin(tmp_path: Path) -> None:
    env = written(tmp_path, 'theme = "light"\nascii = true\n[keys]\nsort = ["f5", "Ctrl+S"]\nlens = []\n')
    told = tracetui("config", env=env).stdout.splitlines()
    assert 'theme = "light"  # the file; of dark, light, ansi, colour-blind' in told
    assert "ascii = true  # the file" in told
    assert 'sort = ["f5", "ctrl+s"]  # the file: sort' in told and "lens = []  # the file: lens" in told
    assert 'reverse = ["S"]  # as it comes: turn order' in told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("theme = ", "is no TOML"),
        (b"\xff", "is no text in UTF-8"),
        (b"#" * 100_000, "is too long for a config file"),
        ("x = " + "[" * 50_000, "is no TOML"),
        ('theme = "solarized"', "theme: 'solarized' is none; choose one of: " + ", ".join(THEMES)),
        ("theme = 3", "theme: 3 is none"),
        ('ascii = "yes"', "ascii: 'yes' is neither true nor false"),
        ('thema = "dark"', "no setting is called 'thema'; did you mean theme?"),
        ("keys = 3", "keys: this is a table of its own; write [keys], and below it sort"),
        ("[columns]\nkernels = 3", "columns: kernels is no text and no list of texts"),
        ('[columns]\nkernel = "share"', "columns: no view is called 'kernel'; did you mean kernels?"),
        ("[keys]\nsort = 3", "keys: sort is no text and no list of texts"),
        ('[keys]\nsorted = "s"', "keys: no command is called 'sorted'; did you mean sort?"),
        ('[keys]\nsort = "ctrl+nonsense"', "keys: 'ctrl+nonsense' is no key; write it like"),
        ('[keys]\nsort = "hyper+s"', "keys: 'hyper+s' is no key"),
        ('[keys]\nsort = ""', "keys: '' is no key"),
        ('[keys]\nsort = "f"', "keys: f would be the key of sort and of now"),
        ('[keys]\nsort = "3"', "keys: 3 would be the key of a view and of sort"),
        ('[keys]\nsort = "ctrl+c"', "keys: Ctrl+C would be the key of quit and of sort"),
        ('[keys]\nsort = "ctrl+i"', "keys: Tab would be the key of next_view and of sort"),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence(tmp_path: Path, text: str | bytes, told: str) -> None:
    done = tracetui("config", env=written(tmp_path, text))
    assert done.returncode == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"tracetui: {tmp_path}/tracetui/config: ") and told in line


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tracetui" / "config").mkdir(parents=True)
    done = tracetui("config", env={"XDG_CONFIG_HOME": str(tmp_path)})
    assert done.returncode == 2 and "config: cannot be read (is a directory)" in done.stderr


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("x", "x"), ("X", "X"), ("shift+x", "X"), ("/", "slash"), ("?", "question_mark"), ("+", "plus"),
        ("ctrl++", "ctrl+plus"), ("Ctrl+F", "ctrl+f"), ("Esc", "escape"), ("F12", "f12"), ("space", "space"),
        ("PgDn", "pagedown"), ("shift+tab", "shift+tab"), ("question_mark", "question_mark"), ("ö", "ö"),
        ("ctrl+m", "enter"), (",", "comma"), ("shift+ctrl+left", "ctrl+shift+left"),
    ],
)  # fmt: skip
def test_keys_are_written_as_people_do(word: str, name: str) -> None:
    assert key_name(word) == name


def asked(*words: str) -> Namespace:
    """The options of a screen, as a command line has them."""
    parser = ArgumentParser()
    _shared.screen_options(parser)
    return parser.parse_args(words)


def test_the_command_line_goes_before_the_file_and_the_file_before_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in written(tmp_path, 'theme = "light"\nascii = false\n').items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(config.tty, "speaks_unicode", lambda: False)
    monkeypatch.setattr(config.tty, "has_many_colours", lambda: True)
    assert [_shared.screen(asked(*words)).theme for words in ((), ("--theme", "ansi"))] == ["light", "ansi"]
    assert [_shared.screen(asked(*words)).ascii for words in ((), ("--ascii",))] == [False, True]
    (tmp_path / "tracetui" / "config").unlink()
    assert _shared.screen(asked()).ascii and _shared.screen(asked()).theme is None
    monkeypatch.setattr(config.tty, "has_many_colours", lambda: False)
    assert [_shared.screen(asked(*words)).theme for words in ((), ("--theme", "dark"))] == ["ansi", "dark"]


def test_a_wrong_file_is_told_before_a_screen_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in written(tmp_path, "colour = 1\n").items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match="no setting is called 'colour'"):
        _shared.screen(asked())


def test_other_keys_do_what_they_were_given_to_and_the_usual_ones_no_longer() -> None:
    async def script(app: Explorer, pilot: Pilots) -> None:
        await press(pilot, "s")
        assert app.workspace.session.look.sort is None
        await press(pilot, "f5")
        assert app.workspace.session.look.sort is not None
        await press(pilot, "slash")
        assert app.workspace.draft is None
        assert "F5 sort" in screen(app)[-1] and "/ filter" not in screen(app)[-1]
        await press(pilot, "ctrl+f")
        assert app.workspace.draft is not None and app.workspace.draft.purpose == "filter"
        await press(pilot, "escape", "question_mark")
        shown = "\n".join(screen(app))
        assert " F5 " in shown and " Ctrl+F " in shown and "lens" in shown
        await press(pilot, "escape", "L")
        assert app.workspace.session.look.lens is None

    keys = remapped({"sort": ["f5"], "filter": ["ctrl+f"], "page_down": ["pagedown"], "lens": []})
    play(script, [decode()], Options(view="kernels", keys=keys), size=(120, 30))


def test_control_c_leaves_whatever_else_leaves() -> None:
    names = names_by_key(remapped({"quit": ["Q"]}))
    assert names["Q"] == names["ctrl+c"] == "quit" and "q" not in names
