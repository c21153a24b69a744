"""The shared state: what is open, asked and displayed. It draws nothing and starts nothing."""

from dataclasses import replace

from capture.run import Run
from tracetui import saved_choices
from tracetui.process import BundledEngine
from tracetui.ui.pages import Page, ViewPage
from tracetui.ui.pages.input_draft import InputDraft
from tracetui.ui.pages.text_pages import LoadingPage
from tracetui.ui.question import Picture, Question
from tracetui.ui.run_info import RunInfo
from tracetui.ui.screen_options import ScreenOptions
from tracetui.ui.session import Session
from tracetui.ui.workers.feed import LIVE_BADGE, Feed
from tracetui.ui.workers.follow_file import FileFollower
from tracetui.views import View, find_missing_needs, load_view

VIEWS_WITHOUT_TAB = ("detail", "calls", "pair")  # opened from a row only


class Workspace:
    """The state that controllers change and the renderer draws."""

    def __init__(self, feed: Feed | None, options: ScreenOptions) -> None:
        self.feed, self.options = feed, options
        self.links = saved_choices.load_links()
        terms = replace(options.look.terms, links=(*options.look.terms.links, *self.links))
        start = replace(options.look, full_names=False, terms=terms)
        self.session = Session(start=start, sides=options.sides, chosen_columns=options.columns)
        self.views: list[View] = []
        self.has_all_views = False  # otherwise only the first one is loaded
        self.page: Page = LoadingPage(feed)
        self.picture: Picture | None = None  # the newest answer, displayed until the next one
        self.draft: InputDraft | None = None  # the input line, while it is open
        self.opened_runs: tuple[tuple[Run, RunInfo], ...] = ()  # opened later; before those of the feed
        self.is_paused = False
        self._titles: tuple[object, list[tuple[str, bool]]] = (None, [])  # for a state, see `tab_titles`
        self.exit_code = 0  # of the first failure

    @property
    def live(self) -> FileFollower | None:
        """The growing file, if one is followed."""
        return self.feed if isinstance(self.feed, FileFollower) else None

    @property
    def is_growing(self) -> bool:
        """Whether the last run is being written now."""
        return self.live is not None and self.live.badge == LIVE_BADGE

    def request_engine_stop(self) -> None:
        """Ask the engine, if there is one, to end while the screen closes."""
        if self.live is not None and self.live.engine is not None:
            self.live.engine.request_stop()

    @property
    def view(self) -> View:
        loaded = next((v for v in self.views if v.name == self.session.view), None)
        return loaded or load_view(self.session.view)  # the others may still be loading

    @property
    def is_showing_view(self) -> bool:
        return isinstance(self.page, ViewPage)

    @property
    def is_showing_timeline(self) -> bool:
        return self.is_showing_view and self.view.has_time_axis

    @property
    def question(self) -> Question:
        """The question of the session."""
        return Question.from_session(self.session, self.view)

    @property
    def displayed_picture(self) -> Picture | None:
        """The picture if it answers the question of the session, also for an older snapshot; else None."""
        picture = self.picture
        if picture is None or not picture.question.is_same_but_for_growth(self.question):
            return None
        return picture

    @property
    def has_unread_doubts(self) -> bool:
        """Whether the answer has doubts that the user has not confirmed yet."""
        doubts = self.picture.raw_answer.doubts if self.picture is not None else ()
        return bool(doubts) and not self.session.look.terms.forced

    @property
    def tabs(self) -> list[View]:
        """The views that have a tab; those that compare need several runs."""
        several = len(self.session.runs) > 1
        return [v for v in self.views if v.name not in VIEWS_WITHOUT_TAB and (several or v.run_count < 2)]

    @property
    def tab_titles(self) -> list[tuple[str, bool]]:
        """The title of each tab, and whether the runs have data for it; cached, since each key draws it."""
        session = self.session
        state = self.views, session.runs, session.current, session.baseline
        if state != self._titles[0]:
            titles = [(v.title, not find_missing_needs(v, session.list_sources_for(v))) for v in self.tabs]
            self._titles = state, titles
        return self._titles[1]

    @property
    def tab_index(self) -> int:
        """The index of the current tab, -1 on other pages."""
        if not self.is_showing_view:
            return -1
        current = self.session.trail[0].view if self.session.trail else self.session.view
        return next((i for i, v in enumerate(self.tabs) if v.name == current), 0)

    @property
    def engine_state(self) -> str:
        """The key of ENGINE_FOOTERS for who writes the file."""
        live = self.live
        if live is None or live.engine is None:
            return "none" if live is None else "followed"
        if not isinstance(live.engine, BundledEngine):
            return "foreign"
        return "bundled" if live.engine.is_running else "dead"
