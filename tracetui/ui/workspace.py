"""What is open, what is asked and what is in sight. It draws nothing and starts nothing."""

from dataclasses import replace

from capture.run import Run
from tracetui import kept_links
from tracetui.process import Bundled
from tracetui.ui.options import Options
from tracetui.ui.pages.page import Page, ViewPage
from tracetui.ui.pages.prompt import Draft
from tracetui.ui.pages.texts import LoadingPage
from tracetui.ui.question import Picture, Question
from tracetui.ui.run_info import RunInfo
from tracetui.ui.session import Session
from tracetui.ui.workers.feed import LIVE, Feed, LiveFeed
from tracetui.views import View, missing, view

WITHOUT_TAB = ("detail", "calls", "pair")  # views that are entered from a row


class Workspace:
    """The state that the controllers share and the renderer draws."""

    def __init__(self, feed: Feed | None, options: Options) -> None:
        self.feed, self.options = feed, options
        self.links = kept_links.kept()
        terms = replace(options.look.terms, links=(*options.look.terms.links, *self.links))
        start = replace(options.look, full_names=False, terms=terms)
        self.session = Session(start=start, own_columns=options.columns)
        self.views: list[View] = []
        self.knows_all_views = False  # else only the first one is loaded, and the tabs are still to come
        self.page: Page = LoadingPage(feed)
        self.picture: Picture | None = None  # the newest answer, which stays in sight until the next one
        self.draft: Draft | None = None  # the input line, while it is open
        self.opened: tuple[tuple[Run, RunInfo], ...] = ()  # saved runs, in front of those of the feed
        self.paused = False
        self.exit_code = 0  # of what went wrong

    @property
    def live(self) -> LiveFeed | None:
        """The file that grows, where one is followed."""
        return self.feed.live if self.feed is not None else None

    @property
    def grows(self) -> bool:
        """Whether the last run is being written at this moment."""
        return self.live is not None and self.live.badge == LIVE

    def ask_engine_to_end(self) -> None:
        """Have what is followed end while the screen closes, where it was started for that."""
        if self.live is not None and self.live.engine is not None:
            self.live.engine.ask_to_end()

    @property
    def view(self) -> View:
        loaded = next((v for v in self.views if v.name == self.session.view), None)
        return loaded or view(self.session.view)  # the others still load while the first is looked at

    @property
    def shows_view(self) -> bool:
        return isinstance(self.page, ViewPage)

    @property
    def question(self) -> Question:
        """What the session asks at this moment."""
        return Question.of(self.session, self.view)

    @property
    def in_sight(self) -> Picture | None:
        """The picture, where it answers what is asked now, be it of an older snapshot; else None."""
        picture = self.picture
        if picture is None or not picture.question.is_same_but_for_growth(self.question):
            return None
        return picture

    @property
    def doubted(self) -> bool:
        """Whether there are reasons against the answer that have to be read before it is shown."""
        doubts = self.picture.given.doubts if self.picture is not None else ()
        return bool(doubts) and not self.session.look.terms.forced

    @property
    def tabs(self) -> list[View]:
        """The views that have a tab; what compares needs runs to compare."""
        several = len(self.session.runs) > 1
        return [v for v in self.views if v.name not in WITHOUT_TAB and (several or v.runs < 2)]

    @property
    def titles(self) -> list[tuple[str, bool]]:
        """The title of each tab, and whether the run can feed it."""
        return [(v.title, not missing(v, self.session.runs_for(v))) for v in self.tabs]

    @property
    def tab(self) -> int:
        """The position of the tab in sight, -1 where another page stands in its place."""
        if not self.shows_view:
            return -1
        shown = self.session.trail[0].view if self.session.trail else self.session.view
        return next((i for i, v in enumerate(self.tabs) if v.name == shown), 0)

    @property
    def engine_state(self) -> str:
        """A key of `keys.ENGINES`: who writes the file, as far as it decides which keys matter."""
        live = self.live
        if live is None or live.engine is None:
            return "none" if live is None else "followed"
        if not isinstance(live.engine, Bundled):
            return "foreign"
        return "bundled" if live.engine.running else "dead"
