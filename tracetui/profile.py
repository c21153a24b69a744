"""A profile as frames, for programs: `tracetui.load(path)`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import polars as pl

from capture.open import load_all
from capture.run import Run
from tracetui import sql
from tracetui.chosen import choose
from tracetui.look import Look
from tracetui.samples import resolved
from tracetui.views import VIEWS, Answer, ask, view


def load(path: str | Path, *, run: str | None = None, merge: bool = False) -> "Profile":
    """Return the profile of a file or folder, or of `sample:NAME`.

    `run` chooses by number from one or by name where there are several; `merge` makes the files of the ranks
    of one job one run. Raise capture.errors.CaptureError, a sentence, for what cannot be read.
    """
    return Profile(load_all([resolved(str(path))], merge=merge), run)


class Profile:
    """The runs of a file, one of them chosen. Each view of the screen is a method that returns its rows:
    `profile.kernels()`, `profile.layers(phase="decode")`. Times are ns; fields of `Look` are the arguments.
    """

    def __init__(self, runs: list[Run], which: str | None = None) -> None:
        self.runs = runs
        self.chosen = choose(runs, which)

    @property
    def run(self) -> Run:
        """The chosen run: `name`, `meta`, `log` and `events`."""
        return self.runs[self.chosen]

    @property
    def events(self) -> pl.DataFrame:
        """Every event of the chosen run, in the columns of the schema."""
        return self.run.events

    def ask(self, name: str, **look: Any) -> Answer:
        """Return the answer of a view with its notes; raise UsageError where there is no such view."""
        asked = view(name)
        runs = [self.run] if asked.runs == 1 else self.runs
        return ask(asked, runs, Look(full_names=True, **look))

    def against(self, other: Self, name: str = "diff", **look: Any) -> Answer:
        """Return the answer of a view of two runs: what changed from this one to the other."""
        return ask(view(name), [self.run, other.run], Look(full_names=True, **look))

    def sql(self, text: str) -> pl.DataFrame:
        """Return what a SELECT answers on `events` and on the views, each a table by its name."""
        return sql.query(self.runs, self.chosen, text)

    def __getattr__(self, name: str) -> Callable[..., pl.DataFrame]:
        if name not in VIEWS and name != "import":
            raise AttributeError(f"a profile has no view {name!r}; there are {', '.join(VIEWS)}")
        return lambda **look: self.ask("import" if name == "imported" else name, **look).rows

    def __repr__(self) -> str:
        place = f"run {self.chosen + 1} of {len(self.runs)}"
        return f"<Profile {self.run.name!r}, {self.events.height:,} events, {place}>"
