"""Which runs are looked at: shown, compared with, pinned, opened; which of their rows are one."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import polars as pl

from capture.addresses import masked
from capture.errors import CaptureError
from capture.open import Input
from tracetui import kept_links
from tracetui.analysis.compare import links
from tracetui.ui import commands, kept_remarks, path_completion
from tracetui.ui.controllers.input import Entry, InputLine, RunAsync
from tracetui.ui.controllers.navigation import Navigation
from tracetui.ui.messages import RunsOpened
from tracetui.ui.pages.prompt import Draft
from tracetui.ui.pages.runs import RunList
from tracetui.ui.question import Picture
from tracetui.ui.questions import Questions
from tracetui.ui.renderer import Renderer
from tracetui.ui.session import Session
from tracetui.ui.workers import saved
from tracetui.ui.workers.feed import Post
from tracetui.ui.workspace import Workspace
from tracetui.views import Answer, Focus, ManyFiles
from tracetui.views.diff import titles

OF_A_FILE: Final = "summary"  # the view on which one of many files opens
FILE_HINT: Final = "a path; Tab completes it, Enter reads it"


class Runs:
    """The list of runs, the files that are opened from it, and the baseline."""

    def __init__(
        self,
        workspace: Workspace,
        renderer: Renderer,
        questions: Questions,
        navigation: Navigation,
        post: Post,
    ) -> None:
        self._workspace, self._renderer, self._questions = workspace, renderer, questions
        self._navigation, self._post = navigation, post
        self._opened: tuple[str, ...] = ()

    def list_runs(self) -> None:
        self._toggle_list(against=False)

    def diff(self) -> None:
        """Show the diff against the run that is known; where none is, or from the diff itself, ask which."""
        session = self._workspace.session
        known = session.baseline is not None or len(session.runs) == 2
        if self._workspace.shows_view and session.view != "diff" and known and len(session.runs) > 1:
            self._questions.show(session.on_view("diff"))
        else:
            self._toggle_list(against=True)

    def pin(self) -> None:
        """Make the run shown, or the one under the cursor of a list, the baseline; again: no longer."""
        workspace, row = self._workspace, self._renderer.table.cursor
        if workspace.shows_view:
            self._questions.show(commands.pinned(workspace.session, workspace.session.current))
            self._tell_baseline()
        elif isinstance(workspace.page, RunList) and row < len(workspace.session.runs):
            workspace.session = commands.pinned(workspace.session, row)
            self._renderer.show_page(row)
            self._tell_baseline()

    def _tell_baseline(self) -> None:
        session = self._workspace.session
        name = None if session.baseline is None else titles(*session.runs)[session.baseline]
        self._renderer.tell(f"{name} is the baseline: d compares with it" if name else "no baseline any more")

    def choose(self, page: RunList) -> None:
        """Show the run under the cursor of a list, or compare with it; a saved one is opened first."""
        session, row = self._workspace.session, self._renderer.table.cursor
        if row >= len(session.runs):
            self.open_file(page.saved[row - len(session.runs)])
        elif page.against and row == session.current:
            self._renderer.tell("that is the run itself; r shows another one")
        else:
            self._questions.show(self._with_run(session, row, page.against))

    def enter(self) -> None:
        """Open the file of the row under the cursor, where many files are looked at; else what is inside."""
        session, picture = self._workspace.session, self._workspace.in_sight
        file = None
        if isinstance(session.run, ManyFiles) and picture is not None:
            file = _file_of(session.run, picture.answer, self._navigation.focus())
        if file is None:
            self._navigation.enter()
            return
        known = [i for i, run in enumerate(session.runs) if run.log.source == masked(str(file))]
        if known:
            self._questions.show(session.in_file(known[0], OF_A_FILE))
        else:
            self.open_file(file)

    def open_file(self, path: Input) -> None:
        """Read a file that is not open yet, for the list that is in sight."""
        page = self._workspace.page
        against = isinstance(page, RunList) and page.against
        self._renderer.tell(f"reading {masked(str(path)).rstrip('/').rpartition('/')[2]}")
        threading.Thread(
            target=lambda: self._post(saved.open_file(path, against)), name="opening", daemon=True
        ).start()

    def add(self, message: RunsOpened) -> None:
        """Put opened runs in front of the others, of newer snapshots too, and show the last of them."""
        workspace = self._workspace
        workspace.opened = (*message.runs, *workspace.opened)
        self._opened = (*self._opened, str(message.path))
        self._renderer.tell("")  # it is no longer being read
        session = workspace.session.with_runs_in_front(message.runs)
        if workspace.options.keeps:
            known = kept_remarks.read(run for run, _ in message.runs)
            session = replace(session, remarks=session.remarks.joined(known))
        if isinstance(session.run, ManyFiles) and not message.against:
            self._questions.show(session.in_file(len(message.runs) - 1, OF_A_FILE))
            return
        self._questions.show(self._with_run(session, len(message.runs) - 1, message.against))

    def _with_run(self, session: Session, index: int, against: bool) -> Session:
        """Return the session on another run, or on the comparison with it.

        Where two of several runs are compared, and none was chosen for that, it is the one shown so far that
        the other run is held against.
        """
        if against:
            return commands.against(session, index).on_view("diff")
        before, other = session.current, session.on_run(index)
        chosen = session.baseline is not None or index == before
        compares = self._workspace.view.runs == 2 and len(session.runs) > 2
        return commands.against(other, before) if compares and not chosen else other

    def _toggle_list(self, *, against: bool) -> None:
        """Put a list of runs in place of the view; the same key closes it."""
        page, workspace = self._workspace.page, self._workspace
        if isinstance(page, RunList) and page.against == against:
            self._navigation.leave_page()
        elif workspace.views:
            files = saved.list_files(workspace.session.runs, self._opened)
            writer = workspace.live.badge if workspace.live is not None else ""
            workspace.page = RunList(against, tuple(files), writer)
            self._renderer.show_page(workspace.page.first_row(workspace.session))


def _file_of(many: ManyFiles, answer: Answer, focus: Focus) -> Input | None:
    """Return the file that a row is about, as the answer tells by rank; None where it is about none."""
    files = answer.parts.get("files")
    rank = dict(focus).get("rank")
    if files is None or rank is None:
        return None
    places = files.filter(pl.col("rank") == rank)["member"]
    return many.files[places[0]] if places.len() else None


class FilePrompt:
    """Asks for the path of a further file."""

    def __init__(
        self,
        renderer: Renderer,
        input_line: InputLine,
        open_file: Callable[[Path], None],
        run: RunAsync,
    ) -> None:
        self._renderer, self._input, self._open_file, self._run = renderer, input_line, open_file, run

    def open(self, path: str = "") -> None:
        draft = Draft.of("file", FILE_HINT, "").typed(path)
        self._input.open(draft, Entry(self._read, completed=lambda _: self._complete()))

    def _read(self, text: str) -> None:
        if text.strip():
            self._open_file(path_completion.meant(text))

    def _complete(self) -> None:
        if self._input.draft is not None:
            self._run(self._complete_draft(self._input.draft), "paths")

    async def _complete_draft(self, draft: Draft) -> None:
        """Complete the path in a thread: the disk may be slow, and the line waits for nothing."""
        text, names = await asyncio.to_thread(path_completion.completed, draft.text)
        if self._input.replace(draft, text) and len(names) != 1:
            self._renderer.tell("  ".join(names) if names else "no file begins like this")


class Links:
    """Rows of a diff that a person says are the same work."""

    def __init__(self, workspace: Workspace, renderer: Renderer, questions: Questions) -> None:
        self._workspace, self._renderer, self._questions = workspace, renderer, questions

    def toggle(self) -> None:
        """Link the two marked rows of a diff, or undo the link under the cursor."""
        picture = self._workspace.picture
        if not self._workspace.shows_view or picture is None or "rows" not in picture.answer.parts:
            self._renderer.tell("two marked rows of a diff are linked: d, m, m, M")
            return
        try:
            self._toggle(picture)
        except CaptureError as e:
            self._renderer.tell(str(e))

    def _toggle(self, picture: Picture) -> None:
        workspace, session = self._workspace, self._workspace.session
        a, b = session.runs_for(workspace.view)
        marked, row = session.look.chosen, self._renderer.table.row
        pair: tuple[str, str]
        if not marked and row.get("match") == links.BY_HAND:
            pair = str(row["name_a"]), str(row["name_b"])
            kept, sentence = links.without(workspace.links, a, b, *pair), "{} and {} are linked no longer"
            shown = links.without(session.look.terms.links, a, b, *pair)
        else:
            pair = links.marked_names(picture.answer.parts["rows"], picture.sheet.key, marked)
            new = links.new_link(a, b, *pair)
            kept = (*workspace.links, new)
            sentence = "{} and {} are the same from now on; M on their row undoes it"
            shown = (*session.look.terms.links, new)
        workspace.links = kept
        terms = replace(session.look.terms, links=shown)
        self._questions.show(session.with_look(terms=terms, chosen=()))
        self._renderer.tell(sentence.format(*pair))
        kept_links.keep(kept)
