"""What keys do to a comparison: which other run, which rows are one, which columns are shown."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from capture.errors import CaptureError
from capture.text import clean
from tracetui import kept_links
from tracetui.analysis.compare import links
from tracetui.ui import commands
from tracetui.ui.attending import Attending
from tracetui.ui.messages import RunsOpened
from tracetui.ui.pages import columns, runs
from tracetui.ui.session import Session
from tracetui.ui.sheet import measure
from tracetui.ui.workers import saved

LISTS: Final = ("runs", "against")  # pages whose rows are runs
CHOICES: Final = (*LISTS, "columns")  # pages whose rows are things to choose


class Comparing(Attending):
    """The desk with more than one run on it."""

    _saved: Sequence[Path] = ()
    _fetched: tuple[Path, ...] = ()

    def leave(self) -> bool:
        """Back to the view, from whatever stands in its place."""
        raise NotImplementedError

    # which run

    def do_runs(self) -> None:
        self._choose("runs")

    def do_diff(self) -> None:
        """Against the run that is meant; where that is not known, or from the diff itself, a choice."""
        session = self.session
        known = session.baseline is not None or len(session.runs) == 2
        if self.page == "view" and session.view != "diff" and known and len(session.runs) > 1:
            self.become(session.at("diff"))
        else:
            self._choose("against")

    def do_pin(self) -> None:
        """The run shown, or the one under the cursor of a list, is the baseline; again: no longer."""
        if self.page == "view":
            self.become(commands.pinned(self.session, self.session.current))
        elif self.page in LISTS and self.main.table.cursor < len(self.session.runs):
            self.session = commands.pinned(self.session, self.main.table.cursor)
            self.show_choice(self.main.table.cursor)

    def _choose(self, page: str) -> None:
        """A list of runs in place of the view; the same key closes it."""
        if self.page == page:
            self.leave()
        elif self.views:
            self.page, self._saved = page, saved.files(self.session.runs, self._fetched)
            others = [i for i in self.session.pair if i != self.session.current]
            self.show_choice(self.session.current if page == "runs" or not others else others[0])

    def show_choice(self, row: int) -> None:
        names: Sequence[str]
        if self.page == "columns":
            answer, names = columns.answer(self._sheet, self.session.look.columns), columns.COLUMNS
        else:
            answer, names = runs.answer(self.session, self._saved, self.page), runs.COLUMNS
        look = replace(self.session.look, sort=None, chosen=(), columns=(), one_table=True, full_names=False)
        self.main.show_table(measure(answer.rows, names[:1], names), look, row, answer.notes)
        self.show_bands()

    def chosen(self) -> None:
        """Enter on a list."""
        row, page = self.main.table.cursor, self.page
        if page == "columns":
            self._toggle(row)
        elif row >= len(self.session.runs):
            self.fetch(self._saved[row - len(self.session.runs)])
        elif page == "against" and row == self.session.current:
            self.tell("that is the run itself; r shows another one")
        else:
            self._go(self._with(self.session, row, page == "against"))

    def _with(self, session: Session, place: int, against: bool) -> Session:
        return commands.against(session, place).at("diff") if against else session.on(place)

    def _go(self, session: Session) -> None:
        self.page = "view"
        self.become(session)
        self.ask()

    def fetch(self, path: Path) -> None:
        """A file that is not open is read for the list that is in sight."""
        against = self.page == "against"
        self.tell(f"reading {clean(path.name, 200)}")
        read = threading.Thread(
            target=lambda: self.post_message(saved.opened(path, against)), name="opening", daemon=True
        )
        read.start()

    def on_runs_opened(self, message: RunsOpened) -> None:
        """Saved runs stand in front of the others from now on, of newer snapshots too."""
        self.opened = (*message.runs, *self.opened)
        self._fetched = (*self._fetched, message.path)
        self.tell("")  # it is no longer being read
        self._go(self._with(self.session.beside(message.runs), len(message.runs) - 1, message.against))

    # which columns

    def do_columns(self) -> None:
        if self.page == "columns":
            self.leave()
        elif self.page == "view" and self.main.shows_table:
            self.page = "columns"
            self.show_choice(0)

    def _toggle(self, row: int) -> None:
        self.session = self.session.looking(
            columns=columns.toggled(self._sheet, self.session.look.columns, row)
        )
        self.show_choice(row)

    # which rows are one

    def do_link(self) -> None:
        if self.page != "view" or self.session.view != "diff":
            self.tell("two marked rows of a diff are linked: d, m, m, M")
            return
        try:
            self._link()
        except CaptureError as e:
            self.tell(str(e))

    def _link(self) -> None:
        a, b = self.session.asked(self.view)
        marked, here = self.session.look.chosen, self.main.table.row
        pair: tuple[str, str]
        if not marked and here.get("match") == links.BY_HAND:
            pair = str(here["name_a"]), str(here["name_b"])
            keep, told = links.without(self.kept, a, b, *pair), "{} and {} are linked no longer"
            terms = links.without(self.session.look.terms.links, a, b, *pair)
        else:
            pair = links.meant(self._answer.parts["rows"], self._sheet.key, marked)
            new = links.linked(a, b, *pair)
            keep, told = (*self.kept, new), "{} and {} are the same from now on; M on their row undoes it"
            terms = (*self.session.look.terms.links, new)
        self.kept = keep
        self.become(self.session.looking(terms=replace(self.session.look.terms, links=terms), chosen=()))
        self.tell(told.format(*pair))
        kept_links.keep(keep)
