"""The key table: the bindings, the footer, the palette and the help are all made from it."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from textual.binding import Binding


class Key(NamedTuple):
    """One thing that keys do."""

    keys: str  # as Textual names them, by comma
    do: str  # the command, see App.action_do
    text: str  # what it does, in the help
    when: str = ""  # `rows`: a table or drawing with a cursor; `live`; empty: always
    short: str = ""  # in the footer; empty: not there
    shown: str = ""  # how the keys are written; empty: as they are named


KEYS: Final = (
    Key("q,ctrl+q,ctrl+c", "quit", "quit", short="quit", shown="q"),
    Key("question_mark,f1", "help", "this help", short="help", shown="? F1"),
    Key("ctrl+p", "palette", "find a command by its name", shown="Ctrl+P"),
    Key("down,j", "move_down", "down", "rows", shown="↓ j"),
    Key("up,k", "move_up", "up", "rows", shown="↑ k"),
    Key("right,l", "move_right", "next column or cell, later on a timeline", "rows", shown="→ l"),
    Key("left,h", "move_left", "previous column or cell, earlier on a timeline", "rows", shown="← h"),
    Key("pagedown,ctrl+f", "page_down", "a page down", "rows", shown="PgDn"),
    Key("pageup,ctrl+b", "page_up", "a page up", "rows", shown="PgUp"),
    Key("ctrl+d", "half_down", "half a page down", "rows", shown="Ctrl+D"),
    Key("ctrl+u", "half_up", "half a page up", "rows", shown="Ctrl+U"),
    Key("g,home", "first", "first row", "rows", shown="g Home"),
    Key("G,end", "last", "last row", "rows", shown="G End"),
    Key("enter", "enter", "into the row or cell", "rows", "in", "Enter"),
    Key("escape,backspace", "back", "clear the filter, then one level out", short="out", shown="Esc"),
    Key("tab", "next_view", "next view", shown="Tab"),
    Key("shift+tab", "previous_view", "previous view", shown="Shift+Tab"),
    Key("slash", "filter", "only names that fit a regular expression", "rows", "filter", "/"),
    Key("n", "next_match", "next row that fits the last expression", "rows"),
    Key("N", "previous_match", "previous row that fits it", "rows"),
    Key("s", "sort", "sort by the next column (a click on a heading does it too)", "rows", "sort"),
    Key("S", "reverse", "turn the order round", "rows"),
    Key("o", "group", "group by kernel, op, layer, phase, …", "rows", "group"),
    Key("L", "lens", "another stopwatch: gpu, wall, wait, host", "rows", "lens"),
    Key("p", "phase", "another phase: all, prefill, decode, …", "rows", "phase"),
    Key("u", "per", "in total, per step, per token", "rows", "per"),
    Key("right_square_bracket", "next_part", "next step, or layer where one is in focus", "rows", shown="]"),
    Key("left_square_bracket", "previous_part", "previous step or layer", "rows", shown="["),
    Key("plus,equals_sign", "zoom_in", "zoom in: time on a timeline, steps elsewhere", "rows", shown="+"),
    Key("minus", "zoom_out", "zoom out", "rows", shown="-"),
    Key("0", "zoom_all", "everything", "rows"),
    Key("r", "runs", "choose a run, an open one or a saved one", "rows", "runs"),
    Key("b", "pin", "this run is the baseline that others are measured against", "rows"),
    Key("d", "diff", "against the baseline; on the diff: against which run", "rows", "diff"),
    Key("a", "changed", "of a comparison: only rows that changed, or all", "rows"),
    Key("M", "link", "the two marked rows are the same work; on a linked row: no longer", "rows"),
    Key("w", "one_table", "two tables side by side, or one wide table", "rows"),
    Key("v", "columns", "which columns to show", "rows"),
    Key("e", "full_names", "names in full", "rows"),
    Key("y", "copy_row", "copy the row", "rows"),
    Key("Y", "copy_markdown", "copy the row as Markdown", "rows"),
    Key("x", "export", "write this view to a file", "rows"),
    Key("m", "mark", "mark the row; a chart shows the marked rows", "rows"),
    Key("c", "mode", "capture in another way: spans, windows, continuous", "live", "mode"),
    Key("colon", "prompt", "a new prompt for the engine", "live", "prompt", ":"),
    Key("R", "restart", "start the engine anew; the old run stays, and d compares with it", "live"),
    Key("E", "engine", "start it anew with other options: --path, --dtype, --quant …", "live", "engine"),
    Key("space", "pause", "hold the picture; what is recorded goes on", "live", "pause", "Space"),
    Key("ctrl+z", "suspend", "to the shell; `fg` comes back", shown="Ctrl+Z"),
)  # fmt: skip
DIGITS: Final = 9


def bindings() -> list[Binding]:
    """The table as Textual wants it, with a digit for each of the first views.

    They have priority, so that keys typed ahead are taken in their order: what opens the input line opens it
    before the next key is looked at.
    """
    digits = [Key(str(n), f"tab_{n}", f"view {n}") for n in range(1, DIGITS + 1)]
    return [Binding(k.keys, f"app.do('{k.do}')", k.text, show=False, priority=True) for k in (*KEYS, *digits)]


def written(key: Key) -> str:
    return key.shown or key.keys


def footer(*, rows: bool, live: bool) -> list[tuple[str, str]]:
    """Key and short text of what is possible now; what an engine can be told before what a table can."""
    order = ("", "live", "rows")
    keys = sorted(possible(KEYS, rows=rows, live=live), key=lambda k: order.index(k.when))
    return [(written(k).split(" ")[0], k.short) for k in keys if k.short]


def possible(keys: Sequence[Key], *, rows: bool, live: bool) -> list[Key]:
    open_now = {"": True, "rows": rows, "live": live}
    return [k for k in keys if open_now[k.when]]
