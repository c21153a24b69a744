"""Marks, notes and links of rows; all of them are saved for the next session."""

from dataclasses import replace
from typing import Final

from capture.errors import CaptureError
from tracetui import saved_choices
from tracetui.compare.pairing import row_links
from tracetui.ui import saved_remarks
from tracetui.ui.answer_updates import AnswerUpdater
from tracetui.ui.controllers.input_line import InputActions, InputLine
from tracetui.ui.controllers.navigation import Navigation
from tracetui.ui.pages.input_draft import InputDraft
from tracetui.ui.question import Picture
from tracetui.ui.renderer import Renderer
from tracetui.ui.session import RowKey
from tracetui.ui.workspace import Workspace

HINT: Final = "about this row; Enter saves it, an empty note deletes it"


class RowRemarks:
    """Marks rows and writes notes about them."""

    def __init__(
        self, workspace: Workspace, renderer: Renderer, navigation: Navigation, input_line: InputLine
    ) -> None:
        self._workspace, self._renderer = workspace, renderer
        self._navigation, self._input = navigation, input_line

    def toggle_mark(self) -> None:
        if self._navigation.toggle_mark() and not self._workspace.session.trail:
            self._save()

    def open_note(self) -> None:
        """Ask for a note about the row under the cursor."""
        row = self._navigation.read_row_key()
        if not row or not self._renderer.main_screen.shows_table:
            self._renderer.show_message("notes belong to rows of tables")
        elif self._workspace.session.trail:
            self._renderer.show_message("notes belong to rows of a whole view; go back with Esc")
        else:
            text = self._workspace.session.notes.get(row, "")
            self._input.open(
                InputDraft.from_text("note", HINT, text),
                InputActions(lambda note: self._save_note(row, note)),
            )

    def _save_note(self, row: RowKey, text: str) -> None:
        session = self._workspace.session
        text = text.strip()[: saved_remarks.MOST_NOTE_CHARS]
        remarks = session.remarks.with_note(session.build_remark_scope(session.view), row, text)
        self._workspace.session = replace(session, remarks=remarks)
        self._renderer.show_picture(grown=True)
        self._save()

    def _save(self) -> None:
        session = self._workspace.session
        if self._workspace.options.saves_choices and session.run is not None:
            try:
                saved_remarks.save_remarks(session.remarks, session.run.log.source)
            except CaptureError as e:
                self._renderer.show_message(str(e))


class RowLinks:
    """Links two rows of a diff that are the same work under different names."""

    def __init__(self, workspace: Workspace, renderer: Renderer, answers: AnswerUpdater) -> None:
        self._workspace, self._renderer, self._answers = workspace, renderer, answers

    def toggle(self) -> None:
        """Link the two marked rows of a diff, or remove the link under the cursor."""
        picture = self._workspace.picture
        if not self._workspace.is_showing_view or picture is None or "rows" not in picture.answer.parts:
            self._renderer.show_message("M links two marked rows of a diff: d, m, m, M")
            return
        try:
            self._toggle(picture)
        except CaptureError as e:
            self._renderer.show_message(str(e))

    def _toggle(self, picture: Picture) -> None:
        workspace, session = self._workspace, self._workspace.session
        a, b = (session.runs[i] for i in session.list_indices_for(workspace.view))
        marked, row = session.look.chosen, self._renderer.table.row
        pair: tuple[str, str]
        if not marked and row.get("match") == row_links.BY_HAND:
            pair = str(row["name_a"]), str(row["name_b"])
            saved = row_links.remove_link(workspace.links, a, b, *pair)
            applied = row_links.remove_link(session.look.terms.links, a, b, *pair)
            message = "{} and {} are no longer linked"
        else:
            pair = row_links.resolve_marked_names(picture.answer.parts["rows"], picture.sheet.key, marked)
            new = row_links.make_link(a, b, *pair)
            saved, applied = (*workspace.links, new), (*session.look.terms.links, new)
            message = "{} and {} are linked as the same work; M on their row undoes it"
        workspace.links = saved
        terms = replace(session.look.terms, links=applied)
        self._answers.show_session(session.with_look(terms=terms, chosen=()))
        self._renderer.show_message(message.format(*pair))
        saved_choices.save_links(saved)
