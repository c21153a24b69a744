"""Runs that come from the feed: the first ones open the first view, newer ones are shown when it is time."""

import threading
from dataclasses import replace
from typing import Final

from tracetui.ui import kept_remarks
from tracetui.ui.first_session import first_session
from tracetui.ui.messages import LoadFailed, Notice, RunsChanged, ViewsLoaded
from tracetui.ui.pages.texts import RefusedPage
from tracetui.ui.questions import Questions
from tracetui.ui.renderer import Renderer
from tracetui.ui.workers.ask import describe_fault
from tracetui.ui.workers.feed import Post
from tracetui.ui.workers.follow import ways_on
from tracetui.ui.workspace import Workspace
from tracetui.views import views

MORE: Final = 1.125  # times the steps that a comparison was made of: then it is made anew


class Arrivals:
    """Takes runs into the session."""

    def __init__(self, workspace: Workspace, renderer: Renderer, questions: Questions, post: Post) -> None:
        self._workspace, self._renderer, self._questions, self._post = workspace, renderer, questions, post
        self._loading = False  # whether all views load, or have loaded
        self._newest: RunsChanged | None = None  # that is not in the session yet

    def take(self, message: RunsChanged) -> None:
        """Open the first runs; of newer snapshots keep the last until there is time to show it."""
        if not self._workspace.session.runs:
            self._open(message)
            return
        self._newest = message
        self.catch_up()

    def catch_up(self) -> None:
        """Ask about the newest snapshot, once the last is answered; cursor, order and looks stay."""
        workspace, message = self._workspace, self._newest
        if message is None or workspace.paused or not self._questions.answered or self._stays(message):
            return
        self._newest = None
        opened = [run for run, _ in workspace.opened], [info for _, info in workspace.opened]
        runs, infos = [*opened[0], *message.runs], [*opened[1], *message.infos]
        workspace.session = workspace.session.with_snapshots(runs, infos)
        if workspace.shows_view:  # what stands in its place stays there
            self._questions.update(grown=True)
        else:
            self._renderer.show_bands()

    def _stays(self, message: RunsChanged) -> bool:
        """Return whether a comparison in sight stays as it is.

        It is made anew when there is so much more of a run that it may say something else, and at its end.
        """
        workspace, session = self._workspace, self._workspace.session
        compares = workspace.shows_view and workspace.view.runs > 1
        if not compares or not workspace.grows or not message.infos:
            return False
        same_runs = len(workspace.opened) + len(message.runs) == len(session.runs)
        return same_runs and message.infos[-1].step_count < MORE * session.infos[-1].step_count

    def toggle_pause(self) -> None:
        """Hold the picture while the file grows, or go on."""
        workspace = self._workspace
        workspace.paused = not workspace.paused
        self._renderer.tell("held; Space goes on" if workspace.paused else "going on")
        self.catch_up()

    def load_views(self) -> None:
        """Load every view behind the first one, once that is in sight or takes its time."""
        if self._workspace.session.runs and not self._workspace.knows_all_views and not self._loading:
            self._loading = True
            threading.Thread(target=self._load_views, name="views", daemon=True).start()

    def _load_views(self) -> None:
        try:
            self._post(ViewsLoaded(views()))
        except Exception as e:
            self._post(Notice(describe_fault("the other views could not be loaded", e)))

    def take_views(self, message: ViewsLoaded) -> None:
        self._workspace.views = list(message.views)
        self._workspace.knows_all_views = True
        self._renderer.show_bands()

    def refuse(self, message: LoadFailed) -> None:
        """Show why nothing could be read."""
        live = self._workspace.live
        keys = ways_on(live.engine if live is not None else None)
        self._workspace.exit_code = message.error.exit_code
        self._workspace.page = RefusedPage(
            str(message.error), message.error.exit_code, "    ".join([*keys, "q leaves"])
        )
        self._renderer.show_page()

    def _open(self, message: RunsChanged) -> None:
        workspace = self._workspace
        session = workspace.session.with_snapshots(message.runs, message.infos)
        if workspace.options.keeps:
            session = replace(session, remarks=kept_remarks.read(message.runs))
        first = first_session(session, message.views, workspace.options)
        workspace.views = list(message.views)
        workspace.knows_all_views = len(message.views) > 1
        self._questions.show(first.session)
        if first.message:
            self._renderer.tell(first.message)
