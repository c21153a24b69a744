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
from tracetui.ui import THEMES, screen_config
from tracetui.ui.app import Explorer
from tracetui.ui.key_remap import parse_key, remap_keys
from tracetui.ui.key_table import KEYS, map_keys_to_commands
from tracetui.ui.screen_options import ScreenOptions
from tracetui.verbs import _options

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
    actual = tracetui("config", env={"XDG_CONFIG_HOME": str(tmp_path), "COLORTERM": "truecolor"})
    assert actual.returncode == 0 and f"# {tmp_path}/tracetui/config: does not exist" in actual.stdout
    output = tomllib.loads(actual.stdout)
    assert output["theme"] == "dark" and set(output["keys"]) == {key.command for key in KEYS}
    assert output["keys"]["filter"] == ["/"] and output["keys"]["help"] == ["?", "f1"]
    assert all("# default" in line for line in _keys(actual.stdout))
    again = screen_config.parse_config(output)
    assert map_keys_to_commands(again.keys) == map_keys_to_commands()


def test_what_the_file_says_is_printed_with_its_origin(tmp_path: Path) -> None:
    env = written(tmp_path, 'theme = "light"\nascii = true\n[keys]\nsort = ["f5", "Ctrl+S"]\nlens = []\n')
    actual = tracetui("config", env=env).stdout.splitlines()
    assert 'theme = "light"  # from the file; of dark, light, ansi, colour-blind' in actual
    assert "ascii = true  # from the file" in actual
    assert (
        'sort = ["f5", "ctrl+s"]  # from the file: sort' in actual
        and "lens = []  # from the file: lens" in actual
    )
    assert 'reverse = ["S"]  # default: reverse' in actual


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("theme = ", "invalid TOML"),
        (b"\xff", "is not UTF-8 text"),
        (b"#" * 100_000, "is too long for a config file"),
        ("x = " + "[" * 50_000, "invalid TOML"),
        ('theme = "solarized"', "theme: no theme is called 'solarized'; choose one of: " + ", ".join(THEMES)),
        ("theme = 3", "theme: no theme is called 3"),
        ('ascii = "yes"', "ascii: 'yes' is neither true nor false"),
        ('thema = "dark"', "no setting is called 'thema'; did you mean theme?"),
        ("keys = 3", "keys: must be a table; write [keys], and below it sort"),
        ("[columns]\nkernels = 3", "columns: kernels must be a string or a list of strings"),
        ('[columns]\nkernel = "share"', "columns: no view is called 'kernel'; did you mean kernels?"),
        ("[keys]\nsort = 3", "keys: sort must be a string or a list of strings"),
        ('[keys]\nsorted = "s"', "keys: no command is called 'sorted'; did you mean sort?"),
        ('[keys]\nsort = "ctrl+nonsense"', "keys: 'ctrl+nonsense' is not a key; write it like"),
        ('[keys]\nsort = "hyper+s"', "keys: 'hyper+s' is not a key"),
        ('[keys]\nsort = ""', "keys: '' is not a key"),
        ('[keys]\nsort = "f"', "keys: f is the key of both sort and now"),
        ('[keys]\nsort = "3"', "keys: 3 is the key of both a view and sort"),
        ('[keys]\nsort = "ctrl+c"', "keys: Ctrl+C is the key of both quit and sort"),
        ('[keys]\nsort = "ctrl+i"', "keys: Tab is the key of both next_view and sort"),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence(tmp_path: Path, text: str | bytes, told: str) -> None:
    result = tracetui("config", env=written(tmp_path, text))
    assert result.returncode == 2 and result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"tracetui: {tmp_path}/tracetui/config: ") and told in line


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tracetui" / "config").mkdir(parents=True)
    result = tracetui("config", env={"XDG_CONFIG_HOME": str(tmp_path)})
    assert result.returncode == 2 and "config: cannot be read (is a directory)" in result.stderr


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
    assert parse_key(word) == name


def asked(*words: str) -> Namespace:
    """The options of a screen, as a command line has them."""
    parser = ArgumentParser()
    _options.add_screen_options(parser)
    return parser.parse_args(words)


def test_the_command_line_goes_before_the_file_and_the_file_before_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in written(tmp_path, 'theme = "light"\nascii = false\n').items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(screen_config.tty, "can_show_unicode", lambda: False)
    monkeypatch.setattr(screen_config.tty, "has_many_colours", lambda: True)
    assert [_options.build_screen_options(asked(*words)).theme for words in ((), ("--theme", "ansi"))] == [
        "light",
        "ansi",
    ]
    assert [_options.build_screen_options(asked(*words)).ascii for words in ((), ("--ascii",))] == [
        False,
        True,
    ]
    (tmp_path / "tracetui" / "config").unlink()
    assert (
        _options.build_screen_options(asked()).ascii and _options.build_screen_options(asked()).theme is None
    )
    monkeypatch.setattr(screen_config.tty, "has_many_colours", lambda: False)
    assert [_options.build_screen_options(asked(*words)).theme for words in ((), ("--theme", "dark"))] == [
        "ansi",
        "dark",
    ]


def test_a_wrong_file_is_told_before_a_screen_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in written(tmp_path, "colour = 1\n").items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match="no setting is called 'colour'"):
        _options.build_screen_options(asked())


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

    keys = remap_keys({"sort": ["f5"], "filter": ["ctrl+f"], "page_down": ["pagedown"], "lens": []})
    play(script, [decode()], ScreenOptions(view="kernels", keys=keys), size=(120, 30))


def test_control_c_leaves_whatever_else_leaves() -> None:
    names = map_keys_to_commands(remap_keys({"quit": ["Q"]}))
    assert names["Q"] == names["ctrl+c"] == "quit" and "q" not in names
