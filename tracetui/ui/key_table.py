"""The key table, from which the key bindings, the footer, the palette and the help are made."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple


class KeyBinding(NamedTuple):
    """A command and its keys: Textual's `Binding` (`command` is its id and action), and where it works.

    Textual has no binding of it, since it would run before the keys that still wait (`Explorer.on_event`).
    """

    keys: str  # as Textual names them, separated by commas
    command: str  # name of the command, see keyboard.Controllers; users write it in the config file
    short: str  # for footer and palette
    help: str  # for help and palette
    when: str = ""  # `rows`: needs a table or drawing; `live`: needs a writer; empty: always
    label: str = ""  # how the keys are shown; empty: as they are named


KEYS: Final = (
    KeyBinding("q,ctrl+q,ctrl+c", "quit", "quit", "quit", label="q"),
    KeyBinding("question_mark,f1", "help", "help", "this help", label="? F1"),
    KeyBinding("ctrl+p", "palette", "find a command", "find a command by its name", label="Ctrl+P"),
    KeyBinding("tab", "next_view", "next view", "next view", label="Tab"),
    KeyBinding("shift+tab", "previous_view", "previous view", "previous view", label="Shift+Tab"),
    KeyBinding("enter", "enter", "into the row", "into the row or cell", "rows", "Enter"),
    KeyBinding("escape,backspace", "back", "out", "clear the filter, then go one level up", label="Esc"),
    KeyBinding("ctrl+o,alt+left", "place_before", "previous place",
               "the previous place, with its filter and cursor", "rows", "Ctrl+O"),
    KeyBinding("ctrl+n,alt+right", "place_after", "forward again", "forward again, after Ctrl+O", "rows",
               "Ctrl+N"),
    KeyBinding("i", "notes", "notes", "all notes on this view, in full", "rows"),
    KeyBinding("slash", "filter", "filter",
               "filter rows: regular expression, op:attn, share:>5; in the list of runs: a path", "rows",
               "/"),
    KeyBinding("n", "next_match", "next match",
               "next row that matches the last filter; next slice of a timeline", "rows"),
    KeyBinding("N", "previous_match", "previous match", "previous row that matches it; previous slice",
               "rows"),
    KeyBinding("t", "launch", "launch", "on a timeline: from a kernel to its launch on the host, and back",
               "rows"),
    KeyBinding("s", "sort", "sort", "sort by the next column in sight (a click on a heading does it too)",
               "rows"),
    KeyBinding("z", "sort_within", "sort within", "sort equal rows by one more column (or Shift and a click)",
               "rows"),
    KeyBinding("S", "reverse", "reverse", "reverse the sort order (of several columns: of the last)", "rows"),
    KeyBinding("Z", "default_order", "default order", "back to the order in which the view opened", "rows"),
    KeyBinding("o", "group", "group", "group by kernel, op, layer, phase, …", "rows"),
    KeyBinding("L", "lens", "lens", "the next lens (clock of the times): gpu, wall, wait, host", "rows"),
    KeyBinding("p", "phase", "phase", "another phase: all, prefill, decode, …", "rows"),
    KeyBinding("u", "per", "per step", "in total, per step, per token", "rows"),
    KeyBinding("right_square_bracket", "next_part", "next step", "next step, or layer if in focus", "rows",
               "]"),
    KeyBinding("left_square_bracket", "previous_part", "previous step", "previous step or layer", "rows",
               "["),
    KeyBinding("plus,equals_sign", "zoom_in", "zoom in", "zoom in: time on a timeline, else steps", "rows",
               "+"),
    KeyBinding("minus", "zoom_out", "zoom out", "zoom out", "rows", "-"),
    KeyBinding("0", "zoom_all", "everything", "show the whole range", "rows"),
    KeyBinding("W", "steady", "no warm-up", "hide the warm-up, or show it again", "rows"),
    KeyBinding("r", "runs", "runs", "choose a run, an open one or a saved one", "rows"),
    KeyBinding("d", "diff", "diff",
               "compare with the baseline; two marked steps, or calls of a kernel, with each other", "rows"),
    KeyBinding("b", "pin", "baseline", "make this run the baseline that others are compared with", "rows"),
    KeyBinding("a", "changed", "changed only", "in a comparison: only rows that changed, or all", "rows"),
    KeyBinding("F", "fix", "what to fix", "what to fix first in this run", "rows"),
    KeyBinding("m", "mark", "mark", "mark the row (saved); charts show the marked rows", "rows"),
    KeyBinding("A", "note", "note", "write a note about the row (saved, shown in the line below)", "rows"),
    KeyBinding("H", "history", "history", "how the row changed over the runs in the log", "rows"),
    KeyBinding("M", "link", "link marked", "link two marked rows as the same work; unlink a linked one",
               "rows"),
    KeyBinding("w", "one_table", "one table", "two tables side by side, or one wide table", "rows"),
    KeyBinding("v", "columns", "columns", "choose columns and their order (saved)", "rows"),
    KeyBinding("e", "full_names", "names in full", "names in full", "rows"),
    KeyBinding("y", "copy_row", "copy", "copy the row", "rows"),
    KeyBinding("Y", "copy_markdown", "copy Markdown", "copy the row as Markdown", "rows"),
    KeyBinding("x", "export", "export", "write this view to a file", "rows"),
    KeyBinding("down,j", "move_down", "down", "down", "rows", "↓ j"),
    KeyBinding("up,k", "move_up", "up", "up", "rows", "↑ k"),
    KeyBinding("right,l", "move_right", "right", "next column or cell, later on a timeline", "rows", "→ l"),
    KeyBinding("left,h", "move_left", "left", "previous column or cell, earlier on a timeline", "rows",
               "← h"),
    KeyBinding("pagedown,ctrl+f", "page_down", "page down", "a page down", "rows", "PgDn"),
    KeyBinding("pageup,ctrl+b", "page_up", "page up", "a page up", "rows", "PgUp"),
    KeyBinding("ctrl+d", "half_down", "half page", "half a page down", "rows", "Ctrl+D"),
    KeyBinding("ctrl+u", "half_up", "half page up", "half a page up", "rows", "Ctrl+U"),
    KeyBinding("g,home", "first", "first row", "first row; start of a timeline", "rows", "g Home"),
    KeyBinding("G,end", "last", "last row", "last row; end of a timeline", "rows", "G End"),
    KeyBinding("f", "now", "now", "the last seconds against the whole run, and the last minute",
               "live"),
    KeyBinding("c", "mode", "capture mode", "capture in another way: spans, windows, continuous", "live"),
    KeyBinding("colon", "prompt", "prompt", "a new prompt for the engine", "live", ":"),
    KeyBinding("R", "restart", "restart", "restart the engine; the old run stays for d", "live"),
    KeyBinding("E", "engine", "new options", "restart it with other options: --path, --quant …", "live"),
    KeyBinding("O", "output", "output", "output of the program or engine, and back", "live"),
    KeyBinding("space", "pause", "hold", "hold the screen; recording continues", "live", "Space"),
    KeyBinding("ctrl+l", "redraw", "draw again", "draw the screen again, if something else wrote on it",
               label="Ctrl+L"),
    KeyBinding("ctrl+z", "suspend", "to the shell", "to the shell; `fg` comes back", label="Ctrl+Z"),
)  # fmt: skip

# Footers by place: commands, the most useful first, with their words there.
FOOTERS: Final[Mapping[str, Mapping[str, str]]] = {
    "table": {"enter": "in", "filter": "filter", "sort": "sort", "group": "group", "export": "export",
              "diff": "diff", "per": "per"},
    "drawing": {"enter": "in", "next_view": "next view", "filter": "filter", "diff": "diff",
                "export": "export", "phase": "phase"},
    "time": {"zoom_in": "zoom", "zoom_out": "out", "zoom_all": "all", "next_match": "next",
             "move_right": "later", "move_left": "earlier", "move_down": "row", "launch": "launch",
             "enter": "in", "filter": "filter", "next_view": "next view", "export": "export"},
    "diff": {"enter": "in", "changed": "changed", "filter": "filter", "export": "export", "mark": "mark",
             "link": "link", "next_view": "next view", "diff": "another run"},
    "pair": {"enter": "in", "next_view": "next view", "diff": "rows", "export": "export", "phase": "phase"},
    "many": {"enter": "in", "filter": "filter", "sort": "sort", "pin": "divide", "next_part": "by the next",
             "export": "export"},
    "list": {"enter": "choose", "filter": "path of a file", "pin": "baseline"},
    "history": {"enter": "open the run"},
    "columns": {"enter": "show or hide", "move_left": "to the left", "move_right": "to the right"},
    "guides": {"enter": "open"},
    "help": {"enter": "guides"},
    "page": {},
}  # fmt: skip
# What is added by who writes the file (`Workspace.engine_state`).
ENGINE_FOOTERS: Final[Mapping[str, Mapping[str, str]]] = {
    "none": {},
    "followed": {"pause": "hold", "now": "now"},
    "foreign": {"pause": "hold", "now": "now", "output": "output", "restart": "restart"},
    "bundled": {"pause": "hold", "prompt": "prompt", "mode": "mode", "engine": "options"},
    "dead": {"restart": "restart", "engine": "options", "output": "output"},
}
MORE_FOOTER: Final = (
    "runs", "columns", "phase", "per", "lens", "sort", "mark", "full_names", "copy_row",
)  # fmt: skip

# Commands on the displayed picture: they wait until it answers the question of the session.
NEEDING_AN_ANSWER: Final = frozenset(
    (
        "enter", "next_match", "previous_match", "launch", "sort", "sort_within", "reverse", "default_order",
        "mark", "note", "history",
        "notes", "link", "one_table", "columns", "full_names", "copy_row", "copy_markdown", "export",
        "move_down", "move_up", "move_right", "move_left", "zoom_in", "zoom_out", "zoom_all",
        "page_down", "page_up", "half_down", "half_up", "first", "last",
    )
)  # fmt: skip
# Commands that work before anything is read; the others wait for the first view.
WHILE_LOADING: Final = frozenset(
    ("quit", "back", "palette", "suspend", "redraw", "pause", "mode", "prompt", "restart", "engine", "output")
)
# Commands that open the input line or the palette: keys behind them may be text.
OPENING_THE_LINE: Final = frozenset(("filter", "note", "export", "prompt", "engine", "palette"))
DIGITS: Final = 9
TAB_KEYS: Final = {str(number): f"tab_{number}" for number in range(1, DIGITS + 1)}  # key → command
NEEDING_ALL_VIEWS: Final = frozenset(("next_view", "previous_view", "help", *TAB_KEYS.values()))
# Commands that leave the displayed picture: they skip keys that wait for it.
LEADING_ELSEWHERE: Final = NEEDING_ALL_VIEWS | WHILE_LOADING | {"runs", "diff"}


def map_keys_to_commands(table: Sequence[KeyBinding] = KEYS) -> dict[str, str]:
    """Return the command of each key, those of tabs included."""
    return {name: key.command for key in table for name in key.keys.split(",") if name} | TAB_KEYS


def format_keys(key: KeyBinding) -> str:
    """Return the keys of a command as the screen shows them."""
    return key.label or key.keys


class KeyContext(NamedTuple):
    """What decides which keys the footer shows."""

    place: str = "page"  # one of FOOTERS
    engine: str = "none"  # one of ENGINE_FOOTERS
    enters: bool = False  # whether Enter would open something
    leaves: bool = False  # whether Esc would leave something


def list_footer_keys(now: KeyContext, table: Sequence[KeyBinding] = KEYS) -> list[tuple[str, str]]:
    """Return keys and their words: the ways out, then those of the engine, of the place, and the rest."""
    words_here = {**ENGINE_FOOTERS[now.engine], **FOOTERS[now.place]}
    rest = MORE_FOOTER if now.place in ("table", "drawing", "diff", "pair", "many", "time") else ()
    by_command = {key.command: key for key in table}
    words = {"quit": "quit", "help": "help"} | ({"back": "out"} if now.leaves else {}) | words_here
    words |= {command: by_command[command].short for command in rest if command not in words}
    if not now.enters:
        words.pop("enter", None)
    labels = ((format_keys(by_command[command]).split(" ")[0], word) for command, word in words.items())
    return [(label, word) for label, word in labels if label]


def select_keys(keys: Sequence[KeyBinding], *, rows: bool, live: bool) -> list[KeyBinding]:
    """Return the commands that are possible with rows, and with a live file."""
    is_possible = {"": True, "rows": rows, "live": live}
    return [key for key in keys if is_possible[key.when]]
