"""The key table: what each key does, the footer, the palette and the help are all made from it."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple


class Key(NamedTuple):
    """One thing that keys do."""

    keys: str  # as Textual names them, by comma
    do: str  # the name of the command, see key_commands
    short: str  # what it does, in a word or two
    text: str  # the same in the help
    when: str = ""  # `rows`: a table or drawing with a cursor; `live`; empty: always
    shown: str = ""  # how the keys are written; empty: as they are named


KEYS: Final = (
    Key("q,ctrl+q,ctrl+c", "quit", "quit", "quit", shown="q"),
    Key("question_mark,f1", "help", "help", "this help", shown="? F1"),
    Key("ctrl+p", "palette", "find a command", "find a command by its name", shown="Ctrl+P"),
    Key("tab", "next_view", "next view", "next view", shown="Tab"),
    Key("shift+tab", "previous_view", "previous view", "previous view", shown="Shift+Tab"),
    Key("enter", "enter", "into the row", "into the row or cell", "rows", "Enter"),
    Key("escape,backspace", "back", "out", "clear the filter, then one level out", shown="Esc"),
    Key("slash", "filter", "filter", "a regular expression, op:attn, share:>5; of runs: a path", "rows", "/"),
    Key("n", "next_match", "next match", "next row that fits the last expression; next slice of a timeline",
        "rows"),
    Key("N", "previous_match", "previous match", "previous row that fits it; previous slice", "rows"),
    Key("t", "launch", "launch", "of a timeline: from a kernel to its launch on the host, and back", "rows"),
    Key("s", "sort", "sort", "sort by the next column (a click on a heading does it too)", "rows"),
    Key("z", "sort_within", "sort within", "sort equal rows by a further column (or Shift and a click)",
        "rows"),
    Key("S", "reverse", "turn order", "turn the order round; of several columns that of the last", "rows"),
    Key("o", "group", "group", "group by kernel, op, layer, phase, …", "rows"),
    Key("L", "lens", "lens", "another stopwatch: gpu, wall, wait, host", "rows"),
    Key("p", "phase", "phase", "another phase: all, prefill, decode, …", "rows"),
    Key("u", "per", "per step", "in total, per step, per token", "rows"),
    Key("right_square_bracket", "next_part", "next step", "next step, or layer if in focus", "rows", "]"),
    Key("left_square_bracket", "previous_part", "previous step", "previous step or layer", "rows", "["),
    Key("plus,equals_sign", "zoom_in", "zoom in", "zoom in: on a timeline time, else steps", "rows", "+"),
    Key("minus", "zoom_out", "zoom out", "zoom out", "rows", "-"),
    Key("0", "zoom_all", "everything", "everything", "rows"),
    Key("W", "steady", "no warm-up", "only the steps of the steady state, without the warm-up", "rows"),
    Key("r", "runs", "runs", "choose a run, an open one or a saved one", "rows"),
    Key("d", "diff", "diff", "against the baseline; on the diff: against which run", "rows"),
    Key("b", "pin", "baseline", "this run is the baseline that others are measured against", "rows"),
    Key("a", "changed", "changed only", "of a comparison: only rows that changed, or all", "rows"),
    Key("F", "fix", "what to fix", "what to fix first in this run", "rows"),
    Key("f", "now", "now", "the present: the last seconds against the run, and the last minute", "rows"),
    Key("m", "mark", "mark", "mark the row, which is kept; a chart shows the marked rows", "rows"),
    Key("A", "note", "note", "a note about the row, which is kept; the line below tells it", "rows"),
    Key("M", "link", "link marked", "two marked rows are the same work; on a linked one: no longer", "rows"),
    Key("w", "one_table", "one table", "two tables side by side, or one wide table", "rows"),
    Key("v", "columns", "columns", "which columns to show, and in which order; kept", "rows"),
    Key("e", "full_names", "names in full", "names in full", "rows"),
    Key("y", "copy_row", "copy", "copy the row", "rows"),
    Key("Y", "copy_markdown", "copy Markdown", "copy the row as Markdown", "rows"),
    Key("x", "export", "export", "write this view to a file", "rows"),
    Key("down,j", "move_down", "down", "down", "rows", "↓ j"),
    Key("up,k", "move_up", "up", "up", "rows", "↑ k"),
    Key("right,l", "move_right", "right", "next column or cell, later on a timeline", "rows", "→ l"),
    Key("left,h", "move_left", "left", "previous column or cell, earlier on a timeline", "rows", "← h"),
    Key("pagedown,ctrl+f", "page_down", "page down", "a page down", "rows", "PgDn"),
    Key("pageup,ctrl+b", "page_up", "page up", "a page up", "rows", "PgUp"),
    Key("ctrl+d", "half_down", "half a page", "half a page down", "rows", "Ctrl+D"),
    Key("ctrl+u", "half_up", "half a page up", "half a page up", "rows", "Ctrl+U"),
    Key("g,home", "first", "first row", "first row; the begin of a timeline", "rows", "g Home"),
    Key("G,end", "last", "last row", "last row; the end of a timeline", "rows", "G End"),
    Key("c", "mode", "capture mode", "capture in another way: spans, windows, continuous", "live"),
    Key("colon", "prompt", "prompt", "a new prompt for the engine", "live", ":"),
    Key("R", "restart", "restart", "start the engine anew; the old run stays for d", "live"),
    Key("E", "engine", "engine options", "start it anew with other options, --path, --quant …", "live"),
    Key("O", "output", "output", "what the program or engine prints, and back", "live"),
    Key("space", "pause", "hold", "hold the picture; what is recorded goes on", "live", "Space"),
    Key("ctrl+l", "redraw", "draw again", "draw the screen again, where something else wrote on it",
        shown="Ctrl+L"),
    Key("ctrl+z", "suspend", "to the shell", "to the shell; `fg` comes back", shown="Ctrl+Z"),
)  # fmt: skip

# What stands in the footer, the most useful first: the place, then commands with the words for them there.
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
    "columns": {"enter": "show or hide", "move_left": "to the left", "move_right": "to the right"},
    "guides": {"enter": "open"},
    "help": {"enter": "guides"},
    "page": {},
}  # fmt: skip
ENGINES: Final[Mapping[str, Mapping[str, str]]] = {
    "none": {},
    "followed": {"pause": "hold", "now": "now"},
    "foreign": {"pause": "hold", "now": "now", "output": "output", "restart": "restart"},
    "bundled": {"pause": "hold", "prompt": "prompt", "mode": "mode", "engine": "options"},
    "dead": {"restart": "restart", "engine": "options", "output": "output"},
}
MORE: Final = ("runs", "now", "columns", "phase", "per", "lens", "sort", "mark", "full_names", "copy_row")

# Commands that act on what is in sight: they wait until it answers what is asked.
NEEDING_AN_ANSWER: Final = frozenset(
    (
        "enter", "next_match", "previous_match", "launch", "sort", "sort_within", "reverse", "mark", "note",
        "link", "one_table",
        "columns", "full_names", "copy_row", "copy_markdown", "export", "move_down", "move_up", "move_right",
        "move_left", "zoom_in", "zoom_out", "zoom_all", "page_down", "page_up", "half_down", "half_up",
        "first", "last",
    )
)  # fmt: skip
# Commands that do something while nothing is read yet; the others wait for the first view.
WHILE_LOADING: Final = frozenset(
    ("quit", "back", "palette", "suspend", "redraw", "pause", "mode", "prompt", "restart", "engine", "output")
)
OPENING_THE_LINE: Final = frozenset(("filter", "note", "export", "prompt", "engine"))

DIGITS: Final = 9
TABS: Final = {str(number): f"tab_{number}" for number in range(1, DIGITS + 1)}  # key → command
NEEDING_ALL_VIEWS: Final = frozenset(("next_view", "previous_view", "help", *TABS.values()))
# Commands that do not go on with what is in sight.
ELSEWHERE: Final = NEEDING_ALL_VIEWS | WHILE_LOADING | {"runs", "diff"}


def names_by_key(table: Sequence[Key] = KEYS) -> dict[str, str]:
    """Return the command of each key."""
    return {name: key.do for key in table for name in key.keys.split(",") if name} | TABS


def written(key: Key) -> str:
    return key.shown or key.keys


class Moment(NamedTuple):
    """What decides which keys matter now."""

    place: str = "page"  # one of FOOTERS
    engine: str = "none"  # one of ENGINES
    enters: bool = False  # whether Enter has something under it
    leaves: bool = False  # whether Esc has something to come out of


def footer(now: Moment, table: Sequence[Key] = KEYS) -> list[tuple[str, str]]:
    """Return keys and their words: the ways out, then those for the engine, for the place, and the rest."""
    here = {**ENGINES[now.engine], **FOOTERS[now.place]}
    rest = MORE if now.place in ("table", "drawing", "diff", "pair", "many", "time") else ()
    by_command = {key.do: key for key in table}
    words = {"quit": "quit", "help": "help"} | ({"back": "out"} if now.leaves else {}) | here
    words |= {do: by_command[do].short for do in rest if do not in words}
    if not now.enters:
        words.pop("enter", None)
    shown = ((written(by_command[do]).split(" ")[0], word) for do, word in words.items())
    return [(key, word) for key, word in shown if key]


def possible(keys: Sequence[Key], *, rows: bool, live: bool) -> list[Key]:
    open_now = {"": True, "rows": rows, "live": live}
    return [k for k in keys if open_now[k.when]]
