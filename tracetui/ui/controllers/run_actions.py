"""Choose the runs: show, compare, open files, set the baseline."""

import asyncio
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Final

import polars as pl

from capture.clean_text import clean
from capture.files.addresses import mask_credentials
from capture.load_runs import Input
from tracetui.ui import saved_remarks, session_commands
from tracetui.ui.controllers.base import Controller, ScreenParts
from tracetui.ui.controllers.input_line import InputActions
from tracetui.ui.controllers.row_actions import RowActions
from tracetui.ui.messages import RunsOpened
from tracetui.ui.pages import ViewPage
from tracetui.ui.pages.input_draft import InputDraft
from tracetui.ui.pages.list_pages import RowHistory, RunList
from tracetui.ui.session import Session
from tracetui.ui.workers import read_files
from tracetui.views import Answer, Focus, ManyFiles
from tracetui.views.diff import build_titles

FILE_VIEW: Final = "summary"  # view of a file that is opened from many files
FILE_HINT: Final = "a path; Tab completes it, Enter opens it"
COMPARED_MARKS: Final = "d compares two marked steps or launches; of other rows, only between two runs"


class RunActions(Controller):
    """Shows the list of runs, opens files from it or by their path, and sets the baseline."""

    def __init__(self, parts: ScreenParts, rows: RowActions) -> None:
        super().__init__(parts)
        self._rows = rows
        self._opened: tuple[str, ...] = ()  # paths

    def open_diff(self) -> None:
        """Compare marked steps or launches; else show the diff with the baseline.

        Without a baseline, and in the diff itself, list runs to choose from.
        """
        if self._rows.compare_marked():
            return
        session = self._workspace.session
        has_other = session.baseline is not None or len(session.runs) == 2
        if self._workspace.is_showing_view and session.view != "diff" and has_other and len(session.runs) > 1:
            self._answers.show_session(session.with_view("diff"))
        elif (file := self._find_only_candidate()) is not None:
            self.open_file(file, compares=True)
        else:
            self.toggle_list(compares=True)

    def _find_only_candidate(self) -> Input | None:
        """Return the saved file that alone can be compared with the run in view; None if there are more."""
        session = self._workspace.session
        if not self._workspace.is_showing_view or len(session.runs) != 1:
            return None
        files = read_files.list_saved_files(session.runs, self._opened)
        return files[0] if len(files) == 1 else None

    def toggle_baseline(self) -> None:
        """Make the current run, or the one under the cursor of the list, the baseline, or unset it."""
        workspace, session, row = self._workspace, self._workspace.session, self._renderer.table.cursor
        if workspace.is_showing_view:
            self._answers.show_session(session_commands.toggle_baseline(session, session.current))
        elif isinstance(workspace.page, RunList) and row < len(session.runs):
            workspace.session = session_commands.toggle_baseline(session, row)
            self._renderer.show_page(row)
        else:
            return
        session = workspace.session
        name = None if session.baseline is None else build_titles(*session.runs)[session.baseline]
        message = f"{name} is the baseline: d compares with it" if name else "no baseline now"
        self._renderer.show_message(message)

    def choose_run(self, page: RunList) -> None:
        """Show the run under the cursor of a list, or compare with it; open it first if it is a saved one."""
        session, row = self._workspace.session, self._renderer.table.cursor
        if row >= len(session.runs):
            self.open_file(page.saved[row - len(session.runs)])
        elif page.compares and row == session.current:
            self._renderer.show_message("that is the current run; r shows another one")
        else:
            self._answers.show_session(self._with_run(session, row, page.compares))

    def open_source(self, page: RowHistory) -> None:
        """Open the recording with which the change under the cursor begins, if it is among the saved ones."""
        name = page.find_source(self._renderer.table.cursor)
        if not name:
            self._renderer.show_message("no change begins here")
        elif (path := read_files.find_saved_file(name)) is None:
            self._renderer.show_message(f"{name} is not among the saved recordings")
        else:
            self.open_file(path)

    def open_row(self) -> None:
        """Of many files, open the file of the row under the cursor; otherwise drill down."""
        session, picture = self._workspace.session, self._workspace.displayed_picture
        file = None
        if session.files is not None and picture is not None:
            file = _find_file_of_row(session.files, picture.answer, self._rows.find_focus())
        if file is None:
            self._rows.drill_down()
            return
        open_runs = [i for i, run in enumerate(session.runs) if run.log.source == mask_credentials(str(file))]
        if open_runs:
            self._answers.show_session(session.with_file(open_runs[0], FILE_VIEW))
        else:
            self.open_file(file)

    def open_file(self, path: Input, *, compares: bool = False) -> None:
        """Read another file in a thread, to be compared, or for the purpose of the displayed list."""
        page = self._workspace.page
        compares = compares or (isinstance(page, RunList) and page.compares)
        self._renderer.show_message(f"reading {mask_credentials(str(path)).rstrip('/').rpartition('/')[2]}")

        def load() -> None:
            self._parts.post(read_files.load_saved_file(path, compares))

        threading.Thread(target=load, name="opening", daemon=True).start()

    def add_runs(self, message: RunsOpened) -> None:
        """Add opened runs in front of the others, and show the last of them."""
        workspace = self._workspace
        workspace.opened_runs = (*message.runs, *workspace.opened_runs)
        self._opened = (*self._opened, str(message.path))
        self._renderer.show_message("")  # instead of `reading`
        session = workspace.session.with_runs_in_front(message.runs)
        if workspace.options.saves_choices:
            remarks = saved_remarks.load_remarks(run for run, _ in message.runs)
            session = replace(session, remarks=session.remarks.merge(remarks))
        last = len(message.runs) - 1
        if session.files is not None and not message.compares:
            self._answers.show_session(session.with_file(last, FILE_VIEW))
        else:
            self._answers.show_session(self._with_run(session, last, message.compares))

    def _with_run(self, session: Session, index: int, compares: bool) -> Session:
        """Return the session on another run, or on the comparison with it.

        If a view of two runs is shown and there is no baseline, the current run becomes it.
        """
        if compares:
            return session_commands.set_baseline(session, index).with_view("diff")
        before, other = session.current, session.with_run(index)
        needs_baseline = session.baseline is None and index != before
        shows_pair = self._workspace.view.run_count == 2 and len(session.runs) > 2
        return session_commands.set_baseline(other, before) if shows_pair and needs_baseline else other

    def toggle_list(self, *, compares: bool = False) -> None:
        """Show a list of runs in place of the view, or close it."""
        page, workspace = self._workspace.page, self._workspace
        if isinstance(page, RunList) and page.compares == compares:
            self.show_page(ViewPage())
        elif workspace.views:
            files = read_files.list_saved_files(workspace.session.runs, self._opened)
            writer = workspace.live.run_badge if workspace.live is not None else ""
            workspace.page = RunList(compares, tuple(files), writer)
            self._renderer.show_page(workspace.page.find_first_row(workspace.session))
            if compares and workspace.session.look.chosen:
                self._renderer.show_message(COMPARED_MARKS)

    # the path of another file

    def open_prompt(self, path: str = "") -> None:
        """Ask for the path of a file."""
        draft = InputDraft.from_text("file", FILE_HINT, "").insert(path)
        self._input.open(draft, InputActions(self._open_typed, complete=lambda _: self._complete()))

    def _open_typed(self, text: str) -> None:
        if text.strip():
            self.open_file(parse_path(text))

    def _complete(self) -> None:
        if self._input.draft is not None:
            self._parts.run_async(self._complete_draft(self._input.draft), group="paths")

    async def _complete_draft(self, draft: InputDraft) -> None:
        """Complete the path in a thread, because the disk may be slow."""
        text, names = await asyncio.to_thread(complete_path, draft.text)
        if self._input.replace_text(draft, text) and len(names) != 1:
            self._renderer.show_message("  ".join(names) if names else "no file name begins like this")


def _find_file_of_row(many: ManyFiles, answer: Answer, focus: Focus) -> Input | None:
    """Return the file of a row, which the answer names by rank; None if the row has none."""
    files = answer.parts.get("files")
    rank = dict(focus).get("rank")
    if files is None or rank is None:
        return None
    indices = files.filter(pl.col("rank") == rank)["member"]
    return many.files[indices[0]] if indices.len() else None


def complete_path(text: str) -> tuple[str, list[str]]:
    """Return a path completed as far as all matching names agree, and these names; folders end in `/`."""
    cut = text.rfind("/") + 1
    folder, start = text[:cut], text[cut:]
    names = sorted(_list_names(folder, start))
    common = os.path.commonprefix(names)  # noqa: RUF071  of letters, not of folders
    return (folder + common if names else text), names


def _list_names(folder: str, start: str) -> list[str]:
    """Return the matching names in a folder; hidden ones only after a dot, none with odd characters."""
    try:
        matches = [p for p in Path(folder).expanduser().iterdir() if p.name.startswith(start)]
        typable = [p for p in matches if clean(p.name) == p.name and (start or not p.name.startswith("."))]
        return [p.name + "/" * p.is_dir() for p in typable]
    except (OSError, ValueError, RuntimeError):  # no folder, no path, nobody's home
        return []


def parse_path(text: str) -> Path:
    """Return the path of a typed text, without quotes and with `~` expanded."""
    bare = text.strip()
    if len(bare) > 1 and bare[0] == bare[-1] and bare[0] in "'\"":
        bare = bare[1:-1]
    try:
        return Path(bare).expanduser()
    except RuntimeError:
        return Path(bare)
