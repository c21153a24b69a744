"""Act on the row under the cursor: its details and history; its mark, note and links, which are saved."""

import asyncio
from dataclasses import replace
from typing import Final

from capture.errors import CaptureError
from capture.run import Run
from tracetui import saved_choices
from tracetui.compare.pairing import row_matching
from tracetui.ui import saved_remarks
from tracetui.ui.controllers.base import Controller
from tracetui.ui.controllers.input_line import InputActions
from tracetui.ui.pages.input_draft import InputDraft
from tracetui.ui.pages.list_pages import RowHistory
from tracetui.ui.question import Picture
from tracetui.ui.session import RowKey
from tracetui.ui.workers import read_files
from tracetui.views import SPAN, Answer, Focus, find_focus

LEAF_VIEWS: Final = ("detail", "launches", "pair", "counters", "memory", "log", "import")  # no drill-down
VIEWS_OF_A_ROW: Final = {"steps": "why", "diff": "pair"}
# Views of which two rows can be compared → the view of their difference, and the column of its focus.
PAIRED_ROWS: Final = {"steps": ("why", "step"), "launches": ("launches", "number")}
HINT: Final = "about this row; Enter saves it, an empty note deletes it"


class RowActions(Controller):
    """Opens, marks and links rows, and writes notes about them."""

    def drill_down(self) -> None:
        """Open the details of the row under the cursor; if doubts are displayed, the rows."""
        workspace = self._workspace
        if not workspace.is_showing_view or workspace.picture is None:
            return
        if workspace.has_unread_doubts:
            self._change_look(terms=replace(workspace.session.look.terms, forced=True))
            return
        focus = self.find_focus()
        if "next" in dict(focus):  # a line of the summary
            self._answers.show_session(workspace.session.with_row(str(focus[0][1]), focus[1:]))
        elif SPAN in dict(focus):
            self._answers.show_session(workspace.session.show_span(*dict(focus)[SPAN]))
        elif workspace.view.name == "detail":
            self._answers.show_session(workspace.session.drill_down("launches", ()))
        elif (target := self._find_inner_view(focus)) is not None:
            self._answers.show_session(workspace.session.drill_down(target, focus))
        else:
            self._renderer.show_message("this row has no details")

    def find_focus(self) -> Focus:
        """Return the focus of the row under the cursor, empty if it is on none."""
        picture, screen = self._workspace.picture, self._renderer.main_screen
        if picture is None or not (screen.shows_table or screen.has_cursor):
            return ()
        self._answers.save_cursor()
        return self._find_focus_in(picture)

    def _find_focus_in(self, picture: Picture) -> Focus:
        return find_focus(picture.question.view, picture.answer, self._workspace.session.look)

    def _find_inner_view(self, focus: Focus) -> str | None:
        """Return the view that shows a focus: itself, that of a kernel, calls of a scope, else kernels."""
        columns, view = dict(focus), self._workspace.view
        current = view.name
        if view.own_focus in columns and not self._workspace.session.look.focus:
            return current
        if not columns or current in LEAF_VIEWS or "table" in columns:
            return None
        if current in VIEWS_OF_A_ROW:
            return VIEWS_OF_A_ROW[current]
        if "scope" in columns:
            return "calls"
        if "name" in columns and self._workspace.session.files is not None:
            return "ranks"  # shows which of the files takes longest
        return "detail" if "name" in columns else "kernels"

    def compare_marked(self) -> bool:
        """Compare the two marked rows, or the marked one with that under the cursor; False if none is."""
        session, row = self._workspace.session, self._read_row_key()
        marked = session.look.chosen
        if session.view not in PAIRED_ROWS or not row or not (marked or session.view == "launches"):
            return False
        view, column = PAIRED_ROWS[session.view]
        pair = marked if len(marked) > 1 else (*marked, *({row} - set(marked)))
        if len(pair) != 2:
            self._renderer.show_message(f"mark one with m, then d on another compares; marked: {len(marked)}")
        else:
            self._answers.show_session(session.drill_down(view, ((column, tuple(key[0] for key in pair)),)))
        return True

    def _read_row_key(self) -> RowKey:
        """Return the key of the row under the cursor, empty if it is on none."""
        picture, screen = self._workspace.picture, self._renderer.main_screen
        if not self._workspace.is_showing_view or picture is None:
            return ()
        row = screen.table.sheet.read_key(screen.table.cursor) if screen.shows_table else ()
        return row or tuple(v for _, v in self._find_focus_in(picture))

    # its history

    def open_history(self) -> None:
        """Read in a thread how the kernel under the cursor changed over the runs in the log."""
        session = self._workspace.session
        name = dict(self.find_focus()).get("name") if self._workspace.is_showing_view else None
        if name is None or session.run is None:
            self._renderer.show_message("only kernels have a history: ungroup (o), then choose one")
            return
        run, row = session.run, str(name)
        self._renderer.show_message("reading the log")
        self._parts.run_async(self._show_history(run, row), group="history")

    async def _show_history(self, run: Run, row: str) -> None:
        """Show the history of a row once it is read in a thread, or why there is none."""
        view = self._workspace.session.view
        history = await asyncio.to_thread(read_files.load_history, run, row)
        if not self._workspace.is_showing_view or self._workspace.session.view != view:
            return
        self._renderer.show_message(history if isinstance(history, str) else "")
        if isinstance(history, Answer):
            self.show_page(RowHistory(history))

    # marks and notes

    def toggle_mark(self) -> None:
        """Mark or unmark the row under the cursor."""
        row, chosen = self._read_row_key(), self._workspace.session.look.chosen
        if row:
            self._change_look(
                chosen=tuple(c for c in chosen if c != row) if row in chosen else (*chosen, row)
            )
            if not self._workspace.session.trail:
                self._save_remarks()

    def open_note(self) -> None:
        """Ask for a note about the row under the cursor."""
        row = self._read_row_key()
        if not row or not self._renderer.main_screen.shows_table:
            self._renderer.show_message("notes belong to rows of tables")
        elif self._workspace.session.trail:
            self._renderer.show_message("notes belong to rows of a whole view; go back with Esc")
        else:
            draft = InputDraft.from_text("note", HINT, self._workspace.session.notes.get(row, ""))
            self._input.open(draft, InputActions(lambda note: self._save_note(row, note)))

    def _save_note(self, row: RowKey, text: str) -> None:
        session = self._workspace.session
        text = text.strip()[: saved_remarks.MOST_NOTE_CHARS]
        remarks = session.remarks.with_note(session.build_remark_scope(session.view), row, text)
        self._workspace.session = replace(session, remarks=remarks)
        self._renderer.show_picture(grown=True)
        self._save_remarks()

    def _save_remarks(self) -> None:
        session = self._workspace.session
        if self._workspace.options.saves_choices and session.run is not None:
            try:
                saved_remarks.save_remarks(session.remarks, session.run.log.source)
            except CaptureError as e:
                self._renderer.show_message(str(e))

    # links

    def toggle_link(self) -> None:
        """Link the two marked rows of a diff, or remove the link under the cursor."""
        picture = self._workspace.picture
        if not self._workspace.is_showing_view or picture is None or "rows" not in picture.answer.parts:
            self._renderer.show_message("M links two marked rows of a diff: d, m, m, M")
            return
        try:
            self._toggle_link_in(picture)
        except CaptureError as e:
            self._renderer.show_message(str(e))

    def _toggle_link_in(self, picture: Picture) -> None:
        workspace, session = self._workspace, self._workspace.session
        a, b = (session.runs[i] for i in session.list_indices_for(workspace.view))
        marked, row = session.look.chosen, self._renderer.table.row
        pair: tuple[str, str]
        if not marked and row.get("match") == row_matching.BY_HAND:
            pair = str(row["name_a"]), str(row["name_b"])
            saved = row_matching.remove_link(workspace.links, a, b, *pair)
            applied = row_matching.remove_link(session.look.terms.links, a, b, *pair)
            message = "{} and {} are no longer linked"
        else:
            pair = row_matching.resolve_marked_names(picture.answer.parts["rows"], picture.sheet.key, marked)
            new = row_matching.make_link(a, b, *pair)
            saved, applied = (*workspace.links, new), (*session.look.terms.links, new)
            message = "{} and {} are linked as the same work; M on their row undoes it"
        workspace.links = saved
        self._change_look(terms=replace(session.look.terms, links=applied), chosen=())
        self._renderer.show_message(message.format(*pair))
        saved_choices.save_links(saved)
