"""Put runs of the feed into the session: the first ones open a view, newer snapshots replace old ones."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from msgspec import structs

from tracetui.ui import saved_remarks
from tracetui.ui.controllers.base import Controller, ScreenParts
from tracetui.ui.messages import LoadFailed, RunsChanged, StatusMessage, ViewsLoaded, describe_fault
from tracetui.ui.pages.list_pages import RunList
from tracetui.ui.pages.text_pages import RefusedPage
from tracetui.ui.screen_options import ScreenOptions
from tracetui.ui.session import Session
from tracetui.ui.workers.follow_file import list_recovery_keys
from tracetui.views import View, find_missing_needs, load_views

REDO_FACTOR: Final = 1.125  # a comparison is redone once the run has this many times the steps
PREFERRED_VIEWS: Final = ("summary", "kernels")


class RunUpdates(Controller):
    """Puts runs into the session, and loads the views behind the first one."""

    def __init__(self, parts: ScreenParts) -> None:
        super().__init__(parts)
        self._is_loading = False  # whether the loading of all views has begun
        self._newest: RunsChanged | None = None  # not in the session yet

    def accept_runs(self, message: RunsChanged) -> None:
        """Open the first runs; keep the newest of later snapshots until it can be shown."""
        if not self._workspace.session.runs:
            self._open_first_runs(message)
            return
        self._newest = message
        self.show_newest()

    def show_newest(self) -> None:
        """Show the newest snapshot once the answer about the one before is shown; the looks stay."""
        workspace, message = self._workspace, self._newest
        if message is None or workspace.is_paused or not self._answers.is_answered:
            return
        if self._should_keep_comparison(message):
            return
        self._newest = None
        runs = [*(run for run, _ in workspace.opened_runs), *message.runs]
        infos = [*(info for _, info in workspace.opened_runs), *message.infos]
        workspace.session = workspace.session.with_snapshots(runs, infos)
        if workspace.is_showing_view:
            self._answers.update(grown=True)
        elif isinstance(workspace.page, RunList):
            writer = workspace.live.run_badge if workspace.live is not None else ""
            workspace.page = structs.replace(workspace.page, writer=writer)
            self._renderer.show_page(self._renderer.table.cursor)
        else:
            self._renderer.show_bands()

    def _should_keep_comparison(self, message: RunsChanged) -> bool:
        """Whether the displayed comparison stays: it is redone after enough new steps, and at the end."""
        workspace, session = self._workspace, self._workspace.session
        compares = workspace.is_showing_view and workspace.view.run_count > 1
        if not compares or not workspace.is_growing or not message.infos:
            return False
        same_runs = len(workspace.opened_runs) + len(message.runs) == len(session.runs)
        return same_runs and message.infos[-1].step_count < REDO_FACTOR * session.infos[-1].step_count

    def toggle_pause(self) -> None:
        """Hold the displayed picture while the file grows, or continue."""
        workspace = self._workspace
        workspace.is_paused = not workspace.is_paused
        self._renderer.show_message("held; Space continues" if workspace.is_paused else "continuing")
        self.show_newest()

    def load_views(self) -> None:
        """Load all views in the background, once the first one is shown or takes long."""
        if self._workspace.session.runs and not self._workspace.has_all_views and not self._is_loading:
            self._is_loading = True
            threading.Thread(target=self._load_views, name="views", daemon=True).start()

    def _load_views(self) -> None:
        try:
            self._parts.post(ViewsLoaded(load_views()))
        except Exception as e:
            self._parts.post(StatusMessage(describe_fault("the other views could not be loaded", e)))

    def accept_views(self, message: ViewsLoaded) -> None:
        self._workspace.views = list(message.views)
        self._workspace.has_all_views = True
        self._renderer.show_bands()

    def show_failure(self, message: LoadFailed) -> None:
        """Show why nothing could be read."""
        live = self._workspace.live
        keys = [*list_recovery_keys(live.engine if live is not None else None), "q quits"]
        self._workspace.exit_code = message.error.exit_code
        self.show_page(RefusedPage(str(message.error), "    ".join(keys)))

    def _open_first_runs(self, message: RunsChanged) -> None:
        workspace = self._workspace
        session = workspace.session.with_snapshots(message.runs, message.infos)
        if workspace.options.saves_choices:
            session = replace(session, remarks=saved_remarks.load_remarks(session.runs))
        session, why = _choose_first(session, message.views, workspace.options)
        workspace.views = list(message.views)
        workspace.has_all_views = len(message.views) > 1
        self._answers.show_session(session)
        if why:
            self._renderer.show_message(why)


def _choose_first(session: Session, views: Sequence[View], options: ScreenOptions) -> tuple[Session, str]:
    """Return the session on the requested run and view, else on a default, with a message."""
    current, message = _find_run(session, options.run)
    baseline = _find_run(session, options.baseline)[0] if options.baseline else None
    if options.comparison_runs:
        current, baseline = len(session.runs) - 1, 0
    session = replace(session, current=current, baseline=baseline)
    return replace(session, view=_find_view(session, views, options.view)), message


def _find_run(session: Session, requested: str | None) -> tuple[int, str]:
    """Return the index of a run by its number or name, and a message if there is no such run."""
    if requested is None:
        return 0, ""
    if requested.isdecimal() and 1 <= int(requested) <= len(session.runs):
        return int(requested) - 1, ""
    exact = [i for i, r in enumerate(session.runs) if r.name == requested]
    matches = exact or [i for i, r in enumerate(session.runs) if requested.lower() in r.name.lower()]
    return (matches[0], "") if matches else (0, f"no run is called {requested!r}; r lists them")


def _find_view(session: Session, views: Sequence[View], requested: str) -> str:
    names = [v.name for v in views]
    if requested in names:
        return requested
    possible = [v.name for v in views if not find_missing_needs(v, session.runs[session.current :][:1])]
    return next((n for n in (*PREFERRED_VIEWS, *possible) if n in possible), names[0])
