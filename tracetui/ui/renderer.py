"""Draw the workspace on the main screen: header, tabs, page, status and keys."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from textual.geometry import Size as Cells

from tracetui.look import format_focus_value
from tracetui.ui.key_table import KeyContext
from tracetui.ui.main_screen import MainScreen, RowText
from tracetui.ui.pages import ListPage, ViewPage, bands, input_draft
from tracetui.ui.pages.help_page import GuidePage, HelpPage, list_view_keys
from tracetui.ui.pages.text_pages import LoadingPage, OutputPage, RefusedPage, draw_doubts, draw_notes
from tracetui.ui.session import HistoryEntry, RowKey
from tracetui.ui.sheet import measure_sheet
from tracetui.ui.widgets import TablePane
from tracetui.ui.workspace import Workspace
from tracetui.views.diff import build_titles
from tracetui.views.ink import DrawSize, Line, Span

Timer = Callable[[float, Callable[[], None]], object]  # calls a function once, after seconds
MOST_DESCRIBED_ROWS: Final = 100  # whose texts decide how much room they get
FAR_LINES: Final = 1 << 20
MARGIN: Final = 1  # cells to the left of a drawing, as tables and bands have them
MESSAGE_S: Final = 6.0  # a message stays in the status line for so long


class Renderer:
    """Draws; it decides nothing."""

    def __init__(
        self, workspace: Workspace, main: MainScreen, size: Callable[[], Cells], later: Timer
    ) -> None:
        self.main_screen = main
        self._workspace, self._measure_screen, self._set_timer = workspace, size, later
        self._view_keys = list_view_keys(workspace.options.keys)
        self.message = ""  # in the status line
        self._printed_bytes = -1  # bytes of output that are displayed
        self.is_covered = True  # whether a page covers the last picture

    @property
    def table(self) -> TablePane:
        return self.main_screen.table

    def measure_pane(self) -> DrawSize:
        """Return the size and the options for a drawing, at least one cell, without its margin."""
        pane = self.main_screen.pane_size
        return self._build_size(max(1, pane.width - MARGIN), max(1, pane.height))

    def _build_size(self, width: int, height: int) -> DrawSize:
        options = self._workspace.options
        return DrawSize(width, height, options.ascii, options.colours, self._view_keys)

    def show_message(self, text: str, seconds: float = MESSAGE_S) -> None:
        """Show a message in the status line for a while."""
        self.message = text
        self.show_bands()
        self._set_timer(seconds, lambda: self.clear_message(text))

    def clear_message(self, text: str) -> None:
        """Remove a message from the status line if it is still there."""
        if self.message == text:
            self.message = ""
            self.show_bands()

    # the page

    def show_page(self, row: int = 0, *, keep_top: bool = False) -> None:
        """Draw the page that is shown in place of a view; of a list, with the cursor on a row."""
        page, session = self._workspace.page, self._workspace.session
        self.is_covered = not isinstance(page, ViewPage)
        if isinstance(page, ListPage):
            answer = page.answer(session)
            look = replace(session.look, sort=None, chosen=(), columns=(), one_table=True, full_names=False)
            sheet = measure_sheet(answer.rows, page.columns[:1], page.columns)
            self.main_screen.show_lead(())
            self.main_screen.show_pane(table=True)
            self.table.show(sheet, look, row, answer.notes)
        elif not isinstance(page, ViewPage):
            lines = page.draw_lines(self._build_size(*self._measure_screen()))
            self.main_screen.show_drawing(lines, keep_top=keep_top)
        self.show_bands()

    def show_progress(self) -> None:
        """Draw the page of loading or of output again, if it is shown."""
        if isinstance(self._workspace.page, LoadingPage):
            self.show_page()
        elif isinstance(self._workspace.page, OutputPage):
            self.show_output()

    def show_output(self, *, from_start: bool = False) -> None:
        """Draw new output of the engine; stay at the end if the last line was visible."""
        page = self._workspace.page
        if not isinstance(page, OutputPage) or (
            page.engine.printed_bytes == self._printed_bytes and not from_start
        ):
            return
        self._printed_bytes = page.engine.printed_bytes
        at_end = from_start or self.main_screen.drawing.is_at_end
        self.show_page(keep_top=True)
        if at_end:
            self.main_screen.drawing.scroll_lines(FAR_LINES)

    def show_picture(self, *, grown: bool = False) -> None:
        """Draw the answer of a view; if it has only grown, the cursor stays on its row."""
        picture, look = self._workspace.picture, self._workspace.session.look
        if picture is None:
            return
        stays = grown or not (self.is_covered or self.main_screen.shows_table)
        self.is_covered = False
        width = self._measure_screen().width
        if self._workspace.has_unread_doubts:
            self.main_screen.show_drawing(draw_doubts(picture.raw_answer.doubts, width))
        elif picture.lines is None:
            view, noted, lead = picture.question.view, self._list_noted_rows(), picture.answer.leading_notes
            notes = picture.answer.notes[lead:]
            follow = self._workspace.live is not None and view.newest_last and look.sort is None
            # At first the cursor is on the newest row.
            is_first_time = follow and view.name not in self._workspace.session.looks
            row = None if grown else FAR_LINES if is_first_time else look.cursor[0]
            self.main_screen.show_pane(table=True)
            self.main_screen.show_lead(picture.answer.notes[:lead])
            self.table.show(picture.sheet, look, row, notes, follow=follow, noted=noted)
        else:
            lines = _add_margin(picture.lines) or draw_notes(picture.answer.notes, width)
            self.main_screen.show_drawing(lines, keep_top=stays)
        self.show_bands()

    def show_resized(self) -> None:
        """Fit the bands and the pages of text to the size of the terminal."""
        self.main_screen.fit_to_size(self._measure_screen())
        if isinstance(self._workspace.page, HelpPage | GuidePage):
            self.show_page(keep_top=True)
        self.show_bands()

    # the bands

    def show_bands(self) -> None:
        """Draw header, tabs, status and keys."""
        workspace, session, width = self._workspace, self._workspace.session, self._measure_screen().width
        count, indices, live = len(session.runs), self._list_displayed_runs(), workspace.live
        place = f"run {session.current + 1} of {count}" if count > 1 else ""
        displayed = [(session.runs[i], session.infos[i]) for i in indices]
        is_written = not count or count - 1 in (indices or (session.current,))
        badge = live.badge + ", held" * workspace.is_paused if live is not None and is_written else ""
        titles, places = build_titles(*session.runs), self._list_places()
        title = titles[session.current] if len(set(titles)) == count > 1 else ""
        head = bands.draw_header(
            session.run, session.info, session.look.lens, width, place, badge, displayed, places, title
        )
        tabs = bands.draw_tabs(workspace.tab_titles, workspace.tab_index, width)
        if workspace.draft is not None:
            foot = input_draft.draw_draft(workspace.draft, width)
        else:
            foot = bands.draw_footer(width, self._describe_context(), workspace.options.keys)
        self.main_screen.show_bands(head, tabs, foot)
        self.show_status()

    def _list_places(self) -> list[str]:
        """Return the view of the tab and the rows entered from it; `…` before their answer comes."""
        workspace, session = self._workspace, self._workspace.session
        if not workspace.is_showing_view or not workspace.views:
            return []
        trail = [*session.trail, HistoryEntry(session.view, session.look)]
        names = workspace.picture.raw_answer.names if workspace.picture is not None else {}
        places, before = [workspace.find_view(trail[0].view).title], trail[0].look.focus_values
        for entry in trail[1:]:
            now = entry.look.focus_values
            entered = [_format_place(k, v, names) for k, v in now.items() if before.get(k, ()) != v]
            places += entered or [workspace.find_view(entry.view).title]
            before = now
        is_awaited = workspace.picture is not None and workspace.displayed_picture is None
        return [*places, "~" if workspace.options.ascii else "…"] if is_awaited else places

    def find_tab_at(self, column: int) -> int | None:
        """Return the number of the tab at a column of the tab line, or None."""
        titles, current = self._workspace.tab_titles, self._workspace.tab_index
        return bands.find_tab_at(titles, current, self._measure_screen().width, column)

    def _list_displayed_runs(self) -> tuple[int, ...]:
        """Return the indices of the displayed runs."""
        workspace = self._workspace
        if not workspace.is_showing_view or not workspace.views:
            return ()
        return workspace.session.list_indices_for(workspace.view)

    def _describe_context(self) -> KeyContext:
        """Return the context by which the footer chooses its keys."""
        workspace = self._workspace
        away = not isinstance(workspace.page, ViewPage | LoadingPage | RefusedPage)
        leaves = away or bool(workspace.session.trail or workspace.session.look.filter)
        rows = self.main_screen.shows_table and not self.table.sheet.rows.is_empty()
        is_entered = self.main_screen.has_cursor or workspace.session.view == "detail"
        enters = rows or is_entered or isinstance(workspace.page, HelpPage)
        return KeyContext(self._choose_footer(), workspace.engine_state, enters, leaves)

    def _choose_footer(self) -> str:
        """Return the key of FOOTERS for the page or view."""
        page = self._workspace.page
        if not isinstance(page, ViewPage):
            return str(page.footer)
        view = self._workspace.view
        if view.has_time_axis:
            return "time"
        if view.run_count > 2:
            return "many"
        table, drawing = ("diff", "pair") if view.run_count == 2 else ("table", "drawing")
        return table if self.main_screen.shows_table else drawing

    def show_status(self) -> None:
        """Draw the status line and, if wanted, the full name under the cursor."""
        workspace, table, width = self._workspace, self.table, self._measure_screen().width
        shows_view = workspace.is_showing_view
        shows_rows = self.main_screen.shows_table and shows_view
        name = next(iter(table.row.values()), None) if workspace.session.look.full_names else None
        prose, of_all = self._list_texts_of_row() if shows_rows else ((), ())
        shown_name = name if isinstance(name, str) and shows_rows else ""
        self.main_screen.show_row_in_full(shown_name, prose, of_all)
        look = workspace.session.look if shows_view else replace(workspace.session.start, filter="")
        if not shows_view or workspace.view.run_count < 2:  # only comparisons have unchanged rows
            look = replace(look, terms=replace(look.terms, changed_only=False))
        alarm = workspace.live.alarm if workspace.live is not None else ""
        message = self.message or alarm or self._find_note()
        line = bands.draw_status(look, self._format_position(), message, self._list_notes(width), width)
        self.main_screen.show_status(line)

    def _list_texts_of_row(self) -> tuple[Sequence[RowText], Sequence[Sequence[RowText]]]:
        """Return the texts below the table about the row under the cursor, and those of the first rows.

        Views that say nothing of their rows have the sentences that the table cuts.
        """
        table, picture = self.table, self._workspace.displayed_picture
        describe_row = picture.question.view.describe_row if picture is not None else None
        if describe_row is None or picture is None or table.sheet is not picture.sheet or not table.row:
            return table.sheet.list_hidden_prose(table.cursor, table.columns), ()
        rows = table.sheet.rows.head(MOST_DESCRIBED_ROWS)
        return describe_row(table.row), [describe_row(row) for row in rows.iter_rows(named=True)]

    def _list_noted_rows(self) -> Mapping[RowKey, str]:
        """Return the notes of the view, which are about its rows at the top level."""
        session = self._workspace.session
        return session.notes if not session.trail else {}

    def _find_note(self) -> str:
        """Return the note about the row under the cursor, or an empty text."""
        if not self._workspace.is_showing_view or not self.main_screen.shows_table:
            return ""
        return self._list_noted_rows().get(self.table.sheet.read_key(self.table.cursor), "")

    def _format_position(self) -> str:
        """Return the position of the cursor among the rows."""
        if not self.main_screen.shows_table:
            return ""
        count = self.table.sheet.rows.height
        if not count:
            return "no rows" if self._workspace.is_showing_view else ""
        return f"row {self.table.cursor + 1:,}/{count:,}"

    def _list_notes(self, width: int) -> Sequence[str]:
        workspace, session = self._workspace, self._workspace.session
        shows_view, last = workspace.is_showing_view, len(session.runs) - 1
        answer = workspace.picture.answer if workspace.picture is not None and shows_view else None
        notes = answer.notes[answer.leading_notes :] if answer is not None else ()
        is_growing = workspace.is_growing and last in self._list_displayed_runs()
        if is_growing and session.infos[last].steps and workspace.view.run_count > 1:
            step = session.infos[last].steps[-1]
            return (f"up to step {step:,} of {session.runs[last].name}, which continues", *notes)
        text = self._find_model_text()
        return (f"… {text[-(width // 2) :]}", *notes) if text else notes

    def _find_model_text(self) -> str:
        """Return the last text of the model if it has a meaning: that of random weights has none."""
        live, session = self._workspace.live, self._workspace.session
        if live is None or session.run is None or session.current < len(session.runs) - 1:
            return ""
        is_random = str(session.run.meta.get("weights") or "").startswith("random")
        return "" if is_random else live.model_text


def _add_margin(lines: Sequence[Line]) -> list[Line]:
    return [(Span(" " * MARGIN), *line) for line in lines]


def _format_place(column: str, value: object, names: Mapping[str, str]) -> str:
    """Return an entered row as a title has it: a name as it is shown, a number with its column."""
    text = format_focus_value(value).strip()
    first = value[0] if isinstance(value, tuple) and value else value
    if isinstance(first, int) or value is None:
        return text if column == "number" else f"{column} {text}"  # of launches, whose view says so
    return names.get(text, text)
