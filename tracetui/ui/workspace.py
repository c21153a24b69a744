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
from tracetui.ui.session import PlaceHistory, Session
from tracetui.ui.workers.feed import LIVE_BADGE, Feed
from tracetui.ui.workers.follow_file import FileFollower
from tracetui.views import View, find_missing_needs, load_view

VIEWS_OF_ROWS = ("detail", "why", "calls", "pair")  # opened from a row only
ALWAYS_SHOWN_TABS = 9  # the first views, which have a digit each


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
        self.places = PlaceHistory()
        self._tabs: tuple[object, list[tuple[View, bool]]] = (None, [])  # for a state, see `_list_tabs`
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
        return self.find_view(self.session.view)

    def find_view(self, name: str) -> View:
        """Return a view by its name; the others may still be loading."""
        return next((v for v in self.views if v.name == name), None) or load_view(name)

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
    def offered_views(self) -> list[View]:
        """The views that can be opened by name; those that compare need several runs, some a growing run."""
        several, live = len(self.session.runs) > 1, self.live is not None
        views = [v for v in self.views if v.name not in VIEWS_OF_ROWS and (live or v.tab != "live")]
        return [v for v in views if several or v.run_count < 2]

    @property
    def tabs(self) -> list[View]:
        """The views that have a tab: the first nine, others that the runs feed, and the one in view."""
        return [view for view, _ in self._list_tabs()]

    @property
    def tab_titles(self) -> list[tuple[str, bool]]:
        """The title of each tab, and whether the runs have data for it."""
        return [(view.title, has_data) for view, has_data in self._list_tabs()]

    def _list_tabs(self) -> list[tuple[View, bool]]:
        """Return each tab's view, and whether the runs have data for it; cached, since each key draws it."""
        session, current = self.session, self._top_view
        state = self.views, session.runs, session.current, session.baseline, current
        if state != self._tabs[0]:
            offered = self.offered_views
            fed = [not find_missing_needs(v, session.list_sources_for(v)) for v in offered]
            tabs = [
                (view, has_data)
                for at, (view, has_data) in enumerate(zip(offered, fed, strict=True))
                if at < ALWAYS_SHOWN_TABS or view.name == current or (has_data and view.tab != "palette")
            ]
            self._tabs = state, tabs
        return self._tabs[1]

    @property
    def _top_view(self) -> str:
        """The name of the view in sight, or of the one that its rows were entered from."""
        return self.session.trail[0].view if self.session.trail else self.session.view

    @property
    def tab_index(self) -> int:
        """The index of the current tab, -1 on other pages."""
        if not self.is_showing_view:
            return -1
        return next((i for i, v in enumerate(self.tabs) if v.name == self._top_view), 0)

    @property
    def engine_state(self) -> str:
        """The key of ENGINE_FOOTERS for who writes the file."""
        live = self.live
        if live is None or live.engine is None:
            return "none" if live is None else "followed"
        if not isinstance(live.engine, BundledEngine):
            return "foreign"
        return "bundled" if live.engine.is_running else "dead"
