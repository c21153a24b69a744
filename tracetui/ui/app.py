"""The explorer: what each key does to the desk, and how the screen is opened and left."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from textual.app import SystemCommand
from textual.screen import Screen

from capture.errors import UsageError
from tracetui import units
from tracetui.ui import keys, row_text
from tracetui.ui.commands import COMMANDS, pan, sort_by
from tracetui.ui.comparing import CHOICES
from tracetui.ui.drafting import Drafting
from tracetui.ui.messages import Entered, LeaveAsked, SortAsked
from tracetui.ui.options import Options
from tracetui.ui.terminal import tty
from tracetui.ui.terminal.driver import Driver
from tracetui.ui.terminal.theme import PALETTES
from tracetui.ui.workers.follow import Following
from tracetui.ui.workers.read import Reading
from tracetui.views import Focus, entered

__all__ = ["Explorer", "Options", "run"]

FARTHEST: Final = 1 << 20
LEAVES: Final = ("detail", "pair", "counters", "memory", "log", "import")


class Explorer(Drafting):
    """The desk with its keys."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While the input line is open, its keys are its own."""
        return not (action == "do" and self.draft is not None)

    def action_do(self, name: str) -> None:
        """A key of the table: a change of the session, or something done here."""
        self._remember_row()
        if name.startswith("tab_"):
            self.open_tab(int(name.removeprefix("tab_")))
        elif name in COMMANDS and not (name == "back" and self.leave()):
            if self.page == "view":
                self.become(COMMANDS[name](self.session))
        elif name not in COMMANDS:
            getattr(self, f"do_{name}")()

    def open_tab(self, number: int) -> None:
        if number <= len(self.tabs):
            self._remember_row()
            self.become(self.session.at(self.tabs[number - 1].name))

    def _remember_row(self) -> None:
        """The look carries the cursor, so that coming back finds it."""
        if self.page == "view" and self.main.shows_table:
            self.session = self.session.looking(cursor=(self.main.table.cursor, 0))

    def leave(self) -> bool:
        """Out of the help or a list of choices; when none is open, there is more to do."""
        if self.page in ("help", *CHOICES) and self.views:
            self.page = "view"
            self._show_answer()
            self.ask()  # the runs may have grown meanwhile
        elif self.page in ("loading", "refused"):
            self.do_quit()
        else:
            return False
        return True

    def do_quit(self) -> None:
        self.exit(return_code=130 if self.page == "loading" else self.failed)

    def do_suspend(self) -> None:
        self.action_suspend_process()

    def do_palette(self) -> None:
        self.action_command_palette()

    def do_help(self) -> None:
        if self.page == "help":
            self.leave()
        elif self.views:
            self.show_help()

    # moving

    def do_move_down(self) -> None:
        self._move(1, 0)

    def do_move_up(self) -> None:
        self._move(-1, 0)

    def do_move_right(self) -> None:
        self._move(0, 1)

    def do_move_left(self) -> None:
        self._move(0, -1)

    def do_page_down(self) -> None:
        self._turn(1)

    def do_page_up(self) -> None:
        self._turn(-1)

    def do_half_down(self) -> None:
        self._turn(0.5)

    def do_half_up(self) -> None:
        self._turn(-0.5)

    def do_first(self) -> None:
        self._go_far(-FARTHEST)

    def do_last(self) -> None:
        self._go_far(FARTHEST)

    def _go_far(self, by: int) -> None:
        """To the first or last row; on a timeline to its begin or end."""
        over_time = self.page == "view" and self.view.over_time
        self._move(0 if over_time else by, by if over_time else 0)

    def _move(self, rows: int, columns: int) -> None:
        if self.main.shows_table:
            if columns:
                self.main.table.shift(columns)
            else:
                self.main.table.move(rows)
        elif self.page == "view" and columns and self.view.over_time:
            self.become(pan(self.session, columns))
        elif self.page == "view" and self.main.has_cursor:
            self._move_cell(rows, columns)
        else:
            self.main.scroll_drawing(rows)

    def _turn(self, pages: float) -> None:
        if self.main.shows_table:
            self.main.table.turn(pages)
        else:
            self._move(round(pages * self.main.pane.height), 0)

    def _move_cell(self, rows: int, columns: int) -> None:
        """To another cell; where the drawing ends, it comes out the same and the cursor goes back."""
        row, column = self.session.look.cursor
        last = max(0, self._answer.rows.height - 1)
        cursor = (max(0, min(last, row + rows)), max(0, column + columns))
        self.become(self.session.looking(cursor=cursor))

    def do_next_match(self) -> None:
        self._match(1)

    def do_previous_match(self) -> None:
        self._match(-1)

    def _match(self, direction: int) -> None:
        if not self.main.table.match(self._pattern, direction):
            self.tell("nothing fits" if self._pattern else "/ takes an expression first")

    # in and out

    def do_enter(self) -> None:
        if self.page in CHOICES:
            self.chosen()
        elif self.page == "view" and self.doubted:
            self.become(self.session.looking(terms=replace(self.session.look.terms, forced=True)))
        elif self.page == "view" and self.shown_view != self.session.view:
            self.tell("the rows are still to come")
        elif self.page == "view":
            seen = self.main.shows_table or self.main.has_cursor
            focus = entered(self.view, self._answer, self.session.look) if seen else ()
            target = self._deeper(focus)
            if target is None:
                self.tell("there is nothing further in")
            else:
                self.become(self.session.into(target, focus))

    def _deeper(self, focus: Focus) -> str | None:
        """A table of tables opens one; a kernel opens in detail; else come the kernels inside."""
        asked, here = dict(focus), self.view.name
        if "table" in asked and not self.session.look.focus:
            return here
        if not asked or here in LEAVES or "table" in asked:
            return None
        return "pair" if here == "diff" else "detail" if "name" in asked else "kernels"

    def on_entered(self, message: Entered) -> None:
        self._remember_row()
        self.do_enter()

    def on_sort_asked(self, message: SortAsked) -> None:
        if self.page == "view":
            self.become(sort_by(self.session, message.column))

    def do_next_view(self) -> None:
        self._beside(1)

    def do_previous_view(self) -> None:
        self._beside(-1)

    def _beside(self, by: int) -> None:
        """The next view that the run can feed."""
        fed = [i for i, (_, can) in enumerate(self.titles()) if can]
        here = self._tab()
        if fed:
            ahead = [i for i in fed if (i - here) * by > 0]
            self.open_tab((ahead or fed)[0 if by > 0 else -1] + 1)

    def do_mark(self) -> None:
        """The row joins those that a chart shows, or leaves them."""
        row = self.main.table.sheet.identity(self.main.table.cursor) if self.main.shows_table else ()
        row = row or tuple(v for _, v in entered(self.view, self._answer, self.session.look))
        if self.page == "view" and row:
            chosen = self.session.look.chosen
            chosen = tuple(c for c in chosen if c != row) if row in chosen else (*chosen, row)
            self.become(self.session.looking(chosen=chosen))

    # copying

    def do_copy_row(self) -> None:
        self._copy(row_text.plain)

    def do_copy_markdown(self) -> None:
        self._copy(row_text.markdown)

    def _copy(self, written: Any) -> None:
        """Handed to the terminal; whether it arrives in a clipboard, only the terminal knows."""
        if not self.options.clipboard:
            self.tell("the clipboard is off (--no-clipboard)")
            return
        shows_rows = self.main.shows_table
        text = written(self.main.table.row) if shows_rows else row_text.drawing(self._lines or ())
        sequence = tty.clipboard(text)
        if sequence is None:
            self.tell(f"{len(text):,} characters are too many for a clipboard; x writes a file")
        elif self._driver is not None:
            self._driver.write(sequence)
            self.tell(f"{len(text.encode()):,} bytes sent to the terminal's clipboard")

    # the palette, and the end

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette is the key table again, with the views and the themes."""
        for key in keys.possible(keys.KEYS, rows=True, live=self.options.follow):
            told = key.text if key.text.startswith(key.short) else f"{key.short}: {key.text}"
            yield SystemCommand(told, keys.written(key), lambda do=key.do: self.action_do(do))
        for number, view in enumerate(self.tabs, 1):
            yield SystemCommand(view.title, "view", lambda n=number: self.open_tab(n))
        for column in self.session.columns:
            told = f"sort by {units.heading(column)}"
            yield SystemCommand(told, "order", lambda c=column: self.become(sort_by(self.session, c)))
        for name in PALETTES:
            yield SystemCommand(f"theme {name}", "colours", lambda n=name: setattr(self, "theme", n))

    def _fatal_error(self) -> None:
        """The command line tells of it in one sentence, once the terminal is itself again."""
        self._close_messages_no_wait()

    @property
    def crash(self) -> Exception | None:
        return self._exception


def _reading(paths: list[str], options: Options) -> Reading | Following:
    """A file that grows is followed; with others beside it, all are read once."""
    if options.follow and len(paths) == 1:
        return Following(paths[0], options.engine, options.view, options.beside)
    return Reading(paths, options.cache, options.view, options.merge)


def run(paths: Sequence[str | Path], options: Options) -> int:
    """The screen, until it is left; its exit code."""
    reason = tty.unusable()
    if reason is not None:
        raise UsageError("no screen can be shown", why=reason, todo="tracetui report prints any view")
    options = replace(options, ascii=options.ascii or not tty.speaks_unicode())
    app = Explorer(_reading([str(p) for p in paths], options), options, Driver)
    with tty.Guard(lambda number: app.post_message(LeaveAsked(128 + number))) as guard:
        app.run()
    if guard.received is not None:
        return 128 + guard.received
    if app.crash is not None:
        raise app.crash
    return app.return_code or 0
