"""Python API: `tracetui.load(path)` returns a profile whose views are polars frames."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import polars as pl

from capture.load_runs import load_all, resolve_run_index
from capture.run import Run
from tracetui import sql
from tracetui.look import Look
from tracetui.samples import resolve_file
from tracetui.views import Answer, ask, list_view_names, load_view


def load(path: str | Path, *, run: str | None = None, merge: bool = False) -> "Profile":
    """Load the profile of a file or folder, or of `sample:NAME`.

    `run` selects by number from one or by name; `merge` combines the files of the ranks of one job into one
    run. Raise capture.errors.CaptureError for unreadable input.
    """
    return Profile(load_all([resolve_file(str(path))], merge=merge), run)


class Profile:
    """The runs of a file, one of them selected. Each view is a method that returns its rows:
    `profile.kernels()`, `profile.layers(phase="decode")`. Times are ns; arguments are fields of `Look`.
    """

    def __init__(self, runs: list[Run], which: str | None = None) -> None:
        self.runs = runs
        self.chosen = resolve_run_index(runs, which)

    @property
    def run(self) -> Run:
        """The selected run: `name`, `meta`, `log` and `events`."""
        return self.runs[self.chosen]

    @property
    def events(self) -> pl.DataFrame:
        """Every event of the selected run, in the columns of the schema."""
        return self.run.events

    def ask(self, name: str, **look: Any) -> Answer:
        """Return the answer of a view with its notes; raise UsageError if there is no such view."""
        view = load_view(name)
        runs = [self.run] if view.run_count == 1 else self.runs
        return ask(view, runs, Look(full_names=True, **look))

    def against(self, other: Self, name: str = "diff", **look: Any) -> Answer:
        """Return the answer of a view of two runs: what changed from this profile to the other."""
        return ask(load_view(name), [self.run, other.run], Look(full_names=True, **look))

    def sql(self, text: str) -> pl.DataFrame:
        """Run a SELECT on `events` and on the views, each a table of its name."""
        return sql.execute_query(self.runs, self.chosen, text)

    def __getattr__(self, name: str) -> Callable[..., pl.DataFrame]:
        view, names = "import" if name == "imported" else name, list_view_names()  # `import` is a keyword
        if name.startswith("__") or view not in names:
            raise AttributeError(f"a profile has no view {name!r}; there are {', '.join(names)}")
        return lambda **look: self.ask(view, **look).rows

    def __repr__(self) -> str:
        position = f"run {self.chosen + 1} of {len(self.runs)}"
        return f"<Profile {self.run.name!r}, {self.events.height:,} events, {position}>"
