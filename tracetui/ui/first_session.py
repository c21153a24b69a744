"""How the screen begins: which run, which view, which look."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from msgspec import Struct

from tracetui.ui.options import Options
from tracetui.ui.session import Session
from tracetui.views import View, missing

PREFERRED: Final = ("summary", "kernels")


class Start(Struct, frozen=True):
    """A session to begin with, and what a person has to be told about it."""

    session: Session
    message: str = ""


def first_session(session: Session, views: Sequence[View], options: Options) -> Start:
    """Return the session on the run and the view that were asked for; else on the nearest, and why."""
    current, message = _find_run(session, options.run)
    baseline = _find_run(session, options.baseline)[0] if options.baseline else None
    if options.beside:
        current, baseline = len(session.runs) - 1, 0
    session = replace(session, current=current, baseline=baseline)
    return Start(replace(session, view=_find_view(session, views, options.view)), message)


def _find_run(session: Session, asked: str | None) -> tuple[int, str]:
    """Return the index of a run by its number or name, and a sentence where there is no such run."""
    if asked is None:
        return 0, ""
    if asked.isdecimal() and 1 <= int(asked) <= len(session.runs):
        return int(asked) - 1, ""
    exact = [i for i, r in enumerate(session.runs) if r.name == asked]
    matches = exact or [i for i, r in enumerate(session.runs) if asked.lower() in r.name.lower()]
    return (matches[0], "") if matches else (0, f"no run is called {asked!r}; r lists them")


def _find_view(session: Session, views: Sequence[View], asked: str) -> str:
    names = [v.name for v in views]
    if asked in names:
        return asked
    fed = [v.name for v in views if not missing(v, session.runs[session.current :][:1])]
    return next((n for n in (*PREFERRED, *fed) if n in fed), names[0])
